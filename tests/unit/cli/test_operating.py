"""What the operator who was woken types."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from .conftest import JOB, NO_ANSWER, Run, Server, status

OTHER = "019ad0c2-0000-7000-8000-000000000002"
FAILURE = {
    "id": JOB,
    "pipeline": "publication",
    "subject": {"dataset": "flights"},
    "failure": {
        "code": "storage_unreachable",
        "sentence": "Object storage doesn't answer.",
        "details": {"step": "GET_DATA"},
    },
    "attempts": 2,
    "accepted_at": "2026-11-29T02:00:00Z",
    "started_at": "2026-11-29T02:00:01Z",
    "finished_at": "2026-11-29T08:00:01Z",
}


def test_jobs_are_listed_one_a_line(server: Server, run: Run) -> None:
    server.tell("GET /internal/jobs?limit=20&status=running", {"jobs": [status("GET_DATA")], "next": None})

    lines = run("jobs", "list", "--status", "running").output.splitlines()

    assert lines[0].split()[:3] == ["job", "pipeline", "about"]
    assert lines[1].startswith(f"{JOB}  publication  flights  running  GET_DATA")


def test_a_long_list_is_read_page_by_page(server: Server, run: Run) -> None:
    page = [status("GET_DATA")] * 100
    server.tell("GET /internal/jobs?limit=100", {"jobs": page, "next": JOB})
    server.tell(f"GET /internal/jobs?limit=50&after={JOB}", {"jobs": page[:50], "next": OTHER})

    listed = json.loads(run("jobs", "list", "--limit", "150", "--json").stdout)

    assert len(listed) == 150


def test_an_empty_list_says_so(server: Server, run: Run) -> None:
    server.tell("GET /internal/failures?limit=20", {"failures": [], "next": None})

    assert run("failures", "list").output == "Nothing has failed.\n"


def test_a_failure_that_was_mended_by_a_later_success_says_so(server: Server, run: Run) -> None:
    mended = FAILURE | {"mended": True}
    server.tell("GET /internal/failures?limit=20", {"failures": [mended], "next": None})
    server.tell(f"GET /internal/failures/{JOB}", mended)

    assert "  mended  " in run("failures", "list").output
    shown = run("failures", "show", JOB).output
    assert "by a later job" in shown
    assert "failures requeue" not in shown


def test_a_job_is_shown_with_its_history(server: Server, run: Run) -> None:
    history = [
        {
            "at": "2026-11-29T02:00:01Z",
            "event": "claimed",
            "state": "GET_DATA",
            "claim_id": 7,
            "details": {"attempts": 1},
        }
    ]
    server.tell(f"GET /internal/jobs/{JOB}", status("GET_DATA", history=history))

    output = run("jobs", "show", JOB).output

    assert "2026-11-29 02:00:01  claimed  GET_DATA  7      attempts 1" in output


def test_cancel_tells_apart_what_is_over_and_what_will_be(server: Server, run: Run) -> None:
    address = f"POST /internal/jobs/{JOB}/cancel"
    server.tell(address, status("GET_DATA"), 202)
    server.tell(address, status("FAILED"))
    server.tell(address, status("PUBLISHED"))

    first, second, third = (run("jobs", "cancel", JOB) for _ in range(3))

    assert "next heartbeat" in first.output
    assert "is cancelled" in second.output
    assert third.exit_code == 1


def test_a_failure_is_shown_with_what_mends_it(server: Server, run: Run) -> None:
    server.tell(f"GET /internal/failures/{JOB}", FAILURE)

    output = run("failures", "show", JOB).output

    assert "Object storage doesn't answer. [storage_unreachable: step GET_DATA]" in output
    assert f"as the definition said then: leaseway failures requeue {JOB}" in output
    assert "as the newest definition says: leaseway publish flights" in output


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("load", "send it anew  leaseway load flights FILE"),
        ("export", "with its publication: leaseway publish flights"),
    ],
)
def test_what_cannot_be_requeued_is_not_offered_to_be(server: Server, run: Run, pipeline: str, said: str) -> None:
    server.tell(f"GET /internal/failures/{JOB}", FAILURE | {"pipeline": pipeline})

    output = run("failures", "show", JOB).output

    assert said in output
    assert "requeue" not in output


def test_exports_are_listed_where_they_are_asked_for(server: Server, run: Run) -> None:
    listed: dict[str, Any] = {"failures": [FAILURE, FAILURE | {"pipeline": "export", "id": OTHER}], "next": None}
    server.tell("GET /internal/failures?limit=20", listed)
    server.tell("GET /internal/failures?limit=20&pipeline=export", listed)

    assert OTHER not in run("failures", "list").output
    assert OTHER in run("failures", "list", "--all").output
    assert OTHER in run("failures", "list", "--pipeline", "export").output

    server.answers.clear()
    server.tell("GET /internal/failures?limit=20", {"failures": listed["failures"][1:], "next": None})
    assert run("failures", "list").output == "Nothing has failed but exports: `--all` lists them.\n"


def test_rows_that_did_not_fit_are_counted_in_the_list_and_named_one_by_one(server: Server, run: Run) -> None:
    rows = [{"row": 2, "column": "id", "reason": "missing"}, {"row": 5, "column": "id", "reason": "key_twice"}]
    why = {"code": "invalid_rows", "sentence": "Rows can't be loaded.", "details": {"rows": rows, "records": 2}}
    failed = FAILURE | {"pipeline": "load", "failure": why}
    server.tell("GET /internal/failures?limit=20", {"failures": [failed], "next": None})
    server.tell(f"GET /internal/failures/{JOB}", failed)

    assert "invalid_rows (rows 2, records 2): Rows can't be loaded." in run("failures", "list").output
    shown = run("failures", "show", JOB).output
    assert "[invalid_rows: records 2]" in shown
    table = "\n\nrow  column  reason\n2    id      missing\n5    id      key_twice\n"
    assert table in shown
    server.tell(f"GET /internal/jobs/{JOB}", status("FAILED", pipeline="load", failure=why))
    assert table in run("jobs", "show", JOB).output


def test_T07_a_busy_subject_is_refused_with_1_and_the_active_job(server: Server, run: Run) -> None:
    server.problem(
        f"POST /internal/failures/{JOB}/requeue",
        409,
        "subject_busy",
        "Another job works on the same subject",
        detail=f"It is job {OTHER}.",
    )

    result = run("failures", "requeue", JOB)

    assert result.exit_code == 1
    assert OTHER in result.stderr


def test_a_lost_answer_to_a_requeue_is_asked_for_once_more_under_its_key(server: Server, run: Run) -> None:
    address = f"POST /internal/failures/{JOB}/requeue"
    server.tell(address, status=NO_ANSWER)
    server.tell(address, status("REQUESTED"), 202)

    assert run("failures", "requeue", JOB).exit_code == 0
    first, again = server.keys
    assert first == again is not None


def test_a_refresh_isnt_run_again_while_refreshes_are_disabled(server: Server, run: Run) -> None:
    remedy = "`leaseway refresh enable --rollback PACKAGE` enables them."
    server.problem(
        f"POST /internal/failures/{JOB}/requeue", 409, "not_enabled", "Refreshes aren't enabled", detail=remedy
    )

    result = run("failures", "requeue", JOB)

    assert (result.exit_code, result.stdout) == (1, "")
    assert remedy in result.stderr


TREES = FAILURE | {"id": OTHER, "subject": {"dataset": "trees"}}


def stands(server: Server, failure: dict[str, Any]) -> None:
    """The dataset's status complains about this failure."""
    server.tell(f"GET /datasets/{failure['subject']['dataset']}/status", {"failure": failure})


