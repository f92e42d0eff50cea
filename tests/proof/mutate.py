"""Every statement of the engine with one condition, lock or arbiter less: a test must notice each, or say why not.

    python -m tests.proof.mutate                     all mutants, hours
    python -m tests.proof.mutate --since main        those of the statements changed since a commit
    python -m tests.proof.mutate --only claim_job    those of one statement
    python -m tests.proof.mutate --list              what they are

A first run records which tests run which statement, so that a mutant meets only the tests that can notice it.
Mutants that survive stand in `equivalent.txt` with the reason why nothing can tell them from the original.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

ROOT = Path(__file__).resolve().parents[2]
SQL = ROOT / "chalicelib" / "engine" / "sql"
SCHEMA = ROOT / "chalicelib" / "schema" / "0001_engine.sql"
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
TESTS = ["tests/integration/engine", "tests/proof/test_interleavings.py", "tests/proof/test_crash_points.py"]
STATEFUL = "tests/proof/test_stateful.py"

SKIP = re.compile(r"\s*\bskip locked\b")
ARBITER = re.compile(r" where finished_at is null do nothing")
INLINE = re.compile(
    r"(?<=\s)(where|and) (?:(?!\b(?:and|or|for|order|returning|limit|do|then)\b)(?:\((?:[^()]|\([^()]*\))*\)|[^()]))+"
)
CONJUNCT = re.compile(r"^[ ]*(where|and|or)\b(.*)$")


@dataclass(frozen=True)
class Mutant:
    """One statement, changed in one place."""

    statement: str
    line: int
    what: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.statement}:{self.line} {self.what}"


def mutants_of(path: Path) -> list[Mutant]:
    """A statement's mutants, in the order of its lines."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    found: list[Mutant] = []

    def add(number: int, what: str, changed: list[str]) -> None:
        found.append(Mutant(path.stem, number + 1, what, "".join(changed)))

    for number, line in enumerate(lines):
        if line.lstrip().startswith("--"):
            continue
        code = line.rstrip("\n")
        if match := CONJUNCT.match(code):
            last, tail = _condition(lines, number)
            word = match.group(1)
            condition = " ".join("".join(lines[number : last + 1]).split())[:70]
            replacement = {"where": "where true", "and": "", "or": ""}[word]
            add(number, f"without `{condition}`", [*lines[:number], f"{replacement}{tail}\n", *lines[last + 1 :]])
        else:
            for match in INLINE.finditer(code):
                replacement = "where true " if match.group(1) == "where" else ""
                changed = code[: match.start()] + replacement + code[match.end() :]
                add(
                    number,
                    f"without `{match.group(0).strip()}`",
                    [*lines[:number], changed + "\n", *lines[number + 1 :]],
                )
        for pattern, what in ((SKIP, "skip locked"), (ARBITER, "the arbiter's predicate")):
            if pattern.search(code):
                changed = pattern.sub(" do nothing" if pattern is ARBITER else "", code)
                add(number, f"without {what}", [*lines[:number], changed + "\n", *lines[number + 1 :]])
        if match := re.search(r"\bfor (update|key share)( of \w+)?\b", code):
            changed = code[: match.start()] + code[match.end() :]
            rest = lines[number + 1 :]
            if rest and rest[0].strip().startswith("skip locked"):
                rest = [rest[0].replace("skip locked", "", 1), *rest[1:]]
            add(
                number, f"without {match.group(0)}", [*lines[:number], changed.replace("skip locked", "") + "\n", *rest]
            )
    return found


def _condition(lines: list[str], number: int) -> tuple[int, str]:
    """The last line of the condition that begins here, and what follows it there (closing parentheses)."""
    depth, last = 0, number
    while True:
        code = lines[last].split(" -- ")[0].rstrip("\n")
        for position, sign in enumerate(code):
            depth += {"(": 1, ")": -1}.get(sign, 0)
            if depth < 0:
                return last, code[position:]
        following = lines[last + 1] if last + 1 < len(lines) else ""
        words = following.split()
        if depth == 0 and (not words or words[0] in STOPS or words[0].startswith((")", ","))):
            return last, ""
        last += 1


STOPS = {"and", "or", "order", "limit", "for", "returning", "on", "select", "union", "from", "group", "set", "where"}


def all_mutants() -> list[Mutant]:
    """Those of every statement."""
    return [mutant for path in sorted(SQL.glob("*.sql")) for mutant in mutants_of(path)]


def equivalents() -> dict[str, str]:
    """Mutant to the reason why it is none."""
    known: dict[str, str] = {}
    for line in EQUIVALENT.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, reason = line.partition("` = ")
            name += "`"
            known[name.strip()] = reason.strip()
    return known


