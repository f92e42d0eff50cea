"""A first definition of a source's records: what can be found by looking is written, the rest is left to fill in."""

import json
import re
import shlex
from collections.abc import Collection
from typing import Any

from chalicelib.datasets import registry
from chalicelib.datasets.definition import published_names
from chalicelib.datasets.vocabularies import THEMES
from chalicelib.exports import Relation, SourceError
from chalicelib.exports.relation import snapshot
from chalicelib.exports.types import type_of

from . import show
from .local import administer
from .remote import Refused
from .sources import dialect_facts, relation_of

_PLAIN = re.compile(r"(?!(?:true|false|null|yes|no|on|off|y|n)$)[a-z_][a-z0-9_]*", re.IGNORECASE)

_BREAKS = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""What stands in JSON as it is, and in YAML ends a line or can't stand."""

FORM = """\
# {records} when this was written. `leaseway apply` names what is still to be filled in.
title: {{en: ""}}
description: {{en: ""}}
keywords: {{en: []}}
themes: []  # {themes}
# publisher, contact, licence, languages: here, or once for all datasets in defaults.yaml
# spatial: [http://publications.europa.eu/resource/authority/country/DEU]  # recommended by DCAT-AP
# temporal: {{start: 2026-01-01, end: 2026-12-31}}  # recommended, too
source: {source}{dialect}
# schedule: {{every: day, at: 02:00, zone: Europe/Berlin}}
# min_records: 1  # fewer fail, as does a drop by more than
# max_drop: 0.5   # of what is published
columns:  # what isn't listed isn't published; `from: NAME` where the source calls it otherwise
{columns}
"""


def begin(source_name: str, without: Collection[str] = ()) -> tuple[str, str]:
    """The text of a first definition, and what is in it, less the columns ``without``.

    Refused where a column of another type than those that are published isn't among them, or nothing is left.
    """
    settings, database = administer()
    source = registry.source(database, source_name)
    if source is None:
        raise Refused(f"There is no source {source_name}: see `leaseway source list`.")
    if source["file"]:
        described, records, values = _file(source["file"])
    else:
        try:
            relation = relation_of(settings, database, source)
        except SourceError as error:
            raise Refused(_sentence(error)) from error
        described, records, values = _seen(relation)
    if unknown := [name for name in without if name not in {column for column, _, _ in described}]:
        raise Refused(f"{source_name} has no column {', '.join(map(show.header, unknown))}.")
    picked = [column for column in described if column[0] not in without]
    if refused := {name: kind for name, kind, type_ in picked if not type_}:
        named = ", ".join(f"{show.header(name)} ({kind})" for name, kind in refused.items())
        options = " ".join(f"--without {shlex.quote(name)}" for name in refused)
        raise Refused(
            f"{source_name} has columns of types that aren't published: {named}. Have a view or a query make them text"
            f" or another type of docs/exports.md, or leave them out: {options}."
        )
    if not picked:
        raise Refused(f"No column of {source_name} is left.")
    names = published_names(name for name, _, _ in picked)
    lines = [
        f"  # {_quoted(name)} ({kind}) was left out"
        if name in without
        else f"  - {_column(names[name], str(type_), name)}{_missing(records - values[name])}"
        for name, kind, type_ in described
    ]
    form = FORM.format(
        records=show.many(records, "record"),
        themes=" ".join(sorted(THEMES.codes)),
        source=source_name,
        dialect=_dialect(source["file"]) if source["file"] else "",
        columns="\n".join(lines),
    )
    return form, f"{show.many(records, 'record')}, {show.many(len(picked), 'column')}"


Described = tuple[list[tuple[str, str, str | None]], int, dict[str, int]]
"""Columns (name, type at the source, type to declare), the records, and how many have a value in each."""


def _file(file: dict[str, Any]) -> Described:
    described = [(column["name"], column["type"], column["type"]) for column in file["columns"]]
    return described, file["records"], {c["name"]: file["records"] - c["nulls"] for c in file["columns"]}


def _dialect(file: dict[str, Any]) -> str:
    """How the file was read, so that whoever fills in the rest sees a wrong guess."""
    found = " · ".join(f"{name} {value}" for name, value in dialect_facts(file) if name != "format")
    return f"  # {file['dialect']['format']}: {found} (another one: `leaseway source upload --help`)"


def _seen(relation: Relation) -> Described:
    try:
        with snapshot(relation) as seen:
            described = [(name, str(found), type_of(found)) for name, found in seen.describe()]
            published = [name for name, _, type_ in described if type_]
            records, *filled = seen.filled(published)
    except SourceError as error:
        raise Refused(f"{_sentence(error)} [{error.code}: {show.details(error.details)}]") from error
    return described, records, dict(zip(published, filled, strict=True))


def _missing(number: int) -> str:
    return f"  # none in {show.amount(number)}" if number else ""


def _column(name: str, type_: str, header: str) -> str:
    source = f", from: {_quoted(header)}" if header != name else ""
    return f"{{name: {_quoted(name)}, type: {_quoted(type_)}{source}}}"


def _quoted(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    return _BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(name, ensure_ascii=False))


def _sentence(error: SourceError) -> str:
    from chalicelib.exports.check import sentence_here

    return sentence_here(error)
