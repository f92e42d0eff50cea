"""The manifest: what a refresh does, fixed on the server and numbered; a request only says when."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from math import ceil
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from chalicelib.datasets import Fault, Invalid
from chalicelib.datasets.definition import (
    MOST_COLUMNS,
    TYPES_OF_ARRAYS,
    ColumnName,
    ColumnType,
    Document,
    Header,
    Part,
    SourceName,
)

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
AGE = re.compile(r"([1-9][0-9]{0,5}) (minute|hour|day)s?")

OLDEST = timedelta(days=36_500)
"""A ``max_age`` beyond it is no check, and reaches behind the first instant that there is."""


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError("must be 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or a digit")
    return value


def _table(value: str) -> str:
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}\.[a-z_][a-z0-9_]{0,62}", value):
        raise ValueError("must be schema.table, each of a-z, 0-9 and _")
    if value.startswith("leaseway."):
        raise ValueError("can't lie in the schema leaseway: the fences and staging tables are there")
    return value


def _duration(number: str, unit: str) -> timedelta:
    return timedelta(**{f"{unit.rstrip('s')}s": int(number)})


def _age(value: str) -> str:
    found = AGE.fullmatch(value)
    if not found:
        raise ValueError("must be a number of minutes, hours or days, such as 36 hours")
    if _duration(found[1], found[2]) > OLDEST:
        raise ValueError("can't be more than 100 years (36500 days); leave freshness out where any age will do")
    return f"{found[1]} {found[2]}{'' if found[1] == '1' else 's'}"


def _type(value: str) -> str:
    if value == "geometry":
        raise ValueError("can't be geometry: leave the column out, or have a query of the source make it text or json")
    return value


def _target_column(value: str) -> str:
    if value in ("leaseway_row", "leaseway_key", "leaseway_place") or value.startswith("leaseway_times_"):
        raise ValueError("is what staging tables call a column of their own; give the target's another name")
    return value


def _value(value: str) -> str:
    if found := re.search("[\x00\ud800-\udfff]", value):
        raise ValueError(f"holds the character U+{ord(found.group()):04X}, which no target can hold; take it out")
    return value


def _distinct(values: list[str]) -> list[str]:
    if twice := [value for value, times in Counter(values).items() if times > 1]:
        raise ValueError(f"has {', '.join(twice)} more than once; keep one of them")
    return values


Name = Annotated[str, AfterValidator(_name)]
Names = Annotated[list[ColumnName], Field(max_length=100), AfterValidator(_distinct)]
SomeNames = Annotated[Names, Field(min_length=1)]
Value = Annotated[str, AfterValidator(_value)]
Rows = Annotated[int, Field(ge=0, le=10**15)]


class Target(Part):
    """Where the records go: a table of a connection whose login may write it."""

    connection: Name
    table: Annotated[str, AfterValidator(_table)]

    @property
    def id(self) -> str:
        """The target as audits name it."""
        return f"{self.connection}/{self.table}"


class Column(Part):
    """A column that is copied. ``from`` names it at the source where that differs."""

    name: Annotated[ColumnName, AfterValidator(_target_column)]
    type: Annotated[ColumnType, AfterValidator(_type)]
    source_name: Header | None = Field(None, alias="from")

    @property
    def of(self) -> str:
        """The type, or that of an array's elements."""
        return self.type.removesuffix("[]")


class Freshness(Part):
    """How old the newest record may be, by a date or timestamp column."""

    column: ColumnName
    max_age: Annotated[str, AfterValidator(_age)]

    @property
    def at_most(self) -> timedelta:
        """``max_age`` as a duration."""
        return _duration(*self.max_age.split())


class Checks(Part):
    """What must hold before the target is touched.

    The checks of single records (``not_null``, ``unique``, ``accepted_values``, and that the key is there and unique)
    reject records; more than ``max_rejected`` of them fail the contract.
    """

    min_rows: Rows | None = None
    max_rows: Rows | None = None
    max_drop: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    max_rejected: Rows = 0
    freshness: Freshness | None = None
    not_null: Names = Field(default_factory=list)
    unique: Annotated[list[SomeNames], Field(max_length=20)] = Field(default_factory=list)
    accepted_values: dict[ColumnName, Annotated[list[Value], Field(min_length=1, max_length=1_000)]] = Field(
        default_factory=dict
    )

    @field_validator("max_rows")
    @classmethod
    def _is_not_below_the_minimum(cls, most: int | None, info: ValidationInfo) -> int | None:
        least = info.data.get("min_rows")
        if most is not None and least is not None and most < least:
            raise ValueError(f"is less than min_rows, {least}; swap or correct them")
        return most

    def columns(self) -> list[str]:
        """Every column that a check names."""
        fresh = [self.freshness.column] if self.freshness else []
        return [*fresh, *self.not_null, *(name for names in self.unique for name in names), *self.accepted_values]