def test_T07_requeue_all_goes_on_past_a_busy_subject(server: Server, run: Run) -> None:
    server.tell("GET /internal/failures?limit=100", {"failures": [FAILURE, TREES], "next": None})
    stands(server, FAILURE)
    stands(server, TREES)
    server.problem(f"POST /internal/failures/{JOB}/requeue", 409, "subject_busy", "Another job works on it")
    server.tell(f"POST /internal/failures/{OTHER}/requeue", status("REQUESTED"), 202)

    result = run("failures", "requeue", "--all")

    assert result.exit_code == 1
    assert f"{OTHER} runs again as job {JOB}." in result.stdout
    assert "1 of them stays as it is." in result.stderr


@pytest.mark.parametrize(
    "why", ["mended by a later version", "older than the newest", "a part of a publication", "a load", "gone"]
)
def test_requeue_all_leaves_out_what_nobody_waits_for(server: Server, run: Run, why: str) -> None:
    older = FAILURE | {"id": OTHER}
    failures = {
        "older than the newest": [FAILURE, older],
        "a part of a publication": [older | {"pipeline": "export"}],
        "a load": [older | {"pipeline": "load"}],
    }
    server.tell("GET /internal/failures?limit=100", {"failures": failures.get(why, [older]), "next": None})
    if why == "gone":
        server.problem("GET /datasets/flights/status", 404, "not_found", "There is nothing at this address")
    else:
        server.tell("GET /datasets/flights/status", {"failure": FAILURE if why == "older than the newest" else None})
    server.tell(f"POST /internal/failures/{JOB}/requeue", status("REQUESTED"), 202)

    result = run("failures", "requeue", "--all")

    assert result.exit_code == 0
    assert not any(OTHER in request for request, *_ in server.asked)


