"""A manifest is read strictly: every fault at once, each with its field and what would be right."""

from copy import deepcopy
from typing import Any

import pytest

from chalicelib.datasets import Invalid
from chalicelib.pipelines.refresh.manifest import Manifest

CONTRACT: dict[str, Any] = {
    "name": "flights",
    "source": "flights",
    "target": {"connection": "mart", "table": "mart.flights"},
    "columns": [
        {"name": "id", "type": "integer"},
        {"name": "seen", "type": "date"},
        {"name": "facts", "type": "json"},
        {"name": "names", "type": "text[]"},
        {"name": "more", "type": "json[]"},
    ],
    "key": ["id"],
}


def parse(*contracts: dict[str, Any]) -> Manifest:
    return Manifest.parse({"contracts": [deepcopy(CONTRACT) | changes for changes in contracts or ({},)]})


def faults(*contracts: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(Invalid) as refused:
        parse(*contracts)
    return {fault[0]: fault[1] for fault in refused.value.faults}


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "target": {"connection": "mart", "table": f"mart.{name}"}, **more}


def test_its_canonical_content_is_the_same_manifest_again():
    made = parse({"checks": {"freshness": {"column": "seen", "max_age": "1 days"}}})
    again = Manifest.parse(made.as_json())
    assert (again, again.etag) == (made, made.etag)
    assert made.contracts[0].checks.freshness.max_age == "1 day"
    assert made.contracts[0].checks.freshness.at_most.days == 1


def test_a_century_is_an_age_that_a_record_may_have():
    made = parse({"checks": {"freshness": {"column": "seen", "max_age": "36500 days"}}})
    assert made.contracts[0].checks.freshness.at_most.days == 36_500


def test_what_differs_has_another_hash():
    assert parse({"chunk_rows": 10}).etag != parse().etag


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"name": "Flights"}, "contracts[0].name", "must be 1 to 63"),
        ({"source": "a b"}, "contracts[0].source", "name of a registered source"),
        ({"target": {"connection": "mart"}}, "contracts[0].target.table", "is missing: schema.table"),
        ({"target": {"connection": "mart", "table": "flights"}}, "contracts[0].target.table", "must be schema.table"),
        ({"target": {"connection": "m", "table": "leaseway.x"}}, "contracts[0].target.table", "schema leaseway"),
        ({"mode": "append"}, "contracts[0].mode", "must be one of replace, merge"),
        ({"key": []}, "contracts[0].key", "needs at least 1"),
        ({"key": ["id", "id"]}, "contracts[0].key", "id more than once"),
        ({"key": ["nr"]}, "contracts[0].key", "nr, which isn't among the columns"),
        ({"key": ["facts"]}, "contracts[0].key", "json and arrays can't be compared; take another column"),
        ({"key": ["names"]}, "contracts[0].key", "can't hold names"),
        ({"columns": [{"name": "id", "type": "geometry"}]}, "contracts[0].columns[0].type", "leave the column out"),
        (
            {"columns": [{"name": "id", "type": "geometry[]"}]},
            "contracts[0].columns[0].type",
            "one of text, boolean, integer, decimal, double, date, time, timestamp, timestamptz, interval, uuid, json,"
            " binary, or an array of one, e.g. text[]",
        ),
        (
            {"columns": [{"name": "id"}]},
            "contracts[0].columns[0].type",
            "json, binary, or an array of one, e.g. text[]",
        ),
        ({"columns": [{"name": "id", "type": "integer"}] * 2}, "contracts[0].columns", "id more than once"),
        ({"columns": [{"name": "leaseway_row", "type": "text"}]}, "contracts[0].columns[0].name", "another name"),
        ({"columns": [{"name": "leaseway_key", "type": "text"}]}, "contracts[0].columns[0].name", "another name"),
        ({"columns": [{"name": "id", "tipe": "integer"}]}, "contracts[0].columns[0].tipe", "did you mean type?"),
        ({"chunk_rows": 0}, "contracts[0].chunk_rows", "can't be less than 1"),
        ({"check": {}}, "contracts[0].check", "did you mean checks?"),
        ({"checks": {"min_row": 1}}, "contracts[0].checks.min_row", "did you mean min_rows?"),
        ({"checks": {"min_rows": 5, "max_rows": 4}}, "contracts[0].checks.max_rows", "is less than min_rows, 5"),
        ({"checks": {"max_drop": 2.0}}, "contracts[0].checks.max_drop", "can't be more than 1"),
        ({"checks": {"not_null": ["nr"]}}, "contracts[0].checks", "nr, which isn't among the columns"),
        ({"checks": {"unique": [["facts"]]}}, "contracts[0].checks", "json can't be compared"),
        ({"checks": {"unique": [["names"], ["more"]]}}, "contracts[0].checks", "can't have more unique"),
        ({"checks": {"accepted_values": {"nr": ["a"]}}}, "contracts[0].checks", "nr, which isn't among"),
        ({"checks": {"freshness": {"column": "id", "max_age": "1 day"}}}, "contracts[0].checks", "id is integer"),
        (
            {"checks": {"freshness": {"column": "seen", "max_age": "soon"}}},
            "contracts[0].checks.freshness.max_age",
            "such as 36 hours",
        ),
        (
            {"checks": {"freshness": {"column": "seen", "max_age": "36501 days"}}},
            "contracts[0].checks.freshness.max_age",
            "can't be more than 100 years",
        ),
        (
            {"checks": {"freshness": {"column": "seen", "max_age": "999999 days"}}},
            "contracts[0].checks.freshness.max_age",
            "can't be more than 100 years",
        ),
        (
            {"checks": {"accepted_values": {"names": ["a", "\0"]}}},
            "contracts[0].checks.accepted_values.names[1]",
            "the character U+0000, which no target can hold; take it out",
        ),
        (
            {"checks": {"accepted_values": {"names": ["half \ud800"]}}},
            "contracts[0].checks.accepted_values.names[0]",
            "the character U+D800",
        ),
        (
            {"checks": {"accepted_values": {"\ud800": ["a"]}}},
            "contracts[0].checks.accepted_values.\ufffd\ufffd\ufffd",
            "the character U+D800",
        ),
        ({"depends_on": ["roads"]}, "contracts[0].depends_on", "names roads, which isn't a contract here"),
        ({"depends_on": ["flights"]}, "contracts[0].depends_on", "in a circle: flights -> flights"),
    ],
)
def test_a_fault_names_its_field_and_what_is_right(change, field, said):
    found = faults(change)
    assert said in found.get(field, ""), found


