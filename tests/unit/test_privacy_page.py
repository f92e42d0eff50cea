"""docs/privacy.md names every table that there is, and none that isn't there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_names_every_table_of_the_schema_and_no_other() -> None:
    schema = "\n".join(file.read_text() for file in (ROOT / "chalicelib" / "schema").glob("*.sql"))
    tables = set(re.findall(r"^create (?:unlogged )?table (\w+\.\w+)", schema, re.MULTILINE))
    schemas = "|".join(sorted({table.partition(".")[0] for table in tables}))

    page = (ROOT / "docs" / "privacy.md").read_text()
    columns = {"engine.job.request"}
    named = set(re.findall(rf"`((?:{schemas})\.[\w.]+)`", page)) - columns

    assert len(tables) > 20
    assert named == tables
