"""The demo: from nothing to a published dataset, and where to look."""

import hashlib
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import resources
from pathlib import Path
from time import monotonic
from typing import Any

import click
import httpx
from psycopg.conninfo import conninfo_to_dict

from . import local, show
from .publishing import until_it_ends
from .remote import Refused, Remote

DATASET = "flights"
SOURCE = "flights"
CONNECTION = "nyc"
SECRET = "LEASEWAY_SECRET_NYC"  # noqa: S105 - the name of the variable that holds the address


def run() -> None:
    """Do it all, and print where to look."""
    show.heading("Flights from New York City in 2013, published from nothing")
    server = prepare()
    version = until_it_ends(server, DATASET, ask(server))["version"]
    report(server, version)
    advise(server)


@contextmanager
def step(label: str) -> Iterator[None]:
    """Show one step with how long it took."""
    out, began = show.console(), monotonic()
    with out.status(f"{label} …") if out.is_terminal else nullcontext():
        yield
    click.echo(f"  {label:<64}{monotonic() - began:6.1f} s")


def prepare() -> Remote:
    """Bring the stack up, deploy the app and register the dataset; what is there already stays."""
    from chalicelib.datasets.registry import add_connection, register_source
    from localstack.deploy import deploy

    from .flights import load_flights

    stack = local.enter()
    with step("PostgreSQL, LocalStack, triple store and front port are up"):
        stack.start()
    environment = stack.environment()
    with step("336,776 flights are in a database of their own"):
        # The password of the first run stays: a new one would mean a new deployment, and fail what runs.
        password = conninfo_to_dict(environment.get(SECRET, "")).get("password") or secrets.token_urlsafe()
        stack.keep(SECRET, load_flights(environment["DATABASE_URL"], local.CACHE, str(password)))
    with step("the app is deployed: API, workers, scheduled functions"):
        deploy(stack)
        local.catch_up(stack)
    with step("connection, source, tokens and definition are registered"):
        _, database = local.administer()
        add_connection(database, CONNECTION, SECRET)
        register_source(database, SOURCE, CONNECTION, relation="nyc.flights", query=None)
        local.keep_tokens(database)
        server = local.here("publisher")
        server.ask("PUT", f"/datasets/{DATASET}/definition", json=definition())
    return server


def definition() -> Any:
    """Return what the flights are: the file is also an example to copy."""
    return json.loads((resources.files(__package__) / "flights.json").read_text(encoding="utf-8"))


def ask(server: Remote) -> httpx.Response:
    """Ask for a publication, and show the answer as it came."""
    address = f"/datasets/{DATASET}/publications"
    answer = server.ask("POST", address, json={})
    click.echo(f"\n  POST {server.url}{address}")
    click.echo(f"  {answer.status_code} {answer.reason_phrase}")
    for name in ("Location", "Retry-After"):
        click.echo(f"  {name}: {answer.headers[name]}")
    click.echo()
    return answer


def report(server: Remote, version: int) -> None:
    """Print where to look; one file is downloaded and compared with what the catalogue says of it."""
    entry = f"{server.url}/datasets/{DATASET}"
    record = server.get(f"/datasets/{DATASET}/versions/{version}")
    click.echo(f"\nVersion {version} is published: {show.amount(record['records'])} records.\n")
    show.facts(
        [
            ("  the entry", f"{entry}  (Turtle)"),
            ("", f"{entry}.jsonld"),
            ("", f"{entry}.rdf"),
            ("  this version", f"{entry}/versions/{version}"),
            ("  the catalogue", f"{server.url}/catalog"),
            ("  the status", f"{server.url}/publications/{record['publication']}  (with a token)"),
        ]
    )
    for file in record["files"]:
        click.echo(f"\n  {file['format']:<5}{show.size(file['bytes']):>9}  {file['url']}\n  sha256  {file['sha256']}")
    smallest = min(record["files"], key=lambda file: int(file["bytes"]))
    check(smallest)
    click.echo(f"\n{smallest['name']} was downloaded: its size and SHA-256 are as the catalogue says.")


def check(file: dict[str, Any]) -> None:
    """Download a file and compare its size and SHA-256 with what is said of it."""
    digest, octets = hashlib.sha256(), 0
    with httpx.stream("GET", file["url"], follow_redirects=True, timeout=60) as answer:
        answer.raise_for_status()
        for block in answer.iter_bytes():
            digest.update(block)
            octets += len(block)
    if (octets, digest.hexdigest()) != (file["bytes"], file["sha256"]):
        raise Refused(
            f"{file['url']} has {octets} bytes with SHA-256 {digest.hexdigest()}, which isn't what the record says."
        )


def advise(server: Remote) -> None:
    """Print what to try next."""
    command = local.CHECKOUT / ".venv" / "bin" / "leaseway"
    leaseway = _relative(command) if command.exists() else "leaseway"
    token = _relative(local.token_file("reader"))
    entry = f"{server.url}/datasets/{DATASET}"
    click.echo("\nTry next:")
    for why, what in (
        ("the entry, as JSON-LD", f"curl -H 'Accept: application/ld+json' {entry}"),
        ("the current file", f"curl -LO {entry}/files/{DATASET}.csv"),
        ("why isn't it newer?", f"{leaseway} status {DATASET}"),
        ("the same over HTTP", f'curl -H "Authorization: Bearer $(cat {token})" {entry}/status'),
        ("publish every night", f"{leaseway} schedule set {DATASET} --every day --at 02:00"),
        ("the next version; this one stays", "make demo"),
        ("kill the worker in the middle, watch the recovery", "make demo-crash"),
        ("stop; `make up` brings everything back", "make down"),
    ):
        click.echo(f"\n  {click.style(f'# {why}', dim=True)}\n  {what}")


def _relative(path: Path) -> Path:
    """As one would type it in the current folder."""
    absolute = path.absolute()
    return absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute
