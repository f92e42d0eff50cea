"""The definition: all that a publisher says about a dataset, checked when it comes in and kept in one canonical form.

Whatever passes here can be rendered, so nobody finds out at the end of a publication that a comma was wrong. Codes and
addresses are brought into one spelling first: the same content has the same canonical JSON and the same etag.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from fractions import Fraction
from itertools import count
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from chalicelib.iris import LINKS, absolute_iri, mailbox

from . import Fault, Invalid, vocabularies
from .dates import datatype_of, is_before

Format = Literal["csv", "csv-excel", "geojson", "json", "jsonl", "xml"]
USUAL: list[Format] = ["csv", "json", "xml"]
ScalarType = Literal[
    "text",
    "boolean",
    "integer",
    "decimal",
    "double",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "interval",
    "uuid",
    "json",
    "binary",
    "geometry",
]
ArrayType = Literal[
    "text[]",
    "boolean[]",
    "integer[]",
    "decimal[]",
    "double[]",
    "date[]",
    "time[]",
    "timestamp[]",
    "timestamptz[]",
    "interval[]",
    "uuid[]",
    "json[]",
    "binary[]",
]
ColumnType = Literal[ScalarType, ArrayType]
TYPES_OF_ARRAYS = ", ".join(type_ for type_ in get_args(ScalarType) if type_ != "geometry")
_TYPES = f"one of {TYPES_OF_ARRAYS}, geometry, or an array of one (but geometry), e.g. text[]"

KEYS = {"text", "boolean", "integer", "decimal", "date", "time", "timestamp", "timestamptz", "uuid", "binary"}
"""The types that a column of the key may have."""

SYSTEM_COLUMNS = {"ctid", "cmin", "cmax", "xmin", "xmax", "tableoid"}

MOST_COLUMNS = 1_599
"""Columns of a dataset: PostgreSQL's tables have 1,600 at most, and a copy of a source has one of its own."""

LONGEST_HEADER = 10_000
"""Characters of a column's name at the source; no file that is registered has a longer one."""

TOLD = 100
"""How many faults are told at once; to find the nearest name for each of a million unknown ones would take minutes."""

# What XML can't hold, and control characters that mean nothing in a text (one documented rule: refuse them).
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_TAG = re.compile(r"[a-z]{2,3}(-[a-z]{4})?(-([a-z]{2}|\d{3}))?", re.ASCII)  # of BCP 47: language, script, region


def dataset_id(text: str) -> str:
    """The text as a dataset's id: a stable name that stands in every address of the dataset. Raises Invalid."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", text):
        raise Invalid([Fault("id", "must be 1 to 63 of a-z, 0-9 and -, beginning with a letter or a digit")])
    return text


def _text(value: str) -> str:
    value = value.replace("\r\n", "\n").replace("\r", "\n").strip()
    if found := _UNWRITABLE.search(value):
        raise ValueError(f"holds the character U+{ord(found.group()):04X}, which no reader can show; take it out")
    if not value:
        raise ValueError("is empty; write the text, or leave the field out")
    return value


def _languages[T](texts: dict[str, T]) -> dict[str, T]:
    tags: dict[str, T] = {}
    for written, text in texts.items():
        tag = written.strip().replace("_", "-").lower()  # stores change the case of tags, so there is only one here
        if not _TAG.fullmatch(tag):
            raise ValueError(f"{written[:40]!r} is no language tag; write en, de or de-ch")
        if tag in tags:
            raise ValueError(f"has the language {tag} twice; keep one of them")
        tags[tag] = text
    return tags


def _distinct[T](values: list[T]) -> list[T]:
    return list(dict.fromkeys(values))


def _link(value: str) -> str:
    return absolute_iri(value, LINKS)


def _open(vocabulary: vocabularies.Vocabulary) -> Callable[[str], str]:
    """A value of the list as its code; an IRI of somebody else's list stays as it is."""

    def code_or_iri(value: str) -> str:
        try:
            return vocabulary.code(value)
        except ValueError:
            if "://" not in value or value.strip().startswith(vocabulary.base):
                raise
            return absolute_iri(value)

    return code_or_iri


