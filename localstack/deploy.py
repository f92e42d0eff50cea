"""Deploy the app to the local stack as it would be on AWS: a package, a template, a CloudFormation change set.

What is local stands here and nowhere else: the functions' environment, the fixed id of the API, the buckets.
"""

import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from infra.package import CHECKOUT, package, sources

if TYPE_CHECKING:
    from localstack.stack import Stack

NAME = "leaseway"
CODE_BUCKET = "leaseway-deploy"
PACKAGES_KEPT = 3
SECONDS = 180
SETTLED = {"CREATE_COMPLETE", "UPDATE_COMPLETE"}
TEMPLATE = "template.json"


class DeploymentError(Exception):
    """The app isn't deployed; the message names the resource and the reason."""


def deploy(stack: "Stack") -> bool:
    """Deploy the app to a running stack unless this very package with these settings is there; return whether."""
    with stack.alone(), stack.at("packaging and deploying the app"):
        return _Deployment(stack).run()


def function_name(stack: "Stack", resource: str) -> str:
    """The name of a deployed function, e.g. of `Worker`, `Recovery`, `Cleanup`, `CatchUp`, `APIHandler`."""
    found = stack.client("cloudformation").describe_stack_resource(StackName=NAME, LogicalResourceId=resource)
    return str(found["StackResourceDetail"]["PhysicalResourceId"])


def rollback(dsn: str) -> str | None:
    """The digest of the package that `leaseway refresh enable` names to go back to, if it names one."""
    with psycopg.connect(dsn) as database:
        if database.execute("select to_regclass('refresh.switch')").fetchone() == (None,):
            return None  # not migrated yet
        named = database.execute("select rollback from refresh.switch").fetchone()
    return named[0] if named else None


