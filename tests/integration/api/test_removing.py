"""`leaseway source remove` and `connection remove`: what nobody needs goes; a race leaves nobody without it."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from uuid import uuid4

import boto3
import pytest
from click.testing import CliRunner
from moto import mock_aws

from chalicelib import pipelines
from chalicelib.api import datasets
from chalicelib.cli import leaseway, sources
from chalicelib.datasets import registry
from chalicelib.db import Database
from chalicelib.engine import Engine, Refusal
from chalicelib.pipelines.refresh import registry as refreshes
from chalicelib.pipelines.refresh.manifest import Manifest

from .seeding import DEFINITION, call, define, fail, problem, publish, register_source, start_refresh, tokens, withdraw

BUCKET = "leaseway-files"


@pytest.fixture
def run(environment):
    """Run a command beside the database; what it prints, in one line."""

    def invoke(*arguments, code=0, input=None):
        result = CliRunner().invoke(leaseway, [str(argument) for argument in arguments], input=input)
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())

    return invoke


@pytest.fixture
def flights(database):
    register_source(database)


@pytest.fixture
def bucket(environment):
    environment.delenv("AWS_ENDPOINT_URL", raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        environment.setenv(name, "test")
    with mock_aws():
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        yield lambda: [found["Key"] for found in s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]


def remove(run, code=0):
    return run("source", "remove", "flights", "--yes", code=code)


def test_what_nobody_needs_is_removed_after_a_question_and_on_record(run, database, flights):
    assert "Remove this source, with all its revisions and files?" in run("source", "remove", "flights", code=1)
    assert registry.source(database, "flights")

    assert remove(run) == "Source flights is removed."
    assert run("connection", "remove", "office", input="y\n").endswith("Connection office is removed.")

    assert (registry.sources(database), registry.connections(database)) == ([], [])
    [login] = database.run("select session_user as name")
    acts = database.run("select principal, act, target from access.act order by at")
    assert [tuple(act.values()) for act in acts] == [
        (login["name"], "source_remove", "flights"),
        (login["name"], "connection_remove", "office"),
    ]
    assert "There is no source flights" in remove(run, code=1)
    assert "There is no connection office" in run("connection", "remove", "office", "--yes", code=1)


def test_a_source_stays_while_a_definition_names_it_as_it_is_now(run, database, flights):
    with database.transaction() as tx:
        registry.register_source(tx, "roads", "office", "public.roads", None)
    define(database)
    define(database, "gone")
    pipelines.delete_dataset(Engine(database, pipelines.PIPELINES, None, None), "gone")

    assert remove(run, code=1) == (
        "Error: Source flights stays, for it is needed:"
        " the definition of flights names it (put it with another source, or delete the dataset)."
    )

    define(database, source="roads")
    remove(run)


def test_who_needs_it_is_told_as_far_as_ten_go(run, database, flights):
    for number in range(12):
        define(database, f"fl-{number:02}")

    said = remove(run, code=1)

    assert said.count("the definition of") == 10
    assert "the definition of fl-09 names it" in said
    assert said.endswith("; and 2 more.")


def test_a_source_stays_for_its_versions_withdrawn_ones_too(run, database, engine, clock, flights):
    define(database)
    publish(database, engine, clock)
    withdraw(database, engine)
    pipelines.delete_dataset(engine, "flights")

    assert "needed: versions of flights were made from it, and their records stay." in remove(run, code=1)


def test_a_source_stays_while_a_job_or_a_failure_has_pinned_it(run, database, engine, flights):
    with database.transaction() as tx:
        registry.register_source(tx, "roads", "office", "public.roads", None)
    define(database, source="roads")
    job = pipelines.publish(engine, "flights").id
    define(database)
    assert pipelines.publish(engine, "flights").id == job  # the newer definition follows it
    define(database, source="roads")
    pipelines.publish(engine, "flights")
    define(database)
    pipelines.publish(engine, "flights")
    define(database, source="roads")

    assert f"needed: job {job} is about it." in remove(run, code=1)

    engine.cancel(job)  # what follows it is about it, too
    followed = engine.find("dataset:flights")
    assert f"needed: job {followed.id} is about it." in remove(run, code=1)
    engine.cancel(followed.id)
    told = f"needed: failure {followed.id} may be run again with it (`leaseway failures purge {followed.id}`)."
    assert told in remove(run, code=1)
    engine.purge(followed.id)
    remove(run)


def test_an_exports_failure_is_its_publications(run, database, engine, flights):
    define(database)
    job = fail(database, engine)
    database.run("update engine.failure set pipeline = 'export'")
    with database.transaction() as tx:
        registry.register_source(tx, "roads", "office", "public.roads", None)
    define(database, source="roads")

    assert engine.failure(job)
    remove(run)


def test_both_stay_while_a_manifest_stands_or_is_pinned(run, database, engine, flights):
    leased = engine.claim("work", job=start_refresh(database, engine), ask=uuid4(), lease=timedelta(seconds=60))
    with leased.transaction() as tx:
        leased.hold(tx)
        leased.finish(tx)
    job = pipelines.start_refresh(engine).id
    needs = "version 1 of the manifest names it"
    [contract] = Manifest.parse(refreshes.manifest(database, 1)["body"]).contracts
    both = (("source", contract.source), ("connection", contract.target.connection))

    def told():
        return [needs in run(kind, "remove", name, "--yes", code=1) for kind, name in both]

    assert told() == [True, True]
    with database.transaction() as tx:
        registry.add_connection(tx, "other", "LEASEWAY_SECRET_OTHER")
        registry.register_source(tx, "others", "office", "public.others", None)
        target = contract.target.model_copy(update={"connection": "other"})
        changed = contract.model_copy(update={"source": "others", "source_revision": None, "target": target})
        assert refreshes.register(tx, Manifest(contracts=[changed]))[0] == 2
    assert told() == [True, True]  # a job has pinned it
    engine.cancel(job)
    assert told() == [True, True]  # a failure may be run again
    engine.purge(job)
    for kind, name in both:
        run(kind, "remove", name, "--yes")
    for kind, name in (("source", "others"), ("connection", "other")):  # the newest one stands, whoever has pinned it
        assert "version 2 of the manifest names it" in run(kind, "remove", name, "--yes", code=1)


def test_a_connection_stays_while_a_source_was_read_by_it_or_a_refresh_has_left_something(
    run, database, engine, flights
):
    with database.transaction() as tx:
        registry.add_connection(tx, "next", "LEASEWAY_SECRET_OFFICE")
        registry.register_source(tx, "flights", "next", "public.flights", None)
    with database.transaction() as tx:
        engine.leave(tx, uuid4(), "refresh_staging", {"connection": "office", "table": "refresh_1"}, timedelta())
    database.run("insert into dataset.connection_slot values ('office', uuidv7(), 1, now())")

    assert (
        "needed: cleanup has to reach refresh_1 by it, which it does once the refresh that left it has ended; source"
        " flights is read by it, now or in an earlier revision (`leaseway source remove flights`)."
    ) in run("connection", "remove", "office", "--yes", code=1)

    remove(run)
    database.run("delete from engine.ledger")
    run("connection", "remove", "office", "--yes")
    assert [found["name"] for found in registry.connections(database)] == ["next"]


def test_the_local_stack_keeps_a_secret_that_no_connection_reads(run, database, environment):
    forgotten = []
    environment.setattr(sources, "is_local", lambda: True)
    environment.setattr(sources, "stack", lambda: type("Stack", (), {"forget": staticmethod(forgotten.append)}))
    for name in ("a", "b"):
        registry.add_connection(database, name, "LEASEWAY_SECRET_OFFICE")

    run("connection", "remove", "a", "--yes")
    assert forgotten == []
    assert "`leaseway up` takes it from the functions" in run("connection", "remove", "b", "--yes")
    assert forgotten == ["LEASEWAY_SECRET_OFFICE"]


def test_the_files_of_a_source_go_with_it_and_the_same_file_may_come_again(run, database, bucket, tmp_path):
    file = tmp_path / "trees.csv"
    for text in ("a;b\n1;2\n", "a;b\n1;3\n", "a;b\n1;2\n"):
        file.write_text(text)
        run("source", "upload", "trees", file)
    assert len(bucket()) == 2

    run("source", "remove", "trees", "--yes")

    assert bucket() == []
    assert "revision 1" in run("source", "upload", "trees", file)
    assert bucket() == [registry.source(database, "trees")["file"]["key"]]


def test_storage_that_is_away_leaves_the_source_as_it_is(run, database, bucket, tmp_path):
    file = tmp_path / "trees.csv"
    file.write_text("a;b\n1;2\n")
    run("source", "upload", "trees", file)
    boto3.client("s3").delete_object(Bucket=BUCKET, Key=bucket()[0])
    boto3.client("s3").delete_bucket(Bucket=BUCKET)

    assert "Object storage didn't remove the files of trees, which stays" in run(
        "source", "remove", "trees", "--yes", code=1
    )
    assert registry.source(database, "trees")
    assert database.run("select from access.act") == []


def test_a_file_that_was_removed_while_it_was_uploaded_again_is_not_registered(
    run, database, bucket, tmp_path, environment
):
    file = tmp_path / "trees.csv"
    file.write_text("a;b\n1;2\n")
    run("source", "upload", "trees", file)
    keep = sources._keep_file

    def and_then_it_is_removed(*arguments):
        key = keep(*arguments)
        run("source", "remove", "trees", "--yes")
        return key

    environment.setattr(sources, "_keep_file", and_then_it_is_removed)

    assert "Source trees was removed meanwhile" in run("source", "upload", "trees", file, code=1)
    assert registry.source(database, "trees") is None


@pytest.fixture
def other(dsn):
    """Somebody else's connection."""
    made = Database(dsn)
    yield made
    made.close()


