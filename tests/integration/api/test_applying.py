"""`leaseway apply`: a folder of YAML over HTTP, checked as a whole by the server it is for."""

import json
from itertools import count
from textwrap import dedent

import httpx
import psycopg
import pytest
from click.testing import CliRunner

from chalicelib import pipelines
from chalicelib.api import datasets, requests
from chalicelib.cli import applying, comparing, leaseway, remote
from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.engine import Cadence
from chalicelib.exports.relation import snapshot
from chalicelib.security import create_token

from .seeding import publish, register_source, tokens, written

ROADS = """
title: {en: Roads, de: Straßen}
description: {en: All roads., de: Alle Straßen.}
keywords: {en: [roads], de: [Straßen]}
themes: [TRAN]
frequency: DAILY
source: flights
columns:
  - name: id
    type: integer
  - {name: name, type: text}
schedule: {every: day, at: 02:00, zone: Europe/Berlin}
"""
DEFAULTS = """
publisher:
  name: {en: Office, de: Amt}
  iri: https://office.example.org/
contact: {name: {en: Desk}, email: desk@office.example.org}
licence: CC_BY_4_0
languages: [de]
"""
CATALOG = """
title: {en: Open data}
description: {en: All that is open.}
publisher: {name: {en: Office}, iri: https://office.example.org/}
licence: CC0
homepage: https://office.example.org/data
"""


class Folder:
    """A folder of YAML, and `leaseway apply` of it with somebody's token."""

    def __init__(self, path, monkeypatch, http, token):
        self.path = path
        self.asked = []
        self.failing = ("nothing", None)
        self.meanwhile = lambda: None
        self._patch = monkeypatch
        self._http = http
        self.use(token)
        self.write("defaults", DEFAULTS)
        self.write("roads", ROADS)

    def use(self, token):
        server = remote.Remote("http://localhost:4000", token, "")
        server._http = httpx.Client(transport=httpx.MockTransport(self._answer))
        self._patch.setattr(applying, "remote", lambda: server)

    def _answer(self, request):
        path = request.url.raw_path.decode()
        if request.method == "PUT" and "dry_run" not in path and not self.wrote():
            self.meanwhile()
        self.asked.append(f"{request.method} {path}")
        part, status = self.failing
        if f"{request.method} {path}".endswith(part):
            if status is None:
                raise httpx.ConnectError("away")
            title = {409: "Another job works on the same subject"}.get(status, "Something is broken on our side")
            code = {409: "subject_busy"}.get(status, "internal_error")
            return httpx.Response(status, json={"title": title, "status": status, "code": code})
        answer = self._http.request(request.method, path, headers=dict(request.headers), body=request.read())
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.body)

    def write(self, name, text):
        (self.path / f"{name}.yaml").write_text(dedent(text).lstrip())

    def edit(self, name, before, after):
        text = (self.path / f"{name}.yaml").read_text()
        assert before in text
        self.write(name, text.replace(before, after))

    def apply(self, *options, code=0):
        """What it prints, without the folder's path, in one line a line."""
        self.asked.clear()
        result = CliRunner().invoke(leaseway, ["apply", str(self.path), *options])
        assert result.exit_code == code, result.output
        return [" ".join(line.split()) for line in result.output.replace(f"{self.path}/", "").splitlines()]

    def wrote(self):
        return [asked for asked in self.asked if not asked.startswith("GET") and "dry_run" not in asked]


@pytest.fixture
def folder(tmp_path, monkeypatch, http, database):
    register_source(database)
    monkeypatch.setenv("LEASEWAY_URL", "http://localhost:4000")  # from there no source is to be seen
    return Folder(tmp_path, monkeypatch, http, tokens(database)["operator"])


DAILY = "every day at 02:00 Europe/Berlin"
UNCHECKED = "Not checked: whether the sources have these columns. `leaseway source check SOURCE` lists what one has."
CREATED = ["roads: created", "+ 2 columns of source flights", f"+ schedule: {DAILY}", UNCHECKED]


