"""The dataset that the stories of the catalogue are about: complete, in two languages."""

from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chalicelib.catalog.entry import Facts, FileFacts
from chalicelib.datasets.definition import Definition

BASE = "https://data.example.org"
IRI = f"{BASE}/datasets/flights"
CHECKOUT = Path(__file__).parents[3]
SHARED = CHECKOUT.parent / "shared"  # beside the checkout: SEMIC's shapes and real files, as oracles
WITHOUT_SHARED = "needs ../shared beside the checkout: the repaired shapes and the real files of DCAT-AP"

DEFINITION: dict[str, Any] = {
    "title": {"en": "Flights from New York City in 2013", "de": "Flüge ab New York City 2013"},
    "description": {"en": "All flights that departed.", "de": "Alle Flüge, die abgingen."},
    "keywords": {"en": ["aviation", "airports"], "de": ["Luftfahrt"]},
    "languages": ["en"],
    "publisher": {
        "name": {"en": "Office for Open Data", "de": "Amt für offene Daten"},
        "iri": "https://office.example.org/id",
        "type": "NationalAuthority",
    },
    "contact": {"name": {"en": "Open data desk"}, "email": "opendata@example.org"},
    "themes": ["TRAN"],
    "licence": "CC0",
    "spatial": ["http://publications.europa.eu/resource/authority/country/USA"],
    "temporal": {"start": "2013-01-01", "end": "2013-12-31"},
    "frequency": "NEVER",
    "landing_page": "https://office.example.org/flights",
    "source": "flights",
    "columns": [
        {"name": "year", "type": "integer", "title": {"en": "Year", "de": "Jahr"}},
        {"name": "carrier", "type": "text", "from": "carrier_code"},
    ],
}


def definition(**changes: Any) -> Definition:
    return Definition.parse(deepcopy(DEFINITION) | changes)


def facts(**changes: Any) -> Facts:
    files = [
        FileFacts(
            format=name,
            media_type=media_type,
            bytes=15_851,
            sha256="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            url=f"{IRI}/versions/2/files/flights.{name}",
            access_url=f"{IRI}/files/flights.{name}",
        )
        for name, media_type in (
            ("csv", "text/csv; charset=utf-8"),
            ("json", "application/json"),
            ("xml", "application/xml"),
        )
    ]
    told = {
        "dataset_id": "flights",
        "version": 2,
        "previous_version": 1,
        "first_issued": datetime(2026, 1, 5, 2, tzinfo=UTC),
        "issued": datetime(2026, 1, 12, 2, 0, 0, 999, tzinfo=UTC),
        "modified": datetime(2026, 1, 12, 2, tzinfo=UTC),
        "files": files,
        "records": 336_776,
        "columns": 19,
        "base_url": BASE,
    }
    return Facts(**(told | changes))
