"""Object storage: visible only when whole, checked after the upload, gone without a trace, away."""

import hashlib
import random
import socket
import threading
from dataclasses import replace
from urllib.parse import urlsplit

import boto3
import pytest
import requests
from botocore.exceptions import ClientError
from moto import mock_aws

from chalicelib.exports import StorageAway, StorageMismatch, StorageRefused, Store, storage
from chalicelib.exports.storage import PART, client

BUCKET = "files"


@pytest.fixture
def account(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)


@pytest.fixture
def s3(account):
    with mock_aws():
        made = client()
        made.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        yield made


@pytest.fixture
def store(s3):
    return Store(BUCKET, client)


no_such_upload = ClientError(
    {"Error": {"Code": "NoSuchUpload"}, "ResponseMetadata": {"HTTPStatusCode": 404}}, "CompleteMultipartUpload"
)


def everything(s3):
    """The keys that are visible, and the uploads that are open."""
    objects = [found["Key"] for found in s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]
    uploads = [upload["Key"] for upload in s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])]
    return objects, uploads


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 3 * PART + 12345])
def test_OD_77_size_and_checksum_are_of_the_bytes_served_after_the_upload(store, s3, size):
    data = random.Random(size).randbytes(size)
    upload = store.open_upload("a/b.csv", "text/csv")
    for start in range(0, size, 700_000):
        upload.write(data[start : start + 700_000])

    stored = upload.complete()

    served = s3.get_object(Bucket=BUCKET, Key="a/b.csv")
    body = served["Body"].read()
    assert body == data
    assert (stored.bytes, stored.sha256) == (len(body), hashlib.sha256(body).hexdigest())
    assert (stored.etag, "text/csv") == (served["ETag"], served["ContentType"])
    assert everything(s3) == (["a/b.csv"], [])


def test_OD_77_what_was_changed_on_its_way_is_noticed(store, monkeypatch):
    upload = store.open_upload("k", "text/csv")
    upload.write(b"as written")
    sent = upload._put
    monkeypatch.setattr(upload, "_put", lambda number, body: replace(sent(number, b"AS WRITTEN"), sha256=""))

    with pytest.raises((StorageMismatch, StorageRefused)):
        upload.complete()


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("instead", [b"other bytes!", b"shorter"])
def test_OD_77_another_object_under_the_key_is_a_mismatch(store, s3, monkeypatch, instead, checksums):
    """Somebody replaces the object between the completion and the check; the ETag isn't asked, only the bytes."""
    complete = store._client().complete_multipart_upload

    def replaced(**arguments):
        complete(**arguments)
        more = {"ChecksumAlgorithm": "SHA256"} if checksums else {}
        return s3.put_object(Bucket=BUCKET, Key="k", Body=instead, **more)

    upload = store.open_upload("k", "text/csv")
    upload.write(b"as was meant")
    monkeypatch.setattr(store._client(), "complete_multipart_upload", replaced)

    with pytest.raises(StorageMismatch):
        upload.complete()


@pytest.mark.parametrize("other", [{"ContentLength": 3}, {"ETag": '"another"'}])
def test_OD_77_another_size_or_etag_than_was_stored_is_a_mismatch(store, s3, monkeypatch, other):
    head = store._client().head_object
    monkeypatch.setattr(store._client(), "head_object", lambda **arguments: head(**arguments) | other)
    upload = store.open_upload("k", "text/csv")
    upload.write(b"data")

    with pytest.raises(StorageMismatch):
        upload.complete()


def test_a_store_that_keeps_no_checksum_is_read_back(store, s3, monkeypatch):
    head = store._client().head_object
    monkeypatch.setattr(
        store._client(), "head_object", lambda **a: {k: v for k, v in head(**a).items() if not k.startswith("Checksum")}
    )
    read = []
    get = store._client().get_object
    monkeypatch.setattr(store._client(), "get_object", lambda **a: read.append(a["Key"]) or get(**a))
    upload = store.open_upload("k", "text/csv")
    upload.write(b"data")

    assert upload.complete().bytes == 4
    assert read == ["k"]


def test_nothing_is_visible_before_the_upload_is_complete(store, s3):
    upload = store.open_upload("k", "text/csv")
    upload.write(b"x" * (2 * PART))

    assert everything(s3) == ([], ["k"])
    assert store.head("k") is None


def test_an_aborted_upload_leaves_nothing(store, s3):
    upload = store.open_upload("k", "text/csv")
    upload.write(b"x" * (2 * PART))

    upload.abort()
    upload.abort()

    assert everything(s3) == ([], [])


