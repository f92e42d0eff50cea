"""The types a column may be declared as, and how PostgreSQL itself writes their values.

Every value is made text by the source's server, under settings fixed for the transaction, so that the formats can't
differ. A value that one format can't hold (NaN, ±Infinity, infinite dates) is null in all of them.
"""

from dataclasses import dataclass

# Everything is named with its schema, here and wherever SQL is written for a source or a target: a login's search_path
# may lead to others of the same name, and stays as it is, for the source's own query and functions go by it.

# The year in ISO 8601 is astronomical: 1 BC is 0000, 44 BC is -0043. PostgreSQL writes '0044-03-15 BC'.
DATE_OR_TIMESTAMP = """case when pg_catalog.isfinite({0}) then
    case when {0} operator(pg_catalog.>=) '0001-01-01' then pg_catalog.replace({0}::pg_catalog.text, ' ', 'T')
         else case when extract(year from {0}) operator(pg_catalog.<) -1 then '-' else '' end operator(pg_catalog.||)
              pg_catalog.to_char(-1 operator(pg_catalog.-) extract(year from {0}), 'FM0000') operator(pg_catalog.||)
              pg_catalog.replace(pg_catalog.left(pg_catalog.substr({0}::pg_catalog.text, 5), -3), ' ', 'T') end end"""

# NaN and infinities have no scale; to compare with 'Infinity' fails before PostgreSQL 14.
DECIMAL = "case when pg_catalog.scale({0}) is not null then {0} end"

# PostgreSQL gives each part its sign; XML Schema knows one for all of them, which does unless they differ (ISO 8601-2).
INTERVAL = """case when pg_catalog.isfinite({0}) then
    case when {0}::pg_catalog.text operator(pg_catalog.~) '[A-Z][0-9]' then {0}::pg_catalog.text
         else '-' operator(pg_catalog.||) pg_catalog.replace({0}::pg_catalog.text, '-', '') end end"""

# NaN is greater than Infinity.
DOUBLE = "case when {0} operator(pg_catalog.>) '-Infinity' and {0} operator(pg_catalog.<) 'Infinity' then {0} end"

# json may hold half of a surrogate pair (jsonb can't), and strict readers refuse the whole file for it. It is what is
# left when escaped backslashes and whole pairs are taken away; jsonb then says that it is no value (22P02).
JSON = r"""case when pg_catalog.pg_typeof({0}) operator(pg_catalog.<>) 'pg_catalog.jsonb'::pg_catalog.regtype
     and pg_catalog.strpos({0}::pg_catalog.text, e'\\u') operator(pg_catalog.>) 0
     and pg_catalog.regexp_replace({0}::pg_catalog.text, e'\\\\\\\\|\\\\u[dD][89abAB]..\\\\u[dD][c-fC-F]..', '', 'g')
         operator(pg_catalog.~) e'\\\\u[dD][89a-fA-F]'
     and {0}::pg_catalog.text::pg_catalog.jsonb is null then null else {0} end"""

# A shape as RFC 7946 has it, in every format: degrees east and north of WGS 84, rings counterclockwise, no measures. An
# unknown SRID is the declared one; what the RFC has no shape for, or lies beyond the earth, is no number (22P02).
# WKT has a word for everything that the RFC lacks. Of GeoJSON PostGIS makes a polygon of a triangle in a collection and
# writes NaN, and none but JSON's own reader would notice: so the same is asked, whichever format is asked for.
SHAPE = """(select case
    when not ({within} and {{s}}st_astext(g, 0) operator(pg_catalog.~) '{shapes}')
    then ({{s}}geometrytype(g) operator(pg_catalog.||) ' is no place')::int::pg_catalog.text
    when {{s}}geometrytype(g) operator(pg_catalog.=) any (array['POLYGON', 'MULTIPOLYGON']) then {turned}
    else {written} end
  from (select case when {{s}}st_zmflag(t) operator(pg_catalog.=) 3 then {{s}}st_force3dz(t)
                    when {{s}}st_zmflag(t) operator(pg_catalog.=) 1 then {{s}}st_force2d(t) else t end as g
  from (select {{s}}st_transform(
                   case when {{s}}st_srid(o) operator(pg_catalog.<>) 0 then o
                        when {{srid}} operator(pg_catalog.<>) 0 then {{s}}st_setsrid(o, {{srid}})
                        else ('SRID ' operator(pg_catalog.||) {{s}}st_srid(o)::pg_catalog.text)
                             ::int::pg_catalog.text::{{s}}geometry end, 4326) as t
  from (select {{0}}::{{s}}geometry as o offset 0) as original offset 0) as measured offset 0) as shape)"""
SHAPES = "^(?:GEOMETRYCOLLECTION)?(?:[-+.0-9e(), Z]|(?:MULTI)?(?:POINT|LINESTRING|POLYGON)| EMPTY)*$"
"""Of a collection shapes and no other collection; EMPTY stands for a shape, not for a position among others."""
WITHIN = """({s}st_isempty(g)
          or {s}st_xmin(g) operator(pg_catalog.>=) -180 and {s}st_xmax(g) operator(pg_catalog.<=) 180
         and {s}st_ymin(g) operator(pg_catalog.>=) -90 and {s}st_ymax(g) operator(pg_catalog.<=) 90)"""


def _shape(written: str) -> str:
    # PostGIS would turn round the lines, too, if it were asked for more than polygons.
    turned = written.replace("(g,", "({s}st_forcepolygonccw(g),")
    return SHAPE.format(written=written, turned=turned, within=WITHIN, shapes=SHAPES)


WKT = _shape("{s}st_astext(g, 9)")  # a tenth of a millimetre


