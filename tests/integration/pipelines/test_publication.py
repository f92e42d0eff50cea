"""A publication from the request to the version, and everything that may happen to it on the way."""

import csv
import hashlib
import io
import json
import os
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from chalicelib.catalog.entry import DCT, Rendered, render
from chalicelib.catalog.store import GraphStore, StoreAway
from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.db import DatabaseAway
from chalicelib.engine import Cadence, Failure, Outage, Refusal
from chalicelib.exports.storage import Store, Upload
from chalicelib.pipelines import delete_dataset, functions
from chalicelib.pipelines.export.service import DataService
from chalicelib.pipelines.publication import removal, steps
from tests.integration.pipelines.conftest import CLOSED, DEFINITION, Killed

GRAPH = "http://localhost:4000/datasets/trees"
DEAD_DSN = "postgresql://reader:canary-password@127.0.0.1:9/nowhere"


def away(what):
    """The variables that put a part out of reach."""
    return {
        "source": {"LEASEWAY_SECRET_SRC": DEAD_DSN},
        "storage": {"AWS_ENDPOINT_URL": CLOSED},
        "triple store": {
            "LEASEWAY_TRIPLE_STORE_UPDATE_URL": f"{CLOSED}/update",
            "LEASEWAY_TRIPLE_STORE_QUERY_URL": f"{CLOSED}/query",
        },
    }[what]


def test_a_graph_in_which_two_writes_at_once_left_both_is_mended_by_cleanup(office, oxigraph_url, monkeypatch):
    office.publish()
    office.run(2)
    entry = office.store.held(GRAPH)
    late = f'{GRAPH}> <urn:leaseway:fence> 1 . <{GRAPH}> <http://purl.org/dc/terms/title> "Late"'
    strangers = "<urn:another> <urn:leaseway:fence> 1, 2"
    office.store._send(
        f"{oxigraph_url}/update",
        "application/sparql-update",
        f"INSERT DATA {{ GRAPH <{GRAPH}> {{ <{late} }} GRAPH <urn:another> {{ {strangers} }} }}",
    )
    assert sorted(office.store.mixed()) == [GRAPH, "urn:another"]
    logged = []
    monkeypatch.setattr(functions, "context", removal.context)
    monkeypatch.setattr(functions.telemetry, "log", lambda event, **fields: logged.append((event, fields)))
    tick = SimpleNamespace(to_dict=lambda: {"time": office.clock.now().isoformat()})

    functions.clean_up(tick)

    held = office.store.held(GRAPH)
    assert held.triples == entry.triples
    assert held.fence > entry.fence
    assert office.store.mixed() == ["urn:another"]
    assert logged[-1] == ("cleanup", logged[-1][1] | {"mended_graphs": 1})
    functions.clean_up(tick)
    assert office.store.held(GRAPH) == held

    office.point(**away("triple store"))
    functions.clean_up(tick)  # everything else is cleaned up nevertheless
    assert [event for event, _ in logged[-2:]] == ["mending_failed", "cleanup"]