def changed_since(base: str) -> set[str]:
    """The statements that differ from a commit's."""
    command = ["git", "diff", "--name-only", base, "--", str(SQL)]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return {Path(name).stem for name in names}


def pytest_run(tests: list[str], seconds: float, dsn: str, **variables: str) -> int:
    """Run tests with a mutant installed; pytest's exit code, or 1 where they don't end."""
    environment = {**os.environ, "DATABASE_URL": dsn, **variables}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "tests.proof.mutant", "-p", "no:cacheprovider", *tests]
    try:
        return subprocess.run(command, cwd=ROOT, env=environment, timeout=seconds, capture_output=True).returncode
    except subprocess.TimeoutExpired:
        return 1


def stands(text: str, connection: "psycopg.Connection[tuple[str]]") -> bool:
    """Whether the server understands a statement: a mutant that it doesn't proves nothing about the tests."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match.group(1) not in names:
            names.append(match.group(1))
        return f"${names.index(match.group(1)) + 1}"

    try:
        with connection.transaction(force_rollback=True):
            connection.execute(f"prepare mutant as {re.sub(r'%[(](\w+)[)]s', number, text)}".replace("%%", "%"))
            connection.execute("deallocate mutant")
    except psycopg.errors.SyntaxError:
        return False
    except psycopg.Error:
        return True  # a parameter whose type only psycopg knows
    return True


def who_runs_what(dsn: str, tests: list[str]) -> dict[str, list[str]]:
    """Statement to the tests that run it, quickest first."""
    with tempfile.TemporaryDirectory(prefix="leaseway-mutants-") as folder:
        record = Path(folder) / "record.json"
        if code := pytest_run(tests, 3600, dsn, LEASEWAY_RECORD=str(record)):
            raise SystemExit(f"the tests fail without any mutant (pytest's exit code is {code})")
        found: dict[str, list[str]] = json.loads(record.read_text(encoding="utf-8"))
        return found


def survives(mutant: Mutant, tests: list[str], dsn: str) -> bool:
    """Whether no test notices the mutant."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf-8") as file:
        file.write(mutant.text)
        file.flush()
        installed = {"LEASEWAY_MUTANT": f"{mutant.statement}={file.name}"}
        # The quick ones first; most mutants don't get beyond them.
        for some in (tests[:12], tests[12:], [STATEFUL]):
            if some and pytest_run(some, 900, dsn, **installed) != 0:
                return False
    return True


def main() -> int:
    """Run the mutants; 1 when one survives that the list doesn't know."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--quick", action="store_true", help="the engine's own tests alone")
    options = parser.parse_args()
    wanted = all_mutants()
    if options.since:
        changed = changed_since(options.since)
        wanted = [mutant for mutant in wanted if mutant.statement in changed]
    if options.only:
        wanted = [mutant for mutant in wanted if mutant.statement in options.only]
    known = equivalents()
    if gone := known.keys() - {mutant.name for mutant in all_mutants()}:
        raise SystemExit(f"equivalent.txt names mutants that are no more: {sorted(gone)}")
    if options.list:
        for mutant in wanted:
            print(mutant.name, f"= {known[mutant.name]}" if mutant.name in known else "")
        return 0
    wanted = [mutant for mutant in wanted if mutant.name not in known]
    if not wanted:
        print("mutants        no statement has changed")
        return 0
    return _run(wanted, len(known), TESTS[:1] if options.quick else TESTS)


def _run(wanted: list[Mutant], known: int, tests: list[str]) -> int:
    from localstack.postgresql import PostgreSQL

    # Ended from outside it stops its server, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="leaseway-mutants-"))
    folder.chmod(0o755)
    server = PostgreSQL(folder, durable=False)
    survivors = []
    try:
        dsn = server.start()
        with psycopg.connect(dsn, autocommit=True) as connection:
            if nonsense := [mutant.name for mutant in wanted if not stands(mutant.text, connection)]:
                raise SystemExit(f"these are no SQL, so that failing proves nothing: {nonsense}")
        runs = who_runs_what(dsn, tests)
        for number, mutant in enumerate(wanted, 1):
            survived = survives(mutant, runs.get(mutant.statement, []), dsn)
            survivors += [mutant.name] if survived else []
            print(f"{number}/{len(wanted)} {'SURVIVED' if survived else 'noticed '} {mutant.name}", flush=True)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"mutants        {len(wanted)} run, {len(wanted) - len(survivors)} noticed, {len(survivors)} survived,"
        f" {known} known as equivalent, {time.monotonic() - began:.0f} s"
    )
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
