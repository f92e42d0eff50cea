"""What stands beside a version's files and says what is in them: CSVW metadata for CSV, a JSON Schema for JSON.

Made of the definition that the version was published by, so they need no place of their own.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from chalicelib.datasets.definition import Column, CsvExcel, Definition

CSVW, SCHEMA = "application/csvm+json", "application/schema+json"
GEOJSON = "https://www.rfc-editor.org/rfc/rfc7946"

_DATE = r"-?[0-9]{4,}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_TEXTS = {  # JSON Schema's own formats know no years but 0000 to 9999, no signs and no parts of a second in durations
    "date": _DATE,
    "time": _TIME,
    "timestamp": f"{_DATE}T{_TIME}",
    "timestamptz": f"{_DATE}T{_TIME}Z",
    "interval": r"-?P(-?[0-9]+[YMD])*(T(-?[0-9]+(\.[0-9]+)?[HMS])+)?",
    "uuid": "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "binary": "([0-9a-f]{2})*",
}
_CSVW: Mapping[str, str | dict[str, Any]] = {
    "text": "string",
    "boolean": "boolean",
    "integer": "integer",
    "decimal": "decimal",
    "double": "double",
    "date": "date",
    "time": "time",
    "timestamp": "dateTime",
    "timestamptz": "dateTimeStamp",
    "interval": {"base": "string", "format": _TEXTS["interval"]},  # of several signs it is no xsd:duration
    "uuid": {"base": "string", "format": _TEXTS["uuid"]},
    "json": "json",
    "binary": "hexBinary",
    "geometry": {"base": "string", "@id": "http://www.opengis.net/ont/geosparql#wktLiteral"},
}
# In the CSV for spreadsheets what would be a formula has an apostrophe in front: it is of no other datatype then.
_CSVW_EXCEL: Mapping[str, str | dict[str, Any]] = {
    "json": "string",
    **{
        name: {"base": "string", "format": f"'?{_TEXTS[name]}"}
        for name in ("date", "timestamp", "timestamptz", "interval")
    },
}
_JSON: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "boolean": {"type": "boolean"},
    "integer": {"type": "integer"},
    "decimal": {"type": "number"},
    "double": {"type": "number"},
    "json": {},
    "geometry": {"type": "object", "required": ["type"]},
    **{name: {"type": "string", "pattern": f"^{pattern}$"} for name, pattern in _TEXTS.items()},
}


def beside(file: Mapping[str, Any], dataset: str) -> str | None:
    """The name of what describes a file (as a version keeps it), if something does."""
    match file["format"]:
        case "csv" | "csv-excel":
            return f"{name_of(file, dataset).removesuffix('.gz')}-metadata.json"  # where CSVW looks for it
        case "json" | "jsonl":
            return f"{dataset}.schema.json"
    return None


def name_of(file: Mapping[str, Any], dataset: str) -> str:
    """What a file is called in its address; the first versions' files didn't say."""
    return str(file.get("name") or f"{dataset}.{file['format']}")


def conforms_to(file: Mapping[str, Any], dataset: str, base: str) -> list[str]:
    """The schemas and standards that a file follows; ``base`` is the address of the version's files."""
    match file["format"], beside(file, dataset):
        case "geojson", _:
            return [GEOJSON]
        case "jsonl", name:
            return [f"{base}/{name}#/$defs/record", "https://jsonlines.org/"]
        case _, str(name):
            return [f"{base}/{name}"]
    return []


def csvw(definition: Definition, file: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    """Metadata of a CSV (W3C, Metadata Vocabulary for Tabular Data)."""
    excel = definition.csv_excel or CsvExcel() if file["format"] == "csv-excel" else None
    return {
        "@context": "http://www.w3.org/ns/csvw",
        "url": name_of(file, dataset).removesuffix(".gz"),
        "dc:title": _texts(definition.title),
        "dc:description": _texts(definition.description),
        "dialect": {
            "encoding": "utf-8",
            "delimiter": excel.delimiter if excel else ",",
            "lineTerminators": ["\r\n"] if excel else ["\n"],
            "header": True,
        },
        "tableSchema": {"columns": [_csvw_column(column, excel) for column in definition.columns]},
    }


def _csvw_column(column: Column, excel: CsvExcel | None) -> dict[str, Any]:
    datatype = "json" if column.type.endswith("[]") else _CSVW[column.type]
    if excel:
        datatype = _CSVW_EXCEL.get(column.type, datatype)
    if excel and excel.decimal != "." and column.type in ("decimal", "double"):
        datatype = {"base": datatype, "format": {"decimalChar": excel.decimal}}
    heading = f"'{column.name}" if excel and column.name[0] in "-=+@" else column.name  # what the file's first line has
    titles: Any = {"und": heading, **column.title} if column.title else heading
    described = {"dc:description": _texts(column.description)} if column.description else {}
    return {"name": _variable(column.name), "titles": titles, "datatype": datatype, **described}


def _variable(name: str) -> str:
    """A column's name as CSVW takes one: a variable of a URI template, which may not begin with _."""
    encoded = quote(name, safe="")
    return re.sub(r"[-.~]|^_", lambda found: f"%{ord(found[0]):02X}", encoded)


def json_schema(definition: Definition, address: str) -> dict[str, Any]:
    """A JSON Schema (2020-12) of the JSON file; a line of JSON Lines is its ``#/$defs/record``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": address,
        "title": _said(definition.title),
        "description": _said(definition.description),
        "type": "array",
        "items": {"$ref": "#/$defs/record"},
        "$defs": {
            "record": {
                "type": "object",
                "properties": {column.name: _property(column) for column in definition.columns},
                "required": [column.name for column in definition.columns],
                "additionalProperties": False,
            }
        },
    }


def _property(column: Column) -> dict[str, Any]:
    said = {
        **({"title": _said(column.title)} if column.title else {}),
        **({"description": _said(column.description)} if column.description else {}),
    }
    if column.type.endswith("[]"):
        return said | {"type": ["array", "null"], "items": _nullable(_JSON[column.type.removesuffix("[]")])}
    return said | _nullable(_JSON[column.type])


def _nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]} if schema else {}


def _texts(texts: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"@value": text, "@language": tag} for tag, text in texts.items()]


def _said(texts: Mapping[str, str]) -> str:
    """JSON Schema has one language: English, or else the first."""
    return texts.get("en") or next(iter(texts.values()))
