"""YAML files read strictly, with the place of everything in them: no surprises, no tags, no doubled names.

Words mean what they mean in JSON: YAML 1.1 makes a truth of `no` (Norway's language), `on` and `off`, a number of
`12:30` and a date of `2013-01-01`; here they are texts.
"""

import math
import os
import re
from codecs import BOM_UTF8
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")

DEEPEST = 32
"""Levels of a file: no definition needs them, and the API takes no more."""

LARGEST = 4 * 1024 * 1024
"""Bytes of a file: what the API takes, 1 MiB of JSON, is written in fewer, whatever the indentation."""


TAGGED = "has a tag, which isn't taken; leave it out"

REMEDIES = {
    "another document": "; write one file for each",
    "'<stream end>'": "; close the bracket",
    "end of stream": "; close the quotation mark",
    "got '<scalar>'": "; put the text in quotes, and write an apostrophe in it twice",
    "got ':'": "; put a text with a colon in quotes",
    "<block end>": "; indent alike what belongs together",
    "'\\t'": "; indent with blanks, not with tabs",
    "mapping values are not allowed": "; put a text with a colon in quotes, and indent alike what belongs together",
    "cannot start any token": "; put the text in quotes",
    "unknown escape": "; write \\\\ for a backslash, or take single quotes",
}
"""What mends a form of YAML that isn't any, by a part of what the parser says."""


class Fault(NamedTuple):
    """Something that is wrong in a file, and where; lines and columns count from one."""

    file: Path
    line: int
    column: int
    detail: str

    def __str__(self) -> str:
        """As compilers and editors write it: one line, whatever a name holds that is told in it."""
        told = f"{self.file}:{self.line}:{self.column}: {self.detail}"
        return "".join(character if character.isprintable() else "?" for character in told)


class Faulty(Exception):
    """Files that can't be taken as they are."""

    def __init__(self, faults: list[Fault]):
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


@dataclass
class YamlFile:
    """A file's content, and the line and column of each field, by its path (``columns[3].type``)."""

    path: Path
    content: dict[str, Any] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)

    def fault(self, where: str, detail: str) -> Fault:
        """What is wrong with a field, at its place, or at that of the nearest thing around it."""
        around = where
        while around and around not in self.places:
            around = around[: max(around.rfind("."), around.rfind("["), 0)]
        line, column = self.places.get(around, (1, 1))
        return Fault(self.path, line, column, f"{where} {detail}".strip())


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - as in the class above it


for tag, pattern, first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), first)


def in_folder(folder: Path) -> list[Path]:
    """What is named like a YAML file in a folder, in order; what else lies there is nobody's business."""
    return sorted(
        path for path in folder.iterdir() if path.suffix.lower() in (".yaml", ".yml") and not path.name.startswith(".")
    )


def read(path: Path) -> YamlFile:
    """Read a file that holds names and values; raises Faulty with everything that is wrong with its form."""
    file = YamlFile(path)
    text = _text_of(file)
    try:
        loader = _Composer(text)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        raise Faulty([_unreadable(path, error)]) from None
    except yaml.reader.ReaderError as error:
        what = f"holds the character U+{int(error.character):04X}; take it out"
        raise Faulty([Fault(path, *_place_in(text[: error.position]), what)]) from None
    except (ValueError, OverflowError):  # of chr(), in the middle of an escape
        mark = loader.get_mark()
        what = "holds an escape of a character that there isn't; the last one is \\U0010FFFF"
        raise Faulty([Fault(path, mark.line + 1, mark.column + 1, what)]) from None
    if not isinstance(node, MappingNode):
        raise Faulty([file.fault("", "must hold names and values, such as `title:`")])
    faults = [file.fault("", TAGGED)] if _is_tagged(node) else []
    file.content = _mapping(file, node, "", faults)
    if faults:
        raise Faulty(faults)
    return file


