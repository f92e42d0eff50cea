"""S3's data survives a kill, and answers are those of LocalStack's own provider."""

import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.localstack.conftest import LocalStack

PART = b"p" * 5 * 1024 * 1024
STOCK = """
import sys
import localstack.services.s3.provider as provider
provider.DEFAULT_S3_TMP_DIR = sys.argv[1]  # else a fixed folder that all LocalStacks of the machine share
from localstack.runtime.main import main
main()
"""


class Script:
    """What a user does and then sees; random names are replaced by their order, so that two runs compare."""

    def __init__(self, stack: LocalStack) -> None:
        self.s3 = stack.client("s3")
        self.names: dict[str, str] = {}
        self.upload = ""

    def write(self) -> None:
        s3 = self.s3
        for bucket in ("files", "versions", "gone"):
            s3.create_bucket(Bucket=bucket)
        s3.delete_bucket(Bucket="gone")
        s3.put_object(Bucket="files", Key="plain", Body=b"first")
        s3.put_object(Bucket="files", Key="plain", Body=b"second", ContentType="text/csv", Metadata={"rows": "2"})
        s3.put_object(Bucket="files", Key="a/ü", Body=b"x" * 3_000_000, ChecksumAlgorithm="SHA256", Tagging="a=1&b=2")
        s3.copy_object(Bucket="files", Key="copy", CopySource="files/plain")
        s3.put_object(Bucket="files", Key="deleted", Body=b"d")
        s3.delete_objects(Bucket="files", Delete={"Objects": [{"Key": "deleted"}]})
        s3.put_bucket_tagging(Bucket="files", Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
        s3.put_bucket_lifecycle_configuration(
            Bucket="files",
            LifecycleConfiguration={
                "Rules": [{"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "a/"}, "Expiration": {"Days": 9}}]
            },
        )
        s3.put_object(Bucket="versions", Key="v", Body=b"before versioning")
        s3.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
        for body in (b"one", b"two", b"three"):
            version = s3.put_object(Bucket="versions", Key="v", Body=body)["VersionId"]
        s3.delete_object(Bucket="versions", Key="v", VersionId=version)
        s3.put_object(Bucket="versions", Key="hidden", Body=b"h")
        s3.delete_object(Bucket="versions", Key="hidden")
        self.upload = s3.create_multipart_upload(Bucket="files", Key="large", ContentType="text/plain")["UploadId"]
        self.part(1, PART)

    def part(self, number: int, body: bytes) -> str:
        answer = self.s3.upload_part(Bucket="files", Key="large", UploadId=self.upload, PartNumber=number, Body=body)
        return str(answer["ETag"])

    def complete(self) -> None:
        """The upload goes on where it was: part 1 is named by its ETag alone."""
        self.part(2, b"the end")
        listed = self.s3.list_parts(Bucket="files", Key="large", UploadId=self.upload)["Parts"]
        parts = [{"PartNumber": p["PartNumber"], "ETag": p["ETag"]} for p in listed]
        self.s3.complete_multipart_upload(
            Bucket="files", Key="large", UploadId=self.upload, MultipartUpload={"Parts": parts}
        )

    def read(self) -> dict[str, Any]:
        """Everything that can be seen."""
        s3, seen = self.s3, {}

        def look(operation: str, **arguments: Any) -> Any:
            try:
                answer = getattr(s3, operation)(**arguments)
            except ClientError as e:
                answer = {"error": e.response["Error"]["Code"]}
            seen[f"{operation} {self.plain(arguments)}"] = self.plain(answer)
            return answer

        look("list_buckets")
        look("get_bucket_tagging", Bucket="files")
        look("get_bucket_lifecycle_configuration", Bucket="files")
        look("get_bucket_versioning", Bucket="versions")
        look("head_bucket", Bucket="gone")
        look("list_objects_v2", Bucket="files")
        for key in ("plain", "copy", "a/ü", "large", "deleted"):
            look("get_object", Bucket="files", Key=key)
            look("get_object", Bucket="files", Key=key, Range="bytes=1-3")
            look("head_object", Bucket="files", Key=key, ChecksumMode="ENABLED")
            look("get_object_tagging", Bucket="files", Key=key)
        versions = look("list_object_versions", Bucket="versions")
        for version in versions["Versions"]:
            look("get_object", Bucket="versions", Key=version["Key"], VersionId=version["VersionId"])
        look("get_object", Bucket="versions", Key="v")
        look("get_object", Bucket="versions", Key="hidden")
        look("list_multipart_uploads", Bucket="files")
        look("list_parts", Bucket="files", Key="large", UploadId=self.upload)
        return seen

    def plain(self, value: Any, name: str = "") -> Any:
        match value:
            case dict():
                return {k: self.plain(v, k) for k, v in value.items() if k != "ResponseMetadata"}
            case list():
                return [self.plain(item) for item in value]
            case str() if name in ("VersionId", "UploadId", "NextUploadIdMarker") and value != "null":
                return self.names.setdefault(value, f"id {len(self.names)}")
            case _ if hasattr(value, "read"):
                return value.read()
        return value


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in ("LastModified", "CreationDate", "Initiated")}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def test_everything_answers_after_a_kill_as_before_and_as_with_the_stock_provider(
    make_localstack: Callable[..., LocalStack],
) -> None:
    stack, stock = make_localstack(), make_localstack(PROVIDER_OVERRIDE_S3=None, S3_DURABLE_DIR=None)
    stock.start("-c", STOCK, str(stock.folder / "s3-stock"))
    expected = Script(stock)
    expected.write()
    stack.start()
    script = Script(stack)
    script.write()
    before = script.read()
    assert without_times(before) == without_times(expected.read())
    address = script.s3.generate_presigned_url("get_object", Params={"Bucket": "files", "Key": "plain"})

    stack.kill()
    stray = stack.folder / "s3/contents/stray"
    stray.write_bytes(b"of a request that was never answered")
    stack.start()
    assert script.read() == before
    assert urllib.request.urlopen(address).read() == b"second"
    assert not stray.exists()
    script.complete()
    completed = script.read()
    assert script.s3.get_object(Bucket="files", Key="large")["Body"].read() == PART + b"the end"

    stack.kill()
    stack.start()
    assert script.read() == completed
    expected.complete()
    assert without_times(completed) == without_times(expected.read())


def test_contents_that_nothing_names_any_more_are_deleted(localstack: LocalStack) -> None:
    s3, contents = localstack.client("s3"), localstack.folder / "s3/contents"
    s3.create_bucket(Bucket="replaced")
    for body in (b"one", b"two"):
        s3.put_object(Bucket="replaced", Key="k", Body=body)
    s3.copy_object(Bucket="replaced", Key="c", CopySource="replaced/k")
    upload = s3.create_multipart_upload(Bucket="replaced", Key="m")["UploadId"]
    s3.upload_part(Bucket="replaced", Key="m", UploadId=upload, PartNumber=1, Body=b"part")

    def found() -> set[bytes]:
        return {file.read_bytes() for file in contents.iterdir() if file.stat().st_size < 10}

    assert found() == {b"two", b"part"}
    s3.abort_multipart_upload(Bucket="replaced", Key="m", UploadId=upload)
    s3.delete_object(Bucket="replaced", Key="k")
    assert found() == {b"two"}
    s3.delete_object(Bucket="replaced", Key="c")
    assert found() == set()


def test_a_folder_belongs_to_one_localstack_at_a_time(
    localstack: LocalStack, make_localstack: Callable[..., LocalStack]
) -> None:
    assert localstack.process
    said = make_localstack(S3_DURABLE_DIR=str(localstack.folder / "s3")).refused()
    assert f"is in use by another LocalStack (process {localstack.process.pid}). Stop that one, or set" in said


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"PROVIDER_OVERRIDE_S3": "durabel"}, "PROVIDER_OVERRIDE_S3=durabel: there is no such provider"),
        ({"PROVIDER_OVERRIDE_S3": None}, "S3_DURABLE_DIR is set: set PROVIDER_OVERRIDE_S3=durable too"),
        ({"S3_DURABLE_DIR": "/proc/s3"}, "The S3 data in /proc/s3 can't be used"),
    ],
)
def test_localstack_refuses_to_start_with(
    make_localstack: Callable[..., LocalStack], setting: dict[str, str | None], sentence: str
) -> None:
    assert sentence in make_localstack(**setting).refused()
