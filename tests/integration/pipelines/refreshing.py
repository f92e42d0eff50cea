"""A data team with a source, a target in a database of its own, and a manifest between them."""

from copy import deepcopy
from typing import Any
from uuid import UUID

import psycopg

from chalicelib import pipelines
from chalicelib.datasets import registry as datasets
from chalicelib.pipelines.refresh import registry
from chalicelib.pipelines.refresh.manifest import Manifest

CONTRACT: dict[str, Any] = {
    "name": "trees",
    "source": "trees",
    "target": {"connection": "mart", "table": "mart.trees"},
    "columns": [{"name": "id", "type": "integer"}, {"name": "species", "type": "text", "from": "name"}],
    "key": ["id"],
}
PACKAGE = "ab" * 32

TARGET = """
drop schema if exists mart cascade;
drop schema if exists leaseway cascade;
create schema mart;
create table mart.trees (id int primary key, species text, note text default 'ours');
create table mart.history (id int, what text);
create function mart.remember() returns trigger language plpgsql as $$
begin
    insert into mart.history values (coalesce(new.id, old.id), tg_op);
    return coalesce(new, old);
end $$;
create trigger remember after insert or update or delete on mart.trees for each row execute function mart.remember();
grant usage on schema mart to leaseway_app;
grant select, insert, update, delete on all tables in schema mart to leaseway_app;
create schema leaseway authorization leaseway_app;
"""


class Team:
    """Refreshes trees, and sees the target as its readers do."""

    def __init__(self, office: Any, admin: psycopg.Connection, secret: str):
        self.office = office
        self.secret = secret
        self.db = office.db
        self.engine = office.engine
        self.clock = office.clock
        self.admin = admin

    def register(self, *contracts: dict[str, Any]) -> int:
        """Register a manifest of these changes to the one contract."""
        made = [deepcopy(CONTRACT) | changes for changes in contracts or ({},)]
        return registry.register(self.db, Manifest.parse({"contracts": made}))[0]

    def refresh(self) -> UUID:
        return pipelines.start_refresh(self.engine).id

    def run(self, minutes: int = 0) -> Any:
        """Refresh to the end: the job, or the failure."""
        job = self.refresh()
        self.office.work()
        if minutes:
            self.office.run(minutes)
        return self.engine.status(job)

    def target(self, table: str = "mart.trees") -> list[tuple[Any, ...]]:
        return self.admin.execute(f"select id, species from {table} order by id").fetchall()

    def source(self) -> list[tuple[Any, ...]]:
        return self.admin.execute("select id, name from src.trees order by id").fetchall()

    def history(self) -> list[tuple[Any, ...]]:
        """What the target was told, row by row."""
        return self.admin.execute("select what, count(*) from mart.history group by what order by what").fetchall()

    def audits(self, job: UUID) -> dict[str, dict[str, Any]]:
        return {row["contract"]: row for row in registry.audits(self.db, job)}

    def staging(self) -> list[str]:
        """The staging tables that are there."""
        found = self.admin.execute("select relname from pg_class where relname like 'refresh\\_%' and relkind = 'r'")
        return [name for (name,) in found]


def assemble(office: Any, dsn: str, admin: psycopg.Connection, monkeypatch: Any) -> Team:
    """The target is made, the connection and a manifest are registered, refreshes are enabled."""
    from chalicelib.pipelines.refresh import removal, steps

    for module in (removal, steps):
        monkeypatch.setattr(
            module, "context", lambda: pipelines.Context(office.engine.settings, office.db, office.engine)
        )
    office.point(LEASEWAY_SECRET_MART=dsn)
    admin.execute(TARGET)
    datasets.add_connection(office.db, "mart", "LEASEWAY_SECRET_MART")
    registry.enable(office.db, PACKAGE)
    return Team(office, admin, dsn)
