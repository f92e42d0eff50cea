"""Which Leaseway a command speaks to, and as whom."""

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from chalicelib.cli import leaseway, local
from chalicelib.settings import settings

from .conftest import Run, Server


class Tokens:
    """A database that takes tokens."""

    def run(self, *_: object, **__: object) -> list[object]:
        return []


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> Path:
    class Here:
        url = server.url

    for name in ("LEASEWAY_URL", "LEASEWAY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LEASEWAY_STACK", str(tmp_path / "stack"))
    monkeypatch.setenv("LEASEWAY_HASH_KEY", "k" * 32)
    monkeypatch.setattr(local, "stack", Here)
    settings.cache_clear()
    local.keep_tokens(Tokens())  # type: ignore[arg-type]
    settings.cache_clear()
    return tmp_path / "stack"


def test_the_stacks_own_tokens_are_for_their_owner_alone_and_made_once(stack: Path) -> None:
    files = sorted((stack / "tokens").iterdir())
    before = [file.read_text() for file in files]

    assert [file.name for file in files] == ["operator", "publisher", "reader"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert len(set(before)) == 3
    local.keep_tokens(Tokens())  # type: ignore[arg-type]
    assert [file.read_text() for file in files] == before


def test_without_leaseway_url_it_is_the_local_stack_as_its_operator(stack: Path, server: Server) -> None:
    server.tell("GET /x", {})

    local.remote().get("/x")

    assert server.asked[-1][2] == f"Bearer {(stack / 'tokens' / 'operator').read_text().strip()}"


def test_leaseway_url_never_gets_the_local_stacks_token(
    stack: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASEWAY_URL", server.url)
    server.tell("GET /x", {})

    local.remote().get("/x")

    assert server.asked[-1][2] is None


def test_the_demo_stays_here_whatever_leaseway_url_says(
    stack: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASEWAY_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("LEASEWAY_TOKEN", "lw_elsewhere")
    server.tell("GET /x", {})

    local.here("publisher").get("/x")

    assert server.asked[-1][2] == f"Bearer {(stack / 'tokens' / 'publisher').read_text().strip()}"


@pytest.mark.parametrize(
    "command", [("token", "list"), ("migrate",), ("manifest", "list"), ("source", "list"), ("connection", "list")]
)
def test_what_works_beside_the_database_takes_no_other_one_than_leaseway_url_means(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    for name in ("DATABASE_URL", "LEASEWAY_DATABASE_SECRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(local, "enter", lambda: pytest.fail("the local stack was taken"))

    result = run(*command)

    assert (result.exit_code, result.stderr) == (1, f"Error: {local.BESIDE}\n")


def test_no_secret_is_kept_here_for_a_leaseway_elsewhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "LEASEWAY_DATABASE_SECRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LEASEWAY_SECRET_X", "postgresql://x")
    monkeypatch.setattr(local, "stack", lambda: pytest.fail("the local stack was taken"))

    assert run("connection", "add", "x", "--secret", "LEASEWAY_SECRET_X").exit_code == 1


def test_the_local_database_s_address_is_printed_for_psql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "LEASEWAY_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LEASEWAY_STACK", str(tmp_path))
    local.stack.cache_clear()

    printed = CliRunner().invoke(leaseway, ["dsn"]).stdout.strip()

    postgresql = local.stack().postgresql
    local.stack.cache_clear()
    assert postgresql
    assert printed == postgresql.dsn
