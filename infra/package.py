"""Package the app for Lambda: `chalice package` with what Chalice can't express, compiled files included.

Chalice ships no .pyc and /var/task can't be written, so every cold start would compile anew: 1253 ms for the worker
instead of 486 ms. `python -m infra.package OUT` makes OUT/sam.json and the zips it names, of code and of the layer.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
SOURCES = ("app.py", "requirements.txt", "chalicelib", ".chalice", "infra")
STAGE = "production"
LEFTOVERS = shutil.ignore_patterns("__pycache__", "*.pyc", "deployments", "deployed")


def package(out: Path) -> None:
    """Make the folder: the template and the zips it names."""
    with building() as project:
        subprocess.run(
            [
                *(Path(sys.executable).with_name("chalice"), "package", "--stage", STAGE),
                *("--merge-template", "infra/resources.json", out.resolve()),
            ],
            cwd=project,
            # Settings of the caller's shell have no business in the package.
            env={name: value for name, value in os.environ.items() if not name.startswith(("LEASEWAY_", "AWS_"))}
            | {"AWS_DEFAULT_REGION": os.environ.get("AWS_DEFAULT_REGION", "us-east-1")},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        for file in out.glob("*.zip"):
            compile_in(file, project / "unpacked")


@contextmanager
def building() -> Iterator[Path]:
    """A copy of the sources to build from: the checkout stays clean, and Chalice keeps its downloaded wheels."""
    project = CHECKOUT / ".leaseway" / "build"
    project.mkdir(parents=True, exist_ok=True)
    with (project / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in (*SOURCES, "unpacked"):
            if (project / name).is_dir() and name != ".chalice":
                shutil.rmtree(project / name)
        for name in SOURCES:
            source = CHECKOUT / name
            if source.is_dir():
                shutil.copytree(source, project / name, ignore=LEFTOVERS, dirs_exist_ok=True)
            else:
                shutil.copy2(source, project / name)
        yield project


def sources() -> Iterator[Path]:
    """Every file that is packaged."""
    for name in SOURCES:
        for folder, folders, files in (CHECKOUT / name).walk():
            folders[:] = sorted(set(folders) - LEFTOVERS(str(folder), folders))
            yield from (folder / file for file in sorted(set(files) - LEFTOVERS(str(folder), files)))
        if (CHECKOUT / name).is_file():
            yield CHECKOUT / name


def compile_in(package_file: Path, folder: Path) -> None:
    """Add the compiled files; unchecked, because a package is never edited in place."""
    with zipfile.ZipFile(package_file) as packed:
        packed.extractall(folder)
    command = (sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", folder, folder)
    subprocess.run(command, check=True)
    new = package_file.with_suffix(".new")
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                entry = zipfile.ZipInfo(str(file.relative_to(folder)))  # without its time: same content, same bytes
                entry.external_attr = 0o755 << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                packed.writestr(entry, file.read_bytes())
    new.replace(package_file)
    shutil.rmtree(folder)


if __name__ == "__main__":
    package(Path(sys.argv[1]))