@dataclass(frozen=True)
class Found:
    """A type at the source, as pg_type has it; an array's is that of its elements, the name with []."""

    name: str
    kind: str
    """typtype: b is a base type, e an enum."""
    schema: str

    def __str__(self) -> str:
        return self.name if self.schema == "pg_catalog" else f"{self.schema}.{self.name}"


EXTENSIONS = {"citext", "geometry", "geography"}
"""Types that may stand in any schema: only a superuser could make another base type of that name."""


@dataclass(frozen=True)
class Type:
    """A declared type: what it takes from the source and the SQL that writes it.

    ``{0}`` is the source's column, ``{s}`` the schema of its type with a dot, ``{srid}`` the SRID declared.
    """

    sources: str
    """PostgreSQL's own types and EXTENSIONS, by name; ``enum`` is any of those."""
    value: str = "{0}::pg_catalog.text"
    """The column as CSV and XML take it, and JSON too unless ``json`` is set."""
    json: str | None = None
    order: tuple[str, ...] = ("{0}",)
    """Sort keys that tell apart whatever is written differently (1.0 and 1.00 are equal, their digits aren't)."""
    escaped: bool = False
    """Whether a value may hold characters that XML escapes."""
    array: bool = False

    def takes(self, found: Found) -> bool:
        """Whether the source's type may be published as this one. A name alone says nothing: anybody may give it."""
        name = found.name.removesuffix("[]")
        if found.name.endswith("[]") != self.array:
            return False
        if found.kind == "e":
            return "enum" in self.sources.split()
        known = found.kind == "b" and (found.schema == "pg_catalog" or name in EXTENSIONS)
        return known and name in self.sources.split()


TEXT = "{0}::pg_catalog.text"
BY_CODE_POINT = 'collate pg_catalog."C"'

TYPES = {
    "text": Type("text varchar bpchar name citext enum", order=(f"{TEXT} {BY_CODE_POINT}",), escaped=True),
    "integer": Type("int2 int4 int8", json="{0}"),
    "decimal": Type("numeric", f"({DECIMAL})::pg_catalog.text", json=DECIMAL, order=("{0}", "pg_catalog.scale({0})")),
    "double": Type("float4 float8", f"({DOUBLE})::pg_catalog.text", json=DOUBLE, order=("{0}", TEXT)),
    "boolean": Type("bool", json="{0}"),
    "date": Type("date", DATE_OR_TIMESTAMP),
    "time": Type("time"),
    "timestamp": Type("timestamp", DATE_OR_TIMESTAMP),
    "timestamptz": Type(
        "timestamptz",
        f"({DATE_OR_TIMESTAMP.replace('{0}', "({0} at time zone 'UTC')")}) operator(pg_catalog.||) 'Z'",
    ),
    "interval": Type("interval", INTERVAL, order=("{0}", f"{TEXT} {BY_CODE_POINT}")),
    "uuid": Type("uuid"),
    "json": Type("json jsonb", f"({JSON})::pg_catalog.text", JSON, order=(f"{TEXT} {BY_CODE_POINT}",), escaped=True),
    "binary": Type("bytea", "pg_catalog.encode({0}, 'hex')"),
}


# The elements as a JSON array, in every format; NULL stays null, and an array of arrays is no value of a list.
ARRAY = """case when pg_catalog.array_ndims({{0}}) operator(pg_catalog.>) 1
    then (pg_catalog.array_ndims({{0}})::pg_catalog.text operator(pg_catalog.||) ' dimensions')
         ::int::pg_catalog.text::pg_catalog.json
    when {{0}} is not null then coalesce((select pg_catalog.json_agg({element} order by place)
        from pg_catalog.unnest({{0}}) with ordinality as element (value, place)), '[]') end"""


def _array(type_: Type) -> Type:
    """An array of values of a type; its text in JSON is what all formats write."""
    json = ARRAY.format(element=(type_.json or type_.value).format("element.value"))
    text = f"({json})::pg_catalog.text"
    return Type(type_.sources, text, json, (f"{text} {BY_CODE_POINT}",), escaped=type_.escaped, array=True)


TYPES |= {f"{name}[]": _array(type_) for name, type_ in TYPES.items()}


TYPES["geometry"] = Type(
    "geometry geography",
    WKT,
    _shape("{s}st_asgeojson(g, 9, 0)") + "::pg_catalog.json",
    order=(f"{WKT} {BY_CODE_POINT}",),
)


def _apart(type_: Type) -> bool:
    """Whether JSON takes something else than the value's own text, quoted or as it is."""
    return type_.json is not None and type_.value not in (
        f"{type_.json}::pg_catalog.text",
        f"({type_.json})::pg_catalog.text",
    )


def staging_value(type_: Type) -> str:
    """What of a column is kept as text in a staging table: all that any format writes of it, made by the source."""
    if _apart(type_):
        both = f"pg_catalog.json_build_array({type_.value}, {type_.json})::pg_catalog.text"
        return f"case when {{0}} is not null then {both} end"
    return type_.value


def _staged(type_: Type) -> Type:
    """The type as it stands in a staging table: text, which is written as the source would have written it."""
    if _apart(type_):
        parts = "({0}::pg_catalog.json operator(pg_catalog.%s) %d)"
        return Type("text", parts % ("->>", 0), parts % ("->", 1), escaped=type_.escaped)
    return Type("text", "{0}", None if type_.json is None else "{0}::pg_catalog.json", escaped=type_.escaped)


STAGED = {name: _staged(type_) for name, type_ in TYPES.items()}


def type_of(found: Found) -> str | None:
    """The type that a source's column may be declared as, if there is one."""
    return next((declared for declared, type_ in TYPES.items() if type_.takes(found)), None)
