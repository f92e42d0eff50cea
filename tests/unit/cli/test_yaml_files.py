"""YAML as an office writes it: read strictly, every fault at its line and column."""

import errno
import os
from pathlib import Path

import pytest

from chalicelib.cli.yaml_files import LARGEST, Faulty, in_folder, read

TOO_LARGE = "is a number that is too large or too long; put it in quotes if it is a text"
BEYOND = "holds an escape of a character that there isn't; the last one is \\U0010FFFF"


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
        (
            "a: 1\n a: 2\n",
            "roads.yaml:2:3: is no YAML from here on: mapping values are not allowed here; put a text with a colon in"
            " quotes, and indent alike what belongs together",
        ),
        (
            "a:\n\tb: 1\n",
            "roads.yaml:2:1: is no YAML from here on: found character '\\t' that cannot start any token; indent with"
            " blanks, not with tabs",
        ),
        (
            "a: @b\n",
            "roads.yaml:1:4: is no YAML from here on: found character '@' that cannot start any token; put the text in"
            " quotes",
        ),
        (
            'a: "C:\\q"\n',
            "roads.yaml:1:8: is no YAML from here on: found unknown escape character 'q'; write \\\\ for a backslash,"
            " or take single quotes",
        ),
        (
            "a: [1, 2\n",
            "roads.yaml:2:1: is no YAML from here on: expected ',' or ']', but got '<stream end>'; close the bracket",
        ),
        (
            'a: "x\n',
            "roads.yaml:2:1: is no YAML from here on: found unexpected end of stream; close the quotation mark",
        ),
        (
            "a: {b: 'it's'}\n",
            "roads.yaml:1:12: is no YAML from here on: expected ',' or '}', but got '<scalar>'; put the text in quotes,"
            " and write an apostrophe in it twice",
        ),
        (
            "a: {b: c: d}\n",
            "roads.yaml:1:9: is no YAML from here on: expected ',' or '}', but got ':'; put a text with a colon in"
            " quotes",
        ),
        (
            "a:\n  b: 1\n c: 2\n",
            "roads.yaml:3:2: is no YAML from here on: expected <block end>, but found '<block mapping start>'; indent"
            " alike what belongs together",
        ),
        ("a: {1: x}\n", "roads.yaml:1:5: a has a name that is no text; put it in quotes"),
        ("a: {true: x}\n", "roads.yaml:1:5: a has a name that is no text; put it in quotes"),
        ("a: &x 1\nb: *x\n", "roads.yaml:2:4: is no YAML from here on: an alias isn't taken, write it out"),
        *(
            (text, f"roads.yaml:{place} has a tag, which isn't taken; leave it out")
            for text, place in (
                ("a: !!python/object:os.system x\n", "1:1: a"),
                ("b: 1\na: !!set {b, c}\n", "2:1: a"),
                ("a: !foo [1]\n", "1:1: a"),
                ("a:\n  - !!omap [b: 1]\n", "2:5: a[0]"),
                ("a: {b: !!str 1}\n", "1:5: a.b"),
                ('a: !!int "x"\n', "1:1: a"),
                ("a: !!bool maybe\n", "1:1: a"),
                ("!!map\na: 1\n", "1:1:"),
            )
        ),
        ("a: {!!str b: 1}\n", "roads.yaml:1:5: a has a name that is no text; put it in quotes"),
        *(
            (f"b: 1\na: {number}\n", f"roads.yaml:2:1: a {TOO_LARGE}")
            for number in ("9" * 5000, "1e999", "-5e400", f"1.{'0' * 5000}")
        ),
        ('b:\n  - "a\\0b"\n', "roads.yaml:2:5: b[0] holds the character U+0000; take it out"),
        ('b: 1\n"a\\0": 1\n', "roads.yaml:2:1: has a name that holds the character U+0000; take it out"),
        ('a: {b: "\\ud800x"}\n', "roads.yaml:1:5: a.b holds half of a character (a lone surrogate); take it out"),
        (
            'a: {"\\udc00": 1}\n',
            "roads.yaml:1:5: a has a name that holds half of a character (a lone surrogate); take it out",
        ),
        ('b: 1\na: "x \\UFFFFFFFF"\n', f"roads.yaml:2:9: {BEYOND}"),
        ('a: "\\U00110000"\n', f"roads.yaml:1:7: {BEYOND}"),
        ("- a\n", "roads.yaml:1:1: must hold names and values, such as `title:`"),
        ("", "roads.yaml:1:1: must hold names and values, such as `title:`"),
        ("# nothing\n", "roads.yaml:1:1: must hold names and values, such as `title:`"),
        (
            "a: 1\n---\nb: 2\n",
            "roads.yaml:2:1: is no YAML from here on: expected a single document in the stream, but found another"
            " document; write one file for each",
        ),
        ("b: 1\r\na: Stra\xdfe\n".encode("latin-1"), "roads.yaml:2:8: is no UTF-8 (byte 14); save it as UTF-8"),
        ("a: 1\n".encode("utf-16"), "roads.yaml:1:1: is no UTF-8 (byte 1); save it as UTF-8"),
        ("b: 1\na: \x07\n", "roads.yaml:2:4: holds the character U+0007; take it out"),
        ("a:\n " + "[" * 5000, "roads.yaml:2:33: is nested deeper than 32 levels"),
        (f"a: {'[' * 32}{']' * 32}\n", "roads.yaml:1:35: is nested deeper than 32 levels"),
        ("#" * (LARGEST + 1), f"roads.yaml:1:1: is larger than {LARGEST} bytes; shorten its texts"),
        ('"\\e[2J\\n": 1\n"\\e[2J\\n": 1\n', "roads.yaml:2:1: ?[2J? stands here twice; keep one of them"),
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


