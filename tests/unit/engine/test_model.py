"""What pipelines, failures and the engine's modules may and may not be."""

import ast
from pathlib import Path

import pytest
from pydantic import BaseModel

import chalicelib.engine
from chalicelib import codes
from chalicelib.engine import Outage, PermanentFailure, Pipeline, Step, TransientFailure
from tests.toy import Parcel

STEPS = [Step("PACK", "x:y"), Step("SHIP", "x:y")]


def test_a_pipeline_knows_what_follows():
    pipeline = Pipeline(name="p", subject=BaseModel, steps=STEPS, done="DONE")
    assert pipeline.step("SHIP") == STEPS[1]
    assert (pipeline.after("PACK"), pipeline.after("SHIP")) == ("SHIP", None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": []},
        {"steps": [*STEPS, STEPS[0]]},
        {"steps": [Step("REQUESTED", "x:y")]},
        {"done": "PACK"},
        {"coalesces": True},
        {"coalesces": True, "conflict_key": "x", "request": BaseModel},
        {"coalesces": True, "conflict_key": "x", "order_key": "y"},
        {"stays_true": ["insured"], "subject": Parcel},
        {"coalesces": True, "conflict_key": "x", "stays_true": ["insured", "sent"], "subject": Parcel},
        {"coalesces": True, "conflict_key": "x", "stays_true": ["name"], "subject": Parcel},
    ],
)
def test_a_pipeline_that_cannot_work_is_refused_where_it_is_declared(wrong):
    with pytest.raises(ValueError, match="pipeline p"):
        Pipeline(**{"name": "p", "subject": BaseModel, "steps": STEPS, "done": "DONE"} | wrong)


@pytest.mark.parametrize("detail", [object(), "\0", "\ud800", float("nan"), {1}])
def test_a_failure_that_cannot_be_stored_is_refused_where_it_is_raised(detail):
    with pytest.raises((ValueError, TypeError)):
        PermanentFailure("source_denied", relation=detail)


@pytest.mark.parametrize("kind", [PermanentFailure, TransientFailure, Outage])
def test_a_failure_takes_only_codes_and_details_of_the_registry(kind):
    assert kind("source_denied", relation="flights").details == {"relation": "flights"}
    with pytest.raises(ValueError, match="codes"):
        kind("permission denied for relation flights")
    with pytest.raises(ValueError, match="codes"):
        kind("source_denied", message="permission denied")


def test_the_engines_own_codes_are_in_the_registry():
    for code in ("attempts_exhausted", "deadline_exceeded", "cancelled", "unrecoverable", "internal_error"):
        assert code in codes.FAILURES


def test_T14_no_module_of_the_engine_asks_a_workers_clock_what_time_it_is():
    modules = list(Path(chalicelib.engine.__file__).parent.glob("*.py"))
    assert modules
    for file in modules:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("now", "utcnow", "today", "time_ns", "localtime", "gmtime"), file
                # time.monotonic and time.sleep measure; time.time tells.
                assert ast.unparse(node) != "time.time", file


@pytest.mark.parametrize(
    "file", sorted((Path(chalicelib.engine.__file__).parent / "sql").glob("*.sql")), ids=lambda f: f.stem
)
def test_every_statement_says_its_purpose_fence_and_index_and_asks_no_other_clock(file):
    text = file.read_text(encoding="utf-8")
    header = [line for line in text.splitlines() if line.startswith("-- ")]
    assert any(line.startswith("-- fence:  ") for line in header)
    assert any(line.startswith("-- index:  ") for line in header)
    for clock in ("now()", "clock_timestamp", "current_timestamp", "statement_timestamp", "localtimestamp"):
        assert clock not in text
