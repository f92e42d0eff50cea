"""What the catalogue says of itself: applied by an operator, or else as the settings have it."""

from typing import Any

from psycopg.types.json import Jsonb

from chalicelib.db import Sql, statements
from chalicelib.settings import Settings

from .definition import Document, Iri, Licence, Lines, Link, Publisher, Texts

SQL = statements("chalicelib.datasets")


class CatalogPublisher(Publisher):
    """Who publishes the catalogue: under an IRI, by which harvesters know it."""

    iri: Iri


class Catalog(Document):
    """The catalogue's own title, description, publisher, licence and homepage."""

    title: Lines
    description: Texts
    publisher: CatalogPublisher
    licence: Licence
    homepage: Link


def put_catalog(sql: Sql, catalog: Catalog) -> None:
    """Let the catalogue say this of itself from now on, in the settings' place."""
    sql.run(SQL.put_catalog, body=Jsonb(catalog.as_json()))


def applied(sql: Sql) -> Catalog | None:
    """What was applied, if anything was."""
    row = sql.one(SQL.find_catalog)
    return Catalog.parse(row["body"]) if row else None


def catalog(sql: Sql, settings: Settings) -> Catalog | None:
    """What the catalogue says of itself: what was applied, else the settings'; None where those aren't all set."""
    return applied(sql) or (Catalog.parse(_of(settings)) if settings.catalog_configured else None)


def _of(settings: Settings) -> dict[str, Any]:
    return {
        "title": settings.catalog_title,
        "description": settings.catalog_description,
        "publisher": {"name": settings.catalog_publisher_name, "iri": settings.catalog_publisher_iri},
        "licence": settings.catalog_licence,
        "homepage": settings.catalog_homepage,
    }
