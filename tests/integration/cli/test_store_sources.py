"""A dataset's store as a source: registered, applied, looked at and begun with."""

import pytest

from chalicelib.datasets import Invalid, registry
from chalicelib.datasets.definition import Definition
from chalicelib.datasets.store import prepare_store
from tests.integration.api.seeding import DEFINITION

LOADED = {
    "source": "sensors",
    "key": ["id"],
    "columns": [{"name": "id", "type": "integer"}, {"name": "value", "type": "decimal", "from": "Wert"}],
}


@pytest.fixture
def filled(database):
    """The store of the dataset sensors, with two rows."""
    definition = Definition.parse(DEFINITION | LOADED)
    with database.transaction() as tx:
        registry.put_definition(tx, "sensors", definition)
        prepare_store(tx, "sensors", definition)
        tx.run("""insert into store.sensors values (1, 0.50), (2, null)""")


def test_it_is_registered_without_a_connection_and_the_same_again_is_no_revision(run, database):
    assert "revision 1" in run("source", "register", "sensors", "--store", "sensors")
    assert "revision 1" in run("source", "register", "sensors", "--store", "sensors")
    assert "revision 2" in run("source", "register", "sensors", "--store", "others")

    assert registry.source(database, "sensors")["store"] == "others"
    assert registry.source(database, "sensors", 1)["store"] == "sensors"
    assert "the store of others" in run("source", "list")


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--store", "x", "--table", "y"),
        ("--store", "x", "--connection", "y"),
        ("--table", "x"),
        ("--connection", "x"),
    ],
)
def test_what_says_too_little_or_too_much_is_wrong_usage(run, options):
    run("source", "register", "sensors", *options, code=2)


def test_what_is_no_dataset_is_refused(run, database):
    assert "must be a dataset's id" in run("source", "register", "sensors", "--store", "No Id", code=1)
    with pytest.raises(Invalid, match="must be 1 to 63"):
        registry.register_store(database, "No Name", "sensors")
    assert registry.sources(database) == []


def test_it_is_checked_and_a_definition_is_begun_with_it(run, filled, tmp_path):
    run("source", "register", "sensors", "--store", "sensors")

    said = run("source", "check", "sensors", "--json")
    assert [(column["name"], column["type"], column["nulls"]) for column in said["columns"]] == [
        ("id", "integer", 0),
        ("Wert", "decimal", 1),
    ]
    assert "2 records, 2 columns" in run("init", "sensors", tmp_path / "sensors.yaml")
    assert "{name: Wert, type: decimal}" in (tmp_path / "sensors.yaml").read_text()


def test_before_the_first_load_there_is_nothing_to_look_at(run, tmp_path):
    run("source", "register", "sensors", "--store", "sensors")

    said = "Nothing has been loaded into the dataset's store yet. `leaseway load DATASET FILE`"
    assert said in run("source", "check", "sensors", code=1)
    assert said in run("init", "sensors", tmp_path / "sensors.yaml", code=1)


def test_a_folder_of_yaml_may_say_it_too(run, database, tmp_path):
    (tmp_path / "sensors.yaml").write_text("store: sensors\n")
    assert run("source", "apply", tmp_path).splitlines()[-1] == "1 created."
    assert run("source", "apply", tmp_path).splitlines()[-1] == "1 unchanged."
    assert registry.source(database, "sensors")["store"] == "sensors"

    (tmp_path / "sensors.yaml").write_text("store: sensors\nconnection: src\nquery: select 1\n")
    (tmp_path / "others.yaml").write_text("store: No Id\n")
    told = run("source", "apply", tmp_path, code=1).replace(f"{tmp_path}/", "").splitlines()

    assert told == [
        "others.yaml:1:1: store must be a dataset's id: 1 to 63 of a-z, 0-9 and -",
        "sensors.yaml:2:1: connection can't stand beside store",
        "sensors.yaml:3:1: query can't stand beside store",
        "3 to mend; nothing was changed.",
    ]
