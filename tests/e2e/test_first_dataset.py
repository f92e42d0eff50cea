"""docs/first-dataset.md, as somebody follows it: every command and every file of that page, in their order."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from localstack.stack import Stack

from .conftest import ROOT

PAGE = (ROOT / "docs" / "first-dataset.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(sh|sql|yaml)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
ADDRESS = "postgresql://leaseway_reader:choose-one@127.0.0.1/warehouse"
TABLES = """
create table trees (id int primary key, species text, planted date, height numeric);
insert into trees select n, 'Tilia cordata', date '1990-01-01' + n, n / 10.0 from generate_series(1, 500) n;
create table lamps (id int primary key, street text, watts int, private boolean not null);
insert into lamps select n, 'Example Street', nullif(n, 7), n > 90 from generate_series(1, 100) n;
"""


def script(home: Path, address: str) -> str:
    """The page as one script; files are written where they stand, above the columns where `init` has begun them."""
    parts = ["set -euo pipefail"]
    for kind, block in BLOCKS:
        text = block.replace("~/", f"{home}/").replace(ADDRESS, address)
        if kind == "sh":
            parts.append(text)
        elif kind == "yaml":
            name, _, content = text.removeprefix("# ").partition("\n")
            parts.append(f"columns=$(sed -n '/^columns:/,$p' {name} 2> /dev/null || true)")
            parts.append(f"cat > {name} <<'YAML'\n{content}YAML\necho \"$columns\" >> {name}")
    return "\n".join(parts)


@pytest.fixture
def warehouse(stack: Stack) -> Iterator[str]:
    """The office's own database, with what the page has its administrator do; the reader's address of it."""
    stack.start()
    admin_dsn = stack.environment()["DATABASE_URL"]

    def clear(admin: psycopg.Connection) -> None:
        admin.execute("drop database if exists warehouse with (force)")
        admin.execute("drop role if exists leaseway_reader")

    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        clear(admin)
        admin.execute("create database warehouse")
        with psycopg.connect(make_conninfo(admin_dsn, dbname="warehouse"), autocommit=True) as office:
            office.execute(TABLES)
            for kind, block in BLOCKS:
                if kind == "sql":
                    office.execute(block.encode())
        yield ADDRESS.replace("127.0.0.1", f"127.0.0.1:{admin.info.port}")
        clear(admin)


def test_who_follows_the_page_has_two_scheduled_datasets_in_the_catalogue(
    stack: Stack, warehouse: str, environment: dict[str, str], http: httpx.Client, tmp_path: Path
) -> None:
    ran = subprocess.run(
        ["bash", "-c", script(tmp_path, warehouse)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"

    told = ran.stdout
    assert "Nothing to mend" in told
    assert told.count("Published version") == 3
    assert "every day at 02:15 Europe/Berlin" in told
    catalog = http.get("/catalog.ttl").text
    assert "Offene Daten von Beispiel" in catalog
    for dataset, records, columns in (("trees", 500, "id,species,planted,height"), ("lamps", 90, "id,street,watts")):
        assert f"{stack.url}/datasets/{dataset}" in catalog
        lines = http.get(f"/datasets/{dataset}/files/{dataset}.csv").text.splitlines()
        assert (lines[0], len(lines) - 1) == (columns, records)
    assert http.get("/datasets/benches/files/benches.csv").text.split() == [
        "nr,Straße,Höhe",
        "1,Bäckerstraße,0.45",
        "2,Lindenallee,0.50",
    ]
