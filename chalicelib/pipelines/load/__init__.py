"""Load: rows that their owner pushes into a dataset's store, all of them or none.

The loads of one dataset run one at a time, in the order in which they were accepted.
"""

from datetime import timedelta
from typing import Annotated, Literal, Self
from uuid import UUID, uuid4

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from chalicelib.engine import Pipeline, Step

MAX_INLINE = 3_000_000
"""Bytes of rows in a request: the event is JSON-escaped, which may double them, and Lambda takes 6 MB."""

MAX_UPLOAD = 50_000_000
"""Bytes of an uploaded file: what a worker reads, checks and writes within one invocation, with room to spare."""

MOST_SKIPPED = 1_000
"""Rows above the header at most."""

Mode = Literal["upsert", "replace"]


class LoadSubject(BaseModel):
    """What is loaded into: a dataset, as one revision of its definition says; whose load it is, and his key, hashed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    definition: int
    owner: str
    key: str


def _pattern(value: str) -> str:
    rest = value
    for part in ("YYYY", "MM", "DD"):
        if rest.count(part) != 1:
            raise ValueError("It is made of YYYY, MM and DD, such as DD.MM.YYYY")
        rest = rest.replace(part, "")
    if "\0" in value or any(character.isalnum() for character in rest):
        raise ValueError("It is made of YYYY, MM and DD, such as DD.MM.YYYY")
    return value


def _sign(value: str) -> str:
    if value in ("\r", "\n"):
        raise ValueError("can't be the end of a line")
    return _storable(value)


def _storable(value: str) -> str:
    if "\0" in value:
        raise ValueError("can't hold NUL")
    return value


Encoding = Literal[
    "utf-8",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "windows-1252",
    "iso-8859-1",
    "iso-8859-2",
    "iso-8859-3",
    "iso-8859-4",
    "iso-8859-5",
    "iso-8859-6",
    "iso-8859-7",
    "iso-8859-8",
    "iso-8859-9",
    "iso-8859-10",
    "iso-8859-11",
    "iso-8859-13",
    "iso-8859-14",
    "iso-8859-15",
    "iso-8859-16",
]


class LoadDialect(BaseModel):
    """How the rows are written; all but the encoding is CSV's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["csv", "jsonl"] = "csv"
    encoding: Encoding = "utf-8"
    delimiter: Annotated[str, Field(min_length=1, max_length=1), AfterValidator(_sign)] = ","
    quote: Annotated[str, Field(max_length=1), AfterValidator(_sign)] = '"'
    decimal: Literal[".", ","] = "."
    date: Annotated[str, Field(max_length=20), AfterValidator(_pattern)] = "YYYY-MM-DD"
    null: Annotated[str, Field(max_length=100), AfterValidator(_storable)] = ""
    skip: Annotated[int, Field(strict=True, ge=0, le=MOST_SKIPPED)] = 0

    @model_validator(mode="after")
    def _signs_differ(self) -> Self:
        if self.delimiter == self.quote:
            raise ValueError("delimiter and quote are the same; cells end with one and are quoted by the other")
        return self


class LoadRequest(BaseModel):
    """The payload: a body as it was received, which may be one JSON array, or the upload that has the rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Mode
    body: str = ""
    as_array: bool = False
    upload: UUID | None = None
    dialect: LoadDialect = LoadDialect()


def upload_id(content: bytes | None) -> UUID:
    """A new upload's id. Where a hash of its content is known the id begins with it: a UUID of version 8.

    An upload is forgotten with its object, and the key of its load lasts longer. What the id says is known as long as
    the id is, so that another upload of the same content can be told from one of another.
    """
    if content is None:
        return uuid4()
    made = bytearray(content[:8] + uuid4().bytes[8:])
    made[6] = 0x80 | made[6] & 0x0F
    return UUID(bytes=bytes(made))


def upload_content(upload: UUID) -> str:
    """By what an upload's content is known: by the hash in its id, or by the id where it has none."""
    return upload.hex[:16] if upload.version == 8 else str(upload)


def upload_key(upload: UUID) -> str:
    """Where object storage keeps an upload."""
    return f"uploads/{upload}"


load = Pipeline(
    name="load",
    subject=LoadSubject,
    request=LoadRequest,
    conflict_key="load:{subject.key}",
    order_key="load:{subject.dataset}",
    steps=[Step("LOAD", "chalicelib.pipelines.load.steps:load")],
    done="LOADED",
    run_budget=timedelta(hours=1),
)
