"""Publications whose data service runs elsewhere, and everything that it may do to them."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import boto3
import psycopg
import pytest

from chalicelib.datasets import registry
from chalicelib.exports import data_service, storage
from chalicelib.exports.data_service import RemoteDataService, ServiceAway
from chalicelib.exports.storage import Upload
from chalicelib.pipelines import withdraw
from chalicelib.pipelines.export.staging import OutOfTime
from chalicelib.pipelines.publication.copying import Copying
from tests.data_service.server import TOKEN, DataService, serving
from tests.integration.pipelines.conftest import BUCKET, CLOSED, Killed


@pytest.fixture
def remote(office) -> Iterator[DataService]:
    with serving() as service:
        service.elsewhere = f"{service.url}/elsewhere"
        office.point(LEASEWAY_DATA_SERVICE_URL=service.url, LEASEWAY_DATA_SERVICE_TOKEN=TOKEN)
        yield service
        assert service.faults == []


def published(office, job, *, attempts: int = 1) -> None:
    """It is published once, its files are those of the data service, and nothing else is left."""
    status = office.engine.status(job)
    assert (status.status, getattr(status, "state", ""), status.attempts) == ("succeeded", "PUBLISHED", attempts)
    (version,) = registry.versions(office.db, "trees")
    files = registry.version(office.db, "trees", version["number"])["files"]
    assert [file["name"] for file in files] == ["trees.csv", "trees.json", "trees.xml"]
    for file in files:
        content = office.content(file["key"])
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["bytes"], file["sha256"])
        assert content.startswith(file["format"].encode())
    assert office.store.held("http://localhost:4000/datasets/trees").fence == version["fence"]


def nothing_left(office, remote, files: int) -> None:
    """After cleanup: the version's files, nothing at the data service, no garbage."""
    for _ in range(3):
        office.clean_up()
        office.clock.advance("16 min")
    assert (len(office.files()), office.uploads(), remote.left()) == (files, [], [])
    assert office.db.run("select 1 from engine.ledger where status <> 'kept'") == []


def test_a_publication_takes_its_files_from_the_data_service_that_the_settings_name(office, remote) -> None:
    job = office.publish()
    office.run(2)

    published(office, job)
    assert remote.asked == ["start", "start", "file", "file", "file", "look"]
    assert office.engine.jobs(pipeline="export") == []
    assert office.engine.status(job).progress.records == remote.records
    assert office.engine.status(job).result["unpublished"] == ["owner", "Einwohner\n" * 10]
    nothing_left(office, remote, 3)
    assert remote.asked[6:] == ["delete", "delete"]


def test_the_data_service_is_told_names_and_revisions_and_nothing_that_reaches_a_source(office, remote) -> None:
    office.publish()
    office.run(2)

    assert remote.bodies[0].keys() == {"fence", "dataset", "definition", "source", "columns", "files"}
    assert (remote.bodies[0]["source"], remote.bodies[0]["definition"]) == ({"name": "trees", "revision": 1}, 1)
    for secret in ("postgresql", "src.trees", "select", "LEASEWAY_SECRET"):
        assert secret not in str(remote.bodies)


@pytest.mark.parametrize(
    ("where", "kind"), [("start", "500"), ("file", "cut short"), ("file", "429"), ("look", "lost reply")]
)
def test_an_hour_without_it_fails_no_publication_and_spends_no_attempt(office, remote, where, kind) -> None:
    remote.misbehave(where, kind, None)
    job = office.publish()
    office.run(60, clean_up=False)
    waiting = office.engine.status(job)
    assert (waiting.status, waiting.attempts) == ("running", 1)
    assert waiting.waiting_for.code == "data_service_unreachable"
    assert len(remote.asked) < 40  # the pauses grow
    remote.behave()
    office.run(20, clean_up=False)

    published(office, job)
    nothing_left(office, remote, 3)


def test_it_is_not_asked_again_before_its_retry_after(office, remote) -> None:
    remote.misbehave("start", "429")
    job = office.publish()
    office.work()

    waiting = office.engine.status(job)
    assert waiting.waiting_for.until - office.clock.now() == timedelta(seconds=900)


