"""YAML files read strictly, with the place of everything in them: no surprises, no tags, no doubled names.

Words mean what they mean in JSON: YAML 1.1 makes a truth of `no` (Norway's language), `on` and `off`, a number of
`12:30` and a date of `2013-01-01`; here they are texts.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class Fault(NamedTuple):
    """Something that is wrong in a file, and where; lines and columns count from one."""

    file: Path
    line: int
    column: int
    detail: str

    def __str__(self) -> str:
        """As compilers and editors write it."""
        return f"{self.file}:{self.line}:{self.column}: {self.detail}"


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
    """The YAML files of a folder, in order; what else lies there is nobody's business."""
    found = [path for path in folder.iterdir() if path.suffix in (".yaml", ".yml") and not path.name.startswith(".")]
    return sorted(path for path in found if path.is_file())


def read(path: Path) -> YamlFile:
    """Read a file that holds names and values; raises Faulty with everything that is wrong with its form."""
    file = YamlFile(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        node = _Composer(text).get_single_node()
    except UnicodeDecodeError as error:
        raise Faulty([file.fault("", f"is no UTF-8 (byte {error.start + 1}); save it as UTF-8")]) from None
    except yaml.MarkedYAMLError as error:
        raise Faulty([_unreadable(path, error)]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        what = f"holds the character U+{int(error.character):04X}; take it out"
        raise Faulty([Fault(path, line, column, what)]) from None
    except RecursionError:
        raise Faulty([file.fault("", "is nested too deeply")]) from None
    if not isinstance(node, MappingNode):
        raise Faulty([file.fault("", "must hold names and values, such as `title:`")])
    faults: list[Fault] = []
    file.content = _mapping(file, node, "", faults)
    if faults:
        raise Faulty(faults)
    return file


class _Composer(_Loader):
    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="an alias isn't taken, write it out", problem_mark=mark)
        return super().compose_node(parent, index)


def _unreadable(path: Path, error: yaml.MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return Fault(path, line, column, f"is no YAML from here on: {error.problem or error.context}")


def _value(file: YamlFile, node: Node, path: str, faults: list[Fault]) -> Any:
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
        case "str":
            return text
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int" if len(text) <= 300:
            return int(text)
        case "float" if len(text) <= 300:
            return float(text)
    faults.append(file.fault(path, "has a tag or a number that isn't taken"))
    return None


def _mapping(file: YamlFile, node: MappingNode, path: str, faults: list[Fault]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            faults.append(
                Fault(file.path, *_place(key), f"{path} has a name that is no text; put it in quotes".strip())
            )
            continue
        name = str(key.value)
        place = f"{path}.{name}" if path else name
        if name in content:
            faults.append(Fault(file.path, *_place(key), f"{place} stands here twice; keep one of them"))
            continue
        file.places[place] = _place(key)
        content[name] = _value(file, value, place, faults)
    return content


def _place(node: Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
