"""An export that outlasts its invocation: copied once, written by as many as it takes, killed on the way."""

import gzip
import hashlib
from collections import Counter
from functools import cache
from uuid import UUID

import psycopg
import pytest
from botocore.exceptions import ClientError

from chalicelib.datasets import registry
from chalicelib.engine import Leased
from chalicelib.exports import Store, gzipped, relation, storage
from chalicelib.exports import staged as copies
from chalicelib.exports.errors import SourceError
from chalicelib.exports.staged import Pieces
from chalicelib.pipelines.export import ExportSubject, removal, resumable, staging, steps
from chalicelib.pipelines.export.staging import OutOfTime
from tests.integration.exports.memory import MemoryS3

from .conftest import Killed
from .test_files import staging_tables, upload  # noqa: F401

RECORDS = 480
ENOUGH, LITTLE = 100_000, 130
"""Seconds of an invocation."""


class Invocation:
    """The time of one: each look at it takes two seconds."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self):
        self.seconds -= 2
        return self.seconds


class Killer:
    """Hears of the calls and kills at the wanted ones, each once."""

    def __init__(self, *at):
        self.at = set(at)
        self.heard = 0

    def __call__(self, *_):
        self.heard += 1
        if self.heard in self.at:
            raise Killed


@pytest.fixture
def s3(office, monkeypatch):
    """Object storage in memory, and everything so small that a few trees are many pieces and parts."""
    made = MemoryS3()
    store = Store("files", lambda: made)
    for module in (steps, removal):
        monkeypatch.setattr(module, "storage", cache(lambda: store))
    for module, name, value in (
        (copies, "PIECE", 10),
        (copies, "MEMBER", 10),
        (gzipped, "MEMBER", 10),
        (storage, "PART", 600),
    ):
        monkeypatch.setattr(module, name, value)
    return made


@pytest.fixture
def outlasting(monkeypatch):
    """Any export may outlast its invocation."""
    monkeypatch.setattr(resumable, "SECONDS_PER_VALUE", 1e6)


@pytest.fixture(autouse=True)
def trees(office, admin_database_dsn):
    """Many of them, whatever they are; an administrator's connection."""
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute("drop schema staging cascade; create schema staging")
        admin.execute("grant usage, create on schema staging to leaseway_app")
        admin.execute("truncate src.trees")
        name = "repeat('tree' || chr(11), n % 7) || n"
        admin.execute(f"insert into src.trees select n, {name} from generate_series(1, {RECORDS}) n")
        office.define(gzip=["csv"])
        yield admin


def begin(office, number=1):
    """An export alone; nobody publishes what it makes."""
    definition = registry.definition(office.db, "trees")["revision"]
    subject = ExportSubject(
        key=UUID(int=number), dataset="trees", definition=definition, source="trees", source_revision=revision(office)
    )
    return office.engine.accept("export", subject).job.id


def revision(office):
    return registry.source(office.db, "trees")["revision"]


def run(office, job, seconds=ENOUGH, *, minutes=15):
    """A new invocation for each claim, until the job has ended; what became of it."""
    for _ in range(minutes):
        more = True
        while more:
            try:
                more = office.engine.work_on("work", [], Invocation(seconds))
            except Killed:
                continue
        found = office.engine.status(job)
        if found.status in ("succeeded", "failed"):
            return found
        office.engine.recover()
        office.clock.advance("1 min")
    raise AssertionError(f"it has no end: {found}")


def contents(s3, job):
    """The files as they are served, each as the export says it is."""
    found = {}
    for file in job.result["files"]:
        found[file["name"]] = body = s3.objects[file["key"]]["bytes"]
        assert (len(body), hashlib.sha256(body).hexdigest()) == (file["bytes"], file["sha256"])
    return found


def kinds(office, job):
    return Counter(
        row["kind"] for row in office.db.run("select kind from engine.job_event where job_id = %(j)s", j=job)
    )


@pytest.fixture
def undisturbed(office, s3, trees):
    """The files as a direct export makes them, in one go."""
    done = run(office, begin(office, 99))
    assert kinds(office, done.id) == Counter(accepted=1, claimed=1, finished=1)
    return contents(s3, done), done.result["removed"]


def same(office, s3, done, undisturbed):
    """Whether it ended in the very same files, and leaves nothing else."""
    assert (contents(s3, done), done.result["removed"]) == undisturbed
    assert (done.result["records"], done.progress.records, done.progress.total) == (RECORDS,) * 3
    return True