def test_beyond_the_budget_the_failure_names_the_host(office, remote) -> None:
    office.point(LEASEWAY_DATA_SERVICE_URL="http://127.0.0.1:9/v1")
    job = office.publish()
    office.work()
    office.clock.advance("5 hours")
    office.work()
    office.clock.advance("59 min")
    office.run(5, clean_up=False)

    failure = office.engine.status(job)
    assert (failure.code, failure.details["waiting_for"]) == ("deadline_exceeded", "data_service_unreachable")
    assert (failure.details["host"], failure.details["status"]) == ("127.0.0.1", "unreachable")


MISMATCHES = [
    ("file", "wrong bytes"),
    ("file", "a shorter file"),
    ("file", "a longer file"),
    ("file", "404"),
    ("start", "part of the files"),
    ("look", "another checksum"),
]


@pytest.mark.parametrize(("where", "kind"), MISMATCHES)
def test_files_that_are_not_what_their_list_says_are_copied_anew(office, remote, where, kind) -> None:
    remote.patience = 1
    remote.misbehave(where, kind)
    job = office.publish()
    office.run(3, clean_up=False)

    published(office, job, attempts=2)
    nothing_left(office, remote, 3)


def test_a_file_without_end_is_left_when_it_is_too_long(office, remote, monkeypatch) -> None:
    remote.patience = 1
    remote.misbehave("file", "huge")
    write, taken = Upload.write, []

    def counting(upload: Upload, data: bytes) -> None:
        taken.append(len(data))
        if sum(taken) > 1_000_000:
            raise Killed
        write(upload, data)

    monkeypatch.setattr(Upload, "write", counting)
    job = office.publish()
    office.run(3, clean_up=False)

    published(office, job, attempts=2)
    assert sum(taken) < 100_000  # of three files of 9,000 bytes


def test_a_file_that_is_smaller_than_its_list_says_is_a_mismatch_whatever_its_checksum(
    office, remote, monkeypatch
) -> None:
    document = remote.document

    def larger(kept: Any) -> dict[str, Any]:
        told = document(kept)
        return told | {"files": [file | {"bytes": file["bytes"] + 1} for file in told.get("files", [])]}

    monkeypatch.setattr(remote, "document", larger)
    job = office.publish()
    office.run(6, clean_up=False)

    assert office.engine.status(job).code == "file_mismatch"


@pytest.mark.parametrize(
    ("where", "kind", "code"),
    [
        ("file", "wrong bytes", "file_mismatch"),
        ("look", "another checksum", "file_mismatch"),
        ("start", "lost export", "export_lost"),
        ("start", "400", "data_service_refused"),
        ("file", "redirect", "data_service_refused"),
    ],
)
def test_after_three_attempts_the_failure_says_what_it_was_and_nothing_is_left(
    office, remote, where, kind, code
) -> None:
    remote.misbehave(where, kind, None)
    job = office.publish()
    office.run(6, clean_up=False)

    failure = office.engine.status(job)
    assert (failure.code, failure.attempts) == (code, 3)
    assert failure.details.get("host") == (None if code == "export_lost" else "127.0.0.1")
    assert registry.versions(office.db, "trees") == []
    nothing_left(office, remote, 0)


def test_an_export_that_the_data_service_forgot_is_made_anew_by_the_next_attempt(office, remote) -> None:
    job = office.publish()
    office.work()
    remote.lose()
    office.run(3, clean_up=False)

    published(office, job, attempts=2)
    nothing_left(office, remote, 3)


def test_another_list_than_the_one_begun_with_means_two_exports_and_no_file_of_the_first_is_kept(
    office, remote
) -> None:
    remote.patience = 1
    remote.misbehave("file", "500", after=1)
    job = office.publish()
    office.work()
    next(iter(remote.exports.values())).edition += 1
    office.run(4, clean_up=False)

    published(office, job, attempts=2)
    assert b",1,0," in office.content(registry.version(office.db, "trees", 1)["files"][0]["key"])
    nothing_left(office, remote, 3)