def test_an_upload_that_cleanup_aborted_meanwhile_cannot_be_completed(store, s3, monkeypatch):
    def too_late(**_):
        store.abort_uploads("k")
        raise no_such_upload

    monkeypatch.setattr(store._client(), "complete_multipart_upload", too_late)
    upload = store.open_upload("k", "text/csv")
    upload.write(b"x" * (2 * PART))

    with pytest.raises(StorageRefused) as raised:
        upload.complete()
    assert raised.value.details == {"status": 404}
    upload.abort()
    assert everything(s3) == ([], [])


def test_a_completion_whose_answer_was_lost_is_looked_up(store, s3, monkeypatch):
    complete = store._client().complete_multipart_upload

    def twice(**arguments):  # botocore asks again when the first answer never came
        complete(**arguments)
        raise no_such_upload

    upload = store.open_upload("k", "text/csv")
    upload.write(b"data")
    monkeypatch.setattr(store._client(), "complete_multipart_upload", twice)

    assert upload.complete().etag == s3.head_object(Bucket=BUCKET, Key="k")["ETag"]


@pytest.mark.parametrize("unlisted", [None, StorageAway, StorageRefused])
def test_an_upload_that_was_opened_twice_leaves_nothing_open(store, s3, monkeypatch, unlisted):
    opened = store._client().create_multipart_upload

    def twice(**arguments):  # botocore asks again when the first answer never came
        opened(**arguments)
        return opened(**arguments)

    def failing(key):
        raise unlisted

    monkeypatch.setattr(store._client(), "create_multipart_upload", twice)
    upload = store.open_upload("k", "text/csv")
    if unlisted:
        monkeypatch.setattr(store, "abort_uploads", failing)

    assert upload.complete().bytes == 0
    assert everything(s3) == (["k"], ["k"] if unlisted else [])  # the file is whole in any case


def test_removing_is_idempotent_and_touches_no_neighbour(store, s3):
    for key in ("k", "k2"):
        upload = store.open_upload(key, "text/csv")
        upload.complete()
        store.open_upload(key, "text/csv")

    for _ in range(2):
        store.abort_uploads("k")
        store.delete("k")

    assert everything(s3) == (["k2"], ["k2"])


def test_an_address_gives_the_file_under_its_name_without_asking_the_store(store, s3):
    upload = store.open_upload("exports/1/2/flights.csv", "text/csv")
    upload.write(b"a\n1\n")
    upload.complete()

    address = store.presign("exports/1/2/flights.csv", "flights.csv", "text/csv", 300)

    answer = requests.get(address, timeout=5)
    assert answer.content == b"a\n1\n"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="flights.csv"'
    assert answer.headers["Content-Type"] == "text/csv"
    assert urlsplit(address).path == "/files/exports/1/2/flights.csv"


def test_addresses_stand_below_files_url_and_are_signed_by_who_may_only_read(account):
    class Settings:
        bucket = BUCKET
        files_base = "https://data.example.org"
        files_access_key_id = "reader"

        class files_secret_access_key:  # noqa: N801
            @staticmethod
            def get_secret_value():
                return "secret-of-reader"

    address = Store.of(Settings).presign("k", "k.csv", "text/csv", 300)

    assert address.startswith("https://data.example.org/files/k?")
    assert "X-Amz-Credential=reader%2F" in address
    assert "X-Amz-Expires=300" in address
    assert "secret" not in address


def test_a_missing_bucket_is_a_refusal(s3):
    with pytest.raises(StorageRefused) as raised:
        Store("nowhere", client).open_upload("k", "text/csv")

    assert raised.value.details == {"status": 404}


@pytest.fixture
def impatient(monkeypatch):
    """No second try and short time-outs, so that being away is known at once."""
    made = storage.client

    def client(endpoint):
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="eu-central-1",
            config=made().meta.config.merge(
                Config(connect_timeout=0.2, read_timeout=0.2, retries={"total_max_attempts": 1})
            ),
        )

    return client


@pytest.fixture
def answering():
    """A server that answers every request with the bytes it was given, or not at all."""
    listener = socket.create_server(("127.0.0.1", 0))
    reply = b""

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if reply is not None:
                connection.recv(65536)
                connection.sendall(reply)
                connection.close()
            else:
                silent.append(connection)

    silent: list[socket.socket] = []
    threading.Thread(target=serve, daemon=True).start()

    def answer(data):
        nonlocal reply
        reply = data
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield answer
    listener.close()
    for connection in silent:
        connection.close()