def test_a_graph_that_cannot_be_mended_holds_up_no_other_one(office, oxigraph_url, monkeypatch, admin_database_dsn):
    """Of one a version's count is wrong, of another the dataset is held; whichever comes first."""
    office.publish()
    office.run(2)
    office.db.run("update dataset.version set triples = triples + 1")
    graphs = {dataset: f"http://localhost:4000/datasets/{dataset}" for dataset in ("trees", "birds", "lakes")}
    for dataset, graph in graphs.items():
        with office.db.transaction() as tx:
            registry.put_definition(tx, dataset, Definition.parse(deepcopy(DEFINITION)))
        mixed = f"<{graph}> <urn:leaseway:fence> 1, 2"
        update = f"INSERT DATA {{ GRAPH <{graph}> {{ {mixed} }} }}"
        office.store._send(f"{oxigraph_url}/update", "application/sparql-update", update)
    office.new_processes(make_conninfo(admin_database_dsn, options="-c role=leaseway_app -c lock_timeout=200ms"))
    logged = []
    monkeypatch.setattr(functions, "context", removal.context)
    monkeypatch.setattr(functions.telemetry, "log", lambda event, **fields: logged.append((event, fields)))
    with psycopg.connect(admin_database_dsn) as other:
        other.execute("select from dataset.dataset where id = 'lakes' for update")
        functions.clean_up(SimpleNamespace(to_dict=lambda: {"time": office.clock.now().isoformat()}))

    assert office.store.held(graphs["birds"]).triples == 0
    assert "birds" not in str(office.store.mixed())
    [cleanup] = [fields for event, fields in logged if event == "cleanup"]
    assert (cleanup["mended_graphs"], cleanup["unmended_graphs"]) == (1, 2)
    failed = {fields["dataset"]: fields["exception"] for event, fields in logged if event == "mending_failed"}
    assert failed == {"trees": "Mismatch", "lakes": "LockNotAvailable"}


def test_a_store_that_goes_away_while_graphs_are_mended_is_asked_no_more(office, monkeypatch):
    office.publish()
    office.run(2)
    asked = []

    def away(store, *entry):
        asked.append(entry)
        raise StoreAway("store.example", "503")

    monkeypatch.setattr(GraphStore, "mixed", lambda store: [GRAPH, GRAPH])
    monkeypatch.setattr(GraphStore, "replace", away)
    with pytest.raises(Outage):
        removal.mend_mixed_graphs()
    assert len(asked) == 1


def test_a_database_that_goes_away_while_graphs_are_mended_is_told(office, monkeypatch):
    def mixed(store):
        office.db.close()
        office.db._dsn = DEAD_DSN
        return [GRAPH]

    monkeypatch.setattr(GraphStore, "mixed", mixed)
    with pytest.raises(DatabaseAway):
        removal.mend_mixed_graphs()


def test_a_publication_ends_with_files_an_entry_and_a_version(office):
    job = office.publish()
    office.run(2)

    status = office.engine.status(job)
    assert (status.state, status.version, status.attempts) == ("PUBLISHED", 1, 1)
    version = registry.version(office.db, "trees", 1)
    assert [file["format"] for file in version["files"]] == ["csv", "json", "xml"]
    assert office.files() == sorted(file["key"] for file in version["files"])
    assert office.store.held(GRAPH) == (version["fence"], version["triples"])
    assert version["report"]["conforms"] is True


def test_OD_14_what_is_recommended_and_missing_is_published_with_warnings(office):
    office.publish()
    office.run(2)

    report = registry.version(office.db, "trees", 1)["report"]
    assert (report["conforms"], report["violations"], report["warnings"]) == (True, 0, 3)
    assert [result["field"] for result in report["results"]] == ["spatial", "temporal", "publisher.type"]


def test_what_breaks_the_profile_s_rules_fails_and_names_them(office, monkeypatch):
    monkeypatch.setattr("chalicelib.pipelines.publication.steps.render", without_a_title)
    job = office.publish()
    office.run(2)

    failure = office.engine.failure(job)
    assert failure.code == "not_conformant"
    assert (failure.details["violations"], failure.details["rules"]) == (1, ["dcat:Dataset/dct:title MinCount"])


def without_a_title(definition, facts):
    rendered = render(definition, facts)
    lines = [line for line in rendered.documents["nt"].splitlines(True) if f"<{GRAPH}> <{DCT.title}>" not in line]
    return Rendered({"nt": "".join(lines)}, len(lines), rendered.sha256)


