"""YAML as an office writes it: read strictly, every fault at its line and column."""

from pathlib import Path

import pytest

from chalicelib.cli.yaml_files import Faulty, in_folder, read


def told(folder: Path, text: str | bytes) -> list[str]:
    path = folder / "roads.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        read(path)
    except Faulty as faulty:
        return [str(fault).removeprefix(f"{folder}/") for fault in faulty.faults]
    return []


def test_words_and_numbers_mean_what_they_mean_in_json(tmp_path: Path) -> None:
    path = tmp_path / "roads.yaml"
    path.write_text(
        "title: {no: Veier, de: Straßen}\nlanguages: [no]\nschedule: {every: week, on: sunday, at: 12:30}\n"
        "temporal: {start: 2013-01-01}\nmin_records: 5\nmax_drop: .5\npublic: true\nspatial: ~\nendpoint:\nyes: off\n"
    )

    assert read(path).content == {
        "title": {"no": "Veier", "de": "Straßen"},
        "languages": ["no"],
        "schedule": {"every": "week", "on": "sunday", "at": "12:30"},
        "temporal": {"start": "2013-01-01"},
        "min_records": 5,
        "max_drop": 0.5,
        "public": True,
        "spatial": None,
        "endpoint": None,
        "yes": "off",
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: 1\nb:\n  c: 2\n  c: 3\n", "roads.yaml:4:3: b.c stands here twice; keep one of them"),
        ("a: 1\n a: 2\n", "roads.yaml:2:3: is no YAML from here on: mapping values are not allowed here"),
        ("a: [1, 2\n", "roads.yaml:2:1: is no YAML from here on: expected ',' or ']', but got '<stream end>'"),
        ("a: {1: x}\n", "roads.yaml:1:5: a has a name that is no text; put it in quotes"),
        ("a: {true: x}\n", "roads.yaml:1:5: a has a name that is no text; put it in quotes"),
        ("a: &x 1\nb: *x\n", "roads.yaml:2:4: is no YAML from here on: an alias isn't taken, write it out"),
        ("a: !!python/object:os.system x\n", "roads.yaml:1:1: a has a tag or a number that isn't taken"),
        (f"a: {'9' * 5000}\n", "roads.yaml:1:1: a has a tag or a number that isn't taken"),
        ("- a\n", "roads.yaml:1:1: must hold names and values, such as `title:`"),
        ("", "roads.yaml:1:1: must hold names and values, such as `title:`"),
        ("a: 1\n---\nb: 2\n", "roads.yaml:2:1: is no YAML from here on: but found another document"),
        ("a: Stra\xdfe\n".encode("latin-1"), "roads.yaml:1:1: is no UTF-8 (byte 8); save it as UTF-8"),
        ("b: 1\na: \x07\n", "roads.yaml:2:4: holds the character U+0007; take it out"),
        ("a: " + "[" * 5000, "roads.yaml:1:1: is nested too deeply"),
    ],
)
def test_a_fault_of_form_stands_at_its_line_and_column(tmp_path: Path, text: str | bytes, fault: str) -> None:
    assert told(tmp_path, text) == [fault]


def test_every_fault_of_form_is_told_at_once(tmp_path: Path) -> None:
    assert len(told(tmp_path, "a: 1\na: 2\nb: {1: x, 2: y}\n")) == 3


def test_a_fault_stands_at_its_field_or_at_the_nearest_thing_around_it(tmp_path: Path) -> None:
    path = tmp_path / "roads.yaml"
    path.write_text(
        "\ufefftitle:\n  en: Roads\ncolumns:\n  - name: a\n    type: money\n  - {name: b}\n", encoding="utf-8"
    )
    file = read(path)

    def place(field: str) -> tuple[int, int]:
        return file.fault(field, "x")[1:3]

    assert place("title.en") == (2, 3)
    assert place("columns[0].type") == (5, 5)
    assert place("columns[1].type") == (6, 5)  # it is missing: where the column is
    assert place("publisher.name") == (1, 1)
    assert place("") == (1, 1)


def test_only_yaml_files_of_a_folder_count(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", ".hidden.yaml", "README.md", "c.yaml~"):
        (tmp_path / name).touch()
    (tmp_path / "folder.yaml").mkdir()

    assert [path.name for path in in_folder(tmp_path)] == ["a.yml", "b.yaml"]