def test_a_folder_is_applied_and_applying_it_again_changes_nothing(folder, database, engine):
    folder.write("catalog", CATALOG)
    assert folder.apply() == [
        "catalog.yaml: changed",
        '+ title: en "Open data"',
        '+ description: en "All that is open."',
        '+ publisher: name en "Office", iri "https://office.example.org/"',
        '+ licence: "CC0"',
        '+ homepage: "https://office.example.org/data"',
        *CREATED,
        "1 changed, 1 created.",
    ]
    stored = registry.definition(database, "roads")["body"]
    assert (stored["publisher"]["iri"], stored["languages"]) == ("https://office.example.org/", ["DEU"])
    assert engine.get_schedule("dataset:roads").cadence.zone == "Europe/Berlin"

    before = written(database)
    assert folder.apply() == ["2 unchanged."]
    assert folder.wrote() == []
    assert written(database) == before


def test_only_what_differs_is_written_and_named(folder, database):
    folder.write("lakes", ROADS.replace("Roads", "Lakes"))
    folder.apply()
    folder.edit("roads", "{name: name, type: text}", "{name: label, from: name, type: text}")
    folder.edit("lakes", "02:00", "03:00")

    told = [
        "lakes: changed",
        f"~ schedule: {DAILY} → every day at 03:00 Europe/Berlin",
        "roads: changed",
        '- columns.name: type "text"',
        '+ columns.label: type "text", from "name"',
        UNCHECKED,
    ]
    assert folder.apply("--dry-run") == [*told, "2 changed. Nothing was changed: it was a dry run."]
    assert folder.apply() == [*told, "2 changed."]
    assert folder.wrote() == ["PUT /datasets/lakes/schedule", "PUT /datasets/roads/definition"]


def test_a_default_changes_every_dataset_that_does_not_say_it_itself(folder, database):
    folder.write("lakes", ROADS + "contact: {name: {en: Lakes}, email: lakes@office.example.org}\n")
    folder.apply()
    folder.edit("defaults", "desk@office", "help@office")

    assert folder.apply() == [
        "roads: changed",
        '~ contact.email: "desk@office.example.org" → "help@office.example.org"',
        "1 changed, 1 unchanged.",
    ]
    assert registry.definition(database, "lakes")["body"]["contact"]["email"] == "lakes@office.example.org"


def test_a_dry_run_says_all_that_and_changes_nothing(folder, database):
    before = written(database)

    assert folder.apply("--dry-run") == [*CREATED, "1 created. Nothing was changed: it was a dry run."]
    assert folder.wrote() == []
    assert written(database) == before


def test_what_differs_in_its_spelling_alone_is_unchanged(folder):
    folder.apply()
    folder.edit("roads", "title: {en: Roads, de: Straßen}\n", "")
    folder.edit("roads", "[TRAN]", "[http://publications.europa.eu/resource/authority/data-theme/TRAN]")
    folder.edit("roads", "  - name: id\n    type: integer\n", "  - {type: integer, name: id}\n")
    folder.edit("roads", "schedule:", "title: {de: Straßen, en: ' Roads'}\nformats: [xml, json, csv]\nschedule:")

    assert folder.apply() == ["1 unchanged."]


def test_an_older_server_tells_the_names_of_what_changes_alone(folder, monkeypatch):
    folder.apply()
    folder.edit("roads", "DAILY", "WEEKLY")
    monkeypatch.setattr(datasets, "changes_document", lambda before, after: {"changes": ["frequency"]})

    assert folder.apply() == ["roads: changed", "~ frequency", "1 changed."]


def test_all_errors_of_all_files_are_told_with_their_place_before_anything_is_changed(folder, database):
    folder.write("catalog", CATALOG.replace("homepage: https:", "homepage: ttps:"))
    folder.edit("defaults", "CC_BY_4_0", "CC_BX_4_0")
    folder.edit("defaults", "languages", "frequency: DAILY\nlanguages")
    folder.edit("roads", "[TRAN]", "[TRANS]")
    folder.edit("roads", "type: integer", "type: int")
    folder.edit("roads", "02:00", "26:00")
    folder.edit("roads", "title:", "titel:")
    folder.write("lakes", ROADS.replace("source: flights", "source: flihgts").replace("{en: [roads]", "{en: [2013]"))
    folder.write("Seas", ROADS)
    folder.write("broken", "title: {en: x\n")
    before = written(database)

    told = folder.apply(code=1)

    expected = [
        "Seas.yaml:1:1: must be named like its dataset: lower-case letters, digits and hyphens",
        "broken.yaml:2:1: is no YAML from here on: expected ',' or '}', but got '<stream end>'",
        "catalog.yaml:5:1: homepage must be a whole address that begins with ftp://, http://, https:// o",
        "defaults.yaml:5:1: licence 'CC_BX_4_0' isn't in the EU's list of licences (http://publications.",
        "defaults.yaml:6:1: frequency can't stand here; known: publisher, contact, licence, languages",
        "lakes.yaml:3:17: keywords.en[0] must be a text, and this is 2013; put it in quotes",
        "lakes.yaml:6:1: source 'flihgts' is not registered. Did you mean 'flights'? An operator registers it: `leas",
        "roads.yaml:1:1: titel is no field here; did you mean title?",
        'roads.yaml:1:1: title is missing: e.g. {"en": "Flights", "de": "Flüge"}',
        "roads.yaml:4:10: themes[0] 'TRANS' isn't in the EU's list of data themes (http://publications.e",
        "roads.yaml:9:5: columns[0].type must be one of text, boolean, integer, decimal, double, date, t",
        "roads.yaml:11:24: schedule.at It takes a local time such as 02:00.",
        "12 to mend; nothing was changed.",
    ]
    assert [line[: len(start)] for line, start in zip(told, expected, strict=True)] == expected
    assert "Did you mean CC_BY_4_0?" in told[3]
    assert "Did you mean TRAN?" in " ".join(told)
    assert written(database) == before