def test_OD_34_OD_77_size_and_checksum_in_the_metadata_are_those_of_the_stored_bytes(office):
    office.publish()
    office.run(2)

    version = registry.version(office.db, "trees", 1)
    assert len(version["files"]) == 3
    for file in version["files"]:
        content = office.content(file["key"])
        assert file["bytes"] == len(content)
        assert file["sha256"] == hashlib.sha256(content).hexdigest()
        assert f'"{file["bytes"]}"^^<http://www.w3.org/2001/XMLSchema#nonNegativeInteger>' in version["documents"]["nt"]
        assert f'"{file["sha256"]}"^^<http://www.w3.org/2001/XMLSchema#hexBinary>' in version["documents"]["nt"]


def test_OD_66_the_count_in_the_status_is_the_count_in_each_file(office):
    job = office.publish()
    office.run(2)

    files = {file["format"]: office.content(file["key"]) for file in registry.version(office.db, "trees", 1)["files"]}
    rows = list(csv.DictReader(io.StringIO(files["csv"].decode())))
    assert office.engine.status(job).progress.records == len(rows) == len(json.loads(files["json"])) == 100


def test_OD_09_characters_that_xml_cannot_hold_are_counted_in_the_report(office, admin_database_dsn):
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute(r"update src.trees set name = E'an \x0b oak\x1f' where id = 7")
    office.publish()
    office.run(2)

    version = registry.version(office.db, "trees", 1)
    files = {file["format"]: office.content(file["key"]).decode() for file in version["files"]}
    assert version["report"]["characters_removed"] == 2
    assert "an  oak" in files["xml"]
    assert json.loads(files["json"])[6]["name"] == "an \x0b oak\x1f"


def test_a_second_version_takes_the_first_ones_place_in_the_catalogue_alone(office):
    office.publish()
    office.run(2)
    office.publish()
    office.run(2)

    one, two = (registry.version(office.db, "trees", number) for number in (1, 2))
    assert office.store.held(GRAPH) == (two["fence"], two["triples"])
    assert sorted(file["key"] for version in (one, two) for file in version["files"]) == office.files()


@pytest.mark.parametrize("what", ["source", "storage", "triple store", "data service"])
def test_an_hour_without_a_part_fails_no_publication(office, monkeypatch, what):
    with monkeypatch.context() as outage:
        if what == "data service":
            outage.setattr(DataService, "start", _away)
        else:
            before = {name: os.environ[name] for name in away(what)}
            office.point(**away(what))
        job = office.publish()
        office.run(60)
        assert office.engine.status(job).status == "running"
        assert office.engine.status(job).attempts == 1
    if what != "data service":
        office.point(**before)
    office.run(10)

    assert office.engine.status(job).state == "PUBLISHED"
    office.run(15)
    assert office.files() == sorted(file["key"] for file in registry.version(office.db, "trees", 1)["files"])


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("source", "source_unreachable"),
        ("storage", "storage_unreachable"),
        ("triple store", "triple_store_unreachable"),
        ("data service", "data_service_unreachable"),
    ],
)
def test_beyond_the_budget_the_failure_names_what_was_away(office, monkeypatch, what, named):
    if what == "data service":
        monkeypatch.setattr(DataService, "start", _away)
    else:
        office.point(**away(what))
    job = office.publish()
    office.work()
    office.clock.advance("5 hours")
    office.work()
    office.clock.advance("59 min")
    office.run(5, clean_up=False)

    failure = office.engine.status(job)
    assert (failure.code, failure.details["waiting_for"]) == ("deadline_exceeded", named)


def test_a_publication_fails_with_its_exports_own_code(office, admin_database_dsn):
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute("alter table src.trees drop column name")
    job = office.publish()
    office.run(2)

    failure = office.engine.status(job)
    assert (failure.code, failure.details["sqlstate"], failure.details["column"]) == ("source_changed", "42703", "name")


