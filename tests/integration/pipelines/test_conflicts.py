"""T27 for workers: each write of a pipeline's own, and each COMMIT, goes wrong once, in each way; it is done once.

What the engine writes by itself is disturbed in tests/proof/test_crash_points.py, a refresh in
test_refresh_interrupted.py, what is asked for from outside in tests/integration/api/test_writes.py.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import psycopg
import pytest

from chalicelib import pipelines
from chalicelib.datasets import registry
from chalicelib.db import DatabaseAway
from tests.integration.pipelines import loading
from tests.writing import CONFLICTS, Fault, disturbing, modes, writing_statements

ENGINE = writing_statements("chalicelib.engine") - {"discard_job"}
"""Its other statements are the same for every pipeline."""

WRONG = (DatabaseAway, *map(psycopg.errors.lookup, CONFLICTS))


class Worker:
    """Works on one job after the other; one of its writes goes wrong."""

    def __init__(self, office: Any, fault: Fault):
        self.office = office
        self.fault = fault

    def act(self, act: Callable[[], object]) -> None:
        """One invocation."""
        self.fault.watching = True
        with suppress(*WRONG):
            act()
        self.fault.watching = False

    def end(self, job: UUID) -> Any:
        """Work, recover and clean up, until the job has ended and nothing is left to remove."""
        for _ in range(40):
            self.act(self.office.work)
            self.office.engine.recover()
            ended = self.office.engine.status(job).status not in ("queued", "running")
            if ended:
                self.act(self.office.clean_up)
                if not self.office.db.run("select 1 from engine.ledger where status = 'garbage'"):
                    return self.office.engine.status(job)
            self.office.clock.advance("16 min" if ended else "31 s")
        raise AssertionError("not quiet")

    def in_every_way(
        self,
        begin: Callable[[], UUID],
        check: Callable[[UUID, str], None],
        only: set[str] | None = None,
        *,
        crashes: bool = False,
    ) -> set[str]:
        """Disturb the pipeline's own writes, each once, and its COMMITs, or only some; the names of all.

        With ``crashes`` the server crashes at each write, the engine's, too, and what wasn't logged is empty.
        """
        self.fault.watch()
        self.fault.watching = False
        job = begin()
        self.end(job)
        check(job, "undisturbed")
        points = list(self.fault.points)
        names = [name for name, _ in points]
        own = [n for n, name in enumerate(names) if name == "commit" or (name not in ENGINE and names.index(name) == n)]
        wrong = [(n, mode) for n in own if not only or names[n] in only for mode in modes(n, points[n][1])]
        for number, mode in wrong + [(n, "crash") for n in range(len(points)) if crashes]:
            job = begin()
            self.fault.watch(number, mode)
            self.fault.watching = False
            self.end(job)
            check(job, f"{names[number]} ({number}), {mode}")
        return set(names)


@pytest.fixture
def worker(office: Any, monkeypatch: pytest.MonkeyPatch) -> Worker:
    office.define(formats=["csv"])
    return Worker(office, disturbing(monkeypatch))


def numbers(office: Any) -> list[int]:
    return [version["number"] for version in registry.versions(office.db, "trees") if not version["withdrawn_at"]]


def stored(office: Any) -> list[str]:
    versions = [registry.version(office.db, "trees", number) for number in numbers(office)]
    return sorted(file["key"] for version in versions for file in version["files"])


def test_T27_a_publication_makes_one_version(worker):
    office, made = worker.office, []

    def published(job, told):
        made.append(job)
        status = office.engine.status(job)
        assert (status.state, status.version) == ("PUBLISHED", len(made)), told
        assert numbers(office) == list(range(len(made), 0, -1)), told
        assert office.files() == stored(office), told

    names = worker.in_every_way(office.publish, published)

    assert {"add_version", "note_export", "take_slot", "release_slots"} <= names


def test_T27_a_publication_that_fails_leaves_nothing(worker):
    office = worker.office
    office.define(formats=["csv"], min_records=1_000)

    def failed(job, told):
        assert office.engine.failure(job).code == "too_few_records", told
        assert (office.files(), office.uploads()) == ([], []), told

    removing = {"delete_export", "discard_job"}
    assert removing <= worker.in_every_way(office.publish, failed, removing)


def test_T27_a_load_changes_each_row_once(worker):
    owner, made = loading.made(worker.office), []

    def load():
        made.append(len(made) + 1)
        content = f"id;Art;height;planted\n{len(made)};Ahorn;;\n".encode()
        return owner.load(upload=owner.upload(content), format="csv", delimiter=";")

    def loaded(job, told):
        assert worker.office.engine.failure(job) is None, told
        assert owner.done(job) == (1, 1, 0, 0), told
        assert [row[0] for row in owner.rows()] == made, told
        assert worker.office.files() == [], told

    assert {"record_load", "delete_upload"} <= worker.in_every_way(load, loaded, crashes=True)


def test_T27_a_withdrawal_takes_one_version_back(worker):
    office = worker.office

    def publish():
        job = office.publish()
        office.run(3)
        assert office.engine.status(job).status == "succeeded"

    def withdraw():
        publish()
        return pipelines.withdraw(office.engine, "trees", numbers(office)[1]).id

    def withdrawn(job, told):
        assert office.engine.status(job).state == "WITHDRAWN", told
        assert len(numbers(office)) == 1, told
        assert office.files() == stored(office), told

    publish()
    assert {"withdraw_version", "correct_version", "discard_job"} <= worker.in_every_way(withdraw, withdrawn)