def while_it_is_removed(database, act, kind="source", name="flights"):
    """What comes of an act that begins while a source or a connection is being removed, and waits for that."""
    take, remove = (getattr(registry, f"{verb}_{kind}") for verb in ("take", "remove"))
    with ThreadPoolExecutor(1) as pool:
        with database.transaction() as tx:
            take(tx, name)
            racing = pool.submit(act)
            while not tx.run("select 1 from pg_locks where not granted"):
                assert not racing.done(), racing.result()
            remove(tx, name)
        return racing.result(30)


def test_a_definition_that_is_put_while_its_source_is_removed_is_refused(http, database, other, flights):
    token = tokens(database)["publisher"]

    def put():
        return call(http, "PUT", "/datasets/flights/definition", token, DEFINITION)

    problem(while_it_is_removed(other, put), 422, "unknown_source", "source")
    assert registry.definition(database, "flights") is None


def test_a_source_whose_definition_is_being_put_is_not_removed(http, run, database, other, flights, environment):
    token, looked, go_on = tokens(database)["publisher"], Event(), Event()
    put = datasets.registry.put_definition

    def slowly(*arguments):
        looked.set()
        assert go_on.wait(30)
        return put(*arguments)

    environment.setattr(datasets.registry, "put_definition", slowly)
    with ThreadPoolExecutor(2) as pool:
        putting = pool.submit(call, http, "PUT", "/datasets/flights/definition", token, DEFINITION)
        assert looked.wait(30)
        removing = pool.submit(remove, run, 1)
        while not other.run("select 1 from pg_locks where not granted"):
            assert not removing.done(), removing.result()
        go_on.set()
        assert putting.result(30).status_code == 201
        assert "needed: the definition of flights names it" in removing.result(30)
    assert registry.source(database, "flights")