@pytest.mark.parametrize(
    ("published", "found", "said", "minimum"),
    [
        (0, 0, {}, 1),
        (100, 0, {}, 50),
        (100, 49, {}, 50),
        (100, 50, {}, None),
        (100, 80, {"max_drop": 0.1}, 90),
        (100, 80, {"min_records": 81}, 81),
        (100, 1, {"max_drop": 1}, None),
        (0, 0, {"min_records": 0}, None),
    ],
)
def test_no_empty_surprise(office, admin_database_dsn, published, found, said, minimum):
    if published:
        office.publish()
        office.run(2)
    before = office.files(), office.store.held(GRAPH)
    office.define(**said)
    leave(admin_database_dsn, found)
    job = office.publish()
    office.run(2)

    ended = office.engine.status(job)
    if minimum is None:
        assert (ended.state, ended.progress.records) == ("PUBLISHED", found)
    else:
        assert ended.code == "too_few_records"
        assert (ended.details["records"], ended.details["minimum"]) == (found, minimum)
        office.run(30)
        assert (office.files(), office.store.held(GRAPH)) == before  # nothing of it stays, nothing was replaced


def test_a_drop_that_is_accepted_is_published_this_once_and_measured_by_from_then_on(office, admin_database_dsn):
    office.publish()
    office.run(2)
    leave(admin_database_dsn, 10)
    accepted = office.publish(accept_drop=True)
    office.run(2)
    assert office.engine.status(accepted).version == 2
    assert office.engine.status(accepted).subject["accept_drop"] is True

    leave(admin_database_dsn, 6)
    usual = office.publish()
    office.run(2)
    assert office.engine.status(usual).version == 3
    leave(admin_database_dsn, 0)
    empty = office.publish()
    office.run(2)
    assert office.engine.status(empty).details["minimum"] == 3


@pytest.mark.parametrize("revisions", [1, 2])
def test_a_drop_that_is_accepted_while_another_publication_runs_follows_it(office, admin_database_dsn, revisions):
    office.publish()
    office.run(2)
    leave(admin_database_dsn, 0)
    first = office.publish()
    assert office.publish(accept_drop=True) == first
    if revisions > 1:
        office.define(keywords={"en": ["trees", "parks"], "de": ["Bäume", "Parks"]})
        assert office.publish() == first
    office.run(3)

    assert office.engine.status(first).code == "too_few_records"
    assert [version["records"] for version in registry.versions(office.db, "trees")] == [0, 100]
    assert registry.version(office.db, "trees", 2)["definition_revision"] == revisions


def test_a_new_column_of_the_source_is_left_out_and_named(office, admin_database_dsn):
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute("alter table src.trees add column owner text")
    job = office.publish()
    office.run(2)

    assert office.engine.status(job).result["unpublished"] == ["owner"]
    files = {file["format"]: office.content(file["key"]) for file in registry.version(office.db, "trees", 1)["files"]}
    assert files["csv"].startswith(b"id,name\n")


def test_an_exports_first_attempt_dies_after_two_files_and_exactly_the_winners_files_remain(office, monkeypatch):
    complete, done = Upload.complete, []

    def dying(upload):
        done.append(upload.key)
        if len(done) == 3:
            raise Killed
        return complete(upload)

    monkeypatch.setattr(Upload, "complete", dying)
    monkeypatch.setattr(Upload, "abort", lambda upload: None)  # a killed process aborts nothing
    job = office.publish()
    office.work()
    assert len(office.files()) == 2
    office.run(60)

    assert office.engine.status(job).state == "PUBLISHED"
    assert len(set(done)) == 6
    assert office.files() == sorted(file["key"] for file in registry.version(office.db, "trees", 1)["files"])
    assert not set(office.files()) & set(done[:3])
    assert office.uploads() == []


def test_a_file_that_is_stored_otherwise_than_it_was_written_is_written_anew_under_another_key(office, monkeypatch):
    head, lied = Store.head, []

    def lying(store, key):
        found = head(store, key)
        if lied or found is None:
            return found
        lied.append(key)
        return replace(found, bytes=found.bytes + 1)

    monkeypatch.setattr(Store, "head", lying)
    job = office.publish()
    office.run(20)

    assert office.engine.status(job).state == "PUBLISHED"
    [export] = office.engine.jobs(pipeline="export")
    assert [e["details"]["code"] for e in office.engine.history(export.id) if "code" in e["details"]] == [
        "storage_mismatch"
    ]
    assert len(office.files()) == 3
    assert lied[0] not in office.files()


