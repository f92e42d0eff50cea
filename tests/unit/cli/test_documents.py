"""What the documents say exists: tests, commands, files, targets of make."""

import re
from pathlib import Path

import click
import pytest

from chalicelib import codes
from chalicelib.cli import leaseway

ROOT = Path(__file__).parents[3]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def test_every_test_that_the_readme_names_exists() -> None:
    there = {
        name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "README.md").read_text()))

    assert len(named) >= 20
    assert named <= there


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)\)", document.read_text())

    assert [link for link in links if not (document.parent / link).exists()] == []


def test_operating_explains_every_failure_in_the_words_of_its_code() -> None:
    text = (ROOT / "docs" / "operating.md").read_text()
    rows = [f"| `{code}` | {told.sentence} | {told.remedy} |" for code, told in codes.FAILURES.items()]

    assert [row for row in rows if row not in text] == []  # put these into the table


def test_operating_tells_apart_what_a_sqlstate_does() -> None:
    text = (ROOT / "docs" / "operating.md").read_text()

    assert [told.sentence for told in codes.TOLD_APART.values() if f"| {told.sentence} |" not in text] == []


def test_every_decision_is_in_the_index() -> None:
    pages = {file.name for file in (ROOT / "docs" / "decisions").glob("*.md")} - {"README.md"}

    assert set(re.findall(r"\]\(([a-z0-9-]+\.md)\)", (ROOT / "docs/decisions/README.md").read_text())) == pages


@pytest.mark.parametrize("document", DOCUMENTS[:2], ids=lambda file: file.name)
def test_every_target_of_make_that_is_named_exists(document: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", document.read_text(), re.MULTILINE)) <= targets


def commands(command: click.Command, words: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    found = {words: command}
    for name, part in command.commands.items() if isinstance(command, click.Group) else ():
        found |= commands(part, (*words, name))
    return found


EVERY = commands(leaseway)


def test_every_command_that_is_named_exists() -> None:
    texts = [file.read_text() for file in (*DOCUMENTS, *(ROOT / "chalicelib").rglob("*.py"))]
    for line in re.findall(
        r"\bleaseway ((?:[a-z|\\]+ ?)+)", " ".join(re.findall(r"`leaseway [^`]*`", "\n".join(texts)))
    ):
        first, *rest = line.replace("\\", "").split()
        for name in first.split("|"):
            assert (name,) in EVERY, line
            group = EVERY[(name,)]
            for part in rest[0].split("|") if rest and isinstance(group, click.Group) else ():
                assert (name, part) in EVERY, line


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_explains_itself(words: tuple[str, ...]) -> None:
    command = EVERY[words]

    assert command.help
    assert command.help[0].isupper() or words
    summary = command.help.split("\n\n")[0]
    assert summary.strip().endswith("."), summary
    examples = [line for line in command.help.splitlines() if line.startswith(("  leaseway", "  LEASEWAY"))]
    for example in examples:
        called = example.split("leaseway ", 1)[1].split()
        assert any(tuple(called[:n]) == words or tuple(called[:n]) in EVERY for n in (1, 2)), example


def test_every_command_is_listed_in_a_section_of_the_help() -> None:
    listed = {name for _, names in leaseway.sections for name in names}  # type: ignore[attr-defined]

    assert listed == {words[0] for words in EVERY if len(words) == 1}
