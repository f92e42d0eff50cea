"""The rules of the profile, one a line, and the SHACL shapes that are made from them.

Class, property, how often, of what kind, and what a breach is. Base tier: what DCAT-AP 3.0.1 demands of the classes
that a catalogue of datasets and files holds; as warnings its deprecated properties, and its recommended ones where they
are missing.
"""

import hashlib
from functools import cache
from typing import NamedTuple

from .rdf import PREFIXES

TIER = "base"
PROFILE_VERSION = "3.0.1"
MANY = None

# Kinds of values. "any" says nothing; "thing" is a node of either kind; the others are exact.
_KINDS = {
    "any": "",
    "iri": "sh:nodeKind sh:IRI ; ",
    "thing": "sh:nodeKind sh:BlankNodeOrIRI ; ",
    "text": "sh:nodeKind sh:Literal ; ",
    "bytes": "sh:datatype xsd:nonNegativeInteger ; ",
    "hex": "sh:datatype xsd:hexBinary ; ",
    "decimal": "sh:datatype xsd:decimal ; ",
    "duration": "sh:datatype xsd:duration ; ",
    "date": "sh:or ( [ sh:datatype xsd:date ] [ sh:datatype xsd:dateTime ] "
    "[ sh:datatype xsd:gYear ] [ sh:datatype xsd:gYearMonth ] ) ; ",
}


class Rule(NamedTuple):
    """``low`` to ``high`` values of ``kind`` for ``path`` on each node of ``of``; ``high`` MANY is no limit.

    ``field`` is where a definition says it, if it may leave it out.
    """

    of: str
    path: str
    low: int
    high: int | None
    kind: str
    severity: str = "Violation"
    field: str | None = None

    @property
    def name(self) -> str:
        """What a result calls it: ``dcat:Dataset/dct:title``; of a property that is only recommended that it is."""
        return f"{self.of}/{self.path}" + ("/recommended" if self.severity == "Warning" and self.low else "")


def _deprecated(of: str, path: str) -> Rule:
    return Rule(of, path, 0, 0, "any", "Warning")


def _recommended(of: str, *paths: str, field: str | None = None) -> tuple[Rule, ...]:
    return tuple(Rule(of, path, 1, MANY, "any", "Warning", field) for path in paths)