def test_what_no_server_takes_of_a_file_hides_no_other_files_errors(folder, database):
    folder.edit("roads", "Alle Straßen.", "x" * 1_100_000)
    folder.write("lakes", ROADS.replace("{en: Roads, de: Straßen}", '{en: "a\\0b", de: "\\ud800"}'))
    folder.write("rivers", ROADS + "max_drop: 1e999\n")
    folder.write("seas", ROADS.replace("source:", f"spatial: {'[' * 40}{']' * 40}\nsource:"))
    folder.write("springs", ROADS + "key: !!set {id}\n")
    folder.write("wells", ROADS.replace("[TRAN]", "[TRANS]"))
    before = written(database)

    told = folder.apply(code=1)

    expected = [
        "lakes.yaml:1:9: title.en holds the character U+0000; take it out",
        "lakes.yaml:1:21: title.de holds half of a character (a lone surrogate); take it out",
        "rivers.yaml:12:1: max_drop is a number that is too large or too long; put it in quotes if it is a text",
        "roads.yaml:1:1: It has 1100",
        "seas.yaml:6:41: is nested deeper than 32 levels",
        "springs.yaml:12:1: key has a tag, which isn't taken; leave it out",
        "wells.yaml:4:10: themes[0] 'TRANS' isn't in the EU's list of data themes",
        "7 to mend; nothing was changed.",
    ]
    assert [line[: len(start)] for line, start in zip(told, expected, strict=True)] == expected
    assert told[3].endswith("at most 1048576 are taken: shorten its texts, or make two datasets of it")
    assert written(database) == before


def test_what_defaults_that_cannot_be_read_may_say_is_missing_nowhere(folder):
    folder.edit("defaults", "languages:", "\tlanguages:")
    folder.edit("roads", "[TRAN]", "[TRANS]")

    told = folder.apply(code=1)

    assert [line.partition(" ")[0] for line in told] == ["defaults.yaml:6:1:", "roads.yaml:4:10:", "2"]


def test_what_only_the_server_finds_in_a_body_stands_at_its_field(folder, monkeypatch):
    """Its rules may be stricter than the command's, which may be older."""
    monkeypatch.setattr(requests, "MAX_DEPTH", 3)

    assert folder.apply(code=1)[:-1] == ["defaults.yaml:2:10: publisher.name.en It is nested deeper than 3 levels."]


@pytest.mark.parametrize("status", [500, 503, None])
def test_a_server_that_is_not_well_is_no_fault_of_a_file(folder, status):
    folder.edit("roads", "[TRAN]", "[TRANS]")
    folder.write("aaa", ROADS)
    folder.failing = ("aaa/definition?dry_run=true", status)

    told = " ".join(folder.apply(code=1))

    assert "roads.yaml" not in told
    assert "aaa.yaml" not in told
    assert [asked for asked in folder.asked if "roads" in asked] == []


def test_an_unknown_source_is_answered_with_the_nearest(folder):
    folder.edit("roads", "source: flights", "source: flihgts")

    assert folder.apply(code=1)[0].startswith(
        "roads.yaml:6:1: source 'flihgts' is not registered. Did you mean 'flights'?"
    )