def test_many_invocations_make_the_files_that_one_makes(office, s3, undisturbed, outlasting):
    before = set(s3.objects)
    done = run(office, begin(office), LITTLE)

    assert same(office, s3, done, undisturbed)
    assert gzip.decompress(contents(s3, done)["trees.csv.gz"]) == contents(s3, done)["trees.csv"]
    assert done.attempts == 1
    assert kinds(office, done.id)["waiting"] > 1
    assert len({file["key"].split("/")[2] for file in done.result["files"]}) > 1  # of the claims that began them
    assert staging_tables(office) == []
    office.clean_up()
    assert set(s3.objects) - before == {file["key"] for file in done.result["files"]}
    assert s3.uploads == {}


def test_an_undisturbed_export_by_way_of_a_copy_takes_one_claim(office, s3, undisturbed, outlasting):
    done = run(office, begin(office))

    assert same(office, s3, done, undisturbed)
    assert kinds(office, done.id) == Counter(accepted=1, claimed=1, finished=1)


def test_wherever_it_is_killed_twice_it_ends_in_the_same_files(office, s3, undisturbed, outlasting, monkeypatch):
    """At calls of object storage, checkpoints, notes and beats, before and after each, and some of them later again."""
    number = 0
    for name in ("save", "note", "heartbeat"):
        monkeypatch.setattr(Leased, name, heard(s3, getattr(Leased, name)))
    while True:
        number += 13
        s3.at = killer = Killer(number, number + 1 + number % 11)

        done = run(office, begin(office, number))

        assert same(office, s3, done, undisturbed), number
        if killer.heard < number:
            break
    assert number > 60
    s3.at = lambda *_: None
    kept = {row["locator"]["key"] for row in office.db.run("select locator from engine.ledger where status = 'kept'")}
    for _ in range(3):
        office.clean_up()
        office.clock.advance("1 h")
    assert (set(s3.objects), s3.uploads, staging_tables(office)) == (kept, {}, [])


def heard(s3, method):
    def told(*arguments, **more):
        s3.at(method.__name__, {})
        done = method(*arguments, **more)
        s3.at(method.__name__, {})
        return done

    return told


def test_what_dies_in_a_direct_export_goes_by_way_of_a_copy(office, s3, undisturbed):
    s3.at = Killer(8)

    done = run(office, begin(office))

    assert same(office, s3, done, undisturbed)
    assert done.attempts == 1  # the copy is progress
    assert [key for key in names(office) if key.endswith("_copy")]


def names(office):
    return [
        row["locator"]["table"] for row in office.db.run("select locator from engine.ledger where kind = 'staging'")
    ]


def test_a_direct_export_that_runs_out_of_time_is_not_killed_for_it(office, s3, undisturbed, monkeypatch):
    monkeypatch.setattr(relation, "BATCH", 1000)
    job = begin(office)
    office.engine.work_on("work", [], Invocation(34))
    assert office.engine.status(job).status == "running"

    done = run(office, job)

    assert same(office, s3, done, undisturbed)
    assert (done.attempts, kinds(office, job)["waiting"]) == (1, 1)


def test_a_place_where_it_always_dies_is_died_in_three_times(office, s3, outlasting, monkeypatch):
    write, deaths = Pieces.write, []

    def die(pieces, *arguments):
        if pieces.spec.format.name == "xml":
            deaths.append(pieces)
            raise Killed
        return write(pieces, *arguments)

    monkeypatch.setattr(Pieces, "write", die)

    failure = run(office, begin(office))

    assert failure.code == "attempts_exhausted"
    assert len(deaths) == 3  # the CSV is progress once, and no more when it is written anew


@pytest.mark.parametrize("again", [False, True])
def test_a_part_that_a_zombie_overwrites_costs_an_attempt_and_no_mixed_file(office, s3, undisturbed, outlasting, again):
    spoilt = []

    def overwrite(call, asked):
        if call == "before complete_multipart_upload" and (again or not spoilt):
            s3.uploads[asked["UploadId"]]["parts"][1] = b"?"
            spoilt.append(asked["Key"])

    s3.at = overwrite

    ended = run(office, begin(office), minutes=20)

    if again:
        assert (ended.code, ended.attempts, len(set(spoilt))) == ("storage_refused", 3, 3)
    else:
        assert same(office, s3, ended, undisturbed)
        assert spoilt[0] not in {file["key"] for file in ended.result["files"]}


@pytest.mark.parametrize("change", ["update {} set c1 = 'x' where ordinal = 7", "drop table {}", "truncate {}"])
def test_a_copy_that_is_not_what_it_was_is_made_anew(office, s3, undisturbed, outlasting, trees, change):
    job = begin(office)
    while not (tables := staging_tables(office)):
        office.engine.work_on("work", [job], Invocation(LITTLE))
    table = next(name for name in tables if name.endswith("_copy"))
    trees.execute(change.format(f"staging.{table}"))

    done = run(office, job, LITTLE)

    assert same(office, s3, done, undisturbed)
    assert kinds(office, job)["retried"] == 1
    assert len(names(office)) == 2
    assert staging_tables(office) == []


