"""The proof proves something: each engine that is broken on purpose is caught by the check that is named for it."""

import psycopg
import pytest
from hypothesis import Phase

from tests.proof import test_crash_points, test_interleavings, test_stateful
from tests.proof.twins import TWINS
from tests.proof.world import World


def check(world: World, name: str) -> None:
    """The check of that name, as it runs on the real engine; here it stops at the first violation."""
    if name in test_interleavings.PAIRS:
        test_interleavings.orders_of(world, name, most=400)
    elif name in test_crash_points.STORIES:
        test_crash_points.points_of(world, name)
    else:
        # Without looking for the shortest way there.
        test_stateful.explore(
            world,
            {},
            test_stateful.EXAMPLES,
            test_stateful.STEPS,
            phases=[Phase.generate],
            derandomize=True,
            database=None,
            report_multiple_bugs=False,
        )


@pytest.mark.parametrize("name", TWINS)
def test_a_broken_twin_is_caught(world, figures, name, record_property):
    twin = TWINS[name]
    # A violation, or the schema's own refusal. Anything else (a connection that is gone) has caught nothing.
    refused = (AssertionError, psycopg.IntegrityError)
    with twin.installed(world.watch._connection), pytest.raises(refused) as caught:
        check(world, twin.caught_by)
    said = " ".join(str(caught.value).split())[:160]
    record_property("caught by", f"{name:<45} {twin.caught_by:<38} {said}")
    figures["twins caught"] = 1