def test_a_schedule_that_is_not_in_the_file_any_more_ends(folder, engine):
    folder.apply()
    folder.edit("roads", "schedule:", "# schedule:")

    assert folder.apply() == ["roads: changed", f"- schedule: {DAILY}", "1 changed."]
    assert engine.get_schedule("dataset:roads") is None


def test_prune_deletes_what_has_no_version_and_ends_the_schedule_of_what_has(folder, database, engine, clock):
    for name in ("lakes", "rivers", "springs"):
        folder.write(name, ROADS)
    folder.apply()
    for name in ("rivers", "springs"):
        publish(database, engine, clock, name)
    engine.set_schedule("refresh", "refresh", {}, Cadence("day", "02:00", "UTC"))
    engine.delete_schedule("dataset:springs")
    for name in ("lakes", "rivers", "springs"):
        (folder.path / f"{name}.yaml").unlink()
    before = written(database)

    assert folder.apply()[0] == "Scheduled, with no file here: lakes, rivers. --prune ends their schedules."
    plan = folder.apply("--prune", "--dry-run")
    assert plan == [
        "lakes: deleted",
        "it has no version; its id is never given again",
        "rivers: pruned",
        f"- schedule: {DAILY}",
        "`leaseway withdraw rivers 1` takes its newest version back",
        "springs: left",
        "`leaseway withdraw springs 1` takes its newest version back",
        "1 deleted, 1 left, 1 pruned, 1 unchanged. Nothing was changed: it was a dry run.",
    ]
    assert "An id is never given again" in " ".join(folder.apply("--prune", code=1))  # nobody answers
    assert written(database) == before

    assert folder.apply("--prune", "--yes")[:-1] == plan[:-1]
    assert engine.get_schedule("dataset:lakes") is engine.get_schedule("dataset:rivers") is None
    assert engine.get_schedule("refresh")  # it is of no dataset
    assert database.one("select deleted_at from dataset.dataset where id = 'lakes'")["deleted_at"]
    assert [row["number"] for row in registry.versions(database, "rivers")] == [1]
    assert folder.apply("--prune")[-1] == "2 left, 1 unchanged."


def test_prune_sees_no_further_than_its_token(folder, database):
    folder.write("lakes", ROADS)
    folder.apply()
    (folder.path / "lakes.yaml").unlink()
    folder.use(create_token(database, "roads office", "publisher", "roads*"))

    assert folder.apply("--prune") == ["1 unchanged."]


def test_much_to_do_is_not_done_in_silence(folder, monkeypatch):
    folder.write("lakes", ROADS)
    seconds = count(step=2)
    monkeypatch.setattr(applying, "monotonic", lambda: float(next(seconds)))

    told = folder.apply()

    assert "Read 2 of 3 …" in told
    assert told[-1] == "2 created."


def test_what_is_busy_is_told_in_the_plan_of_prune_and_the_rest_is_done(folder, database, engine):
    for name in ("lakes", "rivers"):
        folder.write(name, ROADS)
    folder.apply()
    active = pipelines.publish(engine, "lakes").id
    for name in ("lakes", "rivers"):
        (folder.path / f"{name}.yaml").unlink()
    folder.edit("roads", "DAILY", "WEEKLY")
    busy = ["lakes: busy", f"not deleted while its publication is active, job {active}"]

    assert set(busy) < set(folder.apply("--prune", "--dry-run"))
    told = folder.apply("--prune", "--yes", code=1)

    assert told[2:4] == busy
    assert told[-2:] == [
        "1 busy, 1 changed, 1 deleted.",
        "Error: 1 not done, for the reasons above. Apply it again once they are gone: it does the rest.",
    ]
    assert folder.wrote() == ["PUT /datasets/roads/definition", "DELETE /datasets/rivers"]
    engine.cancel(active)
    assert folder.apply("--prune", "--yes")[-1] == "1 deleted, 1 unchanged."


def test_what_only_the_act_is_refused_for_holds_up_nothing_else(folder, database):
    folder.write("lakes", ROADS)
    folder.failing = ("PUT /datasets/lakes/definition", 409)

    told = folder.apply(code=1)

    assert "lakes: Another job works on the same subject" in told
    assert told[-2] == "1 created, 1 refused."
    assert registry.definition(database, "roads")
    assert folder.wrote()[0] == "PUT /datasets/lakes/definition"
    assert "PUT /datasets/lakes/schedule" not in folder.wrote()
    folder.failing = ("nothing", None)
    assert folder.apply()[-1] == "1 created, 1 unchanged."


