"""The database that `leaseway demo refresh` makes for itself."""

import psycopg

from chalicelib.cli import refreshing


def test_the_demos_mart_is_made_once_and_found_the_next_time(admin_database_dsn, monkeypatch):
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        database, loader = f"{admin.info.dbname}_mart", f"{admin.info.dbname}_loader"
        monkeypatch.setattr(refreshing, "DATABASE", database)
        monkeypatch.setattr(refreshing, "LOADER", loader)
        monkeypatch.setattr(refreshing, "TABLES", refreshing.TABLES.replace("mart_loader", loader))
        try:
            for password in ("first", "second"):
                with psycopg.connect(refreshing._make_mart(admin_database_dsn, password)) as mart:
                    assert mart.execute("select count(*) from mart.flights").fetchone() == (0,)
                    assert mart.info.user == loader
        finally:
            admin.execute(f"drop database if exists {database}")
            admin.execute(f"drop role if exists {loader}")
