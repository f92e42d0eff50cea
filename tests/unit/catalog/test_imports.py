import subprocess
import sys


def test_definition_negotiation_and_store_start_without_the_RDF_libraries():
    program = (
        "import sys, chalicelib.datasets.definition, chalicelib.catalog.negotiation, chalicelib.catalog.store\n"
        "print(sorted({'rdflib', 'pyshacl'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"