def test_what_is_copied_is_not_asked_for_again(office, remote, monkeypatch) -> None:
    """A worker dies while it copies the last of three files."""
    complete, done = Upload.complete, []

    def dying(upload: Upload) -> Any:
        done.append(upload.key)
        if len(done) == 3:
            raise Killed
        return complete(upload)

    monkeypatch.setattr(Upload, "complete", dying)
    monkeypatch.setattr(Upload, "abort", lambda upload: None)  # a killed process aborts nothing
    job = office.publish()
    office.run(4, clean_up=False)

    published(office, job, attempts=2)
    assert [key.rpartition("/")[2] for key in done] == ["trees.csv", "trees.json", "trees.xml", "trees.xml"]
    assert remote.asked.count("file") == 3  # its parts were all there
    nothing_left(office, remote, 3)


# A file of many parts


@pytest.fixture
def small(monkeypatch) -> None:
    """Parts so small that a file is ten of them; moto's server asks for 5 MiB else."""
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 0)
    monkeypatch.setattr(storage, "PART", 900)
    monkeypatch.setattr(data_service, "PIECE", 300)


def killed_in_the_middle(monkeypatch, *pieces: int) -> None:
    """Kill whoever copies these of all the pieces that are copied."""
    write, seen = Upload.write, iter(range(10_000))

    def writing(upload: Upload, data: bytes) -> None:
        if next(seen) in pieces:
            raise Killed
        write(upload, data)

    monkeypatch.setattr(Upload, "write", writing)


def in_invocations(office, job) -> list[str]:
    """Each has time for some twenty looks at it; the events of the job when it has ended."""
    for _ in range(100):
        left = iter(range(130, 0, -5))
        office.engine.work_on("work", [], lambda left=left: float(next(left, 0)))
        if office.engine.status(job).status in ("succeeded", "failed"):
            break
        office.clock.advance("1 s")
    return [event["kind"] for event in office.engine.history(job)]


@pytest.mark.parametrize(("kind", "kills"), [("", (20, 50, 60, 85)), ("whole", (20,))])
@pytest.mark.usefixtures("small")
def test_whoever_is_killed_the_next_goes_on_from_the_last_part(office, remote, monkeypatch, kind, kills) -> None:
    """More often than there are attempts; also where the service knows no Range, and what is there is passed over."""
    if kind:
        remote.misbehave("file", kind, None)
    killed_in_the_middle(monkeypatch, *kills)
    job = office.publish()
    office.run(15, clean_up=False)

    published(office, job, attempts=1)
    assert remote.asked.count("file") == 3 + len(kills)
    assert len(remote.ranges) == len(kills)
    nothing_left(office, remote, 3)


@pytest.mark.usefixtures("small")
def test_a_file_of_many_invocations_is_handed_over_and_never_begun_anew(office, remote) -> None:
    remote.patience = 1
    job = office.publish()
    events = in_invocations(office, job)

    published(office, job)
    assert events.count("claimed") > 3
    assert remote.ranges
    assert len(office.files()) == 3
    assert office.uploads() == []


@pytest.mark.usefixtures("small")
def test_a_store_that_hangs_in_the_last_moments_is_not_waited_for_longer(office, remote, monkeypatch) -> None:
    settle = Upload.settle
    monkeypatch.setattr(
        Upload,
        "settle",
        lambda upload, waiting=None: [waiting() for _ in range(9)] if waiting else settle(upload),
    )
    job = office.publish()
    in_invocations(office, job)

    published(office, job)


@pytest.mark.usefixtures("small")
def test_a_file_that_breaks_off_goes_on_where_it_broke_off(office, remote) -> None:
    remote.misbehave("file", "cut short", 2)
    job = office.publish()
    office.run(10, clean_up=False)

    published(office, job)
    assert len(remote.ranges) == 2
    assert "bytes=0-" < remote.ranges[0] < remote.ranges[1]