def _text_of(file: YamlFile) -> str:
    """A file's text without its byte order mark; raises Faulty where there is none that YAML can be made of."""
    path = file.path
    try:
        if not path.is_file():  # nor a pipe, which nobody may ever write into
            what = "is no file; name it otherwise" if path.exists() else "is a link to nothing; mend or remove it"
            raise Faulty([file.fault("", what)])
        if path.stat().st_size > LARGEST:
            raise Faulty([file.fault("", f"is larger than {LARGEST} bytes; shorten its texts")])
        raw = path.read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        why = f"can't be read ({os.strerror(error.errno) if error.errno else 'no reason given'})"
        raise Faulty([file.fault("", f"{why}; let yourself read it, or take it away")]) from None
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        what = f"is no UTF-8 (byte {error.start + 1}); save it as UTF-8"
        raise Faulty([Fault(path, *_place_in(raw[: error.start].decode()), what)]) from None


def _place_in(before: str) -> tuple[int, int]:
    """Line and column of what comes after a text."""
    lines = re.split("\r\n|\r|\n", before)
    return len(lines), len(lines[-1]) + 1


class _Untaken(yaml.MarkedYAMLError):
    """What is YAML, and isn't taken."""


class _Composer(_Loader):
    depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark: Any = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="an alias isn't taken, write it out", problem_mark=mark)
        if self.depth == DEEPEST:
            raise _Untaken(problem=f"is nested deeper than {DEEPEST} levels", problem_mark=mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        if event.tag is not None and node is not None:
            node.tag = f"!{event.tag}"
        return node


def _is_tagged(node: Node) -> bool:
    """Whether a node has a tag of its writer's; what YAML finds by itself begins otherwise."""
    return str(node.tag).startswith("!")


def _unreadable(path: Path, error: yaml.MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    problem = str(error.problem or error.context)
    if not isinstance(error, _Untaken):
        if error.context and problem.startswith("but "):
            problem = f"{error.context}, {problem}"
        remedy = next((remedy for sign, remedy in REMEDIES.items() if sign in problem), "")
        problem = f"is no YAML from here on: {problem}{remedy}"
    return Fault(path, line, column, problem)


def _value(file: YamlFile, node: Node, path: str, faults: list[Fault]) -> Any:
    if _is_tagged(node):
        faults.append(file.fault(path, TAGGED))
    if isinstance(node, MappingNode):
        return _mapping(file, node, path, faults)
    if isinstance(node, SequenceNode):
        values = []
        for index, item in enumerate(node.value):
            place = f"{path}[{index}]"
            file.places[place] = _place(item)
            values.append(_value(file, item, place, faults))
        return values
    assert isinstance(node, ScalarNode)
    text = str(node.value)
    match node.tag.removeprefix("tag:yaml.org,2002:"):
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int" if len(text) <= 300:
            return int(text)
        case "float" if len(text) <= 300 and math.isfinite(float(text)):
            return float(text)
        case "int" | "float":
            faults.append(
                file.fault(path, "is a number that is too large or too long; put it in quotes if it is a text")
            )
            return None
    try:
        return _text(text)
    except ValueError as error:
        faults.append(file.fault(path, str(error)))
        return None


def _text(written: str) -> str:
    """A text as JSON has it, where a surrogate pair's two escapes are one character; half a pair or NUL: ValueError."""
    if "\0" in written:
        raise ValueError("holds the character U+0000; take it out")
    try:
        return written.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError("holds half of a character (a lone surrogate); take it out") from None


def _mapping(file: YamlFile, node: MappingNode, path: str, faults: list[Fault]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            faults.append(_in(file, key, f"{path} has a name that is no text; put it in quotes"))
            continue
        try:
            name = _text(str(key.value))
        except ValueError as error:
            faults.append(_in(file, key, f"{path} has a name that {error}"))
            continue
        place = f"{path}.{name}" if path else name
        if name in content:
            faults.append(_in(file, key, f"{place} stands here twice; keep one of them"))
            continue
        file.places[place] = _place(key)
        content[name] = _value(file, value, place, faults)
    return content


def _in(file: YamlFile, node: Node, detail: str) -> Fault:
    return Fault(file.path, *_place(node), detail.strip())


def _place(node: Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
