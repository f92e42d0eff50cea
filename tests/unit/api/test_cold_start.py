"""The API's cold start: what it imports before it answers."""

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]


def test_the_api_starts_without_what_only_some_routes_need():
    program = (
        "import sys, chalicelib.api\n"
        "print(sorted({'rdflib', 'pyshacl', 'boto3', 'botocore', 'urllib3', 'requests'} & set(sys.modules)))"
    )

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=CHECKOUT)

    assert ran.stdout == "[]\n", ran.stderr
