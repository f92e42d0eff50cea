"""A pytest plugin: puts a mutant in a statement's place, or records which tests run which statement."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.db import Transaction
from chalicelib.engine.lease import sql

ran: dict[str, dict[str, float]] = {}


def pytest_configure() -> None:
    if given := os.environ.get("LEASEWAY_MUTANT"):
        statement, _, path = given.partition("=")
        assert getattr(sql, statement)
        sql._texts[statement] = Path(path).read_text(encoding="utf-8")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    if "LEASEWAY_RECORD" not in os.environ:
        yield
        return
    texts: set[str] = set()
    run = Transaction.run

    def recording(self: Transaction, text: str, /, **params: object) -> list[dict[str, object]]:
        texts.add(text)
        return run(self, text, **params)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transaction, "run", recording)
        began = time.monotonic()
        yield
    for name, text in sql._texts.items():
        if text in texts:
            ran.setdefault(name, {})[item.nodeid] = time.monotonic() - began


def pytest_sessionfinish() -> None:
    if record := os.environ.get("LEASEWAY_RECORD"):
        found = {name: sorted(tests, key=lambda test: tests[test]) for name, tests in ran.items()}
        Path(record).write_text(json.dumps(found), encoding="utf-8")
