"""/health over the front port, and the ticks that keep it at 200: those of EventBridge's rules, nobody else's."""

import time
from typing import Any

import httpx
import psycopg

from chalicelib.cli.local import run_function
from localstack.deploy import function_name
from localstack.stack import Stack

from .conftest import Run

SIX_MINUTES_AGO = "update engine.run set finished_at = engine.clock() - interval '6 min' where function <> 'clean_up'"
SECONDS = 150
"""A tick comes each minute."""


def test_the_functions_login_has_the_time_outs_of_the_settings(
    run: Run, stack: Stack, environment: dict[str, str]
) -> None:
    run("up")
    with psycopg.connect(stack.functions_environment(False)["DATABASE_URL"]) as login:
        stands = login.execute("show idle_in_transaction_session_timeout").fetchone()

    assert stands == (f"{environment['LEASEWAY_IDLE_IN_TRANSACTION']}s",)


def test_health_is_503_while_the_recovery_rule_is_disabled_and_a_tick_mends_it(
    run: Run, stack: Stack, http: httpx.Client
) -> None:
    run("up")
    events = stack.client("events")
    recovery = stack.client("lambda").get_function(FunctionName=function_name(stack, "Recovery"))
    [name] = events.list_rule_names_by_target(TargetArn=recovery["Configuration"]["FunctionArn"])["RuleNames"]
    missing = [f"{function} has not finished for five minutes" for function in ("catch_up", "recovery", "relay")]
    try:
        switch(events, name, "DISABLED")
        run_function(stack, "Recovery")  # a tick from before is over by then
        with psycopg.connect(stack.environment()["DATABASE_URL"], autocommit=True) as admin:
            admin.execute(SIX_MINUTES_AGO)
        assert health(http) == (503, missing)
        # The tick of the other rule comes, this one's doesn't.
        assert becomes(http, (503, missing[1:])) == (503, missing[1:])
    finally:
        switch(events, name, "ENABLED")

    assert becomes(http, (200, [])) == (200, [])


def switch(events: Any, name: str, state: str) -> None:
    """Make the rule anew in that state: LocalStack's DisableRule changes what DescribeRule says, the ticks go on.

    It heeds the state that a rule has when it gets its targets.
    """
    schedule = events.describe_rule(Name=name)["ScheduleExpression"]
    targets = events.list_targets_by_rule(Rule=name)["Targets"]
    events.remove_targets(Rule=name, Ids=[target["Id"] for target in targets])
    events.delete_rule(Name=name)
    events.put_rule(Name=name, ScheduleExpression=schedule, State=state)
    events.put_targets(Rule=name, Targets=targets)


def health(http: httpx.Client) -> tuple[int, list[str]]:
    answer = http.get("/health")
    return answer.status_code, answer.json()["reasons"]


def becomes(http: httpx.Client, wanted: tuple[int, list[str]]) -> tuple[int, list[str]]:
    """What /health says in the end, which is as soon as it says what is wanted."""
    until = time.monotonic() + SECONDS
    while (found := health(http)) != wanted and time.monotonic() < until:
        time.sleep(0.5)
    return found
