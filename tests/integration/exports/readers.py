"""Strict readers of the formats: records as text per column, null as None. What isn't the format is an error."""

import json
import re
import xml.etree.ElementTree as ET

NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"


def read_csv(data: bytes, delimiter=",", line_end="\n"):
    """RFC 4180 with LF or CRLF: an unquoted empty field is null, a quoted one the empty text."""
    text = data.decode("utf-8")
    assert not text.startswith("\ufeff")
    assert text.endswith(line_end)
    end = f"(?={delimiter}|{line_end})"
    field = re.compile(f'"((?:[^"]|"")*)"{end}|([^"{delimiter}\r\n]*){end}')
    rows, row, at = [], [], 0
    while at < len(text):
        found = field.match(text, at)
        assert found, f"not RFC 4180 at {at}: {text[at : at + 40]!r}"
        row.append(found[1].replace('""', '"') if found[1] is not None else found[2] or None)
        at = found.end() + 1
        if text.startswith(line_end, found.end()):
            rows.append(row)
            row, at = [], found.end() + len(line_end)
    header, *records = rows
    assert all(len(record) == len(header) for record in records)
    return [dict(zip(header, record, strict=True)) for record in records]


def read_excel(data: bytes, delimiter=";"):
    """The CSV for spreadsheets, as it is."""
    assert data.startswith(b"\xef\xbb\xbf")
    return read_csv(data[3:], delimiter, "\r\n")


class Number(str):
    """A number's digits as they stand in the file."""


def read_jsonl(data: bytes):
    """A JSON object a line."""
    assert not data or data.endswith(b"\n")
    return [read_json(line) for line in data.split(b"\n")[:-1]]


def read_features(data: bytes):
    """RFC 7946: the features' geometries and their properties."""
    collection = read_json(data)
    assert collection.keys() == {"type", "features"}
    assert collection["type"] == "FeatureCollection"
    assert all(feature.keys() == {"type", "geometry", "properties"} for feature in collection["features"])
    assert {feature["type"] for feature in collection["features"]} <= {"Feature"}
    return [(feature["geometry"], feature["properties"]) for feature in collection["features"]]


def read_geojson(data: bytes):
    """The properties of features."""
    return [properties for _, properties in read_features(data)]


def read_json(data: bytes):
    """RFC 8259: no NaN, no name twice, no control character in a string."""

    def refuse(constant):
        raise AssertionError(f"bare {constant}")

    def once(pairs):
        assert len({name for name, _ in pairs}) == len(pairs)
        return dict(pairs)

    text = data.decode("utf-8")
    assert not text.startswith("\ufeff")
    return json.loads(text, parse_constant=refuse, object_pairs_hook=once, parse_float=Number, parse_int=Number)


def read_xml(data: bytes):
    """XML 1.0 by expat; xsi:nil is null."""
    root = ET.fromstring(data)
    assert root.tag == "records"
    records = []
    for record in root:
        assert record.tag == "record"
        assert not (record.text or "").strip()
        fields = {field.tag: None if field.get(NIL) == "true" else field.text or "" for field in record}
        assert len(fields) == len(record)
        records.append(fields)
    return records