@pytest.mark.parametrize(
    ("reply", "details"),
    [
        (b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", {"status": 503}),
        (b"HTTP/1.1 500 Internal Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", {"status": 500}),
        (b"", {}),  # hangs up
        (None, {}),  # says nothing
    ],
)
def test_a_store_that_does_not_answer_is_away(account, impatient, answering, reply, details):
    store = Store(BUCKET, lambda: impatient(answering(reply)))

    for ask in (
        lambda: store.open_upload("k", "text/csv"),
        lambda: store.head("k"),
        lambda: store.delete("k"),
        lambda: store.abort("k", "u"),
        lambda: store.abort_uploads("k"),
    ):
        with pytest.raises(StorageAway) as raised:
            ask()
        assert raised.value.details == details


@pytest.mark.parametrize(
    ("status", "code", "raised"),
    [
        (400, "RequestTimeout", StorageAway),
        (408, "", StorageAway),
        (409, "OperationAborted", StorageAway),
        (400, "InvalidRequest", StorageRefused),
        (409, "BucketNotEmpty", StorageRefused),
    ],
)
def test_what_passes_of_a_stores_refusals_is_an_outage(account, impatient, answering, status, code, raised):
    body = f"<Error><Code>{code}</Code></Error>".encode()
    head = f"HTTP/1.1 {status} No\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()

    with pytest.raises(raised):
        Store(BUCKET, lambda: impatient(answering(head + body))).open_upload("k", "text/csv")


def replying(status, body, *headers):
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers])
    return f"{head}\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    "reply",
    [
        replying("200 OK", "<!doctype html><p>Please log in"),
        replying("200 OK", "<InitiateMultipartUploadResult></InitiateMultipartUploadResult>"),
        replying("307 Temporary Redirect", "", "Location: /files"),
    ],
    ids=["a page", "no id", "a redirect to itself"],
)
def test_an_answer_that_is_not_s3s_is_an_outage(account, impatient, answering, reply):
    with pytest.raises(StorageAway):
        Store(BUCKET, lambda: impatient(answering(reply))).open_upload("k", "text/csv")


@pytest.mark.parametrize("call", ["upload_part", "complete_multipart_upload", "head_object"])
def test_an_answer_without_an_etag_is_an_outage(store, monkeypatch, call):
    upload = store.open_upload("k", "text/csv")
    monkeypatch.setattr(store._client(), call, lambda **_: {"ContentLength": 0})

    with pytest.raises(StorageAway):
        upload.complete()


def test_nobody_at_the_port_is_away(account, impatient):
    with pytest.raises(StorageAway):
        Store(BUCKET, lambda: impatient("http://127.0.0.1:1")).open_upload("k", "text/csv")


def test_a_store_that_goes_away_in_the_middle_is_away_at_the_next_write(store, monkeypatch):
    upload = store.open_upload("k", "text/csv")

    def away(**_):
        raise ClientError({"ResponseMetadata": {"HTTPStatusCode": 503}}, "UploadPart")

    monkeypatch.setattr(store._client(), "upload_part", away)
    upload.write(b"x" * PART)

    with pytest.raises(StorageAway):
        upload.write(b"x" * PART)
    upload.abort()


def test_an_export_into_a_store_that_goes_away_leaves_nothing_visible(store, s3, source, monkeypatch):
    from chalicelib.exports import CSV, JSON, XML, Column, FileSpec, Relation, export

    source.run("create table open.t as select g as a, repeat('x', 1000) as b from generate_series(1, 20000) g")
    put, parts = store._client().upload_part, []

    def away_at_the_third(**arguments):
        parts.append(arguments["PartNumber"])
        if len(parts) == 3:
            raise ClientError({"ResponseMetadata": {"HTTPStatusCode": 503}}, "UploadPart")
        return put(**arguments)

    monkeypatch.setattr(store._client(), "upload_part", away_at_the_third)

    with pytest.raises(StorageAway):
        export(
            Relation(source.dsn, "open.t", None, [Column("a", "integer", "a"), Column("b", "text", "b")]),
            [FileSpec(CSV), FileSpec(JSON), FileSpec(XML)],
            lambda name, media_type: store.open_upload(f"data.{name}", media_type),
            beat=lambda **_: None,
        )

    # It isn't asked once more: what is left is what the ledger noted, and cleanup removes.
    assert everything(s3)[0] == []
    monkeypatch.undo()
    for name in ("csv", "json", "xml"):
        store.abort_uploads(f"data.{name}")
        store.delete(f"data.{name}")
    assert everything(s3) == ([], [])


@pytest.mark.parametrize("call", ["upload_part", "complete_multipart_upload", "head_object"])
def test_while_a_store_hangs_the_caller_may_keep_its_lease_alive(store, monkeypatch, call):
    kept, ask = threading.Event(), getattr(store._client(), call)

    def slow(**arguments):
        assert kept.wait(60), "nobody kept the lease alive"
        return ask(**arguments)

    monkeypatch.setattr(store._client(), call, slow)
    upload = store.open_upload("k", "text/csv", waiting=kept.set)
    upload.write(b"x")

    assert upload.complete().bytes == 1
