"""Which files a definition asks for."""

from chalicelib.datasets.definition import Definition
from chalicelib.exports.formats import CSV, CSV_WITH_BOM, JSON, JSON_LINES, XML, FileSpec, Format, excel_csv, geojson

FORMATS = {"csv": CSV, "json": JSON, "jsonl": JSON_LINES, "xml": XML}


def specs(definition: Definition) -> list[FileSpec]:
    """The files of a dataset, in the order in which they are written."""
    return [FileSpec(_format(name, definition), name in (definition.gzip or [])) for name in definition.formats]


def _format(name: str, definition: Definition) -> Format:
    match name:
        case "csv" if definition.csv_bom:
            return CSV_WITH_BOM
        case "csv-excel":
            return excel_csv(**(definition.csv_excel.model_dump() if definition.csv_excel else {}))
        case "geojson":
            return geojson(**definition.place)
        case _:
            return FORMATS[name]