def test_a_publication_that_dies_between_the_replace_and_the_commit_is_published_once(office, monkeypatch):
    kill_at_finish(monkeypatch, times=1)
    job = office.publish()
    office.work()
    office.clock.advance("5 s")  # it looks at its export again
    office.work()
    assert office.store.held(GRAPH).triples > 0
    assert registry.versions(office.db, "trees") == []
    office.run(10)

    status = office.engine.status(job)
    assert (status.state, status.version, status.attempts) == ("PUBLISHED", 1, 2)
    assert office.store.held(GRAPH).fence == registry.version(office.db, "trees", 1)["fence"]
    assert len(office.engine.jobs(pipeline="export")) == 1  # the second attempt found what the first had begun


@pytest.mark.parametrize("before", [0, 1])
def test_a_job_that_fails_for_good_after_the_replace_leaves_the_catalogue_as_it_was(office, monkeypatch, before):
    for _ in range(before):
        office.publish()
        office.run(2)
    entry, files = triples(office), office.files()
    kill_at_finish(monkeypatch, times=3)
    job = office.publish()
    office.run(10, clean_up=False)
    assert office.engine.status(job).code == "attempts_exhausted"
    assert triples(office) != entry
    office.run(30)

    assert triples(office) == entry
    assert office.files() == files
    assert len(registry.versions(office.db, "trees")) == before
    monkeypatch.undo_kill()
    office.publish()
    office.run(2)
    assert registry.versions(office.db, "trees")[0]["number"] == before + 1


def test_a_stale_worker_changes_nothing_anywhere(office, monkeypatch):
    """A worker stops for ten minutes before its replace, as a frozen process does; another one publishes meanwhile."""
    replace, frozen = GraphStore.replace, []

    def freeze(store, graph, ntriples, fence, newest=0):
        if not frozen:
            frozen.append(fence)
            raise Killed
        return replace(store, graph, ntriples, fence, newest)

    monkeypatch.setattr(GraphStore, "replace", freeze)
    job = office.publish()
    office.run(10)
    version = registry.version(office.db, "trees", 1)
    assert office.engine.status(job).state == "PUBLISHED"

    office.store.replace(GRAPH, version["documents"]["nt"].encode(), frozen[0])  # it wakes up and goes on

    assert frozen[0] < version["fence"]
    assert office.store.held(GRAPH) == (version["fence"], version["triples"])


def test_a_newer_definition_meanwhile_is_published_by_a_job_of_its_own(office):
    first = office.publish()
    office.define(title={"en": "Trees and shrubs", "de": "Bäume und Sträucher"})
    assert office.publish() == first
    office.run(3)

    newest, older = registry.versions(office.db, "trees")
    assert (older["number"], older["definition_revision"], newest["definition_revision"]) == (1, 1, 2)


def test_a_newer_fence_of_cleanup_is_overtaken_by_waiting(office):
    held = []
    put = steps.render

    def cleaned_meanwhile(definition, facts):
        if not held:
            with office.db.transaction() as tx:
                held.append(office.engine.fence(tx))
            office.store.empty(GRAPH, held[0])
        return put(definition, facts)

    steps.render = cleaned_meanwhile
    try:
        job = office.publish()
        office.run(3)
    finally:
        steps.render = put

    status = office.engine.status(job)
    assert (status.state, status.attempts) == ("PUBLISHED", 1)
    assert office.store.held(GRAPH).fence > held[0]


