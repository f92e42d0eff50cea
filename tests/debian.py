"""Programs of Debian's packages: unpacked into a folder, without root and without installing anything."""

import os
import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

KEPT = Path(__file__).resolve().parents[1] / ".leaseway" / "debian"
"""Packages are fetched once a checkout."""

# For a machine that has never fetched its lists; the system's own are root's.
OWN_LISTS = (f"Dir::State::Lists={KEPT}/lists", f"Dir::Cache={KEPT}/cache")


class NotToBeHad(Exception):
    """The package can't be fetched here; the message says what apt-get said."""


def unpack(folder: Path, *packages: str, without: tuple[str, ...] = ()) -> dict[str, str]:
    """Unpack packages and the libraries they need and the machine hasn't; what a child's environment needs for them.

    ``without`` names libraries that only what isn't used of them needs.
    """
    wanted, seen = list(packages), {*packages, *without}
    while wanted:
        package = _fetched(wanted.pop())
        _run("dpkg-deb", "--extract", package, folder)
        for clause in filter(None, _run("dpkg-deb", "--field", package, "Depends").split(",")):
            names = [re.split(r"[\s:(]", name.strip())[0] for name in clause.split("|")]
            if names[0].startswith("lib") and names[0] not in seen and not any(map(_installed, names)):
                wanted.append(names[0])
                seen.add(names[0])
    return {"LD_LIBRARY_PATH": ":".join(str(path) for path in sorted(folder.glob("usr/lib/*-linux-gnu*")))}


def _fetched(package: str) -> Path:
    kept = KEPT / f"{package}.deb"
    if not kept.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=KEPT) as folder:
            try:
                _apt("download", package, cwd=folder)
            except NotToBeHad:
                for part in ("lists/partial", "cache/archives/partial"):
                    (KEPT / part).mkdir(parents=True, exist_ok=True)
                _apt("update", lists=OWN_LISTS)
                _apt("download", package, cwd=folder, lists=OWN_LISTS)
            [fetched] = Path(folder).glob("*.deb")
            fetched.rename(kept)
    return kept


def _apt(command: str, *packages: str, cwd: str = "/", lists: tuple[str, ...] = ()) -> None:
    options = [part for option in ("APT::Sandbox::User=root", *lists) for part in ("-o", option)]
    _run("apt-get", "--quiet", *options, command, *packages, cwd=cwd)


def _installed(package: str) -> bool:
    try:
        return _run("dpkg-query", "--show", "--showformat=${db:Status-Status}", package) == "installed"
    except NotToBeHad:
        return False


def _run(*command: str | Path, cwd: str = "/") -> str:
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"}
        )
    except FileNotFoundError as error:
        raise NotToBeHad(f"there is no {command[0]}: this isn't Debian") from error
    if done.returncode:
        raise NotToBeHad(f"{command[0]}: {' '.join(done.stderr.split())[:300]}")
    return done.stdout
