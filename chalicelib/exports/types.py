"""The types a column may be declared as, and how PostgreSQL itself writes their values.

Every value is made text by the source's server, under settings fixed for the transaction, so that the formats can't
differ. A value that one format can't hold (NaN, ±Infinity, infinite dates) is null in all of them.
"""

from dataclasses import dataclass

# The year in ISO 8601 is astronomical: 1 BC is 0000, 44 BC is -0043. PostgreSQL writes '0044-03-15 BC'.
DATE_OR_TIMESTAMP = """case when isfinite({0}) then
    case when {0} >= '0001-01-01' then replace({0}::text, ' ', 'T')
         else case when extract(year from {0}) < -1 then '-' else '' end
              || to_char(-1 - extract(year from {0}), 'FM0000')
              || replace(left(substr({0}::text, 5), -3), ' ', 'T') end end"""

# NaN and infinities have no scale; to compare with 'Infinity' fails before PostgreSQL 14.
DECIMAL = "case when scale({0}) is not null then {0} end"

DOUBLE = "nullif(nullif(nullif({0}, 'NaN'), 'Infinity'), '-Infinity')"


@dataclass(frozen=True)
class Type:
    """A declared type: what it takes from the source and the SQL that writes it; ``{0}`` is the source's column."""

    sources: str
    """Types of pg_type by name, or by category where it is a capital."""
    value: str = "{0}::text"
    """The column as CSV and XML take it, and JSON too unless ``json`` is set."""
    json: str | None = None
    order: tuple[str, ...] = ("{0}",)
    """Sort keys that tell apart whatever is written differently (1.0 and 1.00 are equal, their digits aren't)."""
    escaped: bool = False
    """Whether a value may hold characters that XML escapes."""

    def takes(self, name: str, category: str) -> bool:
        """Whether the source's type (its name and category in pg_type) may be published as this one."""
        return name in self.sources.split() or category in self.sources.split()


TYPES = {
    "text": Type("S E", order=('{0}::text collate "C"',), escaped=True),
    "integer": Type("int2 int4 int8", json="{0}"),
    "decimal": Type("numeric", f"({DECIMAL})::text", json=DECIMAL, order=("{0}", "scale({0})")),
    "double": Type("float4 float8", f"({DOUBLE})::text", json=DOUBLE, order=("{0}", "{0}::text")),
    "boolean": Type("bool", json="{0}"),
    "date": Type("date", DATE_OR_TIMESTAMP),
    "time": Type("time"),
    "timestamp": Type("timestamp", DATE_OR_TIMESTAMP),
    "timestamptz": Type("timestamptz", f"({DATE_OR_TIMESTAMP.replace('{0}', "({0} at time zone 'UTC')")}) || 'Z'"),
    "uuid": Type("uuid"),
    "json": Type("json jsonb", json="{0}", order=('{0}::text collate "C"',), escaped=True),
    "binary": Type("bytea", "encode({0}, 'hex')"),
}


def type_of(name: str, category: str) -> str | None:
    """The type that a source's column (its type's name and category in pg_type) may be declared as, if there is one."""
    return next((declared for declared, type_ in TYPES.items() if type_.takes(name, category)), None)
