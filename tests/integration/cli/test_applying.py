"""Sources from a folder of YAML, and a first definition from a source."""

import psycopg
import pytest
import yaml

from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition

TREES = "connection: src\nrelation: src.trees\n"


@pytest.fixture
def connected(run, reader):
    """The connection src is known, and its secret is set."""
    run("connection", "add", "src", "--secret", "LEASEWAY_SECRET_SRC")


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)


def test_sources_are_applied_and_applied_again_without_effect(run, connected, database, tmp_path):
    write(tmp_path, trees=TREES, big_trees="connection: src\nquery: select * from src.trees where id > 5\n")

    assert run("source", "apply", tmp_path, "--dry-run").splitlines() == [
        "big_trees: created",
        '  + connection: "src"',
        '  + query: "select * from src.trees where id > 5"',
        "trees: created",
        '  + connection: "src"',
        '  + relation: "src.trees"',
        "2 created. Nothing was changed: it was a dry run.",
    ]
    assert registry.sources(database) == []
    assert run("source", "apply", tmp_path).splitlines()[-1] == "2 created."
    assert run("source", "apply", tmp_path).splitlines()[-1] == "2 unchanged."

    write(tmp_path, trees="connection: src\nrelation: src.shrubs\n")
    assert run("source", "apply", tmp_path).splitlines()[:3] == [
        "trees: changed",
        "  ~ revision: 1 → 2",
        '  ~ relation: "src.trees" → "src.shrubs"',
    ]
    assert registry.source(database, "trees")["relation"] == "src.shrubs"


def test_what_cannot_be_read_from_here_or_was_not_looked_at_is_said(run, connected, monkeypatch, tmp_path):
    write(tmp_path, trees=TREES, ghosts="connection: src\nrelation: src.ghosts\n")
    told = run("source", "apply", tmp_path, "--dry-run")
    assert "! Source ghosts: There is no relation of that name." in told
    assert "Source trees" not in told

    monkeypatch.delenv("LEASEWAY_SECRET_SRC")
    told = run("source", "apply", tmp_path)
    assert "! Not checked, for LEASEWAY_SECRET_SRC isn't set here: ghosts, trees. `leaseway source check" in told
    assert "2 created." in told


def test_all_errors_of_all_sources_are_told_before_one_is_registered(run, connected, database, tmp_path):
    write(
        tmp_path,
        trees=TREES,
        a="connection: sr\nrelation: src.trees\n",
        b="conection: src\nrelation: x\n",
        c="connection: src\nrelation: x\nquery: select 1\n",
        d="connection: src\nrelation: 5\n",
    )
    (tmp_path / "E f.yaml").write_text(TREES)

    told = run("source", "apply", tmp_path, code=1).replace(f"{tmp_path}/", "").splitlines()

    assert told == [
        "E f.yaml:1:1: must be named like its source: lower-case letters, digits, - and _",
        "a.yaml:1:1: connection isn't known; did you mean src?",
        "b.yaml:1:1: conection is no field here; did you mean connection?",
        "b.yaml:1:1: connection is missing; `leaseway connection list` has them",
        "c.yaml:2:1: relation must be given, or a query, not both",
        "d.yaml:2:1: relation must be a text",
        "6 to mend; nothing was changed.",
    ]
    assert registry.sources(database) == []


def test_a_definition_is_begun_from_what_the_source_has(run, connected, admin_database_dsn, tmp_path):
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute('alter table src.trees add "no" numeric, add "Größe in m" float8, add at timestamptz')
        admin.execute("alter table src.trees add place point, add places point[], add tags text[]")
        admin.execute(
            'insert into src.trees (id, name, "no") select n, nullif(n, 3)::text, n from generate_series(1, 1200) n'
        )
    write(tmp_path, trees=TREES)
    run("source", "apply", tmp_path)
    file = tmp_path / "datasets" / "trees.yaml"

    refused = run("init", "trees", file, code=1)
    assert "place (point), places (point[])" in refused
    assert "--without place --without places" in refused
    assert not file.exists()

    told = run("init", "trees", file, "--without", "places", "--without", "place")

    assert "1,200 records, 6 columns." in told
    text = file.read_text()
    assert "  - {name: name, type: text}  # none in 1\n" in text
    assert "  # place (point) was left out\n" in text
    begun = yaml.safe_load(text)
    assert [(column["name"], column["type"]) for column in begun["columns"]] == [
        ("id", "integer"),
        ("name", "text"),
        ("no", "decimal"),
        ("Größe in m", "double"),
        ("at", "timestamptz"),
        ("tags", "text[]"),
    ]
    with pytest.raises(Exception, match=r"title\.en: is empty"):
        Definition.parse(begun)
    assert "exists; it stays as it is" in run("init", "trees", file, code=1)


def test_what_cannot_be_begun_says_why(run, connected, monkeypatch, tmp_path):
    assert "There is no source trees" in run("init", "trees", tmp_path / "x.yaml", code=1)
    write(
        tmp_path,
        trees="connection: src\nrelation: src.nothing\n",
        points="connection: src\nquery: select point(1, 2) as p\n",
    )
    run("source", "apply", tmp_path)
    assert "[source_changed: " in run("init", "trees", tmp_path / "x.yaml", code=1)
    assert "p (point)" in run("init", "points", tmp_path / "x.yaml", code=1)
    assert "No column of points is left" in run("init", "points", tmp_path / "x.yaml", "--without", "p", code=1)
    assert "points has no column q" in run("init", "points", tmp_path / "x.yaml", "--without", "q", code=1)
    monkeypatch.delenv("LEASEWAY_SECRET_SRC")
    assert "LEASEWAY_SECRET_SRC isn't set here" in run("init", "trees", tmp_path / "x.yaml", code=1)
    assert not (tmp_path / "x.yaml").exists()