def test_all_faults_are_told_at_once():
    assert len(faults({"name": "?", "key": []}, {"mode": "x", "unknown": 1, "target": 1})) == 5


def test_what_is_wrong_between_contracts_is_told_beside_what_is_wrong_in_them():
    found = faults(
        {"mode": "x", "depends_on": ["roads", "others"]}, {"name": "others", "depends_on": ["flights"], "key": []}
    )
    assert found.keys() == {
        "contracts[0].mode",
        "contracts[0].depends_on",
        "contracts[1].key",
        "contracts[1].target",
    }
    assert "circle" in found["contracts[0].depends_on"]


@pytest.mark.parametrize("content", [None, [], {"contracts": 1}, {"contracts": [1, {"name": 1, "target": []}]}])
def test_what_is_no_manifest_at_all_is_refused_like_any_other(content):
    with pytest.raises(Invalid):
        Manifest.parse(content)


def test_nothing_in_it_is_no_manifest():
    with pytest.raises(Invalid) as refused:
        Manifest.parse({})
    assert refused.value.faults[0][1].startswith("is missing: what is refreshed")


def test_one_name_and_one_target_each():
    assert "is that of contracts[0], too" in faults({}, {})["contracts[1].name"]
    assert "is that of contracts[0], too" in faults({}, {"name": "others"})["contracts[1].target"]


def test_a_circle_is_named_whole():
    said = faults(named("a", depends_on=["c"]), named("b", depends_on=["a"]), named("c", depends_on=["b"]))
    [said] = [detail for field, detail in said.items() if field.endswith("depends_on")]
    assert "circle" in said
    assert {"a", "b", "c"} <= set(said.replace(";", "").split())


def test_each_contract_comes_after_those_it_depends_on():
    made = parse(named("a", depends_on=["c"]), named("b"), named("c", depends_on=["b"]))
    assert [contract.name for contract in made.in_order()] == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("change", "before", "least", "kept"),
    [
        ({}, None, 1, 0),
        ({}, 100, 1, 50),
        ({"mode": "merge"}, 100, 0, 0),
        ({"mode": "merge", "checks": {"max_drop": 0.5}}, 3, 0, 2),
        ({"checks": {"min_rows": 0, "max_drop": 0.7}}, 10, 0, 3),
    ],
)
def test_how_few_records_may_come(change, before, least, kept):
    [contract] = parse(change).contracts
    assert (contract.least, contract.least_after(before)) == (least, kept)