@pytest.mark.parametrize(("kind", "attempts"), [("wrong bytes", 1), ("404", 3)])
@pytest.mark.usefixtures("small")
def test_a_file_that_goes_on_otherwise_than_it_began_is_copied_anew(
    office, remote, monkeypatch, kind, attempts
) -> None:
    killed_in_the_middle(monkeypatch, 20)
    remote.misbehave("file", kind, 1, after=1)
    job = office.publish()
    office.run(6, clean_up=False)

    published(office, job, attempts=attempts)  # parts that are new give them back
    assert len(remote.ranges) == 1
    nothing_left(office, remote, 3)


@pytest.mark.usefixtures("small")
def test_another_part_in_a_parts_place_fails_the_completion_and_the_file_is_copied_anew(
    office, remote, monkeypatch
) -> None:
    """A worker that counts as dead, and isn't."""
    killed_in_the_middle(monkeypatch, 20)
    job = office.publish()
    office.run(1, clean_up=False)
    (upload,) = boto3.client("s3").list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    boto3.client("s3").upload_part(
        Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"], PartNumber=2, Body=b"z" * 900
    )
    office.run(6, clean_up=False)

    published(office, job)
    assert [event["kind"] for event in office.engine.history(job)].count("retried") == 1
    nothing_left(office, remote, 3)


def test_where_three_invocations_bring_a_file_no_further_the_failure_says_so(office, remote, monkeypatch) -> None:
    def over(_: Copying) -> None:
        raise OutOfTime

    monkeypatch.setattr(Copying, "_beat", over)
    job = office.publish()
    office.run(2, clean_up=False)

    failure = office.engine.status(job)
    assert (failure.code, failure.details["host"]) == ("source_too_large", "127.0.0.1")


def test_storage_that_is_away_while_it_copies_is_waited_for(office, remote, monkeypatch, s3_url) -> None:
    office.point(AWS_ENDPOINT_URL=CLOSED)
    job = office.publish()
    office.run(3, clean_up=False)
    assert office.engine.status(job).waiting_for.code == "storage_unreachable"
    office.point(AWS_ENDPOINT_URL=s3_url)
    office.run(5, clean_up=False)

    published(office, job)


def test_a_newer_claim_that_has_asked_stops_an_older_one(office, remote) -> None:
    job = office.publish()
    office.work()
    with office.db.transaction() as tx:
        newer = office.engine.fence(tx)
        office.engine.fence(tx)
    remote.exports[str(job)].fence = newer + 3
    office.clock.advance("6 s")
    office.work()
    assert office.engine.status(job).status == "running"  # the older one said nothing, and recovery comes
    office.run(5, clean_up=False)

    published(office, job, attempts=2)


def test_a_fence_of_a_newer_database_fails_with_its_remedy_and_restored_mends_it(office, remote) -> None:
    job = office.publish()
    office.work()
    newer = office.engine.fence(office.db) + 1_000_000
    remote.exports[str(job)].fence = newer
    office.run(2, clean_up=False)
    assert office.engine.status(job).code == "fence_regressed"
    assert office.engine.status(job).details["found"] == newer

    office.engine.restored(RemoteDataService(remote.url, TOKEN).newest_fence())
    again = office.engine.requeue(job).job.id
    office.run(2, clean_up=False)
    published(office, again)


def test_a_publication_fails_with_its_exports_own_code(office, remote) -> None:
    remote.failure = {"code": "source_changed", "details": {"column": "name", "sqlstate": "42703"}}
    job = office.publish()
    office.run(2)

    failure = office.engine.status(job)
    assert (failure.code, failure.details["column"], failure.details["host"]) == ("source_changed", "name", "127.0.0.1")
    nothing_left(office, remote, 0)


def test_an_empty_surprise_is_refused_before_a_file_is_copied(office, remote) -> None:
    remote.records = 0
    job = office.publish()
    office.run(2)

    assert office.engine.status(job).code == "too_few_records"
    assert "file" not in remote.asked
    nothing_left(office, remote, 0)