def test_a_publication_that_is_accepted_while_its_source_is_removed_is_refused(
    database, other, engine, queues, flights
):
    define(database)
    publisher = Engine(other, pipelines.PIPELINES, engine.settings, queues)

    def accept():
        with pytest.raises(Refusal) as refused:
            pipelines.publish(publisher, "flights")
        return refused.value.code

    assert while_it_is_removed(database, accept) == "unknown_source"


def test_a_source_that_is_registered_while_it_is_removed_begins_anew(database, other, flights):
    database.run("update dataset.source set revision = 7")

    def register():
        with other.transaction() as tx:
            return registry.register_source(tx, "flights", "office", "public.flights", None)

    assert while_it_is_removed(database, register) == 1
    assert [source["revision"] for source in registry.sources(database)] == [1]


def test_a_revision_that_came_while_its_source_was_being_removed_is_held_by_nobody(database, other, dsn, flights):
    registered = Event()

    def register(relation):
        own = Database(dsn)  # a connection is one thread's
        with own.transaction() as tx:
            registry.register_source(tx, "flights", "office", relation, None)
            registered.set()
            assert any(tx.run("select 1 from pg_locks where not granted") for _ in range(10_000))
        own.close()

    def registered_again():
        with other.transaction() as tx:
            return registry.register_source(tx, "flights", "office", "public.again", None)

    def held():
        with other.transaction() as tx:
            return registry.hold_source(tx, "flights")

    for act, outcome in ((held, None), (registered_again, 1)):
        registered.clear()
        with ThreadPoolExecutor(1) as pool:
            registering = pool.submit(register, f"public.{act.__name__}")
            assert registered.wait(30)
            assert while_it_is_removed(database, act) == outcome
            registering.result(30)
        register_source(database)


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("source", "flights", "contracts[0].source: isn't registered"),
        ("connection", "mart", "contracts[0].target.connection: isn't known"),
    ],
)
def test_a_manifest_that_is_registered_while_what_it_names_is_removed_is_refused(
    database, other, run, flights, tmp_path, kind, name, said
):
    registry.add_connection(database, "mart", "LEASEWAY_SECRET_MART")
    file = tmp_path / "refresh.yaml"
    contract = {
        "name": "flights",
        "source": "flights",
        "target": {"connection": "mart", "table": "mart.flights"},
        "key": ["id"],
        "columns": [{"name": "id", "type": "integer"}],
    }
    file.write_text(json.dumps({"contracts": [contract]}))

    assert said in while_it_is_removed(other, lambda: run("manifest", "register", file, code=1), kind, name)
    assert refreshes.manifest(database) is None
