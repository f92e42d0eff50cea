"""Nothing private leaves: no token, principal, payload, connection, key or exception's text, anywhere."""

import json
import logging
from datetime import timedelta
from uuid import uuid4

from .seeding import DEFINITION, call, files

CANARIES = (
    "CANARY",
    "lw_",
    "outsider@",
    "reader@",
    "publisher@",
    "operator@",
    "LEASEWAY_SECRET_",
    "dbname",
    "select ",
    "Traceback",
    "/site-packages/",
)


def test_T28_nothing_private_is_in_any_answer_or_log_line(app, http, database, office, engine, capsys, caplog):
    database.run("update dataset.source set relation = 'CANARY.relation'")
    database.run("update dataset.version set report = %(r)s::jsonb", r=json.dumps({"text": "CANARY in a report"}))
    leased = engine.claim("work", job=office.active, ask=uuid4(), lease=timedelta(seconds=60))
    leased.save({"export": "CANARY in a checkpoint"})
    database.run("""update engine.job set result = '{"key": "CANARY in a result"}' where finished_at is null""")
    answers = []
    with caplog.at_level(logging.INFO):
        for route, methods in app.routes.items():
            path = route.format(
                dataset="flights",
                number="1",
                name="flights.csv",
                job=office.active if "failures" not in route else office.failed,
            )
            for method in sorted(methods, key=("GET", "HEAD", "PUT", "POST", "DELETE").index):
                for who in (None, *office.tokens.values()):
                    for body in (None, {"unheard-of": "x"}, DEFINITION, b'{"half": '):
                        if method in ("GET", "HEAD", "DELETE") and body is not None:
                            continue
                        answers.append((f"{method} {path}", call(http, method, path, who, body)))
        for accept in ("application/json", "application/ld+json"):
            answers.append((accept, call(http, "GET", "/datasets/flights/versions/1", accept=accept)))

    lines = capsys.readouterr().out + caplog.text
    assert len(answers) > 200
    for asked, answered in answers:
        assert answered.status_code < 500 or asked.endswith("/health"), asked
        said = answered.body.decode() + json.dumps(answered.headers)
        assert not [canary for canary in CANARIES if canary in said], (asked, said)
        if "Location" not in answered.headers:
            assert files(1)[0]["key"] not in said, asked
    assert not [canary for canary in CANARIES if canary in lines]


def test_T28_what_a_caller_sends_isnt_logged_and_a_token_isnt_echoed(http, office, capsys, caplog):
    with caplog.at_level(logging.INFO):
        for path in ("/datasets/flights/definition", "/internal/pause?CANARY=1", "/datasets/CANARY/definition"):
            answered = call(http, "PUT", path, "lw_" + "CANARY0" * 6 + "A", {"CANARY": "CANARY"})
            assert answered.status_code == 401
            assert b"CANARY" not in answered.body
        call(http, "PUT", "/datasets/flights/definition", office.tokens["operator"], {"CANARY": "CANARY"})

    assert "CANARY" not in capsys.readouterr().out + caplog.text