def _public(value: str) -> str:
    code = vocabularies.ACCESS_RIGHTS.code(value)
    if code != "PUBLIC":
        raise ValueError(f"can't be {code}: every file of a published dataset is open to everyone, so only PUBLIC fits")
    return code


def _tier(value: str) -> str:
    if value == "high":
        raise ValueError("can't be 'high' yet: the rules of the higher tier don't exist; write base")
    if value != "base":
        raise ValueError("must be base")
    return value


def _source(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", value):
        raise ValueError("must be the name of a registered source: 1 to 63 of a-z, 0-9, _ and -")
    return value


def _column(value: str) -> str:
    value = _text(value)
    if "\n" in value or "\t" in value:
        raise ValueError("can't hold a tab or a line break; give the column another name, with `from` for the source's")
    if len(value.encode()) > 63:
        raise ValueError(
            "is longer than the 63 bytes that PostgreSQL keeps of a name; shorten it, with `from` for the source's"
        )
    return value


def _header(value: str) -> str:
    """A column's name as the source has it, letter by letter: a file's header may hold nearly anything."""
    if found := re.search("[\0\ud800-\udfff]", value):
        raise ValueError(f"holds the character U+{ord(found.group()):04X}, which no source's column has; take it out")
    if not value:
        raise ValueError("is empty; write the column's name at the source, or leave the field out")
    return value


def published_names(headers: Iterable[str]) -> dict[str, str]:
    """A name for each column of a source to be published by: its own where it may be, else one like it; each once."""
    headers = list(headers)
    names = {header: header for header in headers if _may_be_published(header)}
    for header in headers:
        if header not in names:
            plain = " ".join(_UNWRITABLE.sub(" ", header).split()) or "column"
            tries = (_cut(plain, f" {n}" if n > 1 else "") for n in count(1))
            taken = set(names.values())
            names[header] = next(name for name in tries if name not in taken)
    return names


def _may_be_published(header: str) -> bool:
    try:
        return _column(header) == header
    except ValueError:
        return False


def _cut(name: str, end: str) -> str:
    return name.encode()[: 63 - len(end)].decode(errors="ignore").rstrip() + end


Text = Annotated[str, Field(max_length=20_000), AfterValidator(_text)]
Line = Annotated[str, Field(max_length=500), AfterValidator(_text)]
Texts = Annotated[dict[str, Text], Field(min_length=1), AfterValidator(_languages)]
Lines = Annotated[dict[str, Line], Field(min_length=1), AfterValidator(_languages)]
Keywords = Annotated[
    dict[str, Annotated[list[Line], Field(min_length=1, max_length=100), AfterValidator(_distinct)]],
    Field(min_length=1),
    AfterValidator(_languages),
]
Iri = Annotated[str, Field(max_length=2_000), AfterValidator(absolute_iri)]
Link = Annotated[str, Field(max_length=2_000), AfterValidator(_link)]

Language = Annotated[str, AfterValidator(vocabularies.LANGUAGES.code)]
Theme = Annotated[str, Field(max_length=2_000), AfterValidator(_open(vocabularies.THEMES))]
Licence = Annotated[str, Field(max_length=2_000), AfterValidator(_open(vocabularies.LICENCES))]

SourceName = Annotated[str, AfterValidator(_source)]
ColumnName = Annotated[str, AfterValidator(_column)]
Header = Annotated[str, Field(max_length=LONGEST_HEADER), AfterValidator(_header)]


class Part(BaseModel):
    """A part of a definition: nothing unknown, nothing converted; null, an empty value in YAML, is what isn't said."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _leaves_null_out(cls, content: object) -> object:
        if not isinstance(content, dict):
            return content
        known = {field.alias or name for name, field in cls.model_fields.items()}
        return {name: value for name, value in content.items() if value is not None or name not in known}


class Document(Part):
    """Something that is parsed as a whole and kept in one canonical form."""

    examples: ClassVar[Mapping[str, str]] = {}
    """What belongs into a field of that name, for faults; the ones below where it isn't said here."""

    @classmethod
    def parse(cls, content: object) -> Self:
        """What decoded JSON (or YAML) holds; raises Invalid with every fault at once (the first TOLD).

        The document's own ``as_json`` parses to the same document.
        """
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise Invalid([_fault(each, cls) for each in error.errors(include_url=False)[:TOLD]]) from None

    def as_json(self) -> dict[str, Any]:
        """The canonical content: codes, defaults filled in, nothing that isn't said."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @property
    def canonical(self) -> bytes:
        """The canonical JSON: keys sorted, no spaces, UTF-8."""
        return json.dumps(self.as_json(), sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()

    @property
    def etag(self) -> str:
        """SHA-256 of the canonical JSON in hexadecimal: equal exactly when the content is."""
        return hashlib.sha256(self.canonical).hexdigest()


class Publisher(Part):
    """Who publishes the dataset: an organisation, under its own IRI where it has one."""

    name: Lines
    iri: Iri | None = None
    type: Annotated[str, AfterValidator(vocabularies.PUBLISHER_TYPES.code)] | None = None


class Contact(Part):
    """Whom a reader may ask."""

    name: Lines
    email: Annotated[str, Field(max_length=254), AfterValidator(mailbox)]


class Temporal(Part):
    """The time that the data cover; without ``end`` it goes on."""

    start: Annotated[str, Field(max_length=40)]
    end: Annotated[str, Field(max_length=40)] | None = None

    @field_validator("start", "end")
    @classmethod
    def _is_a_date(cls, value: str) -> str:
        datatype_of(value)
        return value

    @field_validator("end")
    @classmethod
    def _is_not_before_the_start(cls, end: str, info: ValidationInfo) -> str:
        if not info.context and (start := info.data.get("start")) and is_before(end, start):
            raise ValueError(f"is before the start, {start}; swap or correct them")
        return end


class Column(Part):
    """A column that is published. ``from`` is its name at the source, letter by letter, where that differs.

    ``required``: no row is loaded without a value in it; those of the key always are.
    """

    name: ColumnName
    type: ColumnType
    title: Lines | None = None
    description: Texts | None = None
    srid: Annotated[int, Field(ge=1, le=999_999)] | None = None
    source_name: Header | None = Field(None, alias="from")
    required: Annotated[bool | None, AfterValidator(lambda wanted: wanted or None)] = None

    @field_validator("srid")
    @classmethod
    def _is_of_a_geometry(cls, srid: int | None, info: ValidationInfo) -> int | None:
        if srid and (type_ := info.data.get("type", "geometry")) != "geometry":
            raise ValueError(f"is what a geometry is measured in, and this column is {type_}; take it out")
        return srid


class CsvExcel(Part):
    """How the CSV for spreadsheets is written; ``decimal`` is a comma, unless that is the delimiter."""

    delimiter: Literal[",", ";", "\t"] = ";"
    decimal: Literal[",", "."] = Field(default_factory=lambda said: "." if said.get("delimiter") == "," else ",")

    @field_validator("decimal")
    @classmethod
    def _differs_from_the_delimiter(cls, decimal: str, info: ValidationInfo) -> str:
        if decimal == info.data.get("delimiter"):
            raise ValueError("is the delimiter, too; take another one of them")
        return decimal


class Place(Part):
    """Which columns say where a record is: one of type geometry, or one of degrees east and one of degrees north."""

    geometry: Annotated[str, AfterValidator(_column)] | None = None
    longitude: Annotated[str, AfterValidator(_column)] | None = None
    latitude: Annotated[str, AfterValidator(_column)] | None = None

    def faults(self, types: Mapping[str, str]) -> str | None:
        """What is wrong with it for columns of these types."""
        given = self.model_dump(exclude_none=True)
        if given.keys() not in ({"geometry"}, {"longitude", "latitude"}):
            return "needs either geometry, or longitude and latitude"
        for which, name in given.items():
            wanted = ["geometry"] if which == "geometry" else ["decimal", "double", "integer"]
            if name not in types:
                return f"names {name}, which isn't among the columns"
            if types[name] not in wanted:
                return f"names {name} as its {which}, which must be of type {' or '.join(wanted)}"
        return None


class Definition(Document):
    """All that a publisher says about a dataset; see ``parse``."""

    title: Lines
    description: Texts
    keywords: Keywords
    languages: Annotated[list[Language], Field(min_length=1, max_length=30), AfterValidator(_distinct)]
    publisher: Publisher
    contact: Contact
    themes: Annotated[list[Theme], Field(min_length=1, max_length=30), AfterValidator(_distinct)]
    licence: Licence
    access_rights: Annotated[str, AfterValidator(_public)] = "PUBLIC"
    spatial: Annotated[list[Iri], Field(max_length=100), AfterValidator(_distinct)] = []
    temporal: Temporal | None = None
    frequency: Annotated[str, AfterValidator(vocabularies.FREQUENCIES.code)] | None = None
    landing_page: Link | None = None
    identifiers: Annotated[list[Line], Field(max_length=20), AfterValidator(_distinct)] = []
    conforms_to: Annotated[list[Iri], Field(max_length=20), AfterValidator(_distinct)] = []
    source: SourceName
    formats: Annotated[list[Format], Field(min_length=1), AfterValidator(_distinct), AfterValidator(sorted)] = USUAL
    csv_bom: Annotated[bool | None, AfterValidator(lambda wanted: wanted or None)] = None
    csv_excel: CsvExcel | None = None
    gzip: Annotated[list[Format], AfterValidator(_distinct), AfterValidator(sorted)] | None = None
    tier: Annotated[str, AfterValidator(_tier)] = "base"
    columns: Annotated[list[Column], Field(min_length=1, max_length=MOST_COLUMNS)]
    key: Annotated[list[str], Field(min_length=1, max_length=16), AfterValidator(_distinct)] | None = None
    geojson: Annotated[Place | None, Field(validate_default=True)] = None
    min_records: Annotated[int, Field(ge=0, le=10**15)] | None = None
    max_drop: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None

    @field_validator("description")
    @classmethod
    def _speaks_the_languages_of_the_title(cls, texts: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        title = info.data.get("title", texts)
        if texts.keys() != title.keys():
            wanted, given = ", ".join(sorted(title)), ", ".join(sorted(texts))
            raise ValueError(f"must be in the languages of the title ({wanted}); it is in {given}")
        return texts

    @field_validator("themes")
    @classmethod
    def _has_a_theme_of_the_eu(cls, themes: list[str]) -> list[str]:
        if not any(theme in vocabularies.THEMES.codes for theme in themes):
            codes = ", ".join(sorted(vocabularies.THEMES.codes))
            raise ValueError(f"needs at least one of the EU's data themes: {codes}")
        return themes

    @field_validator("columns")
    @classmethod
    def _names_each_column_once(cls, columns: list[Column]) -> list[Column]:
        counted = Counter(column.name for column in columns)
        if twice := sorted(name for name, times in counted.items() if times > 1):
            raise ValueError(f"has {', '.join(twice)} more than once; every published column has a name of its own")
        return columns

    @field_validator("key")
    @classmethod
    def _makes_a_store(cls, key: list[str], info: ValidationInfo) -> list[str]:
        columns: list[Column] = info.data.get("columns", [])
        types = {column.name: column.type for column in columns}
        for name in key if columns else ():
            if name not in types:
                nearest = get_close_matches(name, types, n=1)
                hint = f"did you mean {nearest[0]}?" if nearest else "take it out"
                raise ValueError(f"names {name[:80]!r}, which is none of the columns; {hint}")
            if types[name] not in KEYS:
                raise ValueError(f"can't have {name}: whether two values of {types[name]} are the same, nobody can say")
        counted = Counter(column.source_name or column.name for column in columns)
        if twice := sorted(name for name, times in counted.items() if times > 1):
            raise ValueError(f"makes a store of the columns, where {', '.join(twice)} would stand more than once")
        if odd := [name for name in counted if not _may_be_published(name)]:
            raise ValueError(
                f"makes a store of the columns, where {json.dumps(odd[0][:80], ensure_ascii=False)} can't be a name: at"
                " most 63 bytes, no tab, no line break; give that column another `from`"
            )
        if kept := sorted(counted.keys() & SYSTEM_COLUMNS):
            raise ValueError(f"makes a store of the columns, where {', '.join(kept)} is a name of PostgreSQL's own")
        return key

    @field_validator("gzip")
    @classmethod
    def _compresses_what_there_is(cls, gzip: list[str] | None, info: ValidationInfo) -> list[str] | None:
        formats = info.data.get("formats") or gzip or []
        if missing := [name for name in gzip or [] if name not in formats]:
            raise ValueError(f"has {', '.join(missing)}, which isn't among the formats; add it there, too")
        return gzip or None

    @field_validator("csv_excel")
    @classmethod
    def _is_wanted(cls, csv_excel: CsvExcel | None, info: ValidationInfo) -> CsvExcel | None:
        if csv_excel and "csv-excel" not in info.data.get("formats", ["csv-excel"]):
            raise ValueError("says how csv-excel is written, which isn't among the formats; add it there")
        return csv_excel

    @field_validator("geojson")
    @classmethod
    def _says_where_a_record_is(cls, place: Place | None, info: ValidationInfo) -> Place | None:
        types = {column.name: column.type for column in info.data.get("columns", [])}
        wanted = "geojson" in info.data.get("formats", [])
        if not types or not wanted:
            if place and types and "formats" in info.data:
                raise ValueError("says where geojson finds a record, which isn't among the formats; add it there")
            return place
        geometries = [name for name, type_ in types.items() if type_ == "geometry"]
        if place is None and len(geometries) != 1:
            raise ValueError("is missing: name the columns, e.g. {longitude: lon, latitude: lat} or {geometry: shape}")
        if place and (fault := place.faults(types)):
            raise ValueError(fault)
        return place

    @classmethod
    def kept(cls, body: object) -> Self:
        """A definition that was taken before: what is published stands, also by rules that are stricter by now."""
        return cls.model_validate(body, context="kept")

    @property
    def place(self) -> dict[str, str]:
        """The columns that GeoJSON takes a record's place from, by their part in it."""
        if self.geojson:
            return self.geojson.model_dump(exclude_none=True)
        return {"geometry": next(column.name for column in self.columns if column.type == "geometry")}

    def fewest(self, published: int | None) -> int:
        """The fewest records a new version may have; ``published`` is how many the current one has, if there is one.

        One, and half of what is published, unless ``min_records`` and ``max_drop`` say otherwise.
        """
        least = 1 if self.min_records is None else self.min_records
        drop = Fraction("0.5" if self.max_drop is None else str(self.max_drop))  # as written: 0.7 leaves 3 of 10, not 4
        return max(least, math.ceil((published or 0) * (1 - drop)))


_KINDS: Mapping[str, str] = {
    "missing": "is missing",
    "string_type": "must be a text",
    "string_unicode": "holds half of a character (a lone surrogate); take it out",
    "dict_type": 'must be an object of language and text, like {"en": "Flights"}',
    "list_type": "must be a list",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "finite_number": "must be a number",
}
_EXAMPLES: Mapping[str, str] = {
    "title": 'e.g. {"en": "Flights", "de": "Flüge"}',
    "description": "a text for each language of the title",
    "keywords": 'e.g. {"en": ["aviation", "airports"]}',
    "languages": 'the languages of the data, e.g. ["en"]',
    "publisher": 'e.g. {"name": {"en": "Office"}, "iri": "https://office.example.org/"}',
    "contact": 'e.g. {"name": {"en": "Open data desk"}, "email": "opendata@example.org"}',
    "themes": 'e.g. ["TRAN"]',
    "licence": 'e.g. "CC_BY_4_0" or "CC0"',
    "source": "the name of a registered source",
    "columns": 'the columns to publish, e.g. [{"name": "year", "type": "integer"}]',
    "type": _TYPES,
    "min_records": "the fewest records that may be published",
    "key": 'the columns by which a loaded row is known, e.g. ["id"]',
    "srid": "the EPSG code of a geometry's coordinates where the source doesn't say it, e.g. 25832",
    "gzip": 'the formats to compress as well, e.g. ["csv"]',
    "csv_excel": 'e.g. {"delimiter": ";", "decimal": ","}',
    "geojson": 'e.g. {"longitude": "lon", "latitude": "lat"} or {"geometry": "shape"}',
    "csv_bom": "true begins the CSV with a byte order mark, for spreadsheets",
    "max_drop": "the largest part of the published records that may be missing at once, from 0 to 1",
}


def _fault(error: ErrorDetails, document: type[Document]) -> Fault:
    """Pydantic's finding as a field's path and a sentence of our own."""
    path = ""
    for part in error["loc"]:
        if part != "[key]":
            path += f"[{part}]" if isinstance(part, int) else f".{part[:80]}" if path else part[:80]
    kind, context = error["type"], error.get("ctx", {})
    last = str(error["loc"][-1])[:80] if error["loc"] else ""
    if kind == "value_error":
        return Fault(path, str(context["error"]))
    if kind == "extra_forbidden":
        nearest = get_close_matches(last, _fields(document, error["loc"][:-1]), n=1)
        return Fault(path, f"is no field here; {f'did you mean {nearest[0]}?' if nearest else 'take it out'}")
    if kind == "literal_error" and last == "type":
        return Fault(path, f"must be {document.examples.get(last, _TYPES)}")
    if kind == "literal_error":
        return Fault(path, f"must be one of {context['expected']}".replace("'", "").replace(" or ", ", "))
    if kind == "greater_than_equal":
        return Fault(path, f"can't be less than {context['ge']}")
    if kind == "less_than_equal":
        return Fault(path, f"can't be more than {context['le']}")
    if kind in {"too_short", "too_long", "string_too_long"}:
        least, most = context.get("min_length"), context.get("max_length")
        what = "characters" if kind.startswith("string") else "entries"
        more = "; PostgreSQL's tables hold no more: leave some out, or make two of them" if last == "columns" else ""
        sentence = f"needs at least {least} of its {what}" if least else f"can't have more than {most} {what}{more}"
        return Fault(path, sentence)
    if kind == "dict_type" and last == "keywords":
        return Fault(path, f"must be an object of language and list of texts, {_EXAMPLES[last]}")
    sentence = _KINDS.get(kind, "isn't of the kind that belongs here")
    if kind == "string_type" and isinstance(error["input"], bool | int | float):
        return Fault(path, f"{sentence}, and this is {json.dumps(error['input'])}; put it in quotes")
    if kind != "dict_type" and (example := document.examples.get(last) or _EXAMPLES.get(last)):
        sentence += f": {example}" if kind == "missing" else f", {example}"
    return Fault(path, sentence)


def _fields(document: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The names of the fields that may stand at a path."""
    model = document
    for part in path:
        found = (field.annotation for name, field in model.model_fields.items() if part == (field.alias or name))
        for annotation in found:
            model = next(_models(annotation), model)
    return [field.alias or name for name, field in model.model_fields.items()]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


class Difference(NamedTuple):
    """A field that differs, ``title.de`` or ``columns.year`` (a column, by its name), and its canonical values.

    None stands for what isn't said.
    """

    field: str
    before: Any
    after: Any


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """What differs between two canonical contents, in the order of the second."""
    found = []
    for name in dict.fromkeys((*after, *before)):
        old, new = before.get(name), after.get(name)
        if name == "columns" and old and new:
            old, new = ({column["name"]: column for column in columns} for columns in (old, new))
            if old.keys() == new.keys() and list(old) != list(new):
                found.append(Difference("columns (their order)", list(old), list(new)))
        if old != new and isinstance(old, Mapping) and isinstance(new, Mapping):
            deeper = differences(old, new) if name != "columns" else _entries(old, new)
            found += [each._replace(field=f"{name}.{each.field}") for each in deeper]
        elif old != new:
            found.append(Difference(name, old, new))
    return found


def _entries(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    pairs = [(name, old.get(name), new.get(name)) for name in {**old, **new}]
    return [Difference(*pair) for pair in pairs if pair[1] != pair[2]]