@pytest.mark.parametrize("new", [True, False])
def test_what_somebody_else_changes_meanwhile_is_kept_and_the_rest_is_done(folder, database, new):
    def put(licence):
        body = roads["body"] | {"licence": licence}
        registry.put_definition(database, "lakes", Definition.parse(body))

    folder.apply()
    roads = registry.definition(database, "roads")
    if not new:
        put("CC0")
    folder.write("lakes", ROADS)
    folder.edit("roads", "id", "number")
    folder.meanwhile = lambda: put("CC_BYSA_4_0")

    told = folder.apply(code=1)

    assert "lakes: changed meanwhile: run `leaseway apply` again" in told
    assert told[-2] == "1 changed, 1 refused."
    assert registry.definition(database, "lakes")["body"]["licence"] == "CC_BYSA_4_0"
    assert registry.definition(database, "roads")["body"]["columns"][0]["name"] == "number"
    folder.meanwhile = lambda: None
    assert '~ licence: "CC_BYSA_4_0" → "CC_BY_4_0"' in folder.apply()


@pytest.mark.parametrize("status", [401, 500, None])
def test_a_server_that_goes_away_midway_ends_it_with_what_is_done(folder, database, status):
    for name in ("lakes", "springs"):
        folder.write(name, ROADS)
    folder.failing = ("PUT /datasets/roads/definition", status)

    told = folder.apply(code=1)

    assert "Stopped at roads; all before it is done. Apply it again to do the rest." in told
    assert registry.definition(database, "lakes")
    assert registry.definition(database, "springs") is None
    folder.failing = ("nothing", None)
    assert folder.apply()[-1] == "2 created, 1 unchanged."


def test_prune_takes_nothing_for_gone_that_is_only_unreadable(folder):
    folder.write("lakes", ROADS)
    folder.apply()
    folder.edit("lakes", "themes:", "\tthemes:")

    told = folder.apply("--prune", "--yes", code=1)

    assert [line.partition(":")[0] for line in told] == ["lakes.yaml", "1 to mend; nothing was changed."]
    assert folder.apply(code=1) == told


def test_what_a_token_does_not_reach_is_a_fault_of_that_file(folder, database):
    folder.write("lakes", ROADS)
    folder.use(create_token(database, "lakes office", "publisher", "lakes*"))

    told = folder.apply(code=1)

    assert told[0] == (
        "roads.yaml:1:1: There is nothing at this address: the token doesn't reach this dataset; an operator makes one"
        " that does"
    )
    assert registry.definition(database, "lakes") is None


def test_the_id_of_a_deleted_dataset_is_a_fault_of_that_file(folder, database):
    folder.apply()
    (folder.path / "roads.yaml").rename(folder.path / "kept.yaml")
    folder.apply("--prune", "--yes")
    (folder.path / "kept.yaml").rename(folder.path / "roads.yaml")

    assert folder.apply(code=1)[-2] == (
        "roads.yaml:1:1: Dataset 'roads' was deleted; its id is never given again: give the file another name"
    )


def test_a_catalog_that_takes_an_operator_is_left_and_the_rest_is_applied(folder, database):
    folder.write("catalog", CATALOG)
    folder.use(create_token(database, "office", "publisher"))

    told = folder.apply()

    assert told == ["catalog.yaml: left", "it takes an operator's token", *CREATED, "1 created, 1 left."]
    assert registry.definition(database, "roads")
    assert not any("catalog" in wrote for wrote in folder.wrote())


def test_a_schedule_that_is_misspelt_is_told_what_it_is(folder):
    folder.edit("roads", "schedule:", "shedule:")

    assert folder.apply(code=1) == [
        "roads.yaml:11:1: shedule is no field here; did you mean schedule?",
        "1 to mend; nothing was changed.",
    ]


def test_a_role_that_may_apply_nothing_is_told_once(folder, database):
    folder.use(create_token(database, "reader", "reader"))

    assert "It takes the role publisher." in " ".join(folder.apply(code=1))
    assert registry.definition(database, "roads") is None


def test_an_empty_folder_says_how_to_begin(folder):
    for name in ("roads", "defaults"):
        (folder.path / f"{name}.yaml").unlink()

    assert "leaseway init" in folder.apply(code=1)[0]


def test_every_answer_was_asked_for_at_this_leaseway_alone(folder):
    folder.apply()

    assert json.dumps(folder.asked).count("/datasets/roads/") == 4


