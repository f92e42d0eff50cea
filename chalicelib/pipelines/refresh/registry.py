"""Manifests, audits and the switch, as rows that are added; every function takes a Database or a Transaction."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from chalicelib.datasets import Fault, Invalid
from chalicelib.datasets import registry as datasets
from chalicelib.db import Row, Sql, statements
from chalicelib.engine import Refusal

from .manifest import Contract, Manifest, Outline, outline

SQL = statements("chalicelib.pipelines.refresh")
ENGINE = statements("chalicelib.engine")

DIGEST = re.compile(r"[0-9a-f]{64}")


def register(tx: Sql, manifest: Manifest) -> tuple[int, bool]:
    """Register a manifest with the revisions that its sources have now; its version, and whether that is a new one.

    The same content as the newest one's is that version again. Raises Invalid, with every fault at once.
    """
    for contract in manifest.contracts:  # what it names can't be removed until it is registered
        datasets.hold_source(tx, contract.source)
        datasets.hold_connection(tx, contract.target.connection)
    pinned = pin_sources(tx, manifest)
    while True:
        row = tx.one(SQL.register_manifest, body=Jsonb(pinned.as_json()), sha256=pinned.etag)
        if row:
            return int(row["version"]), bool(row["created"])


def read(sql: Sql, content: object) -> Manifest:
    """The manifest that decoded JSON or YAML holds; Invalid with every fault at once, names that aren't known too."""
    faults = list(_unknown(sql, outline(content)))
    try:
        made = Manifest.parse(content)
    except Invalid as invalid:
        raise Invalid([*invalid.faults, *faults]) from None
    if faults:
        raise Invalid(faults)
    return made


def pin_sources(sql: Sql, manifest: Manifest) -> Manifest:
    """The manifest with a revision for each source; Invalid where a source or connection isn't one to be used so."""
    if faults := list(_unknown(sql, outline(manifest.as_json()))):
        raise Invalid(faults)
    found = [datasets.source(sql, contract.source, contract.source_revision) for contract in manifest.contracts]
    contracts = [
        contract.model_copy(update={"source_revision": source and source["revision"]})
        for contract, source in zip(manifest.contracts, found, strict=True)
    ]
    return manifest.model_copy(update={"contracts": contracts})


def _unknown(sql: Sql, contracts: Iterable[Outline]) -> Iterator[Fault]:
    """Sources and connections that aren't there, or aren't to be used so."""
    read_from = {source["connection"] for source in datasets.sources(sql)}
    for contract in contracts:
        revision = contract.source_revision
        if datasets.NAME.fullmatch(contract.source or "") and 1 <= (revision or 1) < 2**31:
            found = datasets.source(sql, str(contract.source), revision)
            if found is None:
                wanted = f" in revision {revision}" if revision else ""
                yield Fault(f"{contract.path}.source", f"isn't registered{wanted}: `leaseway source register`")
            elif found["connection"] is None:
                yield Fault(f"{contract.path}.source", "is no table or query of a connection; name one that is")
        if datasets.NAME.fullmatch(contract.connection or ""):
            if datasets.connection(sql, str(contract.connection)) is None:
                yield Fault(f"{contract.path}.target.connection", "isn't known: `leaseway connection add`")
            elif contract.connection in read_from:
                detail = (
                    "is one that sources are read by; add another, with a login of its own that may write the target"
                )
                yield Fault(f"{contract.path}.target.connection", detail)


def manifest(sql: Sql, version: int | None = None) -> Row | None:
    """A version of the manifest, by default the newest: version, body, sha256, registered_at."""
    return sql.one(SQL.find_manifest, version=version)


def manifests(sql: Sql) -> list[Row]:
    """Every version, newest first, without its body: version, sha256, contracts (how many), registered_at."""
    return sql.run(SQL.list_manifests)


def switch(sql: Sql) -> Row:
    """Whether refreshes are enabled, since when, and the package to go back to; off where nobody ever touched it."""
    return sql.one(SQL.find_switch) or {"enabled": False, "rollback": None, "changed_at": None}


def enable(sql: Sql, rollback: str) -> None:
    """Switch refreshes on; the caller has seen that the package is there."""
    sql.run(SQL.set_switch, enabled=True, rollback=rollback)


def disable(sql: Sql) -> None:
    """Switch refreshes off: none is accepted, and the one that runs ends before its next contract."""
    sql.run(SQL.set_switch, enabled=False, rollback=None)


def check_digest(rollback: str) -> None:
    """Refuse what can't be a package's digest, with Refusal."""
    if not DIGEST.fullmatch(rollback):
        raise Refusal("unknown_package", "rollback", "It is a SHA-256: 64 of 0-9 and a-f.")


def outcomes(sql: Sql, job: UUID) -> dict[str, str]:
    """What became of a job's contracts so far, by name: refreshed, failed or skipped."""
    return {row["contract"]: row["outcome"] for row in audits(sql, job)}


def audits(sql: Sql, job: UUID) -> list[Row]:
    """A job's audit, one row a contract, in the order in which they ended."""
    return sql.run(SQL.list_audits, job=job)


def last_run(sql: Sql, target: str) -> Row | None:
    """The last run that refreshed a target: came (the records that were not rejected), watermark, finished_at."""
    return sql.one(SQL.find_last_run, target=target)


def add_audit(
    tx: Sql,
    job: UUID,
    manifest: int,
    contract: Contract,
    outcome: str,
    *,
    fence: int,
    started_at: datetime | str,
    code: str | None = None,
    details: dict[str, Any] | None = None,
    checks: list[dict[str, Any]] | None = None,
    watermark: str | None = None,
    **rows: int,
) -> None:
    """Write what became of a contract, in the transaction that holds the job; what is there already stays."""
    counted = dict.fromkeys(("read", "inserted", "updated", "deleted", "rejected"), 0) | rows
    tx.run(
        SQL.add_audit,
        job=job,
        contract=contract.name,
        manifest=manifest,
        target=contract.target.id,
        outcome=outcome,
        code=code,
        details=Jsonb(details or {}),
        checks=Jsonb(checks or []),
        watermark=watermark,
        fence=fence,
        started_at=started_at,
        **counted,
    )


def clock(sql: Sql) -> datetime:
    """The database's clock, the only one."""
    now: datetime = sql.run(ENGINE.read_clock)[0]["now"]
    return now


def targets(sql: Sql, manifest: Manifest) -> list[tuple[Contract, Row]]:
    """Each contract with how fresh its target is, and what became of the last run that reached it."""
    found = sql.run(SQL.list_targets, targets=[contract.target.id for contract in manifest.contracts])
    return list(zip(manifest.contracts, found, strict=True))
