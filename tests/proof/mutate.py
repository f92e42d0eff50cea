"""The engine's SQL with one condition, lock, arbiter or constraint less: a test must notice each, or say why not.

    python -m tests.proof.mutate                     all mutants
    python -m tests.proof.mutate --since main        those of the files changed since a branch left this one
    python -m tests.proof.mutate --only claim_job    those of one statement, function, constraint or index
    python -m tests.proof.mutate --left              those without a verdict so far: goes on where a run was stopped
    python -m tests.proof.mutate --list              what they are

`noticed.txt` names the test that noticed each mutant last; it is tried first. A mutant that it doesn't notice meets the
other tests that run its statement, the quickest first; the file is written at each verdict. Mutants that nothing can
tell from the original stand in `equivalent.txt` with the reason.
"""

import argparse
import difflib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from chalicelib.db import migrations
from tests.conftest import running_postgresql
from tests.proof.mutant import Mutants

ROOT = Path(__file__).resolve().parents[2]
SQL = ROOT / "chalicelib" / "engine" / "sql"
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
NOTICED = Path(__file__).with_name("noticed.txt")
TESTS = ["tests/integration/engine", "tests/proof/test_schema.py"]
"""Of seconds at most: what only the long ones of the proof would notice wants a small test, too."""
TOO_LONG = "tests/integration/engine/test_wake_ups.py::test_ten_thousand_queued_jobs"
REFUSES = "tests/proof/test_schema.py::test_the_schema_refuses[{}]"

SKIP = re.compile(r"\s*\bskip locked\b")
ARBITER = re.compile(r" where finished_at is null do nothing")
LOCK = re.compile(r"\bfor (update|key share)( of \w+)?\b")
INLINE = re.compile(
    r"(?<=\s)(where|and) (?:(?!\b(?:and|or|for|order|returning|limit|do|then)\b)(?:\((?:[^()]|\([^()]*\))*\)|[^();]))+"
)
NESTED = re.compile(INLINE.pattern.replace("(where|and)", "(where|and|or)"))
CONJUNCT = re.compile(r"^[ ]*(where|and|or)\b(.*)$")
FUNCTION = re.compile(
    r"create (?:or replace )?function (engine\.\w+)\(.*?(?:\$\$;|\nend;|\n    return [^;]*;(?=\n\n))", re.DOTALL
)
INDEX = re.compile(r"create unique index (\w+) on [^;]*;", re.DOTALL)
CHECK = re.compile(r"\bconstraint (\w+) (?:check|unique)\b")


@dataclass(frozen=True)
class Mutant:
    """A statement, a function, a CHECK or an index, changed in one place."""

    of: str
    line: int
    what: str
    text: str  # the statement, or what makes the schema so
    schema: bool = False

    @property
    def name(self) -> str:
        return f"{self.of}:{self.line} {self.what}" if self.line else f"{self.of} {self.what}"

    def met_by(self, test: str, statements: list[str]) -> bool:
        """Whether a test that runs these statements may notice it."""
        if test.startswith(REFUSES.split("[")[0]):
            return test == REFUSES.format(self.of)
        if not self.schema:
            return self.of in statements
        return self.what != "dropped" and not CALLED_BY[self.of].isdisjoint(statements)


def changes(text: str) -> Iterator[tuple[int, str, str]]:
    """Each change of a text of SQL: the line, what is left out, the text without it."""
    lines = text.splitlines(keepends=True)

    def changed(first: int, code: str, rest: int) -> str:
        return "".join([*lines[:first], code + "\n", *lines[rest:]])

    for number, line in enumerate(lines):
        if line.lstrip().startswith("--"):
            continue
        code = line.rstrip("\n")
        begun = set()  # where a condition begins that has had its turn
        if ARBITER.search(code):
            yield (
                number + 1,
                "without the arbiter's predicate",
                changed(number, ARBITER.sub(" do nothing", code), number + 1),
            )
        elif match := CONJUNCT.match(code):
            begun.add(match.start(1))
            last, tail = _condition(lines, number)
            condition = " ".join("".join(lines[number : last + 1]).split())[:70].rstrip(";")
            kept = "where true" if match.group(1) == "where" else ""
            yield number + 1, f"without `{condition}`", changed(number, kept + tail, last + 1)
        else:
            for match in INLINE.finditer(code):
                begun.add(match.start(1))
                kept, (last, end) = "where true " if match.group(1) == "where" else "", (number, match.end())
                if code[end:].startswith("("):  # closed on a later line
                    last, tail = _closing(lines, number, end)
                    end = len(lines[last].rstrip("\n")) - len(tail)
                condition = code[match.start() : end] if last == number else code[match.start() :] + " ..."
                less = code[: match.start()] + kept + lines[last].rstrip("\n")[end:]
                yield number + 1, f"without `{condition.strip()}`", changed(number, less, last + 1)
        for position in range(len(code)):
            match = NESTED.match(code, position)
            if match and position not in begun and code.count("(", 0, position) > code.count(")", 0, position):
                kept = "where true " if match.group(1) == "where" else ""
                less = code[:position] + kept + code[match.end() :]
                yield number + 1, f"in it without `{match.group().strip()}`", changed(number, less, number + 1)
        if SKIP.search(code):
            yield number + 1, "without skip locked", changed(number, SKIP.sub("", code), number + 1)
        if match := LOCK.search(code):
            less = SKIP.sub("", code[: match.start()] + code[match.end() :])
            following = (
                number + 2 if "".join(lines[number + 1 : number + 2]).strip().startswith("skip locked") else number + 1
            )
            rest = SKIP.sub("", lines[number + 1].rstrip("\n"), 1) if following == number + 2 else ""
            yield (
                number + 1,
                f"without {match.group(0)}",
                changed(number, f"{less}\n{rest}" if rest else less, following),
            )


def _closing(lines: list[str], number: int, begin: int) -> tuple[int, str]:
    """The line on which the parenthesis closes that opens here, and what follows it."""
    depth, last = 0, number
    while True:
        code = lines[last].rstrip("\n")
        for position in range(begin if last == number else 0, len(code)):
            depth += {"(": 1, ")": -1}.get(code[position], 0)
            if depth == 0:
                return last, code[position + 1 :]
        last += 1


def _condition(lines: list[str], number: int) -> tuple[int, str]:
    """The last line of the condition that begins here, and what follows it there (closing parentheses)."""
    depth, last = 0, number
    while True:
        code = lines[last].split(" -- ")[0].rstrip("\n")
        for position, sign in enumerate(code):
            depth += {"(": 1, ")": -1}.get(sign, 0)
            if depth < 0 or (depth == 0 and sign == ";"):
                return last, code[position:]
        following = lines[last + 1] if last + 1 < len(lines) else ""
        words = following.split()
        if depth == 0 and (not words or words[0] in STOPS or words[0].startswith((")", ","))):
            return last, ""
        last += 1


STOPS = {"and", "or", "then", "order", "limit", "for", "returning", "on", "select", "union", "from", "group", "set"}
STOPS |= {"where"}


def of_statements() -> Iterator[Mutant]:
    """Those of the statements."""
    for path in sorted(SQL.glob("*.sql")):
        for line, what, text in changes(path.read_text(encoding="utf-8")):
            yield Mutant(path.stem, line, what, text)


def left_by_the_migrations(what: re.Pattern[str]) -> dict[str, str]:
    """Name to text of what stands in the end."""
    found: dict[str, str] = {}
    for _, text in migrations():
        for gone in re.findall(r"drop constraint (\w+)", text):
            found.pop(gone, None)
        found |= {match.group(1): match.group(0) for match in what.finditer(text)}  # also what is made anew
    return found


def of_the_schema() -> Iterator[Mutant]:
    """Those of functions of the engine, CHECKs and unique indexes."""
    functions, indexes, checks = map(left_by_the_migrations, (FUNCTION, INDEX, CHECK))
    for name, text in sorted(functions.items()):
        for line, what, less in changes(text.replace("create function", "create or replace function", 1)):
            yield Mutant(name, line, what, less, schema=True)
    for name, text in sorted(indexes.items()):
        drop = f"drop index {re.search(r' on (\w+)', text).group(1)}.{name};"
        yield Mutant(name, 0, "dropped", drop, schema=True)
        for _, what, less in changes(text.replace(" where ", "\n where ").replace(" and ", "\n   and ")):
            yield Mutant(name, 0, what, drop + less, schema=True)
    for name in sorted(checks):
        yield Mutant(name, 0, "dropped", DROP_CHECK.format(name), schema=True)


DROP_CHECK = """
do $$
begin
    execute (select format('alter table %s drop constraint {0}', conrelid::regclass)
               from pg_constraint where conname = '{0}');
end
$$"""


def called_by() -> dict[str, set[str]]:
    """Function to the statements that come to it; the indexes are met where jobs are accepted and claimed."""
    functions = left_by_the_migrations(FUNCTION)
    texts = {path.stem: path.read_text(encoding="utf-8") for path in SQL.glob("*.sql")}
    found = {name: {each for each in texts if f"{name}(" in texts[each]} for name in functions}
    for name in functions:
        for other in functions:
            if other != name and f"{name}(" in functions[other]:
                found[name] |= found[other]
    return found | {name: {"accept_job", "claim_job", "claim_next_job"} for name in left_by_the_migrations(INDEX)}


CALLED_BY = called_by()


def all_mutants() -> list[Mutant]:
    """Every one."""
    return [*of_statements(), *of_the_schema()]