@pytest.fixture
def beside(folder, monkeypatch, admin_database_dsn, dsn):
    """The folder is applied beside the database, where the source's secret is set; public.flights has id and name."""
    monkeypatch.delenv("LEASEWAY_URL")
    monkeypatch.setenv("LEASEWAY_SECRET_OFFICE", dsn)
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute("create table public.flights (id int, name text)")
        admin.execute("grant select on public.flights to leaseway_app")
        yield folder
        admin.execute("drop table if exists public.flights")


def test_columns_that_a_source_lacks_or_has_otherwise_are_faults_of_the_file(beside, database, admin_database_dsn):
    beside.write("bridges", ROADS)
    beside.edit(
        "roads", "  - {name: name, type: text}", "  - {name: nam, type: text}\n  - {name: h, type: date, from: height}"
    )
    beside.edit("bridges", "type: text", "type: date")

    assert beside.apply(code=1) == [
        "bridges.yaml:10:6: columns[1].name name is of another type than date there: `leaseway source check flights`",
        "roads.yaml:10:6: columns[1].name nam isn't there: `leaseway source check flights`",
        "roads.yaml:11:27: columns[2].from height isn't there: `leaseway source check flights`",
        "3 to mend; nothing was changed.",
    ]
    assert registry.definition(database, "roads") is None

    beside.edit("roads", "nam,", "name,")
    beside.edit("roads", "from: height", "from: name")
    beside.edit("roads", "date", "text")
    beside.edit("bridges", "type: date", "type: text")
    assert beside.apply()[-1] == "2 created."

    with psycopg.connect(admin_database_dsn) as admin:
        admin.execute("alter table public.flights drop column name")
    beside.edit("roads", "All roads.", "Each road.")
    assert beside.apply()[-1] == "1 changed, 1 unchanged."  # its columns are what they were


def test_more_columns_than_are_named_are_counted(beside):
    beside.edit(
        "roads", "  - {name: name, type: text}", "\n".join(f"  - {{name: c{n}, type: text}}" for n in range(23))
    )

    told = beside.apply(code=1)

    assert sum("isn't there" in line for line in told) == 20
    assert "roads.yaml:7:1: columns has 3 more that the source flights lacks" in told


def test_columns_of_a_file_are_compared_with_those_that_it_was_registered_with(beside, database):
    columns = [{"name": name, "type": "text", "nulls": 0} for name in ("id", "Name")]
    registry.register_file(
        database, "trees", {"key": "k", "bytes": 1, "sha256": "1", "records": 1, "dialect": {}, "columns": columns}
    )
    beside.edit("roads", "source: flights", "source: trees")

    assert beside.apply(code=1)[:2] == [
        "roads.yaml:8:5: columns[0].name id is of another type than integer there: `leaseway source check trees`",
        "roads.yaml:10:6: columns[1].name name isn't there: `leaseway source check trees`",
    ]


def test_a_source_that_cannot_be_seen_is_said_and_holds_up_nothing(beside, database, monkeypatch):
    with database.transaction() as tx:
        registry.register_source(tx, "ghosts", "office", "public.ghosts", None)
        registry.register_store(tx, "sensors", "sensors")
    beside.write("ghosts", ROADS.replace("source: flights", "source: ghosts"))
    beside.write("sensors", ROADS.replace("source: flights", "source: sensors"))

    told = beside.apply("--dry-run")
    [missing] = [line for line in told if line.startswith("Not checked")]
    assert missing.startswith("Not checked: ghosts. There is no relation of that name.")
    assert told[-1] == "3 created. Nothing was changed: it was a dry run."

    monkeypatch.setenv("LEASEWAY_SECRET_OFFICE", "postgresql://127.0.0.1:9/nowhere")
    looked = []
    monkeypatch.setattr(comparing, "snapshot", lambda relation: looked.append(relation) or snapshot(relation))
    [away] = [line for line in beside.apply("--dry-run") if line.startswith("Not checked")]
    assert away.startswith("Not checked: ghosts, flights. The source's database doesn't answer.")
    assert len(looked) == 1

    for value, why in (
        ("no DSN", "The secret isn't a connection string"),
        ("", "LEASEWAY_SECRET_OFFICE isn't set here"),
    ):
        monkeypatch.setenv("LEASEWAY_SECRET_OFFICE", value)
        assert f"Not checked: ghosts, flights. {why}" in "\n".join(beside.apply("--dry-run"))
    assert beside.apply()[-1] == "3 created."
