"""A dataset's entry: what its publisher said and what was measured of its files, as DCAT-AP 3.0.1.

Pure: the same definition and facts give the same bytes, in any process, at any time.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rdflib import RDF, XSD, Graph, Literal, Namespace, URIRef
from rdflib.term import Node

from chalicelib.datasets import vocabularies as eu
from chalicelib.datasets.dates import datatype_of
from chalicelib.datasets.definition import Definition, Publisher

from .rdf import PREFIXES, documents, ntriples, read, typed

ADMS, DCAT, DCATAP, DCT, FOAF, SPDX, VCARD = (
    Namespace(PREFIXES[name]) for name in ("adms", "dcat", "dcatap", "dct", "foaf", "spdx", "vcard")
)
PROFILE = "https://semiceu.github.io/DCAT-AP/releases/3.0.1"
MEDIA_TYPES = "https://www.iana.org/assignments/media-types/"
CHANGE = "http://purl.org/adms/changetype/"

_SENTENCES = {  # what an entry says by itself of a file and of a version, in the languages of its title
    "en": ("{format} file; records: {records}, columns: {columns}.", "Version {version}; records: {records}."),
    "de": ("{format}-Datei; Datensätze: {records}, Spalten: {columns}.", "Version {version}; Datensätze: {records}."),
    "fr": (
        "Fichier {format} ; enregistrements : {records}, colonnes : {columns}.",
        "Version {version} ; enregistrements : {records}.",
    ),
    "it": ("File {format}; record: {records}, colonne: {columns}.", "Versione {version}; record: {records}."),
    "es": ("Archivo {format}; registros: {records}, columnas: {columns}.", "Versión {version}; registros: {records}."),
    "nl": ("{format}-bestand; records: {records}, kolommen: {columns}.", "Versie {version}; records: {records}."),
}
_NAMES = {
    "csv": "CSV",
    "csv-excel": "CSV, Excel",
    "geojson": "GeoJSON",
    "json": "JSON",
    "jsonl": "JSON Lines",
    "xml": "XML",
}


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """A published file, measured after it was stored. ``url`` is this version's file, ``access_url`` where it's got.

    ``compress`` is the media type of what wraps it, ``conforms_to`` the schemas and standards that it follows.
    """

    format: str
    media_type: str
    bytes: int
    sha256: str
    url: str
    access_url: str
    compress: str | None = None
    conforms_to: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a publication knows besides the definition. Times are aware; ``base_url`` is PUBLIC_URL."""

    dataset_id: str
    version: int
    previous_version: int | None
    first_issued: datetime
    issued: datetime
    modified: datetime
    files: Sequence[FileFacts]
    records: int
    columns: int
    base_url: str

    @property
    def dataset_iri(self) -> str:
        """The dataset's IRI, which is also its graph's name."""
        return f"{self.base_url}/datasets/{self.dataset_id}"


@dataclass(frozen=True)
class Rendered:
    """An entry: ``documents`` by name (nt, ttl, rdf, jsonld), the count of triples, SHA-256 of the canonical form."""

    documents: Mapping[str, str]
    triples: int
    sha256: str

    @property
    def ntriples(self) -> bytes:
        """The canonical form: sorted ASCII N-Triples without blank nodes."""
        return self.documents["nt"].encode("ascii")


def render(definition: Definition, facts: Facts) -> Rendered:
    """The dataset's entry. Raises ``rdf.Unwritable`` rather than write what a reader couldn't take."""
    return _rendered(_Entry(definition, facts).graph)


def relink(entry: bytes, dataset_iri: str, withdrawn: int, previous: int | None) -> Rendered:
    """A stored entry whose links to a withdrawn version lead to the one before it, or go; every other triple stays."""
    graph, base = read(entry), f"{dataset_iri}/versions/"
    for predicate in (DCAT.hasVersion, DCAT.previousVersion):
        for subject in list(graph.subjects(predicate, URIRef(f"{base}{withdrawn}"))):
            graph.remove((subject, predicate, URIRef(f"{base}{withdrawn}")))
            if previous is not None:
                graph.add((subject, predicate, URIRef(f"{base}{previous}")))
    return _rendered(graph)


def _rendered(graph: Graph) -> Rendered:
    canonical = ntriples(graph).encode("ascii")
    every = documents(read(canonical))  # once, from the canonical form: what is served is what was checked
    return Rendered(every, canonical.count(b"\n"), hashlib.sha256(canonical).hexdigest())


