"""Tokens: shown once, kept as keyed hashes, with a role, a pattern and an end."""

import hashlib

import pytest

from chalicelib import settings as configuration
from chalicelib.security import (
    InvalidToken,
    Role,
    Unauthorized,
    authenticate,
    create_token,
    keyed_hash,
    revoke_token,
    tokens,
)
from chalicelib.settings import InvalidSettings


@pytest.fixture
def sql(database, clock, environment):
    """The database, with the key in the environment."""
    return database


def test_a_token_speaks_for_its_principal(sql):
    secret = create_token(sql, "Open data office", "publisher", "flights-*")

    for header in (f"Bearer {secret}", f"bearer  {secret} "):
        principal = authenticate(sql, header)
        assert (principal.name, principal.role, principal.datasets) == ("Open data office", Role.PUBLISHER, "flights-*")


def test_a_token_that_stands_is_no_password_and_nothing_without_its_scheme(sql):
    secret = create_token(sql, "office", "operator")

    for header in (secret, f"Basic {secret}", f"Token {secret}", f"Bearer {secret}x", f"Bearer {secret} {secret}"):
        with pytest.raises(Unauthorized):
            authenticate(sql, header)


def test_the_secret_is_kept_nowhere_and_its_hash_is_keyed(sql, environment):
    secret = create_token(sql, "office", "reader")

    row = sql.one("select t::text as whole, hash from access.token as t")
    assert secret not in row["whole"]
    assert row["hash"] == keyed_hash("token", secret) != hashlib.sha256(secret.encode()).digest()
    assert keyed_hash("token", secret) != keyed_hash("load", secret)

    environment.setenv("LEASEWAY_HASH_KEY", "another key, that is as long as the first one")
    configuration.settings.cache_clear()
    with pytest.raises(Unauthorized):
        authenticate(sql, f"Bearer {secret}")


def test_without_a_key_there_are_no_tokens(sql, environment):
    environment.setenv("LEASEWAY_HASH_KEY", "short")
    configuration.settings.cache_clear()

    with pytest.raises(InvalidSettings, match="LEASEWAY_HASH_KEY"):
        create_token(sql, "office", "reader")


def test_a_token_ends_on_its_day(sql, clock):
    secret = create_token(sql, "office", "reader", days=7)
    clock.advance("7 days -1 second")
    assert authenticate(sql, f"Bearer {secret}")

    clock.advance("1 second")

    with pytest.raises(Unauthorized):
        authenticate(sql, f"Bearer {secret}")
    assert [token["stands"] for token in tokens(sql)] == [False]


def test_a_revoked_token_ends_at_once_and_the_others_of_its_principal_stay(sql):
    old, new = (create_token(sql, "office", "reader") for _ in range(2))
    (listed, _) = tokens(sql)

    assert revoke_token(sql, listed["id"])
    assert revoke_token(sql, listed["id"])

    with pytest.raises(Unauthorized):
        authenticate(sql, f"Bearer {old}")
    assert authenticate(sql, f"Bearer {new}").name == "office"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic b3BlbjpzZXNhbWU=",
        "lw_" + "A" * 43,
        "Bearer lw_short",
        "Bearer ' or 1=1 --",
    ],
)
def test_what_is_no_token_is_refused(sql, header):
    with pytest.raises(Unauthorized):
        authenticate(sql, header)


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "root"},
        {"datasets": "flights/*"},
        {"datasets": ""},
        {"principal": ""},
        {"principal": "a\nb"},
        {"days": 0},
        {"days": 10**9},
    ],
)
def test_a_token_that_makes_no_sense_isnt_made(sql, wrong):
    with pytest.raises(InvalidToken, match=next(iter(wrong))):
        create_token(sql, **{"principal": "office", "role": "reader"} | wrong)
    assert tokens(sql) == []


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("*", ["flights", "a"], []),
        ("flights", ["flights"], ["flights-2", "my-flights", "flight"]),
        ("flights-*", ["flights-1", "flights-"], ["flights", "my-flights-1"]),
        ("*-a-*", ["x-a-y", "-a-"], ["a", "x-b-y"]),
    ],
)
def test_a_pattern_reaches_what_it_matches(sql, pattern, inside, outside):
    publisher = authenticate(sql, f"Bearer {create_token(sql, 'office', 'publisher', pattern)}")
    operator = authenticate(sql, f"Bearer {create_token(sql, 'ops', 'operator', pattern)}")

    assert [d for d in inside + outside if publisher.reaches(d)] == inside
    assert all(operator.reaches(d) for d in inside + outside)
