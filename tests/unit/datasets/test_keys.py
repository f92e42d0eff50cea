"""The key of a definition, and what its columns make of a store."""

from typing import Any

import pytest

from chalicelib.datasets import Invalid
from chalicelib.datasets.definition import Definition
from chalicelib.datasets.store import StoreColumn, store_columns, store_key

DEFINITION: dict[str, Any] = {
    "title": {"en": "Trees"},
    "description": {"en": "Every tree of the city."},
    "keywords": {"en": ["trees"]},
    "languages": ["en"],
    "publisher": {"name": {"en": "Office"}, "iri": "https://office.example.org/id"},
    "contact": {"name": {"en": "Open data desk"}, "email": "opendata@example.org"},
    "themes": ["ENVI"],
    "licence": "CC0",
    "source": "trees",
    "columns": [{"name": "id", "type": "integer"}],
}
COLUMNS: list[dict[str, Any]] = [
    {"name": "id", "type": "integer", "from": "Nr"},
    {"name": "name", "type": "text", "required": True},
    {"name": "note", "type": "text", "required": False},
    {"name": "size", "type": "double"},
]


def parse(**changes: Any) -> Definition:
    return Definition.parse(DEFINITION | {"columns": COLUMNS, "key": ["id"]} | changes)


def test_a_store_has_the_names_of_the_source_and_its_key_is_required() -> None:
    definition = parse()

    assert store_key(definition) == ["Nr"]
    assert store_columns(definition) == [
        StoreColumn("Nr", "integer", True),
        StoreColumn("name", "text", True),
        StoreColumn("note", "text", False),
        StoreColumn("size", "double", False),
    ]


def test_without_a_key_nothing_changes_and_the_canonical_form_is_what_it_was() -> None:
    definition = Definition.parse(DEFINITION)

    assert store_key(definition) == []
    assert "key" not in definition.as_json()
    assert "required" not in str(definition.as_json())
    assert parse().as_json()["columns"][1]["required"] is True
    assert "required" not in parse().as_json()["columns"][2]
    assert parse(key=["id", "id"]).key == ["id"]
    assert Definition.parse(parse().as_json()) == parse()


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"key": []}, "key", "needs at least 1"),
        ({"key": ["nam"]}, "key", "names 'nam', which is none of the columns; did you mean name?"),
        ({"key": ["xyz"]}, "key", "take it out"),
        ({"key": ["Nr"]}, "key", "none of the columns"),
        ({"key": ["size"]}, "key", "whether two values of double are the same, nobody can say"),
        ({"key": "id"}, "key", "must be a list"),
        (
            {"columns": [*COLUMNS, {"name": "again", "type": "text", "from": "Nr"}]},
            "key",
            "where Nr would stand more than once",
        ),
        ({"columns": [*COLUMNS, {"name": "xmin", "type": "integer"}]}, "key", "xmin is a name of PostgreSQL's own"),
        ({"columns": [{"name": "id", "type": "integer", "required": "yes"}]}, "columns[0].required", "true or false"),
    ],
)
def test_a_key_that_makes_no_store_is_named(changes: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(Invalid) as invalid:
        parse(**changes)
    [fault] = [fault for fault in invalid.value.faults if fault.field == field]
    assert said in fault.detail


def test_the_columns_faults_are_told_alone() -> None:
    with pytest.raises(Invalid) as invalid:
        parse(columns=[{"name": "id", "type": "number"}])
    assert [fault.field for fault in invalid.value.faults] == ["columns[0].type"]
