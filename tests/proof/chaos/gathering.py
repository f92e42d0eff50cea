"""Everything that there is at the end, read around the proxies, once what garbage there is has been removed."""

import hashlib
import random
from typing import Any

import psycopg
from psycopg.rows import dict_row

from chalicelib.cli.local import run_function
from localstack.stack import BUCKET

from .callers import ROWS, Callers
from .faults import Journal
from .history import History, Seen, Taken, content, generations, triples
from .stage import CONTRACTS, INVOCATION, RECORDS, Stage

SAMPLE = 2_000
"""Files that are read back whole; of all of them it is known that they are there."""

CLEANUPS = 12


def clean_up(stage: Stage) -> None:
    """Remove what is garbage, twice; the quarter of an hour between is left out, for nobody writes any more."""
    with psycopg.connect(stage.dsn, autocommit=True) as database:
        for _ in range(CLEANUPS):
            database.execute("update engine.ledger set next_try_at = engine.clock() where status = 'garbage'")
            run_function(stage.stack, "Cleanup")
            [(left,)] = database.execute("select count(*) from engine.ledger where status = 'garbage'").fetchall()
            if left == 0:
                return


def gathered(stage: Stage, callers: Callers, journal: Journal, seed: int) -> History:
    """The whole history."""
    history = History(
        stage.stack.public_url,
        callers.accepted,
        faults=journal.faults,
        seen=callers.seen,
        unexpected=callers.unexpected,
        answers=callers.answers,
        looks=callers.looks,
        turns=callers.turns,
        contracts=set(CONTRACTS),
        rows_of_a_load=ROWS,
        records=RECORDS,
    )
    with psycopg.connect(stage.dsn, autocommit=True, row_factory=dict_row) as database:
        _engine(history, database)
        _datasets(history, database, stage.counts)
    with psycopg.connect(stage.outside, autocommit=True) as outside:
        for table in CONTRACTS.values():
            history.targets[table] = callers.at_table(outside, table)
        rows = outside.execute(
            "select relname from pg_class where relnamespace = 'leaseway'::regnamespace and relkind = 'r'"
        ).fetchall()
        history.left += [f"{name} at the target" for (name,) in rows if name != "leaseway_fence"]
    history.left += [f"export {key} of the data service" for key in stage.exports.left()]
    answer = stage.http.post(
        f"{stage.oxigraph}/query",
        content="SELECT DISTINCT ?g WHERE { GRAPH ?g { ?s ?p ?o } }",
        headers={"Content-Type": "application/sparql-query", "Accept": "application/sparql-results+json"},
    )
    for row in answer.raise_for_status().json()["results"]["bindings"]:
        name = row["g"]["value"]
        history.graphs[name] = Seen(name, *triples(stage.http, stage.oxigraph, name))
    _files(history, stage, seed)
    return history


def said_of(stage: Stage, history: History, taken: Taken) -> list[str]:
    """What became of a job whose attempt ended, the faults about its claim, and what the worker's log has of that."""
    found = [f"{event['at']:%H:%M:%S.%f} {event['kind']} {event['claim_id']}" for event in history.by_job[taken.job]]
    for fault in history.faults:
        if fault.began - 2 < taken.began < fault.ended + 2:
            between = f"{fault.began - taken.began:+.3f} to {fault.ended - taken.began:+.3f} s after it was claimed"
            found.append(f"{fault.kind}, {between}: claim {fault.claim} {fault.about}")
    logs = stage.stack.client("logs")
    during = {"startTime": int((taken.began - 1) * 1000), "endTime": int((taken.ended + INVOCATION) * 1000)}
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName=f"/aws/lambda/{stage.function('Worker')}", **during
    )
    lines = [event for page in pages for event in page["events"]]
    claimed = f'"claim": {taken.claim},'
    for stream in {event["logStreamName"] for event in lines if claimed in event["message"]}:
        of_it = [event["message"].rstrip() for event in lines if event["logStreamName"] == stream]
        at = next(n for n, line in enumerate(of_it) if claimed in line)
        found += of_it[max(0, at - 5) : at + 15]
    return found


def _engine(history: History, database: psycopg.Connection[dict[str, Any]]) -> None:
    jobs = database.execute(
        "select id::text, pipeline, subject, state, attempts, claim_id, accepted_at, started_at, finished_at"
        ", version, order_number from engine.job"
    )
    history.jobs = {job["id"]: job for job in jobs}
    failures = database.execute("select job_id::text, pipeline, subject, code, details, attempts from engine.failure")
    history.failures = {failure["job_id"]: failure for failure in failures}
    history.events = database.execute(
        "select job_id::text, at, kind, claim_id, attempts, details from engine.job_event order by id"
    ).fetchall()
    history.ledger = database.execute(
        "select job_id::text, claim_id, kind, locator, status from engine.ledger"
    ).fetchall()
    for row in database.execute("select job_id::text from engine.outbox").fetchall():
        history.left.append(f"a wake-up of {row['job_id']}")
    for row in database.execute(
        "select relname from pg_class where relnamespace = 'staging'::regnamespace and relkind = 'r'"
    ).fetchall():
        history.left.append(f"{row['relname']} in staging")


def _datasets(history: History, database: psycopg.Connection[dict[str, Any]], counts: tuple[str, ...]) -> None:
    datasets = database.execute("select id, last_version, current_version from dataset.dataset")
    history.datasets = {row["id"]: row for row in datasets}
    versions = database.execute(
        "select dataset_id, number, job_id::text, fence, files, documents ->> 'nt' as nt from dataset.version"
    )
    for row in versions.fetchall():
        _, _, what, size = content(row.pop("nt"))
        history.versions.append(row | {"content": what, "size": size})
    loads = database.execute("select job_id::text, rows, inserted, updated, deleted from dataset.load")
    history.loads = {row["job_id"]: row for row in loads}
    for dataset in counts:
        rows = database.execute(f"select load, count(*) as rows from store.{dataset} group by load")
        history.counts |= {(dataset, row["load"]): row["rows"] for row in rows}
    stock = database.execute("select distinct generation from store.stock")
    history.stock = {row["generation"] for row in stock}
    audits = database.execute(
        "select job_id::text, contract, outcome, fence, started_at, finished_at from refresh.audit"
    )
    history.audits = [row | {"table": CONTRACTS[row["contract"]]} for row in audits.fetchall()]


def _files(history: History, stage: Stage, seed: int) -> None:
    s3 = stage.stack.client("s3")
    known = {file["key"]: file["sha256"] for version in history.versions for file in version["files"]}
    keys = [
        item["Key"]
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        for item in page.get("Contents", [])
    ]
    read = set(random.Random(seed).sample(keys, min(SAMPLE, len(keys))))
    for key in keys:
        if key not in read:
            history.objects[key] = known.get(key, "")
            continue
        body = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        history.objects[key] = hashlib.sha256(body).hexdigest()
        if key.endswith(".csv") and key in known and (found := generations(body)) is not None:
            history.generations[key] = found
    for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=BUCKET):
        history.left += [f"an open upload of {upload['Key']}" for upload in page.get("Uploads", [])]
