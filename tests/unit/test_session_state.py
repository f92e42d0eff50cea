"""Behind a pooler in transaction mode, or RDS Proxy, each transaction may meet another session (invariant 12)."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import chalicelib

CODE = Path(chalicelib.__file__).parent
FORBIDDEN = re.compile(
    r"""^(?-i:set|SET|reset|RESET)\s+(session\s+)?(?!local\b)[\w.]+\s*(=|\bto\b)
      | ^set\s+(session\s+)?(characteristics|authorization|role|time\s+zone)\b | ^reset\s+\w+$
      | ^(un)?listen\s+\S+$ | ^prepare\s+\w+\s+(as|\() | ^deallocate\b | ^discard\s+(all|plans|sequences|temp)\b
      | \bpg_(try_)?advisory_(lock|unlock) | \bset_config\s*\([^)]*\bfalse\b
      | ^create\s+(local\s+|global\s+)?temp(orary)?\b | ^declare\b.*\bwith\s+hold\b""",
    re.IGNORECASE | re.VERBOSE,
)


def keeps_a_session(text):
    parts = [" ".join(part.split()) for part in re.sub(r"--[^\n]*", "", text).split(";")]
    return [part for part in parts if FORBIDDEN.search(part)]


@cache
def parsed():
    """The nodes of each file of the code: walking through a tree takes longer than what is asked of its nodes."""
    return {path: list(ast.walk(ast.parse(path.read_text()))) for path in CODE.rglob("*.py")}


def strings(nodes):
    """What stands in quotes, but for docstrings."""
    documentation = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


@pytest.mark.parametrize(
    "statement",
    ["listen wake_up", "SET search_path to engine", "set session time zone 'UTC'", "select pg_advisory_lock(1)",
     "select 1; set role x", "deallocate all", "discard all", "prepare p as select 1", "select pg_try_advisory_lock(7)",
     "select set_config('a.b', 'c', false)", "create temp table t ()", "declare c cursor with hold for select 1"],
)  # fmt: skip
def test_what_keeps_a_session_is_seen(statement):
    assert keeps_a_session(statement)


def test_T25_no_statement_keeps_anything_in_its_session():
    texts = {path: path.read_text() for path in CODE.rglob("*.sql") if path.parent.name == "sql"}
    assert len(texts) > 50
    found = {str(path): kept for path, text in texts.items() if (kept := keeps_a_session(text))}
    for path, nodes in parsed().items():
        for text in strings(nodes):
            if kept := keeps_a_session(text):
                found[str(path)] = kept
    assert not found


def test_T25_no_connection_prepares_statements_on_its_server():
    preparing = []
    for path, nodes in parsed().items():
        for node in nodes:
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)  # the quicker question first
                and node.func.attr == "connect"
                and ast.unparse(node.func) in ("psycopg.connect", "psycopg.Connection.connect", "_Connection.connect")
                and "prepare_threshold=None" not in [ast.unparse(keyword) for keyword in node.keywords]
            ):
                preparing.append(path.relative_to(CODE).as_posix())
    assert set(preparing) <= {
        "cli/flights.py",
        "cli/refreshing.py",
    }  # make the demo's databases, which aren't Leaseway's own
