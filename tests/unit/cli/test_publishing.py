"""Publishing from an office laptop: over HTTP, with one sentence for what goes wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli import remote

from .conftest import JOB, NO_ANSWER, Run, Server, status

PUBLICATIONS = "POST /datasets/flights/publications"
LOOK = f"GET /publications/{JOB}"


def accepted(server: Server) -> None:
    server.tell(PUBLICATIONS, status("REQUESTED"), 202, Location=f"{server.url}/publications/{JOB}", Retry_After="2")


def test_publish_says_where_to_look(server: Server, run: Run) -> None:
    accepted(server)

    result = run("publish", "flights")

    assert result.exit_code == 0
    assert f"{server.url}/publications/{JOB}" in result.output
    assert "leaseway status flights" in result.output
    assert server.asked == [(PUBLICATIONS, {}, "Bearer lw_secret")]


def test_publish_wait_shows_each_change_and_asks_as_often_as_the_server_likes(
    server: Server, run: Run, pauses: list[float]
) -> None:
    accepted(server)
    export = {"code": "export", "since": "2026-11-29T02:00:00Z", "until": None}
    server.tell(LOOK, status("REQUESTED"), Retry_After="2")
    server.tell(
        LOOK,
        status("GET_DATA", progress={"records": 1000, "bytes": 52_000, "total": 336_776}, waiting_for=export),
        Retry_After="5",
    )
    server.tell(LOOK, status("PUBLISHED", version=3))

    result = run("publish", "flights", "--wait")

    assert result.exit_code == 0
    assert "GET_DATA, 1,000 of 336,776 records, 52.0 kB, waits for export" in result.output
    assert f"Published version 3: {server.url}/datasets/flights" in result.output
    assert pauses == [2, 5]


def test_publish_wait_ends_with_1_and_the_sentence_of_the_failure(server: Server, run: Run) -> None:
    accepted(server)
    failure = {"code": "source_denied", "sentence": "The source's login may not read it.", "details": {"relation": "r"}}
    server.tell(LOOK, status("FAILED", failure=failure))

    result = run("publish", "flights", "--wait")

    assert result.exit_code == 1
    assert "The source's login may not read it. [source_denied: relation r]" in result.stderr


def test_a_drop_is_accepted(server: Server, run: Run) -> None:
    server.tell(
        f"{PUBLICATIONS}?accept_drop=true", status("REQUESTED"), 202, Location=f"{server.url}/publications/{JOB}"
    )

    assert run("publish", "flights", "--accept-drop").exit_code == 0


NEXT = JOB[:-1] + "2"


@pytest.mark.parametrize(
    "now",
    [
        {"active": status("REQUESTED", id=NEXT), "failure": status("FAILED")},
        {"active": status("REQUESTED", id=JOB[:-1] + "3"), "failure": status("FAILED", id=NEXT)},
        {"version": {"number": 4}},
    ],
    ids=["active", "ended", "published"],
)
def test_publish_wait_goes_on_with_the_follow_up_that_does_what_was_asked_for(
    server: Server, run: Run, now: dict[str, Any]
) -> None:
    at_work = status("GET_DATA", follow_up=True)
    server.tell(f"{PUBLICATIONS}?accept_drop=true", at_work, 202, Location=f"{server.url}/publications/{JOB}")
    server.tell(LOOK, status("FAILED", failure={"code": "too_few_records", "sentence": "The source has no records."}))
    server.tell("GET /datasets/flights/status", {"active": None, "failure": None, "version": {"number": 3}} | now)
    server.tell("GET /datasets/flights/versions/3", {"publication": JOB[:-1] + "0"})
    server.tell("GET /datasets/flights/versions/4", {"publication": NEXT})
    server.tell(f"GET /publications/{NEXT}", status("PUBLISHED", id=NEXT, version=4))

    result = run("publish", "flights", "--accept-drop", "--wait")

    assert result.exit_code == 0, result.stderr
    assert "Published version 4" in result.output


def test_publish_wait_says_where_to_look_for_a_follow_up_that_is_gone(server: Server, run: Run) -> None:
    at_work = status("GET_DATA", follow_up=True)
    server.tell(PUBLICATIONS, at_work, 202, Location=f"{server.url}/publications/{JOB}")
    server.tell(LOOK, status("PUBLISHED"))
    server.tell("GET /datasets/flights/status", {"active": None, "failure": None, "version": None})

    said, waited = run("publish", "flights"), run("publish", "flights", "--wait")

    assert "is published after it" in said.output
    assert waited.exit_code == 1
    assert "look with `leaseway status flights`" in waited.stderr


def test_publish_wait_outlasts_a_server_that_restarts(server: Server, run: Run, pauses: list[float]) -> None:
    accepted(server)
    server.tell(LOOK, "<html>bad gateway</html>", 502)
    server.tell(LOOK, "<html>bad gateway</html>", 502)
    server.tell(LOOK, status("PUBLISHED"))

    assert run("publish", "flights", "--wait").exit_code == 0
    assert len(pauses) == 2


def test_publish_wait_gives_up_on_a_server_that_stays_away(
    server: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted(server)
    server.tell(LOOK, "", 503)
    minutes = iter(range(0, 6000, 60))
    monkeypatch.setattr(remote, "monotonic", lambda: next(minutes))

    result = run("publish", "flights", "--wait")

    assert result.exit_code == 1
    assert "was answered 503" in result.stderr


def test_ctrl_c_leaves_the_publication_running_and_says_how_to_look(
    server: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted(server)
    server.tell(LOOK, status("GET_DATA"))

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(remote, "sleep", interrupt)
    result = run("publish", "flights", "--wait")

    assert result.exit_code == 130
    assert "The publication goes on. Look with `leaseway status flights`" in result.stderr
    assert [request for request, _, _ in server.asked] == [PUBLICATIONS, LOOK]  # and no cancel


def test_publish_wait_json_prints_the_last_status_and_nothing_else(server: Server, run: Run) -> None:
    accepted(server)
    server.tell(LOOK, status("PUBLISHED"))

    result = run("publish", "flights", "--wait", "--json")

    assert json.loads(result.stdout)["status"] == "succeeded"


def test_a_refusal_is_one_sentence_with_the_field_and_the_remedy(server: Server, run: Run) -> None:
    server.problem(
        PUBLICATIONS,
        422,
        "unknown_source",
        "There is no source of that name",
        field="source",
        detail="'fligths' is not registered. Did you mean 'flights'?",
    )

    result = run("publish", "flights")

    assert result.exit_code == 1
    assert result.stderr == (
        "Error: There is no source of that name (source): 'fligths' is not registered. Did you mean 'flights'?\n"
    )


def test_without_a_token_the_answer_says_how_to_get_one(server: Server, run: Run) -> None:
    server.problem(PUBLICATIONS, 401, "unauthorized", "This address needs a token")

    assert "LEASEWAY_TOKEN" in run("publish", "flights").stderr


def test_a_read_that_something_else_answered_is_tried_again(server: Server, run: Run, pauses: list[float]) -> None:
    server.tell("GET /internal/jobs?limit=20", "<html>starting</html>")
    server.tell("GET /internal/jobs?limit=20", {"jobs": [], "next": None})

    assert run("jobs", "list").output == "There are no such jobs.\n"
    assert pauses == [1.0]


def test_where_something_else_answers_for_long_it_is_said_and_that_the_key_holds(server: Server, run: Run) -> None:
    server.tell("GET /internal/jobs?limit=20", "<html>starting</html>")
    server.tell(PUBLICATIONS, "<html>starting</html>")

    said, asked = run("jobs", "list"), run("publish", "flights", "--key", "monday")

    assert (said.exit_code, asked.exit_code) == (1, 1)
    assert said.stderr == (
        f"Error: GET {server.url}/internal/jobs?limit=20 was answered 200 by something that isn't Leaseway.\n"
    )
    assert "may be sent again with the same key, monday" in asked.stderr
    assert server.keys[-2:] == ["monday", "monday"]


def test_an_answer_of_something_else_on_the_way_is_named_as_such(server: Server, run: Run) -> None:
    server.tell(PUBLICATIONS, {"message": "Missing Authentication Token"}, 403)

    result = run("publish", "flights")

    assert result.exit_code == 1
    assert "was answered 403 by something that isn't Leaseway" in result.stderr


def test_nobody_at_the_address(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEWAY_URL", "http://127.0.0.1:9")

    result = run("publish", "flights")

    assert result.exit_code == 1
    assert result.stderr == "Error: Nobody answers at http://127.0.0.1:9. Check LEASEWAY_URL and the network.\n"


def test_the_token_never_goes_to_another_host(server: Server, run: Run) -> None:
    other = Server()
    try:
        server.tell(
            PUBLICATIONS, status("REQUESTED"), 202, Location=f"http://localhost:{other.server_port}/publications/1"
        )
        from threading import Thread

        other.tell("GET /publications/1", status("PUBLISHED"))
        Thread(target=other.serve_forever, kwargs={"poll_interval": 0.001}, daemon=True).start()
        run("publish", "flights", "--wait")
        assert [authorization for _, _, authorization in other.asked] == [None]
    finally:
        other.shutdown()
        other.server_close()


@pytest.mark.parametrize("wrong", ["Flights", "a b", "../catalog", "-x", "x" * 64])
def test_what_cannot_be_a_dataset_is_refused_before_anything_is_sent(server: Server, run: Run, wrong: str) -> None:
    assert run("status", "--", wrong).exit_code == 2
    assert server.asked == []


def test_a_definition_is_put_from_a_file_and_got_into_one(server: Server, run: Run, tmp_path: Path) -> None:
    body = {"title": {"en": "Flights", "de": "Flüge"}}
    server.tell("PUT /datasets/flights/definition", {"revision": 4}, 201)
    server.tell("GET /datasets/flights/definition", body)
    file = tmp_path / "flights.json"

    got = run("definition", "get", "flights", str(file))
    put = run("definition", "put", "flights", str(file))

    assert (got.exit_code, put.exit_code) == (0, 0)
    assert server.asked[1][1] == body
    assert "Flüge" in file.read_text()
    assert "Revision 4 of flights is in force." in put.output


def test_a_definition_that_is_no_json_is_wrong_usage(server: Server, run: Run) -> None:
    result = run("definition", "put", "flights", input="title: Flights")

    assert result.exit_code == 2
    assert "is not JSON" in result.stderr
    assert server.asked == []


def test_each_field_of_an_invalid_definition_is_named(server: Server, run: Run) -> None:
    server.problem(
        "PUT /datasets/flights/definition",
        422,
        "invalid_definition",
        "The definition isn't valid",
        errors=[{"field": "title.xx", "detail": "no language"}, {"field": "themes.0", "detail": "unknown"}],
    )

    error = run("definition", "put", "flights", input="{}").stderr

    assert "title.xx: no language" in error
    assert "themes.0: unknown" in error


def test_why_isnt_it_newer_fits_on_one_screen(server: Server, run: Run) -> None:
    waiting = {"code": "source_unreachable", "since": "2026-11-29T02:01:00Z", "until": "2026-11-29T02:11:00Z"}
    failure = {"code": "storage_unreachable", "sentence": "Object storage doesn't answer.", "details": {}}
    server.tell(
        "GET /datasets/flights/status",
        {
            "dataset": "flights",
            "version": {
                "number": 4,
                "issued_at": "2026-11-28T02:00:20Z",
                "records": 336_776,
                "unpublished_columns": ["gate", "seats"],
                "warnings": {"count": 2, "about": ["spatial", "temporal"]},
                "characters_removed": 2,
                "definition_revision": 2,
            },
            "definition": {"revision": 3, "created_at": "2026-11-28T12:00:00Z"},
            "schedule": {
                "cadence": {"every": "week", "on": "sunday", "at": "02:00", "zone": "Europe/Berlin"},
                "next_due_at": "2026-12-06T01:00:00Z",
                "last_due_at": "2026-11-29T01:00:00Z",
                "last_refusal": None,
            },
            "active": status("GET_DATA", attempts=2, waiting_for=waiting),
            "failure": status("FAILED", failure=failure, finished_at="2026-11-28T08:00:00Z")
            | {"command": "leaseway publish flights"},
            "loads": {"unfinished": 2, "since": "2026-11-29T02:05:00Z"},
            "pause": {"pipeline": "*", "since": "2026-11-29T00:00:00Z", "until": "2026-11-30T00:00:00Z"},
            "last_finished": {"recovery": "2026-11-29T02:10:00Z", "clean_up": None},
            "health": {"ok": False, "reasons": ["catch_up hasn't finished for 6 min"]},
        },
    )

    screen = run("status", "flights").output

    for part in (
        "4, 336,776 records, published 2026-11-28 02:00 UTC",
        "revision 2 is published, 3 is the newest",
        "gate, seats: columns of the source that the definition doesn't name",
        "2 characters that XML can't hold, from the XML file",
        "2; DCAT-AP recommends to say spatial, temporal",
        "every week on sunday at 02:00 Europe/Berlin",
        "GET_DATA, attempt 2, waits for source unreachable, looks again at 02:11:00 UTC",
        "2 not done yet, the oldest since 2026-11-29 02:05 UTC",
        "Object storage doesn't answer. [storage_unreachable]",
        "leaseway publish flights",
        "leaseway resume '*'",
        "never finished so far",
        "catch_up hasn't finished for 6 min",
    ):
        assert part in screen
    assert len(screen.splitlines()) <= 24


def test_a_definition_that_fails_is_to_be_changed_before_it_is_published_again(server: Server, run: Run) -> None:
    why = {"code": "source_changed", "sentence": "A column is gone.", "details": {"column": "watts"}}
    failed = status("FAILED", failure=why, finished_at="2026-11-28T08:00:00Z") | {"command": "leaseway publish lamps"}
    document = dict.fromkeys(("version", "schedule", "active", "pause")) | {
        "dataset": "lamps",
        "definition": {"revision": 1},
        "failure": failed,
        "last_finished": {},
        "health": {"ok": True, "reasons": []},
    }
    server.tell("GET /datasets/lamps/status", document)

    shown = run("status", "lamps").output
    assert "none yet" in shown
    assert "to mend it    change the definition (`leaseway definition get lamps`" in shown
    assert "then leaseway publish lamps" in shown

    server.answers.clear()
    gone = failed | {"failure": why | {"details": {"sqlstate": "42P01"}}}
    server.tell("GET /datasets/lamps/status", document | {"failure": gone})
    assert "to mend it    leaseway publish lamps" in run("status", "lamps").output

    server.answers.clear()
    server.tell("GET /datasets/lamps/status", document | {"withdrawn": True})
    assert "none: each was withdrawn" in run("status", "lamps").output

    for issued, told in (("2026-11-20T08:00:00Z", True), ("2026-11-28T08:00:00Z", False)):
        version = {"number": 1, "records": 5, "issued_at": issued, "definition_revision": 1}
        taken = {"version": 2, "withdrawn_at": "2026-11-27T08:00:00Z"}
        server.answers.clear()
        server.tell("GET /datasets/lamps/status", document | {"version": version, "last_withdrawal": taken})
        shown = run("status", "lamps").output
        assert ("version 2, 2026-11-27 08:00 UTC" in shown) is told


def test_the_status_of_what_was_never_published(server: Server, run: Run) -> None:
    nothing = dict.fromkeys(("version", "schedule", "active", "failure", "pause"))
    server.tell(
        "GET /datasets/flights/status",
        nothing
        | {
            "dataset": "flights",
            "definition": {"revision": 1},
            "last_finished": {},
            "health": {"ok": True, "reasons": []},
        },
    )

    assert run("status", "flights").output.split() == (
        [
            "dataset",
            "flights",
            "version",
            "none",
            "yet",
            "definition",
            "revision",
            "1",
            "schedule",
            "none",
            "active",
            "nothing",
        ]
    )


def test_a_schedule_is_set(server: Server, run: Run) -> None:
    server.tell("PUT /datasets/flights/schedule", {"next_due_at": "2026-12-31T22:00:00Z"})

    result = run(
        "schedule", "set", "flights", "--every", "month", "--on", "31", "--at", "23:00", "--zone", "Europe/Berlin"
    )

    assert result.exit_code == 0, result.output
    assert server.asked[0][1] == {"every": "month", "at": "23:00", "zone": "Europe/Berlin", "on": 31}
    assert "2026-12-31 22:00 UTC" in result.output


@pytest.mark.parametrize(
    "options",
    [
        ("--every", "day", "--at", "25:00"),
        ("--every", "day", "--at", "02:00", "--on", "sunday"),
        ("--every", "week", "--at", "02:00"),
        ("--every", "year", "--at", "02:00"),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_wrong_usage(server: Server, run: Run, options: tuple[str, ...]) -> None:
    assert run("schedule", "set", "flights", *options).exit_code == 2
    assert server.asked == []


def test_a_schedule_is_deleted(server: Server, run: Run) -> None:
    server.tell("DELETE /datasets/flights/schedule", status=204)

    assert run("schedule", "delete", "flights").exit_code == 0


def test_an_answer_that_is_lost_is_asked_for_again_under_the_same_key(server: Server, run: Run) -> None:
    server.tell(PUBLICATIONS, status=NO_ANSWER)
    accepted(server)

    assert run("publish", "flights").exit_code == 0
    assert len(server.keys) == 2
    assert len(set(server.keys)) == 1
    run("publish", "flights")
    assert server.keys[2] not in (None, server.keys[0])


def test_who_never_answers_is_not_asked_for_ever(server: Server, run: Run) -> None:
    server.tell(PUBLICATIONS, status=NO_ANSWER)

    result = run("publish", "flights")

    assert result.exit_code == 1
    assert "Nobody answers" in result.stderr
    assert len(server.asked) == 2


def test_a_request_without_a_key_is_sent_once(server: Server, run: Run) -> None:
    server.tell("GET /datasets/flights/status", status=NO_ANSWER)

    assert run("status", "flights").exit_code == 1
    assert server.keys == [None]


def test_a_script_may_name_the_key(server: Server, run: Run) -> None:
    accepted(server)

    run("publish", "flights", "--key", "nightly-2026-11-29")

    assert server.keys == ["nightly-2026-11-29"]


WITHDRAWALS = "DELETE /datasets/flights/versions/3"


def withdrawal(state: str, **more: object) -> dict[str, object]:
    by_state = {"WITHDRAWN": "succeeded", "FAILED": "failed"}
    return status(state, pipeline="withdrawal", status=by_state.get(state, "queued"), version=None, **more)


def test_withdraw_says_where_to_look(server: Server, run: Run) -> None:
    server.tell(WITHDRAWALS, withdrawal("REQUESTED"), 202, Location=f"{server.url}/withdrawals/{JOB}")

    result = run("withdraw", "flights", "3", "--yes")

    assert result.exit_code == 0
    assert f"Accepted as job {JOB}: REQUESTED" in result.output
    assert f"{server.url}/withdrawals/{JOB}" in result.output
    assert server.asked == [(WITHDRAWALS, None, "Bearer lw_secret")]


def test_withdraw_wait_follows_it_to_its_end(server: Server, run: Run) -> None:
    server.tell(WITHDRAWALS, withdrawal("REQUESTED"), 202, Location=f"{server.url}/withdrawals/{JOB}")
    server.tell(f"GET /withdrawals/{JOB}", withdrawal("WITHDRAW"))
    server.tell(f"GET /withdrawals/{JOB}", withdrawal("WITHDRAWN"))

    result = run("withdraw", "flights", "3", "--wait", "--yes")

    assert result.exit_code == 0
    assert "Version 3 of flights is withdrawn." in result.output


def test_what_is_withdrawn_already_is_said_at_once(server: Server, run: Run) -> None:
    server.tell(WITHDRAWALS, withdrawal("WITHDRAWN"), 202, Location=f"{server.url}/withdrawals/{JOB}")

    assert run("withdraw", "flights", "3", "--yes").output == "Version 3 of flights is withdrawn.\n"
    assert json.loads(run("withdraw", "flights", "3", "--json", "--yes").stdout)["state"] == "WITHDRAWN"


def test_a_withdrawal_that_fails_ends_with_1(server: Server, run: Run) -> None:
    failure = {"code": "storage_refused", "sentence": "Object storage refused the file.", "details": {"status": 403}}
    server.tell(WITHDRAWALS, withdrawal("REQUESTED"), 202, Location=f"{server.url}/withdrawals/{JOB}")
    server.tell(f"GET /withdrawals/{JOB}", withdrawal("FAILED", failure=failure))

    result = run("withdraw", "flights", "3", "--wait", "--yes")

    assert result.exit_code == 1
    assert "Object storage refused the file. [storage_refused: status 403]" in result.stderr
    assert run("withdraw", "flights", "0").exit_code == 2


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [(404, "not_found", "Error: There is no such version.\n"), (410, "gone", "Version 3 of flights is withdrawn.\n")],
)
def test_what_is_not_there_to_be_withdrawn_is_not_asked_about(
    server: Server, run: Run, status: int, code: str, said: str
) -> None:
    server.problem("GET /datasets/flights/versions/3", status, code, "No", detail="There is no such version.")
    server.tell(WITHDRAWALS, withdrawal("WITHDRAWN"), 202, Location=f"{server.url}/withdrawals/{JOB}")

    assert run("withdraw", "flights", "3").output == said


def test_withdraw_asks_before_there_is_no_way_back(server: Server, run: Run) -> None:
    server.tell(WITHDRAWALS, withdrawal("WITHDRAWN"), 202, Location=f"{server.url}/withdrawals/{JOB}")

    for said in ("n\n", ""):  # no; nobody there to be asked
        server.tell("GET /datasets/flights/versions/3", {"version": 3})
        refused = run("withdraw", "flights", "3", "--json", input=said)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert {asked[0] for asked in server.asked} == {"GET /datasets/flights/versions/3"}
        assert "Withdraw version 3 of flights for good, and delete its files? [y/N]" in refused.stderr

    assert json.loads(run("withdraw", "flights", "3", "--json", input="y\n").stdout)["state"] == "WITHDRAWN"
