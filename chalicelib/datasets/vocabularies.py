"""The value lists of the EU Publications Office that a definition may name, by code or by IRI.

Compiled on SNAPSHOT, as far as open data needs them: licences of software and languages that are rare in open data are
left out. The lists live at http://publications.europa.eu/resource/authority/ ; the publisher types are ADMS's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

SNAPSHOT = "2026-11-29"
AUTHORITY = "http://publications.europa.eu/resource/authority/"


@dataclass(frozen=True)
class Vocabulary:
    """A closed list of codes with the IRI they stand under; ``others`` are further spellings of a code."""

    name: str
    base: str
    codes: frozenset[str]
    others: Mapping[str, str]
    names: Mapping[str, str]
    """What people say for a code: no value of it, but a hint."""

    def code(self, text: str) -> str:
        """The code for a code, an IRI of the list or another known spelling; ValueError names the nearest."""
        key = _key(text.strip().removeprefix(self.base))
        if found := self._keys.get(key):
            return found
        hints = self._keys | {_key(name): code for name, code in self.names.items()}
        nearest = get_close_matches(key[:80], hints, n=1)
        hint = f"Did you mean {hints[nearest[0]]}?" if nearest else f"One of them is {min(self.codes)}."
        raise ValueError(f"{text[:80]!r} isn't in the EU's list of {self.name} ({self.base}). {hint}")

    def iri(self, code: str) -> str:
        """The IRI of a code."""
        return self.base + code

    @cached_property
    def _keys(self) -> dict[str, str]:
        return {_key(code): code for code in self.codes} | {_key(other): code for other, code in self.others.items()}


def _key(text: str) -> str:
    """What two spellings of one value have in common: ``CC-BY 4.0`` and ``CC_BY_4_0`` are the same licence."""
    text = re.sub(r"^https?://(?:www\.)?|/(?:deed|legalcode)?(?:\.[a-z]{2})?$", "", text)
    return re.sub(r"[^A-Z0-9]", "", text.upper())


def _vocabulary(
    name: str,
    folder: str,
    codes: str,
    others: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
) -> Vocabulary:
    base = folder if "//" in folder else f"{AUTHORITY}{folder}/"
    return Vocabulary(name, base, frozenset(codes.split()), others or {}, names or {})


THEMES = _vocabulary(
    "data themes",
    "data-theme",
    "AGRI ECON EDUC ENER ENVI GOVE HEAL INTR JUST OP_DATPRO REGI SOCI TECH TRAN",
)

ACCESS_RIGHTS = _vocabulary(
    "access rights", "access-right", "PUBLIC RESTRICTED NON_PUBLIC CONFIDENTIAL NORMAL SENSITIVE"
)

FREQUENCIES = _vocabulary(
    "frequencies",
    "frequency",
    """
    1MIN 5MIN 10MIN 15MIN 30MIN 12HRS ANNUAL ANNUAL_2 ANNUAL_3 AS_NEEDED BIDECENNIAL BIENNIAL BIHOURLY BIMONTHLY
    BIWEEKLY CONT DAILY DAILY_2 DECENNIAL HOURLY IRREG MONTHLY MONTHLY_2 MONTHLY_3 NEVER NOT_PLANNED OP_DATPRO OTHER
    QUADRENNIAL QUARTERLY QUINQUENNIAL TRIDECENNIAL TRIENNIAL TRIHOURLY UNKNOWN UPDATE_CONT WEEKLY WEEKLY_2 WEEKLY_3
    """,
)

LICENCES = _vocabulary(
    "licences",
    "licence",
    """
    CC0 CC_PDM_1_0
    CC_BY CC_BYSA CC_BYND CC_BYNC CC_BYNCSA
    CC_BY_4_0 CC_BYSA_4_0 CC_BYND_4_0 CC_BYNC_4_0 CC_BYNCSA_4_0 CC_BYNCND_4_0
    CC_BY_3_0 CC_BYSA_3_0 CC_BYND_3_0 CC_BYNC_3_0 CC_BYNCSA_3_0 CC_BYNCND_3_0
    CC_BY_2_5 CC_BYSA_2_5 CC_BYND_2_5 CC_BYNC_2_5 CC_BYNCSA_2_5 CC_BYNCND_2_5
    CC_BY_2_0 CC_BYSA_2_0 CC_BYND_2_0 CC_BYNC_2_0 CC_BYNCSA_2_0 CC_BYNCND_2_0
    CC_BY_3_0_AT CC_BY_3_0_NL CC_BYSA_3_0_NL
    ODC_BY ODC_BL ODC_PDDL GNU_FDL GNU_FDL_1_3 COM_REUSE PSEUL HROD
    DLDE_BY_1_0 DLDE_BY_2_0 DLDE_BYNC_1_0 DLDE_ZERO_2_0 IODL_1_0 IODL_2_0 NLOD_1_0
    OGL_1_0 OGL_2_0 OGL_3_0 OGL_NC OGL_ROU_1_0
    EUPL_1_0 EUPL_1_1 EUPL_1_2 APACHE_2_0 OP_DATPRO
    """,
    {
        "CC0 1.0": "CC0",
        "creativecommons.org/publicdomain/zero/1.0/": "CC0",
        "creativecommons.org/publicdomain/mark/1.0/": "CC_PDM_1_0",
        "ODbL 1.0": "ODC_BL",
        "ODC-ODbL": "ODC_BL",
        "opendatacommons.org/licenses/odbl/1-0/": "ODC_BL",
        "opendatacommons.org/licenses/by/1-0/": "ODC_BY",
        "opendatacommons.org/licenses/pddl/1-0/": "ODC_PDDL",
        "govdata.de/dl-de/by-2-0": "DLDE_BY_2_0",
        "govdata.de/dl-de/zero-2-0": "DLDE_ZERO_2_0",
        "nationalarchives.gov.uk/doc/open-government-licence/version/3/": "OGL_3_0",
    }
    | {
        f"creativecommons.org/licenses/{'-'.join(kind)}/{major}.{minor}/": f"CC_{''.join(kind).upper()}_{major}_{minor}"
        for kind in (("by",), ("by", "sa"), ("by", "nd"), ("by", "nc"), ("by", "nc", "sa"), ("by", "nc", "nd"))
        for major, minor in ((4, 0), (3, 0), (2, 5), (2, 0))
    },
)

# The list's codes are ISO 639-3; people know the two letters of ISO 639-1, which are taken as well.
_LANGUAGES = """
    bg:BUL hr:HRV cs:CES da:DAN nl:NLD en:ENG et:EST fi:FIN fr:FRA de:DEU el:ELL hu:HUN ga:GLE it:ITA lv:LAV lt:LIT
    mt:MLT pl:POL pt:POR ro:RON sk:SLK sl:SLV es:SPA sv:SWE
    sq:SQI hy:HYE az:AZE eu:EUS be:BEL bs:BOS br:BRE ca:CAT co:COS cy:CYM fo:FAO fy:FRY gd:GLA gl:GLG ka:KAT is:ISL
    kl:KAL lb:LTZ mk:MKD nb:NOB nn:NNO no:NOR oc:OCI rm:ROH ru:RUS se:SME sr:SRP tr:TUR uk:UKR yi:YID
    ar:ARA fa:FAS he:HEB hi:HIN id:IND ja:JPN ko:KOR la:LAT th:THA vi:VIE zh:ZHO
