"""Which files a definition asks for."""

from chalicelib.datasets.definition import Definition
from chalicelib.exports.formats import CSV, CSV_WITH_BOM, JSON, XML, FileSpec

FORMATS = {"csv": CSV, "json": JSON, "xml": XML}


def specs(definition: Definition) -> list[FileSpec]:
    """The files of a dataset, in the order in which they are written."""
    formats = FORMATS | ({"csv": CSV_WITH_BOM} if definition.csv_bom else {})
    return [FileSpec(formats[name]) for name in definition.formats]
