"""What the first `make` does before there is an environment."""

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from infra.package import CHECKOUT

BASE = Path(sys._base_executable).resolve()


@pytest.mark.parametrize(
    ("key", "told"), [("index-url", "https://pypi.example.org/simple"), ("cert", "/etc/a proxy.pem")]
)
def test_an_index_and_a_certificate_that_pip_is_told_of_are_found_in_any_of_its_files(
    tmp_path: Path, key: str, told: str
) -> None:
    (tmp_path / "pip.conf").write_text(f"[global]\n{key} = {told}\ntimeout = 60\n")
    script = (CHECKOUT / "localstack" / "bootstrap.sh").read_text()
    configured = re.search(r"^configured\(\) \{.*?^\}", script, re.M | re.S)
    assert configured

    found = subprocess.run(
        ["sh", "-euc", f'pip=$1\n{configured[0]}\nconfigured "$2"', "sh", sys.executable, key],
        env={"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert (found.stdout, found.stderr) == (told + "\n", "")


def test_an_environment_on_path_is_seen_through_to_what_it_was_made_from(tmp_path: Path) -> None:
    """Else the one that a reader puts on PATH would have `make` build everything anew."""
    script = (CHECKOUT / "localstack" / "bootstrap.sh").read_text()
    functions = [re.search(rf"^{name}\(\) \{{.*?^\}}", script, re.M | re.S) for name in ("runs", "python313")]
    venv.create(tmp_path / "env", with_pip=False)
    environment = {"HOME": str(tmp_path), "PYENV_ROOT": str(tmp_path), "PATH": f"{tmp_path}/env/bin:/usr/bin:/bin"}
    found = subprocess.run(
        ["sh", "-euc", "\n".join(["state=/nowhere", *(each[0] for each in functions), "python313"])],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert found.stdout.strip() == str(BASE), found.stderr


SHIM = '#!/bin/sh\necho "pyenv: $(basename $0): command not found" >&2\nexit 127\n'
A_PYTHON = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
UV = """#!/bin/sh
[ "$1" != --version ] || exit 0
echo "$@" >> "$(dirname "$0")/asked"
echo "error: no network" >&2
exit 1
"""


class Checkout:
    """A checkout of its own, with a uv that is there and can't do anything; a shim is the first python3.13 on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("localstack/bootstrap.sh", "pyproject.toml", "requirements.txt", "requirements-dev.txt"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, folder / name)
        [version] = re.findall(r"^uv==(.+)$", (CHECKOUT / "requirements-dev.txt").read_text(), re.M)
        self.uv = f".leaseway/uv-{version}/bin"
        self.program(f"{self.uv}/uv", UV)
        for told in ("index-url", "certificate"):
            (folder / ".leaseway" / told).touch()
        self.program("bin/python3.13", SHIM)

    def program(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def bootstrap(self) -> tuple[str, list[str]]:
        """What the failing script says, and what it asked uv for."""
        ran = subprocess.run(
            ["sh", str(self.folder / "localstack" / "bootstrap.sh")],
            env={
                "HOME": str(self.folder),
                "PYENV_ROOT": str(self.folder / "pyenv"),
                "PATH": f"{self.folder}/bin:{Path(shutil.which('git') or '').parent}:/usr/bin:/bin",
            },
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 1, ran.stderr
        return ran.stderr, (self.folder / self.uv / "asked").read_text().splitlines()


def test_a_python_on_path_that_only_answers_is_passed_over_for_one_of_pyenvs_that_runs(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    checkout.program("pyenv/versions/3.13.9/bin/python3.13", A_PYTHON)

    _, asked = checkout.bootstrap()

    assert asked == [f"venv --quiet --clear --no-project --python {BASE} {tmp_path}/.venv"]


def test_without_python_313_and_without_a_network_it_says_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    checkout.program("bin/python3", A_PYTHON)

    said, asked = checkout.bootstrap()

    assert asked == ["python install --no-bin 3.13"]
    assert said == (
        "error: no network\n"
        "Python 3.13 couldn't be fetched: install it yourself (e.g. apt install python3.13, pyenv install 3.13).\n"
    )