class _Entry:
    """The graph under construction; every node is an IRI, those of parts are fragments of the dataset's."""

    def __init__(self, definition: Definition, facts: Facts):
        self.graph = Graph()
        self.definition = definition
        self.facts = facts
        self.iri = URIRef(facts.dataset_iri)
        self.version = URIRef(f"{self.iri}/versions/{facts.version}")
        self.languages = [URIRef(eu.LANGUAGES.iri(code)) for code in definition.languages]
        self._dataset()
        self._version()
        self._record()
        for file in facts.files:
            self._distribution(file)

    def _dataset(self) -> None:
        said, facts = self.definition, self.facts
        self._say(self.iri, RDF.type, DCAT.Dataset)
        self._say(self.iri, DCT.title, *_texts(said.title))
        self._say(self.iri, DCT.description, *_texts(said.description))
        self._say(self.iri, DCT.identifier, *(Literal(each) for each in said.identifiers or [self.iri]))
        self._say(
            self.iri, DCAT.keyword, *(Literal(word, lang=tag) for tag, words in said.keywords.items() for word in words)
        )
        self._say(self.iri, DCAT.theme, *(listed(eu.THEMES, theme) for theme in said.themes))
        self._say(self.iri, DCT.language, *self.languages)
        self._say(self.iri, DCT.publisher, self._publisher())
        self._say(self.iri, DCAT.contactPoint, self._contact())
        self._say(self.iri, DCT.accessRights, URIRef(eu.ACCESS_RIGHTS.iri(said.access_rights)))
        self._say(self.iri, DCT.spatial, *map(URIRef, said.spatial))
        if said.temporal:
            self._say(self.iri, DCT.temporal, self._period())
        if said.frequency:
            self._say(self.iri, DCT.accrualPeriodicity, URIRef(eu.FREQUENCIES.iri(said.frequency)))
        if said.landing_page:
            self._say(self.iri, DCAT.landingPage, URIRef(said.landing_page))
        self._say(self.iri, DCT.conformsTo, *map(URIRef, said.conforms_to))
        self._say(self.iri, DCT.issued, _time(facts.first_issued))
        self._say(self.iri, DCT.modified, _time(facts.modified))

    def _version(self) -> None:
        facts = self.facts
        notes = [Literal(text, lang=tag) for tag, text in self._sentences(1)]
        self._say(self.iri, DCAT.version, Literal(str(facts.version)))
        self._say(self.iri, ADMS.versionNotes, *notes)
        self._say(self.iri, DCAT.hasVersion, self.version)
        self._say(self.iri, DCAT.hasCurrentVersion, self.version)
        # Not a dcat:Dataset: a harvester would count two.
        self._say(self.version, RDF.type, DCAT.Resource)
        self._say(self.version, DCAT.version, Literal(str(facts.version)))
        self._say(self.version, DCAT.isVersionOf, self.iri)
        self._say(self.version, DCT.issued, _time(facts.issued))
        self._say(self.version, ADMS.versionNotes, *notes)
        if facts.previous_version is not None:
            previous = URIRef(f"{self.iri}/versions/{facts.previous_version}")
            self._say(self.version, DCAT.previousVersion, previous)
            self._say(self.iri, DCAT.hasVersion, previous)

    def _record(self) -> None:
        """The entry about the entry, which claims the profile for the metadata; the data may conform to anything.

        The claim is written before the check, because what is checked is what is stored: an entry that doesn't pass
        the check must not be published.
        """
        facts, record = self.facts, self.iri + "#record"
        self._say(record, RDF.type, DCAT.CatalogRecord)
        self._say(record, FOAF.primaryTopic, self.iri)
        self._say(record, DCT.conformsTo, URIRef(PROFILE))
        self._say(record, DCT.issued, _time(facts.first_issued))
        self._say(record, DCT.modified, _time(facts.modified))
        self._say(record, ADMS.status, URIRef(CHANGE + ("created" if facts.previous_version is None else "updated")))

    def _distribution(self, file: FileFacts) -> None:
        said, facts = self.definition, self.facts
        fragment = f"{file.format}-gz" if file.compress else file.format
        distribution, checksum = self.iri + f"#{fragment}", self.iri + f"#{fragment}-checksum"
        name = _NAMES[file.format] + (", gzip" if file.compress else "")
        self._say(self.iri, DCAT.distribution, distribution)
        self._say(distribution, RDF.type, DCAT.Distribution)
        self._say(distribution, DCT.title, *(Literal(f"{text} ({name})", lang=tag) for tag, text in said.title.items()))
        self._say(
            distribution, DCT.description, *(Literal(text, lang=tag) for tag, text in self._sentences(0, format=name))
        )
        self._say(distribution, DCAT.accessURL, URIRef(file.access_url))
        self._say(distribution, DCAT.downloadURL, URIRef(file.url))
        self._say(distribution, DCT["format"], URIRef(eu.FILE_TYPES[file.format]))
        media_type = file.media_type.partition(";")[0].strip()
        if media_type in eu.MEDIA_TYPES:
            self._say(distribution, DCAT.mediaType, URIRef(MEDIA_TYPES + media_type))
        if file.compress:
            self._say(distribution, DCAT.compressFormat, URIRef(MEDIA_TYPES + file.compress))
        self._say(distribution, DCT.conformsTo, *map(URIRef, file.conforms_to))
        self._say(distribution, DCAT.byteSize, typed(str(file.bytes), XSD.nonNegativeInteger))
        self._say(distribution, SPDX.checksum, checksum)
        self._say(checksum, RDF.type, SPDX.Checksum)
        self._say(checksum, SPDX.algorithm, SPDX.checksumAlgorithm_sha256)
        self._say(checksum, SPDX.checksumValue, typed(file.sha256.lower(), XSD.hexBinary))
        self._say(distribution, DCT.license, listed(eu.LICENCES, said.licence))  # DCAT-AP: here, not on the dataset
        self._say(distribution, DCT.rights, URIRef(eu.ACCESS_RIGHTS.iri(said.access_rights)))
        self._say(distribution, ADMS.status, URIRef(f"{eu.AUTHORITY}distribution-status/COMPLETED"))
        self._say(distribution, DCATAP.availability, URIRef(f"{eu.AUTHORITY}planned-availability/STABLE"))
        self._say(distribution, DCT.language, *self.languages)
        self._say(distribution, DCT.issued, _time(facts.issued))
        self._say(distribution, DCT.modified, _time(facts.modified))

    def _publisher(self) -> URIRef:
        publisher = self.definition.publisher
        agent = URIRef(publisher.iri) if publisher.iri else self.iri + "#publisher"
        say_agent(self.graph, agent, publisher)
        return agent

    def _contact(self) -> URIRef:
        contact = self.iri + "#contact"
        self._say(contact, RDF.type, VCARD.Organization, VCARD.Kind)  # portals without reasoning look for Kind
        self._say(contact, VCARD.fn, *_texts(self.definition.contact.name))
        self._say(contact, VCARD.hasEmail, URIRef(f"mailto:{self.definition.contact.email}"))
        return contact

    def _period(self) -> URIRef:
        temporal, period = self.definition.temporal, self.iri + "#period"
        self._say(period, RDF.type, DCT.PeriodOfTime)
        if temporal:
            self._say(period, DCAT.startDate, typed(temporal.start, XSD[datatype_of(temporal.start)]))
        if temporal and temporal.end:
            self._say(period, DCAT.endDate, typed(temporal.end, XSD[datatype_of(temporal.end)]))
        return period

    def _sentences(self, which: int, **more: str) -> list[tuple[str, str]]:
        """A sentence in each language of the title that there is one for; English if there is none."""
        known = [tag for tag in self.definition.title if tag.split("-")[0] in _SENTENCES] or ["en"]
        facts = {"records": self.facts.records, "columns": self.facts.columns, "version": self.facts.version} | more
        return [(tag, _SENTENCES[tag.split("-")[0]][which].format_map(facts)) for tag in known]

    def _say(self, subject: URIRef, predicate: URIRef, *values: Node) -> None:
        for value in values:
            self.graph.add((subject, predicate, value))


def say_agent(graph: Graph, agent: URIRef, publisher: Publisher) -> None:
    """An organisation, its names and kind; also typed foaf:Agent, which portals without reasoning look for."""
    graph.add((agent, RDF.type, FOAF.Organization))
    graph.add((agent, RDF.type, FOAF.Agent))
    for name in _texts(publisher.name):
        graph.add((agent, FOAF.name, name))
    if publisher.type:
        graph.add((agent, DCT.type, URIRef(eu.PUBLISHER_TYPES.iri(publisher.type))))


def _texts(texts: Mapping[str, str]) -> list[Literal]:
    return [Literal(text, lang=tag) for tag, text in texts.items()]


def listed(vocabulary: eu.Vocabulary, value: str) -> URIRef:
    """The IRI of a code of the list; an IRI of somebody else's list as it is."""
    return URIRef(vocabulary.iri(value) if value in vocabulary.codes else value)


def _time(moment: datetime) -> Literal:
    """One form for every time: UTC, whole seconds, Z."""
    return typed(moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), XSD.dateTime)
