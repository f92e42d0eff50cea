"""What would change, for people: a line for each field, with what it was and what it becomes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MOST = 60
"""Characters of a text that are shown."""

BEFORE = 15
"""Characters that are shown before the first one that differs, where it stands beyond those shown."""

MOST_ENTRIES = 10


def lines(field: str, before: Any, after: Any) -> Iterator[str]:
    """Yield `+` for what comes, `-` for what goes and `~` for what changes; of lists and objects only what differs."""
    if before is None or after is None:
        sign, value = ("+", after) if before is None else ("-", before)
        yield f"{sign} {_plain(field)}: {_shown(_unnamed(field, value))}"
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*before, *after)):
            if before.get(name) != after.get(name):
                yield from lines(f"{field}.{name}", before.get(name), after.get(name))
    elif isinstance(before, list) and isinstance(after, list):
        gone, come = ([each for each in one if each not in other] for one, other in ((before, after), (after, before)))
        same = _same(before, after)
        moved = f"{'…, ' if same else ''}{_shown(before[same:])} → {_shown(after[same:])}"
        told = [f"{sign} {_shown(entries)}" for sign, entries in (("-", gone), ("+", come)) if entries]
        yield f"~ {_plain(field)}: {', '.join(told) or moved}"
    else:
        yield f"~ {_plain(field)}: {_pair(before, after)}"


def _pair(before: Any, after: Any) -> str:
    """Both sides of a change; of long texts the part in which they differ."""
    begin = 0
    if isinstance(before, str) and isinstance(after, str):
        begin = max(_same(before, after) - BEFORE, 0) if max(len(before), len(after)) > MOST else 0
    return f"{_shown(before, begin)} → {_shown(after, begin)}"


def _same(before: Sequence[Any], after: Sequence[Any]) -> int:
    """How long they are the same from their beginning."""
    both = enumerate(zip(before, after, strict=False))
    return next((number for number, (old, new) in both if old != new), min(len(before), len(after)))


def _shown(value: Any, begin: int = 0) -> str:
    if isinstance(value, str):
        end = begin + MOST if len(value) > begin + MOST else len(value)
        part = json.dumps(value[begin:end], ensure_ascii=False)
        return f"{'…' if begin else ''}{_plain(part)}{'…' if end < len(value) else ''}"
    if isinstance(value, list):
        more = [f"{len(value) - MOST_ENTRIES} more"] if len(value) > MOST_ENTRIES else []
        return ", ".join([*map(_shown, value[:MOST_ENTRIES]), *more])
    if isinstance(value, Mapping):
        return ", ".join(f"{_plain(name)} {_shown(each)}" for name, each in value.items())
    return json.dumps(value)


def _unnamed(field: str, value: Any) -> Any:
    """A column without its name, by which the field goes already."""
    if isinstance(value, Mapping) and field == f"columns.{value.get('name')}":
        return {name: each for name, each in value.items() if name != "name"}
    return value


def _plain(text: str) -> str:
    """A text that moves no cursor and turns no line around."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
