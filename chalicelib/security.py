"""Who may do what: tokens with a role and a pattern of datasets, kept as keyed hashes.

A token is 256 random bits, so one round of HMAC-SHA-256 is enough: there is nothing to guess. The key (``hash_key``)
stands outside the database, so that a copy of the database alone can't be used to try a known token against it.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Any
from uuid import UUID

from chalicelib.db import DatabaseAway, Sql, statements
from chalicelib.settings import InvalidSettings, settings

PREFIX = "lw_"
"""How every token begins, so that scanners of leaked secrets know one."""

_SHAPE = re.compile(PREFIX + r"[A-Za-z0-9_-]{43}")
_PATTERN = re.compile(r"[a-z0-9*-]{1,63}")
_PRINCIPAL = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


class Role(IntEnum):
    """Each role may do what the smaller ones may."""

    READER = 1
    PUBLISHER = 2
    OPERATOR = 3


@dataclass(frozen=True)
class Principal:
    """Whom a token belongs to, and what it may."""

    name: str
    role: Role
    datasets: str

    def reaches(self, dataset: str) -> bool:
        """Whether the token's pattern covers a dataset; an operator's covers all."""
        return self.role is Role.OPERATOR or fnmatchcase(dataset, self.datasets)

    @property
    def reach(self) -> str:
        """What it reaches as a pattern of SQL's LIKE; an id has none of LIKE's own characters."""
        return "%" if self.role is Role.OPERATOR else self.datasets.replace("*", "%")


class Unauthorized(Exception):
    """No token came, or one that doesn't stand."""

    def __init__(self, given: bool):
        super().__init__(Unauthorized.__doc__)
        self.given = given


class InvalidToken(ValueError):
    """A token can't be made like that; the message says what to change."""


def keyed_hash(purpose: str, text: str) -> bytes:
    """HMAC-SHA-256 of a text under ``hash_key``; hashes of different purposes never meet."""
    key = settings().hash_key.get_secret_value()
    if len(key) < 32:
        raise InvalidSettings("LEASEWAY_HASH_KEY must be set: at least 32 characters, random, and never changed")
    return hmac.digest(key.encode(), f"{purpose}:{text}".encode(), hashlib.sha256)


def create_token(sql: Sql, principal: str, role: str, datasets: str = "*", days: int | None = None) -> str:
    """Make a token and return its secret, which is shown this once and kept nowhere.

    ``datasets`` is a pattern of dataset ids in which ``*`` stands for anything; ``days`` is how long it lasts,
    None for ever.
    """
    if role.upper() not in Role.__members__:
        raise InvalidToken(f"role must be one of {', '.join(r.name.lower() for r in Role)}")
    if not _PATTERN.fullmatch(datasets):
        raise InvalidToken("datasets must be a dataset's id in which * stands for anything, such as 'flights-*'")
    if not _PRINCIPAL.fullmatch(principal):
        raise InvalidToken("principal must be a name of 1 to 200 characters")
    if days is not None and not 1 <= days <= 3650:
        raise InvalidToken("days must be from 1 to 3650")
    secret = PREFIX + secrets.token_urlsafe(32)
    token = {"principal": principal, "role": role.lower(), "datasets": datasets, "days": days}
    try:
        sql.run(_sql.create_token, hash=keyed_hash("token", secret), **token)
    except DatabaseAway:  # perhaps it is there: asked again with the same hash, it is one token, and not lost
        sql.run(_sql.create_token, hash=keyed_hash("token", secret), **token)
    return secret


def revoke_token(sql: Sql, token: UUID) -> bool:
    """End a token at once; whether there is one of that id."""
    return sql.one(_sql.revoke_token, id=token) is not None


def tokens(sql: Sql) -> list[dict[str, Any]]:
    """Every token: id, principal, role, datasets, created_at, expires_at, revoked_at, stands."""
    return sql.run(_sql.list_tokens)


def authenticate(sql: Sql, header: str | None) -> Principal:
    """Whom the Authorization header ``Bearer TOKEN`` speaks for, else Unauthorized."""
    scheme, _, secret = (header or "").strip().partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not _SHAPE.fullmatch(secret):
        raise Unauthorized(given=bool(header))
    row = sql.one(_sql.find_token, hash=keyed_hash("token", secret))
    if row is None:
        raise Unauthorized(given=True)
    return Principal(row["principal"], Role[row["role"].upper()], row["datasets"])


def record_act(
    sql: Sql, principal: Principal | None, act: str, *, job: UUID | None = None, target: str | None = None
) -> None:
    """Write what an operator did: the one record beside the tokens that names a principal.

    Whoever works beside the database has no token, and is named by the login there.
    """
    sql.run(_sql.record_act, principal=principal and principal.name, act=act, job_id=job, target=target)


_sql = statements("chalicelib")
