"""`leaseway demo refresh`, as a reader runs it: two tables of another database, made twice."""

import json
import re

import psycopg
from psycopg.conninfo import make_conninfo

from localstack.stack import Stack

from .conftest import Run

RECORDS = 336_776


def test_the_demo_refreshes_a_data_mart_twice_and_the_second_time_changes_nothing(stack: Stack, run: Run) -> None:
    told = run("demo", "refresh")

    first, second = [
        [re.split(r"\s{2,}", line.strip()) for line in part.splitlines() if line.startswith(("flights ", "airlines "))]
        for part in told.split("POST ")[1:]
    ]
    assert [row[:5] for row in second] == [
        ["flights", "mart.flights", "refreshed", f"{RECORDS:,}", "0"],
        ["airlines", "mart.airlines", "refreshed", "16", "0"],
    ]
    assert [row[2] for row in first] == ["refreshed", "refreshed"]
    with psycopg.connect(make_conninfo(stack.environment()["DATABASE_URL"], dbname="demo_mart")) as mart:
        assert mart.execute("select count(*), count(distinct origin) from mart.flights").fetchone() == (RECORDS, 3)
        assert mart.execute("select sum(flights) from mart.airlines").fetchone() == (RECORDS,)
        assert mart.execute("select count(*) from pg_class where relname like 'refresh%'").fetchone() == (0,)
    assert "mart.flights" in run("refresh", "status")
    newest = json.loads(run("refresh", "history", "--limit", "2", "--json"))
    assert [refresh["status"] for refresh in newest] == ["succeeded", "succeeded"]