@pytest.mark.parametrize(
    ("change", "retried"),
    [("select", 0), ("delete from {} where ordinal = 7", 1), ("truncate {}", 1), ("drop table {}", 1)],
    ids=["none", "a record less", "emptied", "gone"],
)
def test_a_copy_is_sealed_by_whom_has_the_time(
    office, s3, undisturbed, outlasting, trees, monkeypatch, change, retried
):
    """The claim that copied is out of time for the index and the hash; meanwhile something happens to the table."""
    seal, late = resumable.sealed, []

    def too_late(connection, table, alive):
        if not late:
            late.append(table)
            raise OutOfTime
        return seal(connection, table, alive)

    monkeypatch.setattr(resumable, "sealed", too_late)
    job = begin(office)
    office.engine.work_on("work", [job], Invocation(ENOUGH))
    trees.execute(change.format(*late))

    done = run(office, job)

    assert same(office, s3, done, undisturbed)
    assert kinds(office, job)["retried"] == retried
    assert len(names(office)) == 1 + retried
    assert staging_tables(office) == []


def test_OD_66_a_copy_has_limits_of_its_own_and_the_failure_names_them(office, s3, outlasting):
    for number, (setting, details) in enumerate(
        (
            ("COPY_RECORDS", {"records": RECORDS, "maximum": 100}),
            ("COPY_BYTES", {"bytes": pytest.approx(12000, rel=0.2), "maximum": 100}),
        )
    ):
        office.point(**{f"LEASEWAY_{setting}": "100"})
        failure = run(office, begin(office, number + 1))
        office.point(**{f"LEASEWAY_{setting}": "1000000"})

        assert (failure.code, failure.details) == ("source_too_large", {"step": "EXPORT"} | details)
        assert staging_tables(office) == []


def test_a_record_that_only_its_escapes_make_too_large_is_no_copy_that_changed(
    office, s3, outlasting, trees, monkeypatch
):
    monkeypatch.setattr(relation, "LARGEST", 300_000)
    trees.execute("update src.trees set name = repeat('&', 100_000) where id = 7")  # &amp; in XML

    failure = run(office, begin(office))

    assert (failure.code, failure.attempts) == ("record_too_large", 1)
    assert failure.details.pop("bytes") > 500_000
    assert failure.details == {"step": "EXPORT", "relation": "trees", "maximum": 300_000}


def test_what_three_invocations_bring_no_further_is_too_large(office, s3, outlasting, monkeypatch):
    monkeypatch.setattr(resumable, "copy_records", lambda *_, alive, **__: [alive(n) for n in range(100)])

    failure = run(office, begin(office), LITTLE)

    assert failure.code == "source_too_large"
    assert kinds(office, failure.id)["waiting"] == 3
    assert failure.attempts == 1


def test_a_worker_that_lost_its_lease_leaves_no_copy(office, s3, outlasting, monkeypatch):
    copy = resumable.copy_records

    def frozen(*arguments, **more):
        made = copy(*arguments, **more)
        office.db.run("update engine.job set locked_until = engine.clock() where pipeline = 'export'")
        return made

    monkeypatch.setattr(resumable, "copy_records", frozen)
    begin(office)
    (worked,) = office.engine.work_on("work", [], Invocation(ENOUGH))

    assert worked.outcome == "lost"
    assert staging_tables(office) == []


def test_a_query_that_gives_other_records_in_the_copy_than_were_counted_is_no_export(office, s3, outlasting):
    query = "select id, name from src.trees where random() < 0.5"
    registry.register_source(office.db, "trees", "src", None, query)

    failure = run(office, begin(office))

    assert (failure.code, failure.details["relation"]) == ("source_changed", "query")
    assert staging_tables(office) == []


def test_an_outage_of_the_store_is_waited_for_and_gone_on_from(office, s3, undisturbed, outlasting):
    parts = []

    def away(call, asked):
        if call == "before upload_part":
            parts.append(call)
            if 5 < len(parts) < 9:
                raise ClientError({"ResponseMetadata": {"HTTPStatusCode": 503}}, "UploadPart")

    s3.at = away

    done = run(office, begin(office))

    assert same(office, s3, done, undisturbed)
    assert done.attempts == 1
    assert kinds(office, done.id)["claimed"] > 1


def test_cancelled_in_the_middle_it_leaves_nothing(office, s3, outlasting):
    job = begin(office)
    office.engine.work_on("work", [job], Invocation(LITTLE))
    assert staging_tables(office)
    assert s3.uploads
    office.engine.cancel(job)
    run(office, job)
    office.clean_up()

    assert (s3.objects, s3.uploads, staging_tables(office)) == ({}, {}, [])


