"""Which files a definition asks for, and of which columns."""

from typing import Any

from chalicelib.datasets.definition import Definition
from chalicelib.exports.formats import (
    CSV,
    CSV_WITH_BOM,
    JSON,
    JSON_LINES,
    XML,
    Column,
    FileSpec,
    Format,
    excel_csv,
    geojson,
)

FORMATS = {"csv": CSV, "json": JSON, "jsonl": JSON_LINES, "xml": XML}


def specs(definition: Definition) -> list[FileSpec]:
    """The files of a dataset, in the order in which they are written."""
    return [
        FileSpec(_format(name, options(name, definition)), name in (definition.gzip or []))
        for name in definition.formats
    ]


def options(name: str, definition: Definition) -> dict[str, Any]:
    """What the definition says of how a format is written."""
    match name:
        case "csv" if definition.csv_bom:
            return {"bom": True}
        case "csv-excel" if definition.csv_excel:
            return definition.csv_excel.model_dump()
        case "geojson":
            return definition.place
        case _:
            return {}


def columns_of(definition: Definition) -> list[Column]:
    """What is published, in its order."""
    return [
        Column(column.name, column.type, column.source_name or column.name, srid=column.srid or 0)
        for column in definition.columns
    ]


def _format(name: str, options: dict[str, Any]) -> Format:
    match name:
        case "csv" if options:
            return CSV_WITH_BOM
        case "csv-excel":
            return excel_csv(**options)
        case "geojson":
            return geojson(**options)
        case _:
            return FORMATS[name]
