"""Commands beside the database: what they refuse without one, and what `restored` finds outside."""

import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from chalicelib import settings as settings_module
from chalicelib.cli import leaseway, restored
from chalicelib.cli.remote import Refused
from chalicelib.settings import Settings

from .conftest import Server


@pytest.fixture
def no_database(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DATABASE_URL", "postgresql://127.0.0.1:9/nothing")
    settings_module.settings.cache_clear()
    yield
    settings_module.settings.cache_clear()


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(leaseway, arguments)


@pytest.mark.parametrize("command", [("migrate",), ("token", "list"), ("source", "list"), ("connection", "list")])
def test_a_database_that_is_away_is_one_sentence(no_database: None, command: tuple[str, ...]) -> None:
    result = invoke(*command)

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: Leaseway's own database doesn't answer")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ("token", "create"),
        ("token", "create", "x", "--role", "king"),
        ("token", "create", "x", "--expires", "0"),
        ("token", "revoke", "not-an-id"),
        ("connection", "add", "x", "--secret", "PATH"),
        ("source", "register", "x", "--connection", "c"),
        ("source", "register", "x", "--connection", "c", "--table", "t", "--query", "q"),
        ("nonsense",),
    ],
)
def test_wrong_usage_is_2_and_needs_no_database(no_database: None, command: tuple[str, ...]) -> None:
    assert invoke(*command).exit_code == 2


def test_where_the_app_is_not_installed_the_command_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chalicelib.db", None)

    result = invoke("migrate")

    assert result.exit_code == 1
    assert "pip install -r requirements.txt" in result.stderr


def test_restored_finds_fences_and_versions_in_the_triple_store(server: Server) -> None:
    def row(graph: str, fence: str, version: str | None = None) -> dict[str, dict[str, str]]:
        cells = {"graph": graph, "subject": graph, "fence": fence} | ({"version": version} if version else {})
        return {name: {"type": "literal", "value": value} for name, value in cells.items()}

    here = "https://data.example.org/datasets"
    rows = [row(f"{here}/flights", "41", "7"), row(f"{here}/emptied", "55"), row("https://else.example/x", "3", "99")]
    given = row(f"{here}/roads", "12", "8")  # nine was withdrawn
    given["subject"]["value"] += "/versions/9"
    rows += [row(f"{here}/roads", "12", "8"), given]
    server.tell("POST /query", {"results": {"bindings": rows}})
    settings = Settings(public_url="https://data.example.org", triple_store_query_url=f"{server.url}/query")

    fences, versions = restored.seen_by_the_triple_store(settings)

    assert max(fences) == 55
    assert versions == {"flights": 7, "roads": 9}


def test_restored_refuses_to_guess_when_the_triple_store_is_away() -> None:
    with pytest.raises(Refused, match="must answer"):
        restored.seen_by_the_triple_store(Settings(triple_store_query_url="http://127.0.0.1:9/query"))