def named(path: Path) -> dict[str, str]:
    """A file of "mutant = what is to be said of it"; either may have a condition with a sign of equality."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return dict(re.findall(r"^([^#`\n][^`\n]*?(?:`[^`\n]*`)?) = (.*)$", text, re.MULTILINE))


def changed_since(base: str) -> set[str]:
    """The statements that aren't as they were where this branch left another; all, where the schema isn't."""

    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    files = git("diff", "--name-only", git("merge-base", base, "HEAD").strip(), "--", "chalicelib").split()
    of = {Path(name).stem for name in files if name.startswith("chalicelib/engine/sql/")}
    if any(name.startswith("chalicelib/schema/") for name in files):
        of |= {mutant.of for mutant in of_the_schema()}
    return of


def stands(mutant: Mutant, connection: "psycopg.Connection[tuple[str]]") -> bool:
    """Whether the server understands a statement: a mutant that it doesn't proves nothing about the tests."""
    if mutant.schema:
        return True  # it is installed, or the run ends
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match.group(1) not in names:
            names.append(match.group(1))
        return f"${names.index(match.group(1)) + 1}"

    try:
        with connection.transaction(force_rollback=True):
            connection.execute(f"prepare mutant as {re.sub(r'%[(](\w+)[)]s', number, mutant.text)}".replace("%%", "%"))
            connection.execute("deallocate mutant")
    except psycopg.errors.SyntaxError:
        return False
    except psycopg.Error:
        return True  # a parameter whose type only psycopg knows
    return True


def main() -> int:
    """Run the mutants; 1 when one survives that the list doesn't know."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", help="a branch or a commit")
    parser.add_argument("--only", nargs="*", help="of these statements, functions, CHECKs or indexes")
    parser.add_argument("--left", action="store_true", help="of those, what is neither noticed nor equivalent so far")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--seconds", type=int, default=120, help="of tests that a mutant meets at most")
    options = parser.parse_args()
    every = all_mutants()
    names = [mutant.name for mutant in every]
    for name in options.only or ():
        if name not in (of := {mutant.of for mutant in every}):
            near = ", ".join(difflib.get_close_matches(name, of)) or "none"
            parser.error(f"no mutant is of {name} (near it: {near}; all: --list)")
    known, noticed = named(EQUIVALENT), named(NOTICED)
    if gone := known.keys() - set(names):
        raise SystemExit(f"{EQUIVALENT.name} names mutants that are no more: {sorted(gone)}")
    if len(set(names)) < len(names):
        raise SystemExit(f"two mutants have one name: {sorted({name for name in names if names.count(name) > 1})}")
    wanted = every
    if options.since:
        changed = changed_since(options.since)
        wanted = [mutant for mutant in every if mutant.of in changed]
    if options.only:
        wanted = [mutant for mutant in wanted if mutant.of in options.only]
    if options.left:
        wanted = [mutant for mutant in wanted if mutant.name not in known.keys() | noticed.keys()]
    if options.list:
        for mutant in wanted:
            print(mutant.name, f"= {known[mutant.name]}" if mutant.name in known else "")
        return 0
    equivalent = sum(mutant.name in known for mutant in wanted)
    wanted = [mutant for mutant in wanted if mutant.name not in known]
    if not wanted:
        print("mutants        nothing to run")
        return 0
    found: dict[str, str] = {}

    def save(gone: Collection[str] = ()) -> None:
        told = named(NOTICED) | found  # of another run, too
        lines = [f"{name} = {told[name]}" for name in names if name in told and name not in gone]
        NOTICED.write_text("\n".join([HEADER, *lines, ""]), encoding="utf-8")

    began = time.monotonic()
    if code := run(wanted, noticed, found, options.jobs, options.seconds, save):
        return code
    save({mutant.name for mutant in wanted} - found.keys())
    survivors = [mutant.name for mutant in wanted if mutant.name not in found]
    for name in survivors:
        print(f"SURVIVED {name}")
    if survivors:
        print(f"Each wants a test in {TESTS[0]} that fails with it, or a line in {EQUIVALENT.name}: name = reason")
    print(
        f"mutants        {len(wanted)} run, {len(found)} noticed, {len(survivors)} survived,"
        f" {equivalent} known as equivalent, {time.monotonic() - began:.0f} s"
    )
    return 1 if survivors else 0


HEADER = "# Each mutant, and the test that noticed it last; written by mutate.py."


def run(
    wanted: list[Mutant],
    noticed: dict[str, str],
    found: dict[str, str],
    jobs: int,
    seconds: int,
    save: Callable[[], None],
) -> int:
    """Find for each mutant the test that notices it; pytest's exit code."""
    # Ended from outside it stops its server, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with running_postgresql() as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            if nonsense := [mutant.name for mutant in wanted if not stands(mutant, connection)]:
                raise SystemExit(f"these are no SQL, so that failing proves nothing: {nonsense}")
        os.environ["DATABASE_URL"] = server.dsn  # else each fork starts a server, which outlives it
        plugin = Mutants(server.dsn, wanted, noticed, found, jobs, seconds, save)
        # tests.conftest has imported xdist before pytest could rewrite it.
        quiet = ["-s", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider"]
        return int(pytest.main([*quiet, "--deselect", TOO_LONG, *TESTS], plugins=[plugin]))


if __name__ == "__main__":
    raise SystemExit(main())
