"""Where datasets come from: connections and sources, administered beside the database."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import show
from .local import administer, is_local, keep_secret, stack
from .publishing import machine
from .remote import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chalicelib.db import Database, Row
    from chalicelib.exports import Column, Relation
    from chalicelib.exports.check import Wanted
    from chalicelib.exports.dialects import Seen
    from chalicelib.exports.sample import Looked
    from chalicelib.settings import Settings


@click.group()
def connection() -> None:
    """Connections: databases that datasets come from. A name, and the name of the secret that holds the address.

    Examples:
      leaseway connection add warehouse --secret LEASEWAY_SECRET_WAREHOUSE
      leaseway connection check warehouse
      leaseway connection list
      leaseway connection remove warehouse
    """


@connection.command("add")
@click.argument("name")
@click.option(
    "--secret", required=True, metavar="LEASEWAY_SECRET_…", help="The environment variable that holds the DSN."
)
@click.option("--max-jobs", type=click.IntRange(1, 100), metavar="N", help="Exports that use it at a time; 1 at first.")
@click.option(
    "--statement-timeout",
    type=click.IntRange(0, 86_400),
    metavar="SECONDS",
    help="What one statement may take; 0, as at first: what the login's own setting says.",
)
def connection_add(name: str, secret: str, max_jobs: int | None, statement_timeout: int | None) -> None:
    """Add the connection NAME, or change it. Its DSN stays in the functions' environment, in no row, log or answer.

    Give it a login of its own that may only read, and can't see Leaseway's schema. To another machine it is encrypted
    and verified (sslmode=verify-full). On the local stack the secret is taken from the environment of this command.

    Examples:
      leaseway connection add warehouse --secret LEASEWAY_SECRET_WAREHOUSE
      leaseway connection add warehouse --secret LEASEWAY_SECRET_WAREHOUSE --max-jobs 3 --statement-timeout 600
    """
    if not secret.startswith("LEASEWAY_SECRET_"):
        raise click.BadParameter("it must begin with LEASEWAY_SECRET_.", param_hint="--secret")
    from chalicelib.datasets.registry import add_connection

    if dsn := os.environ.get(secret):
        from chalicelib.exports.address import BadAddress, secured

        try:
            secured(dsn)
        except BadAddress as error:
            raise Refused(f"{secret} is set here, but can't be used. {error}") from error
    kept = keep_secret(secret)
    _, database = administer()
    add_connection(database, name, secret, max_jobs, statement_timeout)
    click.echo(f"Connection {name} reads its address from {secret}.")
    if kept:
        click.echo("The local stack keeps it; `leaseway up` hands it to the functions.")


@connection.command("check")
@click.argument("name")
@machine
def connection_check(name: str, machine: bool) -> None:
    """Look at the connection NAME from here: reach it, read what each of its sources must, make sure it can't write.

    Nothing is written there. The secret must be set here as it is for the functions. Exit code 1 on a finding.

    Example:
      leaseway connection check warehouse
    """
    from chalicelib.datasets import registry
    from chalicelib.exports.check import Report, check

    _, database = administer()
    found = registry.connection(database, name)
    if found is None:
        raise Refused(f"There is no connection {name}: see `leaseway connection list`.")
    dsn = os.environ.get(found["secret"])
    unset = Report(findings=[f"{found['secret']} isn't set here: set it as it is for the functions."])
    report = check(dsn, _wanted(database, name)) if dsn else unset
    if machine:
        show.as_json({"connection": name, **vars(report)})
    else:
        show.facts([("connection", name), *report.facts.items()])
        if report.sources:
            click.echo()
            show.table(("source", "reading it"), list(report.sources.items()), "")
        click.echo()
        for finding in report.findings:
            click.echo(f"! {finding}")
        if not report.findings:
            click.echo("Nothing to mend.")
    if report.findings:
        raise click.exceptions.Exit(1)


def _wanted(database: "Database", connection_name: str) -> "list[Wanted]":
    """What the sources of a connection must give: the columns that datasets publish, or all of a source without one."""
    from chalicelib.datasets import registry
    from chalicelib.exports import Column
    from chalicelib.exports.check import Wanted
    from chalicelib.pipelines.export.specs import columns_of

    wanted = []
    for source in registry.sources(database):
        if source["connection"] == connection_name:
            definitions = registry.definitions_of(database, source["name"])
            lists: list[list[Column]] = [columns_of(definition) for definition in definitions.values()]
            wanted += [
                Wanted(source["name"], source["relation"], source["query"], published) for published in lists or [[]]
            ]
    return wanted


@connection.command("list")
@machine
def connection_list(machine: bool) -> None:
    """List the connections with the names of their secrets, and their limits."""
    from chalicelib.datasets.registry import connections

    _, database = administer()
    found = connections(database)
    if machine:
        show.as_json(found)
        return
    show.table(
        ("connection", "secret", "at a time", "statement time-out"),
        [(c["name"], c["secret"], c["max_jobs"], _seconds(c["statement_timeout"])) for c in found],
        "There are no connections. `leaseway connection add NAME --secret LEASEWAY_SECRET_NAME` adds one.",
    )


@connection.command("remove")
@click.argument("name")
@click.confirmation_option(prompt="Remove this connection?", help="Don't ask.")
def connection_remove(name: str) -> None:
    """Remove the connection NAME, which nothing needs: no source in any revision, no manifest that stands.

    The secret stays where it was set, but for the local stack, which keeps it no longer.

    Examples:
      leaseway connection remove warehouse
      leaseway connection remove warehouse --yes
    """
    from chalicelib.datasets import registry
    from chalicelib.db import statements
    from chalicelib.security import record_act

    is_here = is_local()
    _, database = administer()
    with database.transaction() as tx:
        secret = registry.take_connection(tx, name)
        if secret is None:
            raise Refused(f"There is no connection {name}: see `leaseway connection list`.")
        _refuse_users(f"Connection {name}", tx.run(statements("chalicelib.cli").list_users_of_connection, name=name))
        registry.remove_connection(tx, name)
        record_act(tx, None, "connection_remove", target=name)
    click.echo(f"Connection {name} is removed.")
    if is_here and secret not in {other["secret"] for other in registry.connections(database)}:
        stack().forget(secret)
        click.echo(f"The local stack keeps {secret} no longer; `leaseway up` takes it from the functions.")


NEEDS = {
    "definition": "the definition of {} names it (put it with another source, or delete the dataset)",
    "version": "versions of {} were made from it, and their records stay",
    "job": "job {} is about it",
    "failure": "failure {0} may be run again with it (`leaseway failures purge {0}`)",
    "manifest": "version {} of the manifest names it (the newest, or that of a refresh that runs or may run again)",
    "source": "source {0} is read by it, now or in an earlier revision (`leaseway source remove {0}`)",
    "left": "cleanup has to reach {} by it, which it does once the refresh that left it has ended",
}
"""What keeps a source or a connection from being removed."""

MOST_USERS = 10


def _refuse_users(what: str, users: "Sequence[Row]") -> None:
    """Refuse to remove what somebody needs, and say who."""
    if users:
        needs = [NEEDS[user["kind"]].format(user["name"]) for user in users[:MOST_USERS]]
        more = f"; and {len(users) - MOST_USERS} more" if len(users) > MOST_USERS else ""
        raise Refused(f"{what} stays, for it is needed: {'; '.join(needs)}{more}.")


def _seconds(number: int | None) -> str:
    return "the login's" if number is None else f"{number} s"


@click.group()
def source() -> None:
    """Sources: the table or query of a connection, or the file, that a dataset's definition names.

    A source never changes; registering or uploading it again makes its next revision, and a publication that runs keeps
    its own.

    Examples:
      leaseway source register roads --connection warehouse --table public.roads
      leaseway source register busy-roads --connection warehouse --query 'select * from roads where traffic > 100'
      leaseway source register sensors --store sensors
      leaseway source upload trees trees-2026-11.csv
      leaseway source check roads
      leaseway source list
      leaseway source remove roads
    """


@source.command("register")
@click.argument("name")
@click.option("--connection", "connection_name", help="Where it is: see `leaseway connection list`.")
@click.option("--table", help="A table or view, with its schema.")
@click.option("--query", help="Or a query that reads.")
@click.option("--store", metavar="DATASET", help="Or, without a connection, what is loaded into that dataset's store.")
def source_register(
    name: str, connection_name: str | None, table: str | None, query: str | None, store: str | None
) -> None:
    """Register the source NAME: a table or a query of a connection, or the store that a dataset's loads fill.

    Examples:
      leaseway source register roads --connection warehouse --table public.roads
      leaseway source register roads --connection warehouse --query 'select id, name from roads'
      leaseway source register sensors --store sensors
    """
    if sum(each is not None for each in (table, query, store)) != 1:
        raise click.UsageError("Give one of --table, --query and --store.")
    if (connection_name is None) != (store is not None):
        raise click.UsageError("--connection goes with --table and --query; a store has none.")
    from chalicelib.datasets import registry

    _, database = administer()
    before = registry.source(database, name)
    with database.transaction() as tx:
        if store is not None:
            revision = registry.register_store(tx, name, store)
        else:
            revision = registry.register_source(tx, name, str(connection_name), relation=table, query=query)
    for change in _turned(before, "connection" if store is None else "store"):
        click.echo(f"! {change}")
    click.echo(f"Source {name} is at revision {revision}.")


@source.command("check")
@click.argument("name")
@machine
def source_check(name: str, machine: bool) -> None:
    """Read 100 records of the source NAME, and say what they are: columns, types, nulls, suspect characters.

    A type that no column can be declared as is refused: exit code 1.

    Example:
      leaseway source check roads
    """
    from chalicelib.exports import SourceError
    from chalicelib.exports.check import sentence

    settings, database = administer()
    try:
        number, columns = _sample(settings, database, name)
    except SourceError as error:
        raise Refused(sentence(error)) from error
    refused = [column for column in columns if column.type is None]
    if machine:
        show.as_json({"source": name, "records": number, "columns": [vars(column) for column in columns]})
    else:
        show.table(
            ("column", "at the source", "declare it as", "nulls", "suspect characters"),
            [
                (
                    show.header(column.name),
                    column.found,
                    column.type,
                    show.amount(column.nulls),
                    f"in {column.suspects}: {', '.join(column.characters)}" if column.suspects else None,
                )
                for column in columns
            ],
            "It has no columns.",
        )
        click.echo(f"\n{show.many(number, 'record')} {'was' if number == 1 else 'were'} read.")
        for column in refused:
            click.echo(
                f"! {show.header(column.name)} is {column.found}, which isn't published: have a view or a query make it"
                " text, or leave it out of the definition (`leaseway init --without`)."
            )
    if refused:
        raise click.exceptions.Exit(1)


def _sample(settings: "Settings", database: "Database", name: str) -> "tuple[int, list[Looked]]":
    from chalicelib.datasets import registry
    from chalicelib.exports import Store
    from chalicelib.exports.files import Dialect, Reading
    from chalicelib.exports.sample import of_file, of_relation

    found = registry.source(database, name)
    if found is None:
        raise Refused(f"There is no source {name}: see `leaseway source list`.")
    if file := found["file"]:
        types = {column["name"]: column["type"] for column in file["columns"]}
        stored = Store.of(settings).read(file["key"])
        return of_file(Reading(stored, Dialect(**file["dialect"]), trimmed="left_out" in file), types)
    return of_relation(relation_of(settings, database, found))


def relation_of(
    settings: "Settings", database: "Database", source: "Row", columns: "Sequence[Column]" = ()
) -> "Relation":
    """A source that is no file, read from here; Refused where its secret isn't set, BadAddress or SourceError."""
    from chalicelib.datasets import registry
    from chalicelib.exports import Relation
    from chalicelib.exports.address import secured
    from chalicelib.pipelines.addresses import loaded_relation

    name = source["name"]
    if source["store"]:
        return Relation(settings.dsn, loaded_relation(database, source["store"], name), None, columns, name=name)
    connection = registry.connection(database, source["connection"])
    assert connection is not None  # a foreign key holds it
    if not (dsn := os.environ.get(connection["secret"])):
        raise Refused(f"{connection['secret']} isn't set here: set it as it is for the functions.")
    return Relation(secured(dsn), source["relation"], source["query"], columns, connection["statement_timeout"])


