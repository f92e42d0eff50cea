"""docs/state-machine.md says every state and transition with its statement; here it is held to the code."""

import re
from pathlib import Path

import pytest

from chalicelib.engine.model import REQUESTED
from chalicelib.pipelines import PIPELINES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "state-machine.md").read_text(encoding="utf-8")
CODE = ROOT / "chalicelib"

WRITES = re.compile(r"\b(?:insert\s+into|update|delete\s+from)\s+engine\.(?:job|failure)\b")
UPDATES = re.compile(
    r"\bupdate\s+engine\.job\b(?:\s+as\s+job)?\s+set\b(.*?)(?=\n\s*(?:from|where|returning)\b|\Z)", re.DOTALL
)
EFFECTS = {
    "inserts": re.compile(r"\binsert\s+into\s+engine\.job\s"),
    "deletes": re.compile(r"\bdelete\s+from\s+engine\.job\s"),
    "failure": re.compile(r"\binsert\s+into\s+engine\.failure\s"),
    "forgets": re.compile(r"\bdelete\s+from\s+engine\.failure\s"),
}
COLUMNS = {"state": "state", "finished_at": "finished", "claim_id": "claim", "held_back": "held"}
"""Columns whose change is a transition, and the word for it on the page."""

ARRIVALS = {
    "REQUESTED": re.compile(r"\binsert\s+into\s+engine\.job\s|\bstate\s*=\s*'REQUESTED'(?=,)"),
    "first step": re.compile(r"\bstate\s*=\s*case job\.state when 'REQUESTED' then %\(first_steps\)s"),
    "next step": re.compile(r"\bstate\s*=\s*%\(next_state\)s"),
    "done": re.compile(r"\bstate\s*=\s*%\(done\)s"),
    "FAILED": EFFECTS["failure"],
}

DEPARTURES = {
    "–": EFFECTS["inserts"],
    "REQUESTED": re.compile(r"\bcase job\.state when 'REQUESTED' then|\band held_back\b"),
    # Only a step has an owner; who claims what was handed over leaves it in its step.
    "a step": re.compile(r"\bclaim_id\s*=\s*%\(claim_id\)s|\boverdue\.claim_id is not null|\belse job\.state end"),
    "any": re.compile(r"\bwhere id = %\(job_id\)s\s+and (?:claim_id is null|locked_until <= engine\.clock\(\))"),
    "done": re.compile(r"\bwhere finished_at < "),
    "FAILED": EFFECTS["forgets"],
}


def without_comments(text: str) -> str:
    return re.sub(r"--[^\n]*", "", text)


def statements() -> dict[str, str]:
    return {file.stem: without_comments(file.read_text()) for file in (CODE / "engine" / "sql").glob("*.sql")}


def functions() -> dict[str, str]:
    """The functions of the schema as the last migration leaves them."""
    found = {}
    for file in sorted((CODE / "schema").glob("*.sql")):
        parts = re.split(r"\bcreate (?:or replace )?function (engine\.\w+)", without_comments(file.read_text()))
        for name, rest in zip(parts[1::2], parts[2::2], strict=True):
            found[name] = re.split(r"\bend;|\$\$;|\n\n(?:create|grant|alter|do)\b", rest)[0]
    return found


def effects(text: str) -> set[str]:
    """What a statement does to a job's row, in the page's words."""
    found = {word for word, pattern in EFFECTS.items() if pattern.search(text)}
    for assigned in UPDATES.findall(text):
        found |= {word for column, word in COLUMNS.items() if re.search(rf"\b{column}\s*=", assigned)}
    return found


def table(heading: str) -> list[list[str]]:
    """The rows of the table below a heading, cells without their ticks."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines]


TRANSITIONS = table("Transitions")
CODE_OF = statements() | functions()


def said_of(name: str) -> list[list[str]]:
    return [row for row in TRANSITIONS if row[3] == name]


def test_every_pipeline_of_the_code_is_on_the_page_with_its_states_and_no_other():
    said = {row[0]: row[1] for row in table("Pipelines")}
    assert said == {
        name: " → ".join([REQUESTED, *(step.state for step in pipeline.steps), pipeline.done])
        for name, pipeline in PIPELINES.items()
    }


def test_the_page_says_which_pipelines_hold_each_other_off():
    said = {row[0]: (row[2], row[3]) for row in table("Pipelines")}
    keys = {name: (pipeline.conflict_key or "–", pipeline.order_key or "–") for name, pipeline in PIPELINES.items()}
    assert said == keys


def test_the_page_says_what_stays_true_in_a_follow_up():
    said = {row[0]: row[4] for row in table("Pipelines")}
    assert said == {name: ", ".join(pipeline.stays_true) or "–" for name, pipeline in PIPELINES.items()}


@pytest.mark.parametrize("name", sorted(CODE_OF))
def test_what_a_statement_does_to_a_job_is_on_the_page_and_what_the_page_says_it_does(name):
    said = {word for row in said_of(name) for word in row[4].split(", ")}
    assert said == effects(CODE_OF[name]), name


@pytest.mark.parametrize("name", sorted(CODE_OF))
def test_where_a_statement_leads_is_on_the_page_and_where_the_page_says_it_leads(name):
    said = {row[1] for row in said_of(name)} & ARRIVALS.keys()
    assert said == {to for to, pattern in ARRIVALS.items() if pattern.search(CODE_OF[name])}, name


@pytest.mark.parametrize("name", sorted({row[3] for row in TRANSITIONS}))
def test_what_state_a_statement_leaves_is_on_the_page_and_the_page_says_no_other(name):
    said = {row[0] for row in said_of(name)}
    assert said == {state for state, pattern in DEPARTURES.items() if pattern.search(CODE_OF[name])}, name


def test_every_transition_of_the_page_has_a_statement_of_the_code():
    assert {row[3] for row in TRANSITIONS} <= CODE_OF.keys()


def test_what_every_end_does_stands_in_functions_and_the_page_says_who_calls_them():
    writing = {name for name, text in functions().items() if effects(text) or "engine.outbox" in text}
    said = {row[0]: set(row[1].split(", ")) for row in table("Functions of the schema")}
    assert said.keys() == writing
    for name, callers in said.items():
        assert callers == {caller for caller, text in CODE_OF.items() if f"{name}(" in text and caller != name}, name


def test_nobody_else_changes_a_job():
    own = (CODE / "schema", CODE / "engine" / "sql")
    others = [file for file in CODE.rglob("*.sql") if file.parent not in own]
    assert others
    for file in others:
        assert not WRITES.search(without_comments(file.read_text())), file
