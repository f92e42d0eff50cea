"""What the first `make` does before there is an environment."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra.package import CHECKOUT


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
