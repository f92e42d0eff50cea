"""The database that `leaseway demo refresh` makes for itself."""

import json
from importlib import resources
from types import SimpleNamespace

import psycopg
import pytest

from chalicelib.cli import refreshing
from chalicelib.cli.remote import Refused
from chalicelib.cli.yaml_files import read
from chalicelib.datasets.registry import add_connection, register_source
from chalicelib.pipelines.refresh import registry
from chalicelib.pipelines.refresh.manifest import Manifest


def test_the_demos_mart_is_made_once_and_found_the_next_time(admin_database_dsn, monkeypatch):
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        database, loader = f"{admin.info.dbname}_mart", f"{admin.info.dbname}_loader"
        monkeypatch.setattr(refreshing, "DATABASE", database)
        monkeypatch.setattr(refreshing, "TABLES", refreshing.TABLES.replace(refreshing.LOADER, loader))
        monkeypatch.setattr(refreshing, "LOADER", loader)
        try:
            for password in ("first", "second"):
                with psycopg.connect(refreshing._make_mart(admin_database_dsn, password)) as mart:
                    assert mart.execute("select count(*) from mart.flights").fetchone() == (0,)
                    assert mart.info.user == loader
        finally:
            admin.execute(f"drop database if exists {database}")
            admin.execute(f"drop role if exists {loader}")


def test_a_manifest_that_is_not_the_demos_stays_unless_its_operator_says_otherwise(database):
    with resources.as_file(resources.files(refreshing.__package__) / "mart.yaml") as file:
        content = read(file).content
    add_connection(database, "nyc", "LEASEWAY_SECRET_NYC")
    for connection in ("mart", refreshing.CONNECTION):
        add_connection(database, connection, "LEASEWAY_SECRET_MART")
    for source in ("flights", refreshing.SOURCE):
        register_source(database, source, "nyc", "nyc.flights", None)
    refreshing._spare_others(database)  # there is none yet

    registry.register(database, Manifest.parse(json.loads(json.dumps(content).replace("demo-mart", "mart"))))
    with pytest.raises(Refused, match="Version 1 of the manifest isn't the demo's"):
        refreshing._spare_others(database)

    registry.register(database, Manifest.parse(content))
    refreshing._spare_others(database)


def test_the_package_to_go_back_to_stays_where_somebody_has_named_one(database, monkeypatch):
    asked = []
    monkeypatch.setattr(refreshing, "_deployed", lambda stack: "cd" * 32)
    server = SimpleNamespace(ask=lambda *what, json: asked.append((*what, json)))
    refreshing._enable(database, server, None)
    assert asked == [("PUT", "/internal/refresh", {"rollback": "cd" * 32})]

    registry.enable(database, "ab" * 32)
    refreshing._enable(database, server, None)
    assert len(asked) == 1