"""
_NAMES = """
    Bulgarian:BUL Croatian:HRV Czech:CES Danish:DAN Dutch:NLD English:ENG Estonian:EST Finnish:FIN French:FRA German:DEU
    Deutsch:DEU Greek:ELL Hungarian:HUN Irish:GLE Italian:ITA Latvian:LAV Lithuanian:LIT Maltese:MLT Polish:POL
    Portuguese:POR Romanian:RON Slovak:SLK Slovenian:SLV Spanish:SPA Swedish:SWE
    Albanian:SQI Armenian:HYE Azerbaijani:AZE Basque:EUS Belarusian:BEL Bosnian:BOS Breton:BRE Catalan:CAT Corsican:COS
    Welsh:CYM Faroese:FAO Frisian:FRY Galician:GLG Georgian:KAT Icelandic:ISL Luxembourgish:LTZ Macedonian:MKD
    Norwegian:NOR Occitan:OCI Romansh:ROH Russian:RUS Serbian:SRP Turkish:TUR Ukrainian:UKR Yiddish:YID
    Arabic:ARA Persian:FAS Hebrew:HEB Hindi:HIN Indonesian:IND Japanese:JPN Korean:KOR Latin:LAT Thai:THA
    Vietnamese:VIE Chinese:ZHO
"""
_TWO_LETTERS, _SAID = (dict(pair.split(":") for pair in pairs.split()) for pairs in (_LANGUAGES, _NAMES))
LANGUAGES = _vocabulary("languages", "language", " ".join(_TWO_LETTERS.values()), _TWO_LETTERS, _SAID)

PUBLISHER_TYPES = _vocabulary(
    "publisher types",
    "http://purl.org/adms/publishertype/",
    """
    Academia-ScientificOrganisation Company IndustryConsortium LocalAuthority NationalAuthority
    NonGovernmentalOrganisation NonProfitOrganisation PrivateIndividual(s) RegionalAuthority StandardisationBody
    SupraNationalAuthority
    """,
)

FILE_TYPES = {
    "csv": f"{AUTHORITY}file-type/CSV",
    "csv-excel": f"{AUTHORITY}file-type/CSV",
    "geojson": f"{AUTHORITY}file-type/GEOJSON",
    "json": f"{AUTHORITY}file-type/JSON",
    "jsonl": f"{AUTHORITY}file-type/JSON",  # a sequence of JSON texts: the list has nothing nearer
    "xml": f"{AUTHORITY}file-type/XML",
}

MEDIA_TYPES = {"text/csv", "application/json", "application/xml", "application/geo+json"}
"""Those of our files that IANA has, which are all that DCAT-AP takes; nobody has registered application/jsonl."""