def test_requeue_all_runs_nothing_a_second_time(server: Server, run: Run) -> None:
    server.tell("GET /internal/failures?limit=100", {"failures": [FAILURE | {"requeued_as": OTHER}], "next": None})

    result = run("failures", "requeue", "--all")

    assert (result.exit_code, result.stdout) == (0, "There is nothing to run again.\n")


def test_a_failure_that_was_run_again_says_so(server: Server, run: Run) -> None:
    again = FAILURE | {"requeued_as": OTHER}
    server.tell("GET /internal/failures?limit=20", {"failures": [again, FAILURE], "next": None})
    server.tell(f"GET /internal/failures/{JOB}", again)

    _, first, second = run("failures", "list").output.splitlines()
    output = run("failures", "show", JOB).output

    assert ("  run again  " in first, "  run again  " in second) == (True, False)
    assert f"run again as  {OTHER}" in output
    assert "leaseway failures requeue" not in output


def test_requeue_wants_one_job_or_all(run: Run) -> None:
    assert run("failures", "requeue").exit_code == 2
    assert run("failures", "requeue", JOB, "--all").exit_code == 2


def test_purge_asks_first(server: Server, run: Run) -> None:
    server.tell(f"DELETE /internal/failures/{JOB}", status=204)

    assert run("failures", "purge", JOB, input="n\n").exit_code == 1
    assert server.asked == []
    assert run("failures", "purge", JOB, "--yes").exit_code == 0


def test_pause_and_resume(server: Server, run: Run) -> None:
    server.tell("PUT /internal/pause", {"pipeline": "publication", "until": "2026-11-29T04:00:00Z"})
    server.tell("DELETE /internal/pause?pipeline=publication", status=204)

    paused = run("pause", "publication", "--hours", "2")
    resumed = run("resume", "publication")

    assert (paused.exit_code, resumed.exit_code) == (0, 0)
    assert server.asked[0][1] == {"pipeline": "publication", "hours": 2}
    assert "until 2026-11-29 04:00 UTC" in paused.output


def test_a_pause_longer_than_a_week_is_wrong_usage(run: Run) -> None:
    assert run("pause", "*", "--hours", "169").exit_code == 2


def test_a_reader_of_the_output_who_has_seen_enough_hears_nothing(server: Server, run: Run) -> None:
    server.tell("GET /internal/failures?limit=20", {"failures": [FAILURE] * 20, "next": None})
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as pipe:
        result = subprocess.run(
            [sys.executable, "-m", "chalicelib.cli", "failures", "list"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert (result.returncode, result.stderr) == (1, b"")