RULES = (
    Rule("dcat:Dataset", "dct:title", 1, MANY, "text"),
    Rule("dcat:Dataset", "dct:description", 1, MANY, "text"),
    Rule("dcat:Dataset", "dcat:contactPoint", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dcat:distribution", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dcat:keyword", 0, MANY, "text"),
    Rule("dcat:Dataset", "dct:publisher", 0, 1, "thing"),
    Rule("dcat:Dataset", "dct:spatial", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dct:temporal", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dcat:theme", 0, MANY, "iri"),
    Rule("dcat:Dataset", "dct:accessRights", 0, 1, "thing"),
    Rule("dcat:Dataset", "dct:accrualPeriodicity", 0, 1, "thing"),
    Rule("dcat:Dataset", "dct:conformsTo", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dct:creator", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dct:identifier", 0, MANY, "text"),
    Rule("dcat:Dataset", "dct:issued", 0, 1, "date"),
    Rule("dcat:Dataset", "dct:modified", 0, 1, "date"),
    Rule("dcat:Dataset", "dct:language", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dcat:landingPage", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dct:provenance", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dct:relation", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dct:source", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dct:isReferencedBy", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dct:type", 0, MANY, "thing"),
    Rule("dcat:Dataset", "foaf:page", 0, MANY, "thing"),
    Rule("dcat:Dataset", "adms:identifier", 0, MANY, "thing"),
    Rule("dcat:Dataset", "adms:sample", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dcat:qualifiedRelation", 0, MANY, "thing"),
    Rule("dcat:Dataset", "prov:qualifiedAttribution", 0, MANY, "thing"),
    Rule("dcat:Dataset", "prov:wasGeneratedBy", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dcat:inSeries", 0, MANY, "thing"),
    Rule("dcat:Dataset", "dcat:spatialResolutionInMeters", 0, MANY, "decimal"),
    Rule("dcat:Dataset", "dcat:temporalResolution", 0, 1, "duration"),
    Rule("dcat:Dataset", "dcatap:applicableLegislation", 0, MANY, "iri"),
    Rule("dcat:Dataset", "dcat:version", 0, 1, "text"),
    Rule("dcat:Dataset", "adms:versionNotes", 0, MANY, "text"),
    Rule("dcat:Dataset", "dcat:hasVersion", 0, MANY, "iri"),
    Rule("dcat:Dataset", "dcat:hasCurrentVersion", 0, 1, "iri"),
    _deprecated("dcat:Dataset", "owl:versionInfo"),
    _deprecated("dcat:Dataset", "dct:hasVersion"),
    _deprecated("dcat:Dataset", "dct:isVersionOf"),
    Rule("dcat:Distribution", "dcat:accessURL", 1, MANY, "thing"),
    Rule("dcat:Distribution", "dct:title", 0, MANY, "text"),
    Rule("dcat:Distribution", "dct:description", 0, MANY, "text"),
    Rule("dcat:Distribution", "dcat:downloadURL", 0, MANY, "thing"),
    Rule("dcat:Distribution", "dct:format", 0, 1, "thing"),
    Rule("dcat:Distribution", "dcat:mediaType", 0, 1, "thing"),
    Rule("dcat:Distribution", "dcat:compressFormat", 0, 1, "thing"),
    Rule("dcat:Distribution", "dcat:packageFormat", 0, 1, "thing"),
    Rule("dcat:Distribution", "dct:license", 0, 1, "thing"),
    Rule("dcat:Distribution", "dct:rights", 0, MANY, "thing"),
    Rule("dcat:Distribution", "dcat:byteSize", 0, 1, "bytes"),
    Rule("dcat:Distribution", "spdx:checksum", 0, 1, "thing"),
    Rule("dcat:Distribution", "adms:status", 0, 1, "thing"),
    Rule("dcat:Distribution", "dcatap:availability", 0, 1, "thing"),
    Rule("dcat:Distribution", "dcatap:applicableLegislation", 0, MANY, "iri"),
    Rule("dcat:Distribution", "dct:language", 0, MANY, "thing"),
    Rule("dcat:Distribution", "dct:conformsTo", 0, MANY, "thing"),
    Rule("dcat:Distribution", "dct:issued", 0, 1, "date"),
    Rule("dcat:Distribution", "dct:modified", 0, 1, "date"),
    Rule("dcat:Distribution", "foaf:page", 0, MANY, "thing"),
    Rule("dcat:Distribution", "odrl:hasPolicy", 0, 1, "thing"),
    Rule("dcat:Distribution", "dcat:accessService", 0, MANY, "thing"),
    Rule("dcat:Distribution", "dcat:spatialResolutionInMeters", 0, 1, "decimal"),
    Rule("dcat:Distribution", "dcat:temporalResolution", 0, 1, "duration"),
    Rule("spdx:Checksum", "spdx:algorithm", 1, 1, "any"),
    Rule("spdx:Checksum", "spdx:checksumValue", 1, 1, "hex"),
    Rule("foaf:Agent", "foaf:name", 1, MANY, "text"),
    Rule("foaf:Agent", "dct:type", 0, 1, "any"),
    Rule("dct:PeriodOfTime", "dcat:startDate", 0, 1, "date"),
    Rule("dct:PeriodOfTime", "dcat:endDate", 0, 1, "date"),
    Rule("dct:PeriodOfTime", "time:hasBeginning", 0, 1, "any"),
    Rule("dct:PeriodOfTime", "time:hasEnd", 0, 1, "any"),
    _deprecated("dct:PeriodOfTime", "schema:startDate"),
    _deprecated("dct:PeriodOfTime", "schema:endDate"),
    Rule("dcat:CatalogRecord", "foaf:primaryTopic", 1, 1, "thing"),
    Rule("dcat:CatalogRecord", "dct:modified", 1, 1, "date"),
    Rule("dcat:CatalogRecord", "dct:issued", 0, 1, "date"),
    Rule("dcat:CatalogRecord", "dct:title", 0, MANY, "text"),
    Rule("dcat:CatalogRecord", "dct:description", 0, MANY, "text"),
    Rule("dcat:CatalogRecord", "adms:status", 0, 1, "any"),
    Rule("dcat:CatalogRecord", "dct:source", 0, 1, "any"),
    Rule("dcat:Catalog", "dct:title", 1, MANY, "text"),
    Rule("dcat:Catalog", "dct:description", 1, MANY, "text"),
    Rule("dcat:Catalog", "dct:publisher", 1, 1, "any"),
    Rule("dcat:Catalog", "dct:license", 0, 1, "thing"),
    Rule("dcat:Catalog", "foaf:homepage", 0, 1, "thing"),
    Rule("dcat:Catalog", "dct:language", 0, MANY, "thing"),
    Rule("dcat:Catalog", "dct:issued", 0, 1, "date"),
    Rule("dcat:Catalog", "dct:modified", 0, 1, "date"),
    Rule("dcat:Catalog", "dct:rights", 0, MANY, "thing"),
    Rule("dcat:Catalog", "dct:spatial", 0, MANY, "thing"),
    Rule("dcat:Catalog", "dct:creator", 0, 1, "thing"),
    Rule("dcat:Catalog", "dct:hasPart", 0, MANY, "thing"),
    Rule("dcat:Catalog", "dcat:dataset", 0, MANY, "thing"),
    Rule("dcat:Catalog", "dcat:service", 0, MANY, "thing"),
    Rule("dcat:Catalog", "dcat:record", 0, MANY, "thing"),
    Rule("dcat:Catalog", "dcat:catalog", 0, MANY, "thing"),
    Rule("dcat:Catalog", "dcat:themeTaxonomy", 0, MANY, "thing"),
    Rule("dcat:Catalog", "dcatap:applicableLegislation", 0, MANY, "iri"),
    *_recommended("dcat:Dataset", "dcat:contactPoint", "dcat:distribution", "dcat:keyword", "dct:publisher"),
    *_recommended("dcat:Dataset", "dcat:theme"),
    *_recommended("dcat:Dataset", "dct:spatial", field="spatial"),
    *_recommended("dcat:Dataset", "dct:temporal", field="temporal"),
    *_recommended("dcat:Distribution", "dcatap:availability", "dct:description", "dct:format", "dct:license"),
    *_recommended("foaf:Agent", "dct:type", field="publisher.type"),
    *_recommended("dct:PeriodOfTime", "dcat:startDate"),
    *_recommended("dct:PeriodOfTime", "dcat:endDate", field="temporal.end"),
    *_recommended("dcat:CatalogRecord", "dct:conformsTo", "adms:status", "dct:issued"),
    # Without "a dataset or a service": a page of the catalogue is of datasets.
    *_recommended("dcat:Catalog", "dct:spatial", "foaf:homepage", "dct:language", "dct:license"),
    *_recommended("dcat:Catalog", "dct:issued", "dct:modified", "dcat:themeTaxonomy"),
)

NAMESPACES = PREFIXES | {
    "odrl": "http://www.w3.org/ns/odrl/2/",
    "owl": "http://www.w3.org/2002/07/owl#",
    "prov": "http://www.w3.org/ns/prov#",
    "schema": "http://schema.org/",
    "sh": "http://www.w3.org/ns/shacl#",
    "time": "http://www.w3.org/2006/time#",
}
SHAPE = "urn:leaseway:rule:"
"""A shape is named after its rule: ``urn:leaseway:rule:dcat:Dataset/dct:title``."""


@cache
def shapes() -> str:
    """The shapes in Turtle: one node shape a class, one property shape a rule, each with exactly one path."""
    lines = [f"@prefix {prefix}: <{iri}> ." for prefix, iri in NAMESPACES.items()]
    for of in dict.fromkeys(rule.of for rule in RULES):
        named = " , ".join(f"<{SHAPE}{rule.name}>" for rule in RULES if rule.of == of)
        lines.append(f"<{SHAPE}{of}> a sh:NodeShape ; sh:targetClass {of} ; sh:property {named} .")
    lines += [_shape(rule) for rule in RULES]
    return "\n".join(lines) + "\n"


@cache
def fields() -> dict[str, str]:
    """Where a definition says what a rule asks for, by the rule's name."""
    return {rule.name: rule.field for rule in RULES if rule.field}


@cache
def shapes_sha256() -> str:
    """SHA-256 of the shapes: which rules a report was made by."""
    return hashlib.sha256(shapes().encode()).hexdigest()


def _shape(rule: Rule) -> str:
    count = f"sh:minCount {rule.low} ; " if rule.low else ""
    count += f"sh:maxCount {rule.high} ; " if rule.high is not MANY else ""
    return (
        f"<{SHAPE}{rule.name}> a sh:PropertyShape ; sh:path {rule.path} ; "
        f"{count}{_KINDS[rule.kind]}sh:severity sh:{rule.severity} ."
    )
