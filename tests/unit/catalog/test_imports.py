import subprocess
import sys

from tests.unit.catalog.flights import CHECKOUT


def test_definition_negotiation_and_store_start_without_the_RDF_libraries():
    program = (
        "import sys, chalicelib.datasets.definition, chalicelib.catalog.negotiation, chalicelib.catalog.store\n"
        "print(sorted({'rdflib', 'pyshacl'} & set(sys.modules)))"
    )

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=CHECKOUT)

    assert ran.stdout == "[]\n", ran.stderr