def test_whichever_service_made_an_export_is_asked_to_remove_it(office, remote, monkeypatch) -> None:
    remote.failure = {"code": "source_changed"}
    office.publish()
    office.run(2)
    address = remote.url
    office.point(LEASEWAY_DATA_SERVICE_URL="http://127.0.0.1:9/v1")
    assert office.clean_up()["backed_off"] == 1
    office.clock.advance("1 day")
    monkeypatch.delenv("LEASEWAY_DATA_SERVICE_URL")
    office.point()
    assert office.clean_up()["backed_off"] == 1
    office.clock.advance("1 day")
    job = office.publish()  # by the built-in one meanwhile
    office.run(2)
    assert office.engine.status(job).state == "PUBLISHED"
    office.point(LEASEWAY_DATA_SERVICE_URL=address)

    for where in ("500", "400", "accepted"):
        remote.misbehave("delete", where)
        assert office.clean_up()["backed_off"] == 1
        office.clock.advance("1 day")
    office.clock.advance("7 hours")
    nothing_left(office, remote, 3)


def test_a_withdrawn_versions_files_go_and_the_ledger_forgets_them(office, remote) -> None:
    office.publish()
    office.run(2)
    withdraw(office.engine, "trees", 1)
    office.run(2)
    assert office.files() == []
    nothing_left(office, remote, 0)
    assert office.db.run("select 1 from engine.ledger where kind = 's3_object'") == []


def test_T28_no_row_holds_the_token_or_what_the_service_said(office, remote, admin_database_dsn) -> None:
    remote.misbehave("start", "400", None)
    office.publish()
    office.run(4)
    with psycopg.connect(admin_database_dsn) as admin:
        tables = admin.execute(
            "select format('%I.%I', schemaname, tablename) from pg_tables"
            " where schemaname in ('engine', 'dataset', 'access')"
        ).fetchall()
        rows = "\n".join(
            str(row) for (table,) in tables for row in admin.execute(f"select t::text from {table} t").fetchall()
        )
    assert "data_service_refused" in rows
    assert "canary" not in rows


def test_a_step_without_a_checkpoint_of_this_service_begins_anew(office, remote, monkeypatch) -> None:
    """The settings change while a publication is on its way: what one service began isn't looked for at the other."""
    job = office.publish()
    office.work()
    with serving() as other:
        office.point(LEASEWAY_DATA_SERVICE_URL=other.url)
        office.run(2, clean_up=False)
        published(office, job)
        assert list(other.exports) == [str(job)]
        assert office.clean_up()["backed_off"] == 1
    office.point(LEASEWAY_DATA_SERVICE_URL=remote.url)


# Crash points


class Point:
    """Counts the client's calls, and disturbs one: the worker is killed before or after it, or its reply is lost."""

    def __init__(self, number: int | None, mode: str):
        self.number = number
        self.mode = mode
        self.calls = 0

    def __call__(self, act: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.calls - 1 != self.number:
            return act()
        if self.mode == "killed before":
            raise Killed
        act()
        if self.mode == "killed after":
            raise Killed
        raise ServiceAway("127.0.0.1", "unreachable")


def disturbed(monkeypatch, point: Point) -> None:
    ask, read = RemoteDataService._ask, RemoteDataService.read
    monkeypatch.setattr(
        RemoteDataService, "_ask", lambda client, *args, **more: point(lambda: ask(client, *args, **more))
    )
    monkeypatch.setattr(RemoteDataService, "read", lambda client, *args: iter(point(lambda: list(read(client, *args)))))
    monkeypatch.setattr(Upload, "abort", lambda upload: None)  # a killed process aborts nothing


CALLS = 8  # start twice, three files, look, delete twice


@pytest.mark.parametrize("number", range(CALLS))
@pytest.mark.parametrize("mode", ["killed before", "killed after", "reply lost"])
def test_whatever_call_of_the_client_goes_wrong(office, remote, monkeypatch, number, mode) -> None:
    point = Point(number, mode)
    disturbed(monkeypatch, point)
    job = office.publish()
    office.run(4, clean_up=False)
    published(office, job, attempts=2 if mode.startswith("killed") and number < 6 else 1)
    for _ in range(2):
        with suppress(Killed):
            office.clean_up()
        office.clock.advance("16 min")

    nothing_left(office, remote, 3)
    assert point.calls >= CALLS