def _delimiter(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    value = {"tab": "\t", "\\t": "\t"}.get(value or "", value)
    if value is not None and (len(value) != 1 or value in '\r\n"'):
        raise click.BadParameter("it is one character, or 'tab'.")
    return value


def _quote(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    value = {"none": ""}.get(value or "", value)
    if value is not None and (len(value) > 1 or value in ("\r", "\n")):
        raise click.BadParameter("it is one character, or 'none'.")
    return value


def _date(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not fits_date_pattern(value):
        raise click.BadParameter("it is made of YYYY, MM and DD, such as DD.MM.YYYY.")
    return value


def fits_date_pattern(pattern: str) -> bool:
    """Whether it holds YYYY, MM and DD, each once, and nothing else but signs."""
    rest = pattern
    for part in ("YYYY", "MM", "DD"):
        if rest.count(part) != 1:
            return False
        rest = rest.replace(part, "")
    return not any(character.isalnum() for character in rest)


@source.command("upload")
@click.argument("name")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--format", type=click.Choice(["csv", "jsonl"]), help="CSV or JSON Lines; by the file's name, else.")
@click.option(
    "--encoding", metavar="NAME", help="utf-8, windows-1252, iso-8859-1 to -16, utf-16, utf-16-le, utf-16-be."
)
@click.option("--delimiter", metavar="CHARACTER", callback=_delimiter, help="Between cells; 'tab' for a tab.")
@click.option("--quote", metavar="CHARACTER", callback=_quote, help="Around cells; 'none' where there is none.")
@click.option("--decimal", type=click.Choice([".", ","]), help="The decimal mark.")
@click.option("--date", metavar="PATTERN", callback=_date, help="How dates are written, e.g. DD.MM.YYYY.")
@click.option("--null", metavar="TEXT", help="What stands for no value, beside an empty cell; quoted it is a text.")
@click.option("--skip", type=click.IntRange(0), metavar="ROWS", help="Rows above the header.")
@click.option("--afresh", is_flag=True, help="Forget what was declared for the file before.")
@click.option("--dry-run", is_flag=True, help="Read it and say what it is; upload nothing.")
@machine
def source_upload(name: str, file: Path, afresh: bool, dry_run: bool, machine: bool, **declared: Any) -> None:
    """Make FILE the source NAME, or its next revision: a CSV or JSON Lines file, in whatever dialect it is.

    All of it is read before anything is registered; what doesn't fit is named by line and column. What isn't declared
    is found and shown. A column has a type only if every cell comes back as it was, letter by letter; else it is text.
    The file is kept in object storage, where only the functions read it. Next month's file is the same command: what
    was declared holds for it, too.

    Examples:
      leaseway source upload trees trees-2026-11.csv
      leaseway source upload trees trees.csv --encoding windows-1252 --delimiter ';' --decimal , --date DD.MM.YYYY
      leaseway source upload sensors readings.jsonl --dry-run
    """
    from chalicelib.datasets import registry
    from chalicelib.exports import Store
    from chalicelib.exports.dialects import Undecided, look
    from chalicelib.exports.files import ENCODINGS, FileFault

    declared = {option: value for option, value in declared.items() if value is not None}
    if "encoding" in declared:
        declared["encoding"] = declared["encoding"].lower().replace("_", "-").replace("cp1252", "windows-1252")
        if declared["encoding"] not in ENCODINGS:
            raise click.BadParameter(f"take one of {', '.join(ENCODINGS)}.", param_hint="--encoding")
    registry.check_source_name(name)
    settings, database = administer()
    before = registry.source(database, name)
    if not afresh and before and before["file"]:
        declared = before["file"].get("declared", {}) | declared
    try:
        seen = look(file, declared)
    except (FileFault, Undecided) as error:
        raise Refused(f"{file.name}: {error}") from error
    described = {
        "records": seen.records,
        "bytes": seen.bytes,
        "sha256": seen.sha256,
        "dialect": seen.dialect.as_json(),
        "declared": declared,
        "columns": [vars(column) for column in seen.columns],
        # Only where it says something: the same file again is no new revision, nor is one that was registered without.
        **({"left_out": seen.left_out} if seen.left_out else {}),
    }
    hints = _hints(seen)
    if not machine:
        _show_file(file, described)
        for hint in hints:
            click.echo(f"! {hint}")
    if dry_run:
        if machine:
            show.as_json({**described, "hints": hints})
        return
    key = _keep_file(settings, name, file, seen)
    with database.transaction() as tx:
        revision = registry.register_file(tx, name, {"key": key, **described})
        # From here on nobody removes the source; whoever did so meanwhile took the file along.
        if Store.of(settings).head(key) is None:
            raise Refused(f"Source {name} was removed meanwhile: run the command again.")
    if machine:
        show.as_json({"source": name, "revision": revision, **described, "hints": hints})
        return
    for change in _turned(before, "file") + _changes(before, described):
        click.echo(f"! {change}")
    click.echo(f"Source {name} is at revision {revision}.")


def _hints(seen: "Seen") -> list[str]:
    """What whoever wrote the file may not have meant."""
    hints = []
    if seen.left_out:
        are = "is" if seen.left_out == 1 else "are"
        hints.append(f"{show.many(seen.left_out, 'row')} without a filled cell at the end {are} left out.")
    if seen.empty:
        are = "is a record" if seen.empty == 1 else "are records"
        hints.append(f"{show.many(seen.empty, 'row')} without a filled cell before others {are} without a value.")
    return hints + [
        f"{show.header(name)} looks like {what}: it stays text, for a type is given only where every cell comes back"
        " letter by letter."
        for name, what in seen.look_like.items()
    ]


def _keep_file(settings: "Settings", name: str, file: Path, seen: "Seen") -> str:
    """Put the file into object storage, unless it is there; its key, which its content decides."""
    from chalicelib.exports import Store
    from chalicelib.exports.dialects import chunks

    key = f"sources/{name}/{seen.sha256}.{seen.dialect.format}"
    store = Store.of(settings)
    if (found := store.head(key)) is None or found.bytes != seen.bytes:
        upload = store.open_upload(key, "text/csv" if seen.dialect.format == "csv" else "application/jsonl")
        try:
            for chunk in chunks(file):
                upload.write(chunk)
        except BaseException:
            upload.abort()
            raise
        stored = upload.complete()
        if stored.sha256 != seen.sha256:
            store.delete(key)
            raise Refused(f"{file} was changed while it was being read: run the command again.")
    return key


def _turned(before: dict[str, Any] | None, kind: str) -> list[str]:
    """What the name stood for, where that was of another kind: perhaps another name was meant."""
    if not before or before[kind]:
        return []
    return [f"Until now it was {'a file: ' if before['file'] else ''}{_what(before)}."]


def _changes(before: dict[str, Any] | None, described: dict[str, Any]) -> list[str]:
    """What columns are not as they were in the revision before."""
    if not before or not before["file"]:
        return []
    old, new = ({column["name"]: column["type"] for column in f["columns"]} for f in (before["file"], described))
    return [
        *(f"Column {show.header(name)} is gone." for name in old if name not in new),
        *(f"Column {show.header(name)} is new." for name in new if name not in old),
        *(
            f"Column {show.header(name)} was {old[name]} and is {new[name]}."
            for name in new
            if old.get(name, new[name]) != new[name]
        ),
    ]


def dialect_facts(file: dict[str, Any]) -> list[tuple[str, str]]:
    """A file's dialect in words, name and value; what was neither declared nor decided by a column was not found."""
    from chalicelib.exports.files import Dialect

    dialect = Dialect(**file["dialect"]).as_json()  # in its own order, which a row doesn't keep
    known = {column["type"] for column in file["columns"]} | file.get("declared", {}).keys()
    words = {("quote", ""): "none", ("delimiter", "\t"): "tab", ("null", ""): "an empty cell"}
    return [
        *(
            (name, words.get((name, value), str(value)))
            for name, value in dialect.items()
            if name not in ("decimal", "date")
        ),
        *(
            (
                name,
                (dialect[name] if name in known else "none found")
                if dialect[name]
                else f"undecided, such columns are text: declare it with --{name}",
            )
            for name in ("decimal", "date")
            if name in dialect
        ),
    ]


def _show_file(file: Path, described: dict[str, Any]) -> None:
    show.facts(
        [
            ("file", f"{file.name}, {show.many(described['records'], 'record')}, {show.size(described['bytes'])}"),
            *dialect_facts(described),
            ("sha256", described["sha256"]),
        ]
    )
    click.echo()
    show.table(
        ("column", "type", "nulls"),
        [(show.header(c["name"]), c["type"], show.amount(c["nulls"])) for c in described["columns"]],
        "",
    )


@source.command("list")
@machine
def source_list(machine: bool) -> None:
    """List the sources, each at its newest revision."""
    from chalicelib.datasets.registry import sources

    _, database = administer()
    found = sources(database)
    if machine:
        show.as_json(found)
        return
    show.table(
        ("source", "revision", "connection", "table, query, file or store"),
        [(s["name"], s["revision"], s["connection"], _what(s)) for s in found],
        "There are no sources. `leaseway source register NAME --connection CONNECTION --table TABLE` adds one,"
        " and `leaseway source upload NAME FILE`.",
    )


@source.command("remove")
@click.argument("name")
@click.confirmation_option(prompt="Remove this source, with all its revisions and files?", help="Don't ask.")
def source_remove(name: str) -> None:
    """Remove the source NAME, which nothing needs: with all its revisions, and the files that were uploaded as it.

    It is refused, with who needs it, while a dataset's definition or a manifest names it, a version was made from it,
    a job is at work on it, or a failure may be run again with it.

    Examples:
      leaseway source remove roads
      leaseway source remove roads --yes
    """
    from chalicelib.datasets import registry
    from chalicelib.db import statements
    from chalicelib.exports import StorageAway, StorageRefused, Store
    from chalicelib.security import record_act

    settings, database = administer()
    with database.transaction() as tx:
        if not registry.take_source(tx, name):
            raise Refused(f"There is no source {name}: see `leaseway source list`.")
        _refuse_users(f"Source {name}", tx.run(statements("chalicelib.cli").list_users_of_source, name=name))
        record_act(tx, None, "source_remove", target=name)
        # At once, under the lock: whoever uploads the file again finds it by its content, and would lose it to cleanup.
        try:
            for key in registry.remove_source(tx, name):
                Store.of(settings).delete(key)
        except (StorageAway, StorageRefused) as error:
            raise Refused(f"Object storage didn't remove the files of {name}, which stays: try it again.") from error
    click.echo(f"Source {name} is removed.")


def _what(source: dict[str, Any]) -> str:
    if source["store"]:
        return f"the store of {source['store']}"
    return str(source["relation"] or source["query"] or _file(source["file"]))


def _file(file: dict[str, Any]) -> str:
    return f"{file['dialect']['format']}, {show.many(file['records'], 'record')}, {show.size(file['bytes'])}"


COMMANDS = (connection, source)