def test_a_fence_from_a_newer_database_fails_with_its_remedy_and_restored_mends_it(office):
    newer = office.engine.fence(office.db) + 1_000_000
    office.store.empty(GRAPH, newer)
    job = office.publish()
    office.run(2)
    assert office.engine.status(job).code == "fence_regressed"
    assert office.engine.status(job).details["found"] == newer

    office.engine.restored(newer)
    again = office.engine.requeue(job).job.id
    office.run(2)
    assert office.engine.status(again).state == "PUBLISHED"


def test_the_export_of_a_failed_publication_is_not_requeued_alone_for_nobody_would_take_its_files(office):
    office.point(LEASEWAY_SECRET_SRC="")
    publication = office.publish()
    office.run(3)
    (export,) = office.engine.failures(pipeline="export")
    with pytest.raises(Refusal) as refused:
        office.engine.requeue(export.id)
    assert (refused.value.code, "publication" in refused.value.detail) == ("conflict", True)

    office.point(LEASEWAY_SECRET_SRC=os.environ["DATABASE_URL"])
    again = office.engine.requeue(publication).job.id
    office.run(3)
    assert office.engine.status(again).state == "PUBLISHED"


def test_a_publication_of_a_dataset_that_was_deleted_since_is_not_requeued(office):
    office.point(LEASEWAY_SECRET_SRC="")
    failed = office.publish()
    office.run(3)
    delete_dataset(office.engine, "trees")
    with pytest.raises(Refusal) as refused:
        office.engine.requeue(failed)
    assert refused.value.code == "gone"


def test_the_transaction_is_idle_for_one_request_to_the_store_and_never_for_two(
    office, monkeypatch, admin_database_dsn
):
    asked = []
    watcher = psycopg.connect(admin_database_dsn, autocommit=True)

    def watched(name, act):
        def ask(*args):
            (since,) = watcher.execute(
                "select state_change from pg_stat_activity where state = 'idle in transaction'"
            ).fetchone()
            asked.append((name, since))
            return act(*args)

        return ask

    for name in ("replace", "held"):
        monkeypatch.setattr(GraphStore, name, watched(name, getattr(GraphStore, name)))
    add, registry.add_version = registry.add_version, lambda *_, **__: 1 / 0
    try:
        office.publish()  # fails after the replace, so that cleanup puts the entry back
        office.run(16)
    finally:
        registry.add_version = add
    watcher.close()

    assert [name for name, _ in asked] == 4 * ["replace", "held"]
    assert len({since for _, since in asked}) == 8, "the server would have ended a transaction of 2 × 20 s"


def test_OD_88_a_500_of_the_store_is_waited_for_and_nothing_counts_as_published(office):
    before = os.environ["LEASEWAY_TRIPLE_STORE_UPDATE_URL"]
    office.point(LEASEWAY_TRIPLE_STORE_UPDATE_URL=os.environ["AWS_ENDPOINT_URL"] + "/no-store-but-a-500")
    job = office.publish()
    office.run(10)
    waiting = office.engine.status(job)
    assert (waiting.state, waiting.waiting_for.code) == ("PERSIST_DATA", "triple_store_unreachable")
    assert registry.versions(office.db, "trees") == []

    office.point(LEASEWAY_TRIPLE_STORE_UPDATE_URL=before)
    office.run(10)
    assert office.engine.status(job).state == "PUBLISHED"


def test_a_write_without_an_answer_has_the_stores_time_to_end_before_the_next(office, settings):
    office.point(LEASEWAY_TRIPLE_STORE_UPDATE_URL=os.environ["AWS_ENDPOINT_URL"] + "/no-store-but-a-500")
    job = office.publish()
    waits = "select run_at - engine.clock() as time from engine.job where waiting_for = 'triple_store_unreachable'"
    for _ in range(10):
        office.work()
        if found := office.db.run(waits):
            break
        office.clock.advance("5 s")

    assert office.engine.status(job).state == "PERSIST_DATA"
    assert found[0]["time"] == timedelta(seconds=settings.store_timeout) > timedelta(seconds=settings.outage_pauses[0])


