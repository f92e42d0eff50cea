"""The address of a connection: encrypted and verified, unless it stays on this machine."""

import os
import ssl
from ipaddress import ip_address
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo


class BadAddress(Exception):
    """The connection's address can't be used; the message says why, without a word of the address."""


def secured(dsn: str) -> str:
    """The address with ``sslmode=verify-full``, unless the host is a loopback address or a socket.

    What the certificate is checked against: the address's own ``sslrootcert``, else ~/.postgresql/root.crt, else the
    authorities that this system trusts.
    """
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    except psycopg.ProgrammingError:  # its text may quote the password
        raise BadAddress(
            "The secret isn't a connection string: write postgresql://user:password@host/database."
        ) from None
    if _stays_here(given):
        return dsn
    mode = given.get("sslmode") or os.environ.get("PGSSLMODE") or "verify-full"
    if mode != "verify-full":
        raise BadAddress(
            f"The address asks for sslmode={mode}, but its host isn't this machine: take that out of it, or write"
            " sslmode=verify-full, and sslrootcert= with the server's authority if this system doesn't know it."
        )
    added = {"sslmode": mode}
    if not (given.get("sslrootcert") or os.environ.get("PGSSLROOTCERT") or LIBPQS_OWN.expanduser().exists()):
        added["sslrootcert"] = next((path for path in _bundles() if path and Path(path).is_file()), "system")
    return make_conninfo(dsn, **added)


LIBPQS_OWN = Path("~/.postgresql/root.crt")
"""Where libpq looks by itself."""


def _bundles() -> list[str]:
    """Where systems keep the authorities they trust. psycopg's wheel has an OpenSSL of its own, which doesn't know."""
    return [
        ssl.get_default_verify_paths().cafile or "",
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
    ]


def _stays_here(given: dict[str, str]) -> bool:
    """Whether every host of the address is a loopback address or a socket."""
    if given.get("service") or os.environ.get("PGSERVICE"):
        return False  # what it says isn't known here
    hosts = (
        given.get("hostaddr")
        or os.environ.get("PGHOSTADDR")
        or given.get("host")
        or os.environ.get("PGHOST")
        or ""  # libpq's own socket
    )
    return all(_is_here(host.strip()) for host in hosts.split(","))


def _is_here(host: str) -> bool:
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