def test_a_file_reads_the_same_whatever_editor_and_system_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "roads.yaml"
    for text in ("a: |\n  b\n  c\nd: &here 1\n", "\ufeffa: |\r\n  b\r\n  c\r\nd: 1\r\n", "a: |\r  b\r  c\rd: 1"):
        path.write_bytes(text.encode())
        assert read(path).content == {"a": "b\nc\n", "d": 1}


def test_a_pair_of_surrogates_is_a_character_as_in_json(tmp_path: Path) -> None:
    path = tmp_path / "roads.yaml"
    path.write_text('{"\\ud83d\\ude00": "a\\ud83d\\ude00b"}\n')

    assert read(path).content == {"😀": "a😀b"}


def test_what_is_named_like_a_yaml_file_counts(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "d.YAML", ".hidden.yaml", "README.md", "c.yaml~"):
        (tmp_path / name).touch()
    (tmp_path / "folder.yaml").mkdir()

    assert [path.name for path in in_folder(tmp_path)] == ["a.yml", "b.yaml", "d.YAML", "folder.yaml"]


def test_what_is_no_file_or_cannot_be_read_is_a_fault_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pipe, gone = (tmp_path / f"{name}.yaml" for name in ("folder", "pipe", "gone"))
    path.mkdir()
    os.mkfifo(pipe)
    gone.symlink_to("nowhere.yaml")
    told = []
    for odd in (path, pipe, gone):
        with pytest.raises(Faulty) as faulty:
            read(odd)
        told.append(str(faulty.value).removeprefix(f"{tmp_path}/"))
    assert told == [
        "folder.yaml:1:1: is no file; name it otherwise",
        "pipe.yaml:1:1: is no file; name it otherwise",
        "gone.yaml:1:1: is a link to nothing; mend or remove it",
    ]

    def denied(_: Path) -> bytes:
        raise PermissionError(errno.EACCES, "of this machine's own", "/a/path")

    monkeypatch.setattr(Path, "read_bytes", denied)
    (tmp_path / "roads.yaml").touch()
    with pytest.raises(
        Faulty, match=r"1:1: can't be read \(Permission denied\); let yourself read it, or take it away$"
    ):
        read(tmp_path / "roads.yaml")
