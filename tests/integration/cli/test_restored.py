"""What `restored` finds in object storage, a simulated one, and at a data service elsewhere."""

from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from chalicelib.cli import restored
from chalicelib.cli.remote import Refused
from chalicelib.exports.data_service import RemoteDataService
from chalicelib.settings import Settings
from tests.data_service.server import TOKEN, serving
from tests.integration.exports.test_data_service import WANTED


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="files")
        yield "files"


def test_restored_finds_the_highest_fence_in_objects_and_open_uploads(bucket: str) -> None:
    s3, job = boto3.client("s3"), "019ad0c2-0000-7000-8000-000000000001"
    assert restored.seen_by_object_storage(bucket) == 0

    for key in (f"exports/{job}/9/flights.csv", f"exports/{job}/10/flights.csv", "exports/readme/99/x", "other/11/x"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    assert restored.seen_by_object_storage(bucket) == 10

    s3.create_multipart_upload(Bucket=bucket, Key=f"exports/{job}/12/flights.xml")
    assert restored.seen_by_object_storage(bucket) == 12


def test_restored_finds_the_highest_fence_of_a_data_service_elsewhere_and_refuses_to_guess_without_it() -> None:
    assert restored.seen_by_the_data_service(Settings()) == 0
    with serving() as service:
        settings = Settings(data_service_url=service.url, data_service_token=TOKEN)
        assert restored.seen_by_the_data_service(settings) == 0
        RemoteDataService(service.url, TOKEN).start(WANTED, fence=41)
        assert restored.seen_by_the_data_service(settings) == 41
        service.misbehave("fence", "500")
        with pytest.raises(Refused, match="must answer"):
            restored.seen_by_the_data_service(settings)
