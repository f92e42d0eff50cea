"""Runs tests on mutants, as a pytest plugin: tests are collected once, and each mutant meets its own in a fork.

A fork has nothing to start: no interpreter, no collection, no migration; what a mutant breaks, or leaves hanging, ends
with it. Two databases serve one fork after the other, for the tests empty them; a mutant of the schema has its own.
"""

import hashlib
import json
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from _pytest.runner import runtestprotocol
from psycopg.conninfo import make_conninfo

from chalicelib.db import Transaction, migrate
from chalicelib.engine.lease import sql
from tests.conftest import PUBLIC_URL, TEST_CLOCK, _database

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / ".leaseway" / "mutants.json"
"""Which tests run which statement, and in how many seconds; by file, for a file that has changed is recorded anew."""

LONGEST = 60
"""Seconds after which a test counts as hanging, and so as failed."""


@dataclass
class Fork:
    """A process that runs some tests, and tells which one it is at."""

    pid: int
    pipe: int
    mutant: Any
    told: str = ""

    def verdict(self) -> tuple[str | None, bool]:
        """The test that failed, none where all pass; and whether it had to be killed."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        code = os.waitstatus_to_exitcode(status)
        return self.told.split("\n")[-2] if code else None, code < 0


@dataclass(eq=False)
class Mutants:
    """The plugin: `found` is which test noticed which mutant."""

    dsn: str
    wanted: list[Any]
    noticed: dict[str, str]
    found: dict[str, str]
    jobs: int
    seconds: int
    save: Callable[[], None]
    items: dict[str, pytest.Item] = field(default_factory=dict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        with ExitStack() as stack:
            self.bare = stack.enter_context(_database(self.dsn))
            migrate(make_conninfo(self.dsn, dbname=self.bare), PUBLIC_URL)
            self.template = stack.enter_context(_database(self.dsn, self.bare))
            with psycopg.connect(make_conninfo(self.dsn, dbname=self.template)) as connection:
                connection.execute(TEST_CLOCK)
            last = {mutant.name: self.noticed[mutant.name] for mutant in self.wanted if mutant.name in self.noticed}
            last = {name: test for name, test in last.items() if test in self.items}
            self.must_pass(sorted(set(last.values())))
            self.meet({mutant.name: [last[mutant.name]] for mutant in self.wanted if mutant.name in last})
            if left := [mutant for mutant in self.wanted if mutant.name not in self.found]:
                record = self.recorded()
                self.meet({mutant.name: self.candidates(mutant, record) for mutant in left}, tell=True)
        return True

    def candidates(self, mutant: Any, record: dict[str, tuple[float, list[str]]]) -> list[str]:
        """The tests that may notice a mutant, as far as the time goes; first what is quick and runs little else."""
        chosen, left = [], float(self.seconds)
        for test, (seconds, statements) in sorted(record.items(), key=lambda each: each[1][0] * len(each[1][1])):
            if mutant.met_by(test, statements):
                left -= seconds
                if left < 0:
                    break
                chosen.append(test)
        return chosen

    def must_pass(self, tests: list[str], recording: Any = None) -> None:
        """What fails without a mutant notices none."""
        with self.databases() as names:
            fork = self.fork(None, tests, names, recording)
            for _ in self.wait([fork]):
                if failed := fork.verdict()[0]:
                    pytest.exit(f"{failed} fails without any mutant", 1)

    def recorded(self) -> dict[str, tuple[float, list[str]]]:
        """Test to its seconds and the statements it runs."""
        known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        files = sorted({test.split("::")[0] for test in self.items})
        for file in files:
            sha256 = hashlib.sha256((ROOT / file).read_bytes()).hexdigest()
            if known.get(file, {}).get("sha256") == sha256:
                continue
            print(f"{file} is asked which statements its tests run", flush=True)
            known[file] = {"sha256": sha256, "tests": {}}
            self.must_pass([test for test in self.items if test.split("::")[0] == file], recording=known)
            known = json.loads(RECORD.read_text())
        return {test: tuple(each) for file in files for test, each in known[file]["tests"].items()}

    def meet(self, tests: dict[str, list[str]], *, tell: bool = False) -> None:
        """Each mutant meets its tests, some mutants at a time."""
        waiting = [mutant for mutant in self.wanted if tests.get(mutant.name)]
        number = len(waiting)
        with ExitStack() as stack:
            free = [stack.enter_context(self.databases()) for _ in range(self.jobs)]
            running: dict[int, tuple[Fork, tuple[str, str], ExitStack]] = {}
            count = 0
            while waiting or running:
                while waiting and free:
                    mutant, own, names = waiting.pop(0), ExitStack(), free.pop()
                    used = own.enter_context(self.databases(mutant.text)) if mutant.schema else self.as_new(names)
                    fork = self.fork(mutant, tests[mutant.name], used)
                    running[fork.pid] = fork, names, own
                for fork in self.wait([fork for fork, _, _ in running.values()]):
                    _, names, own = running.pop(fork.pid)
                    count += 1
                    test, killed = fork.verdict()
                    if test:
                        self.found[fork.mutant.name] = test
                        self.save()
                    if killed:  # whatever it was at is half done
                        names = stack.enter_context(self.databases())
                    if tell:
                        said = f"noticed by {test}" if test else f"not noticed by {len(tests[fork.mutant.name])} tests"
                        print(f"{count}/{number} {fork.mutant.name}: {said}", flush=True)
                    own.close()
                    free.append(names)

    def wait(self, forks: list[Fork]) -> Iterator[Fork]:
        """Listen until one of them, or more, have ended."""
        with selectors.DefaultSelector() as selector:
            for fork in forks:
                selector.register(fork.pipe, selectors.EVENT_READ, fork)
            ended = False
            while not ended:
                for key, _ in selector.select():
                    if heard := os.read(key.fd, 65536):
                        key.data.told += heard.decode()
                    else:
                        ended = True
                        yield key.data

    @contextmanager
    def databases(self, change: str = "") -> Iterator[tuple[str, str]]:
        """One for the tests that empty theirs, one for the proof's world."""
        with _database(self.dsn, self.template) as one, _database(self.dsn, self.template) as other:
            for name in (one, other) if change else ():
                with psycopg.connect(make_conninfo(self.dsn, dbname=name)) as connection:
                    connection.execute(change)
            yield one, other

    def as_new(self, names: tuple[str, str]) -> tuple[str, str]:
        """What emptying a database leaves."""
        for name in names:
            with psycopg.connect(make_conninfo(self.dsn, dbname=name)) as connection:
                connection.execute("select setval(seqrelid, 1, false) from pg_sequence")
        return names

    def fork(self, mutant: Any, tests: list[str], names: tuple[str, str], recording: Any = None) -> Fork:
        """Run these in a process of its own until one fails."""
        reading, writing = os.pipe()
        if pid := os.fork():
            os.close(writing)
            return Fork(pid, reading, mutant)
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self.console = os.dup(2)
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(1, 2)
            self.names, self.changed = names, mutant is not None
            if mutant and not mutant.schema:
                assert getattr(sql, mutant.of)
                sql._texts[mutant.of] = mutant.text
            failed = any(self.fails(test, tests, writing, recording) for test in tests)
            if not failed and recording:
                RECORD.write_text(json.dumps(recording))
            os._exit(int(failed))
        finally:
            os._exit(2)

    def fails(self, test: str, tests: list[str], told: int, recording: Any) -> bool:
        """Whether a test fails; in the fork."""
        os.write(told, f"{test}\n".encode())
        signal.alarm(LONGEST)
        position = tests.index(test) + 1
        following = tests[position] if position < len(tests) else next(other for other in self.items if other != test)
        texts: set[str] = set()
        run = Transaction.run

        def noting(self: Transaction, text: str, /, **params: object) -> list[dict[str, object]]:
            texts.add(text)
            return run(self, text, **params)

        began = time.monotonic()
        if recording is not None:
            Transaction.run = noting
        reports = runtestprotocol(self.items[test], log=False, nextitem=self.items[following])
        if recording is not None:
            Transaction.run = run
            ran = [name for name, text in sql._texts.items() if any(text in run for run in texts)]  # or explained it
            recording[test.split("::")[0]]["tests"][test] = time.monotonic() - began, ran
        failed = [report for report in reports if report.failed]
        if failed and not self.changed:
            os.write(self.console, failed[0].longreprtext.encode())
        return bool(failed)

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: pytest.FixtureRequest) -> object:
        """The databases are there already."""
        if fixturedef.argname == "world":
            fixturedef.func.__globals__["_database"] = lambda *_: nullcontext(self.names[1])
        given = {
            "admin_dsn": self.dsn,
            "bare_template": self.bare,
            "template": self.template,
            "session_database_dsn": make_conninfo(self.dsn, dbname=self.names[0]),
        }.get(fixturedef.argname)
        if given is not None:
            fixturedef.cached_result = given, fixturedef.cache_key(request), None
        return given