@pytest.fixture
def large_file(office, s3, upload, monkeypatch):  # noqa: F811
    """The trees as a file, and what a direct export makes of it."""
    upload("id;name\n" + "".join(f"{n};Bäume {n}\n" for n in range(1, RECORDS + 1)), encoding="utf-8")
    key = registry.source(office.db, "trees")["file"]["key"]
    s3.objects[key] = {"bytes": office.content(key)}
    monkeypatch.setattr(staging, "BATCH", 40)
    done = run(office, begin(office, 99))
    monkeypatch.setattr(resumable, "SECONDS_PER_VALUE", 1e6)
    return contents(s3, done), 0


def out_of_time_once(monkeypatch, meanwhile=lambda: None):
    """The invocation that read the file has no time left to copy it."""
    copy, late = resumable.copy_records, []

    def too_late(*arguments, **more):
        if not late:
            late.append(meanwhile())
            raise OutOfTime
        return copy(*arguments, **more)

    monkeypatch.setattr(resumable, "copy_records", too_late)


def test_a_large_file_is_read_once_and_goes_by_the_same_copy(office, s3, large_file, monkeypatch):
    out_of_time_once(monkeypatch)
    reads, fill = [], staging._fill
    monkeypatch.setattr(staging, "_fill", lambda *arguments: reads.append(1) or fill(*arguments))

    done = run(office, begin(office), LITTLE)

    assert same(office, s3, done, large_file)
    assert (len(reads), done.attempts) == (1, 1)
    assert staging_tables(office) == []


def test_a_large_file_whose_table_a_crash_of_the_server_empties_is_read_again(
    office, s3, large_file, monkeypatch, trees
):
    out_of_time_once(monkeypatch)
    job = begin(office)
    office.engine.work_on("work", [job], Invocation(ENOUGH))
    (table,) = staging_tables(office)
    trees.execute(f"truncate staging.{table}")

    done = run(office, job)

    assert same(office, s3, done, large_file)
    assert done.attempts == 1
    assert kinds(office, job)["waiting"] == 2  # handed over; then as when the source is away


def test_a_file_that_cannot_be_read_in_the_time_of_an_invocation_is_too_large(office, s3, large_file, monkeypatch):
    monkeypatch.setattr(staging, "BATCH", 1)

    failure = run(office, begin(office), LITTLE)

    assert failure.code == "source_too_large"
    assert staging_tables(office) == []


def test_a_reader_that_lost_its_lease_does_not_hold_up_the_end(office, s3, undisturbed, outlasting, trees):
    """It still reads the copy when the file is done: cleanup drops it later."""
    drop = staging.drop

    def locked(db, table):
        trees.execute("begin")
        trees.execute(f"select from staging.{table} limit 0")
        try:
            drop(db, table)
        finally:
            trees.execute("rollback")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "drop", locked)
        done = run(office, begin(office))

    assert same(office, s3, done, undisturbed)
    assert staging_tables(office)
    office.clean_up()
    assert staging_tables(office) == []


def once(monkeypatch, place, name, error):
    """The first call of it raises."""
    real, raised = getattr(place, name), []

    def call(*arguments, **more):
        if not raised:
            raised.append(error)
            raise error
        return real(*arguments, **more)

    monkeypatch.setattr(place, name, call)


def test_killed_when_all_files_are_there_it_only_finishes(office, s3, undisturbed, outlasting, monkeypatch):
    once(monkeypatch, Leased, "complete", Killed())

    done = run(office, begin(office))

    assert same(office, s3, done, undisturbed)
    assert done.attempts == 2
    assert len(names(office)) == 1  # there was nothing to copy


@pytest.mark.parametrize(
    ("name", "error"),
    [("measured", OutOfTime()), *(("snapshot", SourceError(code)) for code in sorted(resumable.PASSING))],
    ids=["time", *sorted(resumable.PASSING)],
)
def test_a_copy_that_cannot_be_looked_at_now_is_looked_at_later(
    office, s3, undisturbed, outlasting, monkeypatch, name, error
):
    job = begin(office)
    office.engine.work_on("work", [job], Invocation(LITTLE))
    once(monkeypatch, resumable, name, error)

    done = run(office, job)

    assert same(office, s3, done, undisturbed)
    assert (done.attempts, len(names(office))) == (1, 1)


def test_a_store_that_hangs_in_the_last_moments_is_not_waited_for_longer(
    office, s3, undisturbed, outlasting, monkeypatch
):
    monkeypatch.setattr(Pieces, "settle", lambda pieces, waiting: [waiting() for _ in range(9)])

    assert same(office, s3, run(office, begin(office), LITTLE), undisturbed)
