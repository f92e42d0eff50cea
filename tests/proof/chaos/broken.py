"""Products that are broken on purpose, packaged and deployed as the real one is: the history must tell on them."""

import shutil
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

ENGINE = "chalicelib/engine/sql"
FENCE = "   and claim_id = %(claim_id)s\n"
COSTLY = "        return _again(leased, outage.code, outage.details)\n"
REFRESH = "chalicelib/pipelines/refresh"
HELD, ANYBODY = "            with self._holding() as tx:\n", "self._db.transaction"
CAUGHT = """\
            with snapshot(relation) as records:
                self._db.run("update engine.ledger set status = status where false")
"""
SCHEMA = "chalicelib/schema/0001_engine.sql"


@dataclass(frozen=True)
class Broken:
    """What is changed, and the check of ``history.py`` that must see it."""

    caught_by: str
    files: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """File of the package to what stands there, and what is put in its place."""
    function: tuple[str, str, str] | None = None
    """A function of the schema, and the same."""


BROKEN = {
    "workers without a fence": Broken(
        "doubled_versions",
        {f"{ENGINE}/{name}.sql": [(FENCE, "")] for name in ("extend_lease", "note_in_ledger", "hold_job")}
        | {f"{ENGINE}/finish_job.sql": [(FENCE, "")]},
    ),
    "graphs without a fence": Broken(
        "mixed_graphs",
        {
            "chalicelib/catalog/store.py": [
                ("FILTER (?held >= {number})", "FILTER (?held = {number})"),
            ]
        },
    ),
    "outages that cost an attempt": Broken(
        "spent_attempts",
        {
            "chalicelib/engine/worker.py": [
                ("        leased.sit_out(outage.code, outage.details)\n        return Outcome.WAITING\n", COSTLY),
            ]
        },
    ),
    "refreshes without a fence": Broken(
        "doubled_refreshes",
        {
            f"{REFRESH}/sql/hold_fence.sql": [("   and fence operator(pg_catalog.=) %(fence)s\n", "")],
            f"{REFRESH}/steps.py": [
                ("        self._job.heartbeat(records=self._records)\n        if", "        if"),
                (
                    f"            self._job.require(settings.store_timeout)\n{HELD}",
                    HELD.replace("self._holding", ANYBODY),
                ),
                # The one place in which the chaos catches refreshes comes when their source has been read.
                ('self._job.note("refresh_staging", {"connection": connection["name"], "table": staging})', "pass"),
                ("            with snapshot(relation) as records:\n", CAUGHT),
            ],
        },
    ),
    "what lost claims wrote is kept": Broken(
        "wrong_files",
        function=("ended", "keep is not null and (id = any (keep) or kept_by <> past.state)", "keep is not null"),
    ),
}


def broken_package(folder: Path, into: Path, broken: Broken) -> Path:
    """A copy of a package, broken; the compiled form of what is changed is left out."""
    shutil.copytree(folder, into)
    left_out = {f"{Path(name).parent}/__pycache__/{Path(name).stem}.cpython-313.pyc" for name in broken.files}
    with (
        zipfile.ZipFile(folder / "deployment.zip") as whole,
        zipfile.ZipFile(into / "deployment.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made,
    ):
        for entry in whole.infolist():
            if entry.filename not in left_out:
                content = whole.read(entry).decode("latin-1")
                for old, new in broken.files.get(entry.filename, []):
                    content = replaced(entry.filename, content, old, new)
                made.writestr(entry, content.encode("latin-1"))
    return into


def broken_function(broken: Broken) -> str:
    """The statement that puts the broken function in the place of the real one."""
    if broken.function is None:
        return ""
    name, old, new = broken.function
    text = Path(SCHEMA).read_text().split(f"create function engine.{name}(")[1].split("\nend;")[0]
    return replaced(name, f"create or replace function engine.{name}({text}\nend", old, new)


def replaced(what: str, text: str, old: str, new: str) -> str:
    assert old in text, f"{what} has no {old!r} any more: the twin is to be written anew"
    return text.replace(old, new)
