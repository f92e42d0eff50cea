"""The proof proves something: each engine that is broken on purpose is caught by the check that is named for it."""

import ast
from functools import partial
from pathlib import Path

import psycopg
import pytest
from hypothesis import Phase

from tests.proof import test_commits, test_crash_points, test_interleavings, test_stateful, test_with_real_steps
from tests.proof.test_commits import (
    office,  # noqa: F401 - fixtures
    oxigraph,  # noqa: F401
    oxigraph_url,  # noqa: F401
)
from tests.proof.twins import TWINS
from tests.proof.world import World

INVARIANTS = Path(__file__).resolve().parents[2] / "docs" / "invariants.md"
COMMITS = {
    "a load and recovery": partial(
        test_commits.test_a_load_s_rows_are_there_exactly_when_its_record_and_its_end_are, act="its commit"
    ),
    "two loads of a dataset": test_commits.test_loads_of_one_dataset_are_done_one_after_the_other_whoever_works,
    "two owners of a publication": test_commits.test_two_writers_of_one_entry_a_slow_owner_and_the_next_one,
    "a publication and cleanup": test_commits.test_two_writers_of_one_entry_a_publication_and_cleanup,
}


def check(world: World, name: str, request: pytest.FixtureRequest) -> None:
    """The check of that name, as it runs on the real engine; here it stops at the first violation."""
    if name in test_interleavings.PAIRS:
        test_interleavings.orders_of(world, name, most=400)
    elif name in test_crash_points.STORIES:
        test_crash_points.points_of(world, name)
    elif name in COMMITS:
        request.getfixturevalue("monkeypatch").setattr(test_commits, "MOST", 400)
        COMMITS[name](office=request.getfixturevalue("office"), figures={})
    else:
        # Without looking for the shortest way there.
        test_stateful.explore(world, {}, phases=[Phase.generate], report_multiple_bugs=False)


@pytest.mark.parametrize("name", TWINS)
def test_a_broken_twin_is_caught(world, figures, name, request, record_property):
    twin = TWINS[name]
    # A violation, or the schema's own refusal. Anything else (a connection that is gone) has caught nothing.
    refused = (AssertionError, psycopg.IntegrityError)
    with twin.installed(world.watch._connection), pytest.raises(refused) as caught:
        check(world, twin.caught_by, request)
    for engine in world.processes:  # its sessions end with it
        engine.db.close()
    said = " ".join(str(caught.value).split())
    record_property("caught by", f"{name:<45} {twin.caught_by:<38} {said[:100]}")
    assert twin.says in said
    figures["twins caught"] = 1


CHECKS = [
    f"{name}.py"
    for name in (
        *("watch", "world", "interleaving"),
        *("test_interleavings", "test_stateful", "test_crash_points", "test_with_real_steps", "test_commits"),
    )
]


def calls(tree: ast.AST, name: str) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == name]


def test_each_check_catches_a_twin_or_has_a_test_that_makes_it_fail():
    """One that nothing meets proves nothing: it is to be mended, or to go. Each has words of its own."""
    trees = [ast.parse((Path(__file__).parent / name).read_text()) for name in CHECKS]
    words = [ast.literal_eval(call.args[1]) for tree in trees for call in calls(tree, "require")]
    tests = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    tests = [test for test in tests if calls(test, "pytest.raises")]
    met = {twin.says for twin in TWINS.values()}
    met |= {node.value for test in tests for node in ast.walk(test) if isinstance(node, ast.Constant)}
    met |= {says for _, says, _ in test_with_real_steps.WRONG}
    assert set(words) - met == set()
    assert sorted(words) == sorted(set(words))


def test_the_docs_name_each_twin_and_each_invariant_has_one():
    rows = [
        f"| {twin.breaks} | {name} | {twin.caught_by.replace('_', ' ')} | {twin.says.rstrip(':')} |"
        for name, twin in TWINS.items()
    ]
    written = [line for line in INVARIANTS.read_text().splitlines() if line.startswith("| ")][1:]
    assert written == rows
    numbers = {part for twin in TWINS.values() for part in twin.breaks.split(", ")}
    assert {str(number) for number in range(1, 14)} <= numbers