def test_a_store_that_refuses_fails_the_publication(office):
    office.point(LEASEWAY_TRIPLE_STORE_UPDATE_URL=os.environ["LEASEWAY_TRIPLE_STORE_QUERY_URL"] + "/elsewhere")
    job = office.publish()
    office.run(10)

    failure = office.engine.status(job)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.attempts) == ("triple_store_refused", 3)
    assert registry.versions(office.db, "trees") == []


def test_cancelling_a_publication_stops_its_export_and_removes_its_files(office):
    job = office.publish()
    office.engine.work("work", job=job, until=lambda: 900.0)
    assert [export.status for export in office.engine.jobs(pipeline="export")] == ["queued"]
    office.engine.cancel(job)
    office.run(40)

    assert office.engine.status(job).code == "cancelled"
    assert office.engine.jobs(pipeline="export", status="running") == []
    assert office.files() == []


def test_a_pause_longer_than_its_run_budget_costs_a_publication_nothing_while_its_export_waits(office):
    job = office.publish()
    office.engine.work("work", job=job, until=lambda: 900.0)
    office.engine.pause("publication", hours=48)
    for _ in range(47):
        office.work()
        office.engine.recover()
        office.clock.advance("1 h")
    assert [export.status for export in office.engine.jobs(pipeline="export")] == ["queued"]
    office.clock.advance("1 h")
    office.run(10)

    assert office.engine.status(job).status == "succeeded"


def test_a_schedule_publishes_what_is_defined_on_that_day(office):
    office.engine.set_schedule("dataset:trees", "publication", {"dataset": "trees"}, Cadence("day", "02:00", "UTC"))
    office.define(title={"en": "Trees today", "de": "Bäume heute"})
    office.clock.set("2026-03-03 02:00:30+00")
    office.run(3)

    assert [version["definition_revision"] for version in registry.versions(office.db, "trees")] == [2]


def test_nothing_is_published_while_the_catalogue_has_no_title(office, monkeypatch):
    monkeypatch.delenv("LEASEWAY_CATALOG_TITLE")
    office.point()
    with pytest.raises(Refusal) as refused:
        office.publish()
    assert refused.value.code == "catalog_not_configured"


def test_T28_no_row_holds_what_a_source_or_its_login_said(office, admin_database_dsn):
    office.point(**away("source"))
    office.publish()
    office.run(3)
    with psycopg.connect(admin_database_dsn) as admin:
        tables = admin.execute(
            "select format('%I.%I', schemaname, tablename) from pg_tables"
            " where schemaname in ('engine', 'dataset', 'access')"
        ).fetchall()
        rows = "\n".join(
            str(row) for (table,) in tables for row in admin.execute(f"select t::text from {table} t").fetchall()
        )
    assert "source_unreachable" in rows
    for canary in ("canary-password", "nowhere", "postgresql://", "refused"):
        assert canary not in rows, canary


def leave(dsn, records):
    """So many trees are left at the source."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("delete from src.trees where id > %s", [records])


def kill_at_finish(monkeypatch, times):
    """The worker dies after the replace, before the commit, so many times."""
    add, left = registry.add_version, [times]

    def dying(*args, **kwargs):
        if left[0]:
            left[0] -= 1
            raise Killed
        return add(*args, **kwargs)

    monkeypatch.setattr(registry, "add_version", dying)
    monkeypatch.undo_kill = lambda: monkeypatch.setattr(registry, "add_version", add)


def triples(office):
    """The entry as the triple store holds it, without the fence."""
    answer = office.store._send(
        office.store._query_url,
        "application/sparql-query",
        f"SELECT ?s ?p ?o WHERE {{ GRAPH <{GRAPH}> {{ ?s ?p ?o FILTER (?p != <urn:leaseway:fence>) }} }}",
    )
    return sorted(json.dumps(row, sort_keys=True) for row in json.loads(answer)["results"]["bindings"])


def _away(*args, **kwargs):
    raise Outage("data_service_unreachable")