def packaged() -> Path:
    """The folder of the package of these sources, made unless it is there."""
    digest = hashlib.sha256(sys.version.encode())
    for file in (*sources(), CHECKOUT / "requirements-dev.txt"):
        digest.update(str(file.relative_to(CHECKOUT)).encode() + b"\0" + file.read_bytes() + b"\0")
    packages = CHECKOUT / ".leaseway" / "packages"
    folder = packages / digest.hexdigest()[:16]
    if not folder.exists():
        packages.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(suffix=".new", dir=packages))
        package(new)
        try:
            new.rename(folder)
        except OSError:  # another command made the same package meanwhile
            shutil.rmtree(new)
        made = sorted(packages.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in made[:-PACKAGES_KEPT]:
            shutil.rmtree(old)
    return folder


class _Deployment:
    def __init__(self, stack: "Stack") -> None:
        self.stack = stack
        self.cloudformation = stack.client("cloudformation")
        self.s3 = stack.client("s3")

    def run(self) -> bool:
        self.make_buckets()
        folder = packaged()
        template = json.loads((folder / "sam.json").read_text())
        zips = {file.name: f"{hashlib.sha256(file.read_bytes()).hexdigest()}.zip" for file in folder.glob("*.zip")}
        self.localise(template, zips)
        shape = _digest(template)
        self.fill_functions(template, zips)
        tags = {"shape": shape, "fingerprint": _digest(template)}
        found = self.settled()
        there = {tag["Key"]: tag["Value"] for tag in found.get("Tags", [])} if found else {}
        if found and found["StackStatus"] in SETTLED and there == tags:
            return False
        # LocalStack updates functions, and little else: a REST API or a mapping that changed stays as it was. So
        # everything is made anew, which takes seconds: what must last is in PostgreSQL, S3 and the triple store.
        update = bool(found and found["StackStatus"] in SETTLED and there.get("shape") == shape)
        if found and not update:
            self.delete()
        for name, key in zips.items():
            self.s3.upload_file(str(folder / name), CODE_BUCKET, key)
        self.s3.put_object(Bucket=CODE_BUCKET, Key=TEMPLATE, Body=json.dumps(template).encode())
        self.apply(tags, update=update)
        self.check()
        self.delete_old({*zips.values(), TEMPLATE, f"{rollback(self.stack.environment()['DATABASE_URL'])}.zip"})
        return True

    def delete_old(self, kept: set[str]) -> None:
        """Delete what is neither of these nor of the last deployments, each of code and a layer."""
        found = self.s3.list_objects_v2(Bucket=CODE_BUCKET)["Contents"]
        older = sorted((item for item in found if item["Key"] not in kept), key=lambda item: item["LastModified"])
        for item in older[: -2 * (PACKAGES_KEPT - 1)]:
            self.s3.delete_object(Bucket=CODE_BUCKET, Key=item["Key"])

    def make_buckets(self) -> None:
        """The files' bucket outlives every deployment, so it isn't the deployment's."""
        template = json.loads((CHECKOUT / "infra" / "files-bucket.json").read_text())
        properties = template["Resources"]["Files"]["Properties"]
        name = template["Parameters"]["BucketName"]["Default"]
        for bucket in (name, CODE_BUCKET):
            self.s3.create_bucket(Bucket=bucket)
        # CloudFormation's names for the fields aren't the API's.
        names = {"ExposedHeaders": "ExposeHeaders", "MaxAge": "MaxAgeSeconds"}
        rules = properties["CorsConfiguration"]["CorsRules"]
        self.s3.put_bucket_cors(
            Bucket=name,
            CORSConfiguration={
                "CORSRules": [{names.get(key, key): value for key, value in rule.items()} for rule in rules]
            },
        )

    def localise(self, template: dict[str, Any], zips: dict[str, str]) -> None:
        """Give the REST API its fixed id by a tag, which the serverless form would put on its stage only."""
        resources = template["Resources"]
        resources["ManagedLayer"]["Properties"]["ContentUri"] = f"s3://{CODE_BUCKET}/{zips['layer-deployment.zip']}"
        api = resources["RestAPI"]["Properties"]
        deployment = f"RestAPIDeployment{_digest(api)[:12]}"
        resources["RestAPI"] = {
            "Type": "AWS::ApiGateway::RestApi",
            "Properties": {
                "Name": NAME,
                "Body": api["DefinitionBody"],
                "EndpointConfiguration": {"Types": ["REGIONAL"]},
                "Tags": [{"Key": "_custom_id_", "Value": self.stack.api}],
            },
        }
        resources[deployment] = {"Type": "AWS::ApiGateway::Deployment", "Properties": {"RestApiId": {"Ref": "RestAPI"}}}
        resources["RestAPIStage"] = {
            "Type": "AWS::ApiGateway::Stage",
            "Properties": {
                "RestApiId": {"Ref": "RestAPI"},
                "DeploymentId": {"Ref": deployment},
                "StageName": api["StageName"],
            },
        }

    def fill_functions(self, template: dict[str, Any], zips: dict[str, str]) -> None:
        """Say where the code lies, and give the functions their environment; queues' addresses stay references."""
        for name, resource in template["Resources"].items():
            if resource["Type"] == "AWS::Serverless::Function":
                properties = resource["Properties"]
                properties["CodeUri"] = f"s3://{CODE_BUCKET}/{zips['deployment.zip']}"
                references = {k: v for k, v in properties["Environment"]["Variables"].items() if isinstance(v, dict)}
                given = self.stack.functions_environment(secrets_of_connections=name in ("Worker", "Cleanup"))
                properties["Environment"]["Variables"] = given | references

    def apply(self, tags: dict[str, str], *, update: bool) -> None:
        change = f"c{time.time_ns()}"
        self.cloudformation.create_change_set(
            StackName=NAME,
            ChangeSetName=change,
            ChangeSetType="UPDATE" if update else "CREATE",
            TemplateURL=f"{self.stack.endpoint}/{CODE_BUCKET}/{TEMPLATE}",
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
            Tags=[{"Key": name, "Value": value} for name, value in tags.items()],
        )
        for made in _until(lambda: self.cloudformation.describe_change_set(StackName=NAME, ChangeSetName=change)):
            if made["Status"] == "FAILED":
                raise DeploymentError(f"The change set failed: {made.get('StatusReason')}")
            if made["Status"] == "CREATE_COMPLETE":
                break
        self.cloudformation.execute_change_set(StackName=NAME, ChangeSetName=change)
        found = self.settled()
        if not found or found["StackStatus"] not in SETTLED:
            raise DeploymentError("\n".join(["CloudFormation failed:", *self.reasons("FAILED")]))

    def settled(self) -> dict[str, Any] | None:
        """The stack once nothing is in progress, or None when there is none."""
        try:
            for found in _until(lambda: self.cloudformation.describe_stacks(StackName=NAME)["Stacks"][0]):
                if not found["StackStatus"].endswith("_IN_PROGRESS") or found["StackStatus"] == "REVIEW_IN_PROGRESS":
                    return dict(found)
        except self.cloudformation.exceptions.ClientError as error:
            if "does not exist" not in str(error):
                raise
        return None

    def delete(self) -> None:
        self.cloudformation.delete_stack(StackName=NAME)
        found = self.settled()
        if found and found["StackStatus"] != "DELETE_COMPLETE":
            raise DeploymentError("\n".join(["The stuck deployment can't be deleted:", *self.reasons("FAILED")]))

    def check(self) -> None:
        """LocalStack calls a resource it can't make complete, and a mapping without this loses messages silently."""
        if fallbacks := self.reasons("fallback"):
            raise DeploymentError("\n".join(["LocalStack has no such resource:", *fallbacks]))
        mappings = self.stack.client("lambda").list_event_source_mappings()["EventSourceMappings"]
        silent = [
            m["EventSourceArn"] for m in mappings if m.get("FunctionResponseTypes") != ["ReportBatchItemFailures"]
        ]
        if silent or not mappings:
            raise DeploymentError(f"These mappings don't report failed messages: {', '.join(silent) or 'all'}")

    def reasons(self, word: str) -> list[str]:
        events = self.cloudformation.describe_stack_events(StackName=NAME)["StackEvents"]
        return [
            f"{event['LogicalResourceId']} ({event.get('ResourceType')}): {event.get('ResourceStatusReason', '')}"
            for event in events
            if word in event.get("ResourceStatusReason", "") or event["ResourceStatus"].endswith(word)
        ]


def _until[T](question: Callable[[], T]) -> Iterator[T]:
    """Ask again and again, ten times a second, until the asker has heard enough."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield question()
        time.sleep(0.1)
    raise DeploymentError(f"CloudFormation isn't done after {SECONDS} seconds.")


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