class Contract(Part):
    """One target and how it is made: its source, its columns and key, what must hold, what must be done before."""

    name: Name
    source: SourceName
    source_revision: Annotated[int, Field(ge=1)] | None = None
    target: Target
    mode: Literal["replace", "merge"] = "replace"
    columns: Annotated[list[Column], Field(min_length=1, max_length=MOST_COLUMNS - 1)]  # a staging table has two
    key: SomeNames
    chunk_rows: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    checks: Checks = Checks()
    depends_on: Annotated[list[Name], AfterValidator(_distinct)] = Field(default_factory=list)

    @field_validator("columns")
    @classmethod
    def _names_each_column_once(cls, columns: list[Column]) -> list[Column]:
        _distinct([column.name for column in columns])
        return columns

    @field_validator("key")
    @classmethod
    def _key_is_of_the_columns(cls, key: list[str], info: ValidationInfo) -> list[str]:
        types = _known(key, info)
        if wrong := [name for name in key if types.get(name, "").endswith(("json", "[]"))]:
            raise ValueError(f"can't hold {', '.join(wrong)}: json and arrays can't be compared; take another column")
        return key

    @field_validator("checks")
    @classmethod
    def _checks_are_of_the_columns(cls, checks: Checks, info: ValidationInfo) -> Checks:
        types = _known(checks.columns(), info)
        fresh = checks.freshness
        if fresh and types.get(fresh.column, "date") not in ("date", "timestamp", "timestamptz"):
            raise ValueError(f"need a date or a timestamp for freshness; {fresh.column} is {types[fresh.column]}")
        for names in checks.unique:
            if wrong := [name for name in names if types.get(name) in ("json", "json[]")]:
                raise ValueError(f"can't have {', '.join(wrong)} unique: json can't be compared")
        return checks

    @property
    def least(self) -> int:
        """The fewest records that may come: one, unless the checks say otherwise; a merge may have none."""
        return int(self.mode == "replace") if self.checks.min_rows is None else self.checks.min_rows

    def least_after(self, before: int | None) -> int:
        """The fewest records that may come after ``before`` came in the last run: half, unless the checks say so."""
        by_default = "0.5" if self.mode == "replace" else "1"
        drop = Fraction(by_default if self.checks.max_drop is None else str(self.checks.max_drop))  # as written
        return ceil((before or 0) * (1 - drop))


def _known(names: Iterable[str], info: ValidationInfo) -> dict[str, str]:
    """The types of the columns; refuses names that aren't among them, where the columns themselves are right."""
    types = {column.name: column.type for column in info.data.get("columns", ())}
    if types and (unknown := [name for name in names if name not in types]):
        raise ValueError(f"name {', '.join(dict.fromkeys(unknown))}, which isn't among the columns; add it there")
    return types


class Manifest(Document):
    """Everything that a refresh does; see ``parse``."""

    examples: ClassVar[Mapping[str, str]] = {
        "type": f"one of {TYPES_OF_ARRAYS}, or an array of one, e.g. text[]",
        "contracts": "what is refreshed, one entry a target",
        "name": "what the contract is called, e.g. flights",
        "target": 'e.g. {"connection": "mart", "table": "mart.flights"}',
        "connection": "the name of a connection whose login may write the target",
        "table": "schema.table at the target",
        "columns": 'the columns to copy, e.g. [{"name": "id", "type": "integer"}]',
        "key": 'the columns that tell records apart, e.g. ["id"]',
        "column": "the date or timestamp column that says how new a record is",
        "max_age": "e.g. 36 hours",
    }

    contracts: Annotated[list[Contract], Field(min_length=1, max_length=500)]

    @classmethod
    def parse(cls, content: object) -> Self:
        """See Document; what is wrong between contracts is told with what is wrong within them."""
        faults = list(_misfits(outline(content)))
        try:
            made = super().parse(content)
        except Invalid as invalid:
            raise Invalid([*invalid.faults, *faults]) from None
        if faults:
            raise Invalid(faults)
        return made

    def in_order(self) -> list[Contract]:
        """The contracts, each after those that it depends on."""
        by_name = {contract.name: contract for contract in self.contracts}
        return [by_name[name] for name in _sorter(self.contracts).static_order()]


class Outline(NamedTuple):
    """What of a contract concerns others, as far as it is there at all: nothing here is checked yet."""

    path: str
    name: str | None
    source: str | None
    source_revision: int | None
    connection: str | None
    table: str | None
    depends_on: Sequence[str]


def outline(content: object) -> list[Outline]:
    """The contracts of decoded JSON or YAML, which may be anything."""

    def of[T](kind: type[T], holder: object, name: str) -> T | None:
        value = holder.get(name) if isinstance(holder, dict) else None
        return value if isinstance(value, kind) and not isinstance(value, bool) else None

    return [
        Outline(
            f"contracts[{index}]",
            of(str, contract, "name"),
            of(str, contract, "source"),
            of(int, contract, "source_revision"),
            of(str, of(dict, contract, "target"), "connection"),
            of(str, of(dict, contract, "target"), "table"),
            [each for each in of(list, contract, "depends_on") or () if isinstance(each, str)],
        )
        for index, contract in enumerate(of(list, content, "contracts") or ())
    ]


def _misfits(contracts: Sequence[Outline]) -> Iterator[Fault]:
    """What is wrong between them."""
    named: dict[str, Outline] = {}
    targets: dict[tuple[str, str], Outline] = {}
    for contract in contracts:
        if contract.name is not None and (first := named.setdefault(contract.name, contract)) is not contract:
            yield Fault(f"{contract.path}.name", f"is that of {first.path}, too; each has a name of its own")
        if contract.connection is None or contract.table is None:
            continue
        if (first := targets.setdefault((contract.connection, contract.table), contract)) is not contract:
            yield Fault(f"{contract.path}.target", f"is that of {first.path}, too; each makes a table of its own")
    for contract in contracts:
        if unknown := [name for name in contract.depends_on if name not in named]:
            yield Fault(f"{contract.path}.depends_on", f"names {', '.join(unknown)}, which isn't a contract here")
    try:
        TopologicalSorter({name: contract.depends_on for name, contract in named.items()}).prepare()
    except CycleError as error:
        circle = error.args[1]
        yield Fault(f"{named[circle[0]].path}.depends_on", f"goes in a circle: {' -> '.join(circle)}; cut it")


def _sorter(contracts: list[Contract]) -> TopologicalSorter[str]:
    return TopologicalSorter({contract.name: contract.depends_on for contract in contracts})
