"""Files as an office writes them: the dialect that is found, the types, and the place of whatever doesn't fit."""

import codecs
import hashlib

import pytest

from chalicelib.exports.dialects import SAMPLE, Undecided, look
from chalicelib.exports.files import Dialect, FileFault, Raw, Reading, converter, takes


@pytest.fixture
def file(tmp_path):
    def write(content, name="data.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    return write


def types(seen):
    return {column.name: column.type for column in seen.columns}


def records(content, **dialect):
    content = content if isinstance(content, bytes) else content.encode()
    return [dict(record) for _, record in Reading([content], Dialect(**dialect))]


# Found and shown


TREES = 'Nr;Art;Höhe;gepflanzt\r\n1;Bergahorn;12,5;01.04.1987\r\n2;"Linde; groß";8,0;15.11.2003\r\n3;;;\r\n'


def test_an_offices_csv_is_read_as_it_was_meant(file):
    path = file(TREES, encoding="cp1252")

    seen = look(path, {})

    assert seen.dialect == Dialect(encoding="windows-1252", delimiter=";", decimal=",", date="DD.MM.YYYY")
    assert types(seen) == {"Nr": "integer", "Art": "text", "Höhe": "decimal", "gepflanzt": "date"}
    assert [column.nulls for column in seen.columns] == [0, 1, 1, 1]
    assert seen.records == 3
    assert (seen.bytes, seen.sha256) == (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (TREES.encode(), "utf-8"),
        (codecs.BOM_UTF8 + TREES.encode(), "utf-8"),
        (codecs.BOM_UTF8 * 3 + TREES.encode(), "utf-8"),
        (codecs.BOM_UTF16_LE * 2 + TREES.encode("utf-16-le"), "utf-16"),
        (TREES.encode("utf-16"), "utf-16"),
        (codecs.BOM_UTF16_BE + TREES.encode("utf-16-be"), "utf-16"),
        (TREES.encode("utf-16-le"), "utf-16-le"),
        (TREES.encode("utf-16-be"), "utf-16-be"),
        (TREES.replace("groß", "groß “alt” – €").encode("cp1252"), "windows-1252"),
        (TREES.encode("latin-1"), "windows-1252"),  # the same bytes
        (b"a;b\n1;2\n", "utf-8"),
    ],
)
def test_the_encoding_is_found_and_a_mark_is_no_part_of_the_header(file, content, encoding):
    seen = look(file(content), {})

    assert seen.dialect.encoding == encoding
    assert seen.columns[0].name in ("Nr", "a")
    assert seen.dialect.delimiter == ";"


SENTENCES = {
    "iso-8859-2": [
        "Łódź i Żyrardów nad rzeką, ulica Święty Krzyż, gęś",
        "Wrocław, ulica Świdnicka 5",
        "Drzewa rosną przy ulicy Długiej.",
        "Příliš žluťoučký kůň úpěl ďábelské ódy, Náměstí Míru",
        "Ulice byla včera uzavřena kvůli opravě.",
        "Náměstí Republiky",
        "Průměr kmene je větší.",
        "Košice sú druhé najväčšie mesto na Slovensku.",
        "Árvíztűrő tükörfúrógép",
        "A kerületben hétfőn új fákat ültettek.",
        "Čaršija i žuta kuća u Šibeniku",
        "Škofja Loka",
        "Oraşul are o grădină publică şi două şcoli.",
        "O ţară între munţi şi câmpie, cu păduri",
    ],
    "iso-8859-5": [
        "Москва, улица Ленина, деревья и кустарники города",
        "МОСКВА, УЛИЦА САДОВАЯ",
        "В парке растут старые липы.",
        "Зелена површина у центру града.",
    ],
    "iso-8859-7": [
        "Αθήνα, οδός Ερμού, δέντρα και θάμνοι της πόλης",
        "Το δέντρο είναι ψηλό.",
        "Θεσσαλονίκη",
    ],
    "windows-1252": [
        *("20°C", "10 €", "ü", "é", "Ø 12", "120 m³/h", "5 Nm³", "5 µg", "½ l", "±5 %", "§ 3", "×", "©2024", "Lego®"),
        *(
            "Wert¹ und Menge²",
            "«Été»",
            "¿Qué?",
            "¡Hola!",
            "¡hola!",
            "Nº 5",
            "1ª",
            "£3m",
            "ÄÖÜ äöü ß",
            "éèêë àâ ùûü ïîô ç",
        ),
        *("Stra¿e, M¿ller", "Müllerstraße groß Grüße, Äpfel und Öl", "Übergröße ÄÖÜ", "Zürich; sûr; été"),
        *("Forêt, château, garçon, élève à l'école naïve", "L'été à Nîmes", "Île-de-France, août", "Électricité"),
        *(
            "Não há órgãos",
            "AÇÃO SOCIAL",
            "corações",
            "São Paulo",
            "El Niño, pingüino, ¿cuándo?",
            "Forlì, Cantù, perché",
        ),
        *("Malmö, Åre, träd och buskar på ängen", "Smørrebrød på Ærø", "Þingvellir, Garðabær, Höfn í Hornafirði"),
        *("Põlva, Tõrva, öö", "määrittämätön", "Sørvágur, Tórshavn", "Môn a Llÿn", "Màlaga, Cádiz, A Coruña"),
    ],
}


@pytest.mark.parametrize(("encoding", "text"), [(name, text) for name, texts in SENTENCES.items() for text in texts])
@pytest.mark.parametrize("rows", [1, 30])
def test_another_encoding_of_one_byte_a_character_is_found_by_its_words(file, encoding, text, rows):
    path = file("id\ttext\n" + "".join(f"{n}\t{text}\n" for n in range(rows)), encoding=encoding)

    assert look(path, {}).dialect.encoding == encoding


def test_a_few_lines_of_another_language_change_no_encoding(file):
    western = "".join(f"{n}\tStraße in Köln\n" for n in range(30))

    assert look(file(f"id\ttext\n{western}x\tThái Mághdì\n", encoding="cp1252"), {}).dialect.encoding == "windows-1252"
    half = "x\tKošice\ny\t§ 3\n".replace("š", "¹") + "z\t© 2024\n"
    assert look(file(f"id\ttext\n{half}", encoding="cp1252"), {}).dialect.encoding == "windows-1252"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_known_by_the_ends_of_its_lines(file, encoding):
    content = "\n".join(["имя;город", *["Анна;Москва"] * 5])

    assert look(file(content, encoding=encoding), {}).dialect.encoding == encoding
    assert look(file(content[:9] + "\n", encoding=encoding), {}).dialect.encoding == encoding


@pytest.mark.parametrize("declared", ["windows-1252", "iso-8859-15"])
def test_next_months_file_in_utf_8_is_not_read_by_last_months_declaration(file, declared):
    for text in (TREES, "a;b\n1;€\n"):
        with pytest.raises(Undecided, match=rf"UTF-8, not {declared} as declared: .*--encoding utf-8"):
            look(file(text), {"encoding": declared})
    for text, encoding in ((TREES, declared), ("a;b\n1;2\n", "utf-8")):
        assert look(file(text, encoding=encoding), {"encoding": declared, "skip": 0}).dialect.encoding == declared


@pytest.mark.parametrize("encoding", ["iso-8859-1", "iso-8859-15", "windows-1252", "iso-8859-7"])
def test_a_declared_encoding_is_taken(file, encoding):
    path = file("a;b\n1;§\n".encode("latin-1"))

    assert look(path, {"encoding": encoding}).dialect.encoding == encoding


@pytest.mark.parametrize("delimiter", [";", ",", "\t", "|"])
def test_the_delimiter_is_the_one_that_gives_every_row_as_many_cells(file, delimiter):
    rows = [["id", "text", "n"], ["1", '"a, b; c"', "2"], ["2", "x y", "3"]]
    path = file("\n".join(delimiter.join(row) for row in rows))

    assert look(path, {}).dialect.delimiter == delimiter


def test_two_delimiters_that_fit_alike_are_for_the_operator_to_tell(file):
    with pytest.raises(Undecided, match="--delimiter"):
        look(file("a;b,c\n1;2,3\n"), {})

    assert look(file("a;b,c\n1;2,3\n"), {"delimiter": ";"}).columns[1].name == "b,c"


@pytest.mark.parametrize(
    ("content", "declared", "names"),
    [
        ("a,'x'\n1,'2'\n", {"quote": ";"}, ["a", "'x'"]),
        ("a;x\n1;2\n", {"quote": ","}, ["a", "x"]),
        ("a x\n1 2\n", {"quote": ","}, ["a x"]),
        ("a,'x'_\n1,'2'_\n", {"delimiter": "'"}, ["a,", "x", "_"]),
    ],
)
def test_what_is_declared_as_the_one_is_not_found_as_the_other(file, content, declared, names):
    assert [column.name for column in look(file(content), declared).columns] == names


def test_delimiter_and_quote_differ(file):
    with pytest.raises(Undecided, match="can't be the same: declare another --delimiter or --quote"):
        look(file("a;b\n1;2\n"), {"delimiter": ";", "quote": ";"})
    with pytest.raises(Undecided, match="can't be the same"):
        look(file("sep=;\na;b\n1;2\n"), {"quote": ";"})


def test_a_single_column_needs_no_delimiter(file):
    assert types(look(file("name\nx\ny z\n"), {})) == {"name": "text"}


def test_single_quotes_are_found(file):
    seen = look(file("'a';'b'\n'x;y';'it''s'\n"), {})

    assert seen.dialect.quote == "'"
    assert types(seen) == {"a": "text", "b": "text"}


def test_titles_above_the_header_are_skipped_and_counted(file):
    seen = look(file("Baumkataster 2024\n\nStand: Mai;;\na;b;c\n1;2;3\n4;5;6\n"), {})

    assert seen.dialect.skip == 3
    assert seen.records == 2
    assert types(seen) == dict.fromkeys("abc", "integer")


@pytest.mark.parametrize(
    ("content", "dialect", "columns", "first"),
    [
        ('"Einwohner\n2023";c\n1;2\n', {}, ["Einwohner\n2023", "c"], "1"),
        ('a;"Einwohner\r\n\r\n2023"\r\n1;2\r\n', {}, ["a", "Einwohner\r\n\r\n2023"], "1"),
        ("'Einwohner\n2023';'c'\n'1';'2'\n", {"quote": "'"}, ["Einwohner\n2023", "c"], "1"),
        ('"Bäume\nund; Sträucher"\n\n"a\nb";c\n1;2\n', {"skip": 2}, ["a\nb", "c"], "1"),
        ('"Bäume\n;;;\n;;;"\na;b\n1;2\n3;4\n', {"skip": 1}, ["a", "b"], "1"),
        ("Titel;;;\n;;;\na;b;c;d\n1;2;3;4\n", {"skip": 2}, ["a", "b", "c", "d"], "1"),
        ("a,b;c\n" + '"1\n,\n,\n,";2\n' * 9, {}, ["a,b", "c"], "1\n,\n,\n,"),
        (f'a;b\n"{"x" * 200_000}";2\n', {}, ["a", "b"], "x" * 200_000),
        ("\na;b\n1;2\n", {"skip": 1}, ["a", "b"], "1"),
        ("\na,b\n1,2\n", {"skip": 1, "delimiter": ","}, ["a", "b"], "1"),
        ("Trees of 2024\na,b\n1,2\n", {"skip": 1, "delimiter": ","}, ["a", "b"], "1"),
        ("Titel\nStand: Mai\na;b\n1;2\n", {"skip": 2}, ["a", "b"], "1"),
        ("sep=;\na;b\n1;2\n", {"skip": 1}, ["a", "b"], "1"),
        ('"sep=|"\r\na|b;c\r\n1|2;3\r\n', {"skip": 1, "delimiter": "|"}, ["a", "b;c"], "1"),
        ("sep=;\nname\nx, y\n", {"skip": 1}, ["name"], "x, y"),
    ],
)
def test_delimiter_quote_and_titles_are_found_by_rows_whatever_lines_they_have(file, content, dialect, columns, first):
    path = file(content)

    seen = look(path, {})

    assert seen.dialect == Dialect(**{"delimiter": ";", **dialect})
    assert [column.name for column in seen.columns] == columns
    assert next(iter(Reading([path.read_bytes()], seen.dialect)))[1][columns[0]] == first


def test_rows_to_skip_are_declared_as_rows_too_and_lines_are_counted_on(file):
    path = file('"Titel\nzweite Zeile";\n\n"a\n1";b\n1;2\n3;4;5\n')

    with pytest.raises(FileFault, match="Line 7, column 3"):
        look(path, {"skip": 2})


@pytest.mark.parametrize(
    ("title", "said"),
    [
        ('"Bäume" von 2024', None),
        ('"Bäume"" von 2024"', None),
        ('"Bäume', "Line 1, column 1: a quoted cell begins here and never ends"),
        ('Mai;\n"Bäume', "Line 2, column 1: a quoted cell begins here and never ends"),
    ],
)
def test_a_title_is_skipped_however_it_is_quoted_unless_it_would_take_lines_with_it(file, title, said):
    path = file(f"{title}\na;b\n1;x\n2;y\n")

    if said:
        with pytest.raises(FileFault, match=said):
            look(path, {"skip": 1 + title.count("\n"), "delimiter": ";"})
    else:
        assert look(path, {}).dialect.skip == 1
        with pytest.raises(FileFault, match="Line 5, column 3"):
            look(file(f"{title}\na;b\n1;x\n2;y\n3;4;5\n"), {})
    with pytest.raises(FileFault, match="Line 1, column 1: something follows"):
        look(file('"Bäume\na;b\n1;"x"\n2;y\n'), {"skip": 1, "delimiter": ";"})


SHORT = ("name\nMüller;Hans\n", "name\nMüller,Hans\nMeier,Eva\n")


def test_a_single_column_of_prose_is_not_a_title_above_two_columns(file):
    for content in ("name\nMüller, Hans\nMeier, Eva\n", "Wert\n-1,5\n2,5\n", "Wert\n1.000;5\n2;5\n", *SHORT):
        with pytest.raises(Undecided, match=r"single column .* --skip 1, or else another --delimiter"):
            look(file(content), {})
    path = file("name\nMüller, Hans\nMeier, Eva\n")
    assert types(look(path, {"delimiter": ";"})) == {"name": "text"}
    assert types(look(path, {"skip": 1})) == {"Müller": "text", "Hans": "text"}
    assert types(look(file("Titel\nLand;2020\nA;1\n"), {})) == {"Land": "text", "2020": "integer"}
    assert types(look(file("name, first\nMüller, Hans\n"), {})) == {"name": "text", "first": "text"}


def test_apostrophes_at_the_beginning_of_cells_are_no_quotes(file):
    path = file("id;place;near\n1;'s-Gravenhage;'t Gooi\n2;'s-Hertogenbosch;'t Veld\n")

    assert look(path, {}).dialect.quote == '"'
    assert next(iter(Reading([path.read_bytes()], Dialect(delimiter=";"))))[1]["place"] == "'s-Gravenhage"


# Typed only if every cell comes back letter by letter


@pytest.mark.parametrize(
    ("cells", "type_"),
    [
        (["1", "-2", "0", "9223372036854775807", "-9223372036854775808"], "integer"),
        (["9223372036854775808"], "decimal"),
        (["01067", "10115"], "text"),  # postcodes
        (["+1"], "text"),
        (["-0"], "text"),
        (["1 000"], "text"),
        (["1", "1.50"], "decimal"),
        (["1.", "2.5"], "text"),
        ([".5"], "text"),
        (["-0.0"], "text"),
        (["1e5"], "text"),
        (["NaN"], "text"),
        (["٣"], "text"),  # a digit elsewhere
        (["1.500", "20.300"], "text"),  # thousands or decimals: nobody can tell
        (["1.500", "20.3"], "decimal"),
        (["true", "false"], "boolean"),
        (["TRUE"], "text"),
        (["ja", "nein"], "text"),
        (["2024-02-29", "0001-01-01"], "date"),
        (["2024-02-30"], "text"),
        (["2024-2-9"], "text"),
        (["2024-02-29T23:59:59", "2024-01-01T00:00:00"], "timestamp"),
        (["2024-02-29T23:59:59", "2024-01-01 00:00:00"], "text"),
        (["2024-01-01T24:00:00"], "text"),
        (["2024-01-01T10:00:00Z"], "text"),
        (["", ""], "text"),
        (["5", "", "7"], "integer"),
        (["5", "n/a"], "text"),
        ([" 5"], "text"),
    ],
)
def test_a_columns_type(file, cells, type_):
    assert types(look(file("x\tc\n" + "".join(f"k\t{cell}\n" for cell in cells)), {}))["c"] == type_


def test_dates_that_two_formats_fit_stay_text_until_one_is_declared(file):
    path = file("a;b\n01/02/2024;x\n03/04/2024;y\n")

    assert types(look(path, {}))["a"] == "text"
    assert types(look(path, {"date": "DD/MM/YYYY"}))["a"] == "date"
    assert types(look(file("a;b\n01/02/2024;x\n31/04/2024;y\n30/04/2024;y\n"), {}))["a"] == "text"  # no 31 April
    assert look(file("a;b\n01/02/2024;x\n30/04/2024;y\n"), {}).dialect.date == "DD/MM/YYYY"


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        (["1", "7,5", "1.234,50", "12.345,67"], "numbers with thousands separators (1.234,50)"),
        (["1.500", "20.300", "7"], "numbers with thousands separators (1.500)"),
        (["1'234'567.5"], "numbers with thousands separators (1'234'567.5)"),
        (["1 000", "", "5"], "numbers with thousands separators (1 000)"),
        (["24.691,34-"], "numbers with thousands separators (24.691,34-)"),
        (["5,1", "24,34-"], "numbers with a minus behind (24,34-)"),
        (["12,5%", "3 %"], "numbers with a percent sign (12,5%)"),
        (["1.234,50", "n/a"], None),
        (["n/a", "1.234,50"], None),
        (["1.234.50"], None),
        (["1.234,567.8"], None),
        (["01.500"], None),
        (["1.500", "20.3"], None),  # decimals
        (["01067", "10115"], None),
        (["01.02.2024"], None),
    ],
)
def test_numbers_that_stay_text_for_how_they_are_written_are_told(file, cells, what):
    content = "x\tc\n" + "".join(f"k\t{cell}\n" for cell in cells)

    assert look(file(content), {}).look_like == ({"c": what} if what else {})


def test_a_declared_mark_and_json_say_what_was_meant(file):
    assert look(file("a;b\n1.500;x\n"), {"decimal": "."}).look_like == {}
    assert look(file('{"a": "1.234,50"}\n', "data.jsonl"), {}).look_like == {}


def test_one_decimal_mark_holds_for_the_file(file):
    path = file("a;b;c\n1,5;2,5;1.5\n")

    seen = look(path, {})
    assert (seen.dialect.decimal, types(seen)) == (",", {"a": "decimal", "b": "decimal", "c": "text"})
    assert types(look(path, {"decimal": "."})) == {"a": "text", "b": "text", "c": "decimal"}
    undecided = look(file("a;b\n1,5;1.5\n"), {})
    assert (undecided.dialect.decimal, set(types(undecided).values())) == ("", {"text"})


def test_a_declared_mark_decides_what_looks_like_thousands(file):
    assert types(look(file("a;b\n1.500;x\n"), {"decimal": "."}))["a"] == "decimal"


def test_a_declared_date_format_may_look_like_a_number(file):
    path = file("day;n\n20240229;1\n20241231;2\n")

    assert types(look(path, {})) == {"day": "integer", "n": "integer"}
    assert types(look(path, {"date": "YYYYMMDD"})) == {"day": "date", "n": "integer"}
    assert types(look(file("day;n\n20240229;1\n20241331;2\n"), {"date": "YYYYMMDD"}))["day"] == "integer"


def test_null_is_an_empty_cell_or_what_is_declared_and_a_quoted_empty_cell_is_a_text():
    assert records('a,b\n,""\n"x",NA\n') == [{"a": None, "b": ""}, {"a": "x", "b": "NA"}]
    assert records('a,b\n,""\n"x",NA\n', null="NA") == [{"a": None, "b": ""}, {"a": "x", "b": None}]
    assert records("a,b\n,x\n", quote="") == [{"a": None, "b": "x"}]


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        ('"NA",NA,NA', ["NA", None, None]),
        ('NA,"NA","NA"', [None, "NA", "NA"]),
        ('"x ""NA"", y",NA,"NA"', ['x "NA", y', None, "NA"]),
        ('"\r\n""",NA,"NA"', ['\r\n"', None, "NA"]),
        ('x"NA",NA,', ['x"NA"', None, None]),
        (',"","NA"', [None, "", "NA"]),
    ],
)
def test_a_quoted_null_text_is_a_text_as_in_postgresqls_copy(row, cells):
    content = f'"a\n""NA""",b,c\n{row}\n"NA",NA,NA\n\n'

    assert [list(record.values()) for record in records(content, null="NA")] == [cells, ["NA", None, None]]


def test_the_null_text_is_known_beside_another_quote_and_none_and_with_a_quote_in_it():
    assert records("a,b\n'NA',NA\n", quote="'", null="NA") == [{"a": "NA", "b": None}]
    assert records('a,b\n"N""",N"\n', null='N"') == [{"a": 'N"', "b": None}]
    assert records('a,b\n"NA",NA\n', quote="", null="NA") == [{"a": '"NA"', "b": None}]


@pytest.mark.parametrize(
    ("type_", "dialect", "cell", "value"),
    [
        ("decimal", {"decimal": ","}, "-1,50", "-1.50"),
        ("text", {"decimal": ","}, "1,5", "1,5"),
        ("date", {"date": "DD.MM.YYYY"}, "29.02.2024", "2024-02-29"),
        ("date", {"date": "YYYYMMDD"}, "20240229", "2024-02-29"),
        ("date", {}, "2024-02-29", "2024-02-29"),
        ("json", {"format": "jsonl"}, "a", '"a"'),
        ("json", {"format": "jsonl"}, Raw("[1.50]"), "[1.50]"),
        ("text", {"format": "jsonl"}, Raw("1.50"), "1.50"),
    ],
)
def test_a_cell_as_postgresql_takes_it(type_, dialect, cell, value):
    assert converter(type_, Dialect(**dialect))(cell) == value


def test_any_column_may_be_declared_as_text_and_whole_numbers_as_decimal():
    assert takes("integer", "integer")
    assert takes("integer", "decimal")
    assert takes("date", "text")
    assert not takes("text", "integer")
    assert not takes("decimal", "integer")


# What doesn't fit is named


@pytest.mark.parametrize(
    ("content", "declared", "line", "column"),
    [
        ("a;b\n1;2\n3;gr\xfcn\n".encode("latin-1"), {"encoding": "utf-8"}, 3, 5),
        (b"a;b\n1;\x81\n", {"encoding": "windows-1252"}, 2, 3),
        (b"a;b\n1;\xae\n", {"encoding": "iso-8859-7"}, 2, 3),
        ("a;ü\n".encode() + b"\xc3", {}, 2, 1),
        (codecs.BOM_UTF16_LE + "a;b\n1;2\n".encode("utf-16-le") + b"\x00\xd8x\x00", {}, 3, 1),
        ("a;b\n1;2\n", {"encoding": "utf-16"}, 1, 1),
        ("a;b\n1;2\n1;2;3\n", {}, 3, 3),
        ("a;b;c\n1;2;3\n1;2\n", {}, 3, 3),
        ('a;b\n"x\ny";2\n1;2;3\n', {}, 4, 3),
        ("a;b\n1;2\n\n3;4\n", {}, 3, 1),
        ("a;;c\n1;2;3\n", {}, 1, 2),
        ("a;b\n", {"skip": 2}, 2, 1),
        ("", {}, 1, 1),
        ("\ufeffa;b\n1;2\n", {"encoding": "windows-1252"}, 1, 1),
        (codecs.BOM_UTF16_LE + "a;b\n1;2\n".encode("utf-16-le"), {"encoding": "utf-16-be"}, 1, 1),
        ("a;b;a\n1;2;3\n", {}, 1, 3),
        (f"a;{'x' * 10_001}\n1;2\n", {}, 1, 2),
        (f'{{"a": 1}}\n{{"{"x" * 10_001}": 1}}\n', {"format": "jsonl"}, 2, None),
        ("x\na;b; b \n1;2;3\n", {}, 2, 3),
        ("a;b\n1;x\0y\n", {}, 2, 4),
        ('a;b\n1;"x\n', {}, 2, 2),
        ('a;b;c\n1;"x;y\n', {}, 2, 2),
        ('a;b\n1;"x"y\n', {}, 2, 2),
        ('a;b;c\n1;2;3\n"x;""\ny";"z"y;3\n', {}, 3, 2),
        ('a;b;c\n"1;2";;"3\n', {"null": "-"}, 2, 3),
        ("a;b;c\n1;'2'3;4\n", {"quote": "'"}, 2, 2),
        ("a;b\n1;x\ry\n", {}, 2, 2),
        ('a;b;c\n\n1;"x\n', {}, 3, 2),
        ("a|b|c\n1|x\ry|2\n", {"delimiter": "|", "quote": ""}, 2, 2),
        (f"a;b\n{'x' * 4_194_305};2\n", {}, 2, 1),
    ],
)
def test_a_fault_has_its_line_and_column(file, content, declared, line, column):
    with pytest.raises(FileFault) as raised:
        look(file(content), {"delimiter": ";", **declared})

    assert (raised.value.line, raised.value.column) == (line, column)
    assert str(raised.value).startswith(f"Line {line}")


@pytest.mark.parametrize(
    ("content", "column", "said"),
    [
        ("a;b;\n1;2;\n3;4;\n", 3, "delete the empty column"),
        ("a;b; ;\n1;2;; \n3;4\n", 3, "delete the empty column"),
        ("a;b;\n1;2;\n3;4;x\n", 3, "a row of titles"),
        ("a;;c\n1;;2\n3;;4\n", 2, "a row of titles"),
        ('a;b;\n1;2;\n3;"4;\n', 3, "a row of titles"),
    ],
)
def test_an_empty_column_at_the_end_is_told_from_titles(file, content, column, said):
    with pytest.raises(FileFault, match=f"ine 1, column {column}: the header is empty.*{said}"):
        look(file(content), {"delimiter": ";", "skip": 0})


@pytest.mark.parametrize("name", ["data.csv", "data.jsonl"])
@pytest.mark.parametrize("declared", [{}, {"encoding": "utf-8"}, {"encoding": "windows-1252"}, {"encoding": "utf-16"}])
@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PK\x03\x04\x14\0\x06\0\x08\0\0\0!\0[Content_Types].xml", "an Excel workbook or another zip archive"),
        (bytes.fromhex("D0CF11E0A1B11AE1") + bytes(500), "an Excel workbook"),
    ],
)
def test_a_workbook_that_is_called_a_csv_is_told_for_what_it_is(file, content, what, declared, name):
    with pytest.raises(FileFault, match=f"ine 1, column 1: it is {what}, .*save it as CSV UTF-8"):
        look(file(content, name), declared)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("begins", ["<!DOCTYPE html>\n", "\r\n<html xmlns:x='urn:x'>", "<HTML>"])
def test_a_page_that_is_called_a_csv_is_told_for_what_it_is(file, begins, encoding):
    with pytest.raises(FileFault, match=r"it is an HTML page, .*save it as CSV UTF-8"):
        look(file(f"{begins}<body><table>\n<tr><td>1;2\n" * 9, encoding=encoding), {})
    assert records("<html_id>,b\n1,2\n") == [{"<html_id>": "1", "b": "2"}]


def test_a_broken_byte_in_a_file_of_utf_8_is_not_read_as_another_encoding(file):
    content = b"a;b\n" + "".join(f"{n};Bäume und Sträucher\n" for n in range(100)).encode() + b"x;\xfc\n"

    with pytest.raises(FileFault, match="0xFC can't be decoded as utf-8") as raised:
        look(file(content), {})
    assert (raised.value.line, raised.value.column) == (102, 3)


def test_the_last_byte_is_read_too(file):
    rows = "".join(f"{n};{'Baum ' * 50}{n}\n" for n in range(5_000))  # more than the part by which types are guessed

    assert len(rows) > SAMPLE
    assert look(file("n;name\n" + rows), {}).records == 5_000
    with pytest.raises(FileFault) as raised:
        look(file("n;name\n" + rows + "x;y;z\n"), {})
    assert raised.value.line == 5_002
    assert types(look(file("n;name\n" + rows + "x;y\n"), {}))["n"] == "text"


def test_blank_lines_at_the_end_are_nothing(file):
    assert look(file("a;b\n1;2\n\n\n"), {}).records == 1


@pytest.mark.parametrize(
    ("rows", "declared", "numbers"),
    [
        ("1;2\n;\n;\n", {}, (1, 0, 2)),
        ("1;2\n;\n;\n\n", {}, (1, 0, 2)),
        (";\n1;2\n;\n;\n3;\n;", {}, (5, 3, 1)),
        (";\n;\n", {}, (0, 0, 2)),
        ("1;2\n;\n", {"quote": ""}, (1, 0, 1)),
        ("NA;2\n;\n", {"null": "NA"}, (1, 0, 1)),
        ('1;2\n"";\n', {}, (2, 0, 0)),  # an empty text
        ("1;2\nNA;NA\n", {"null": "NA"}, (2, 0, 0)),
        ("1;2\n;x\n", {}, (2, 0, 0)),
    ],
)
def test_rows_without_a_filled_cell_are_no_records_at_the_end_and_counted_elsewhere(file, rows, declared, numbers):
    path = file("a;b\n" + rows)

    seen = look(path, {"delimiter": ";", **declared})

    assert (seen.records, seen.empty, seen.left_out) == numbers
    assert len(list(Reading([path.read_bytes()], seen.dialect, trimmed=True))) == seen.records
    assert len(list(Reading([path.read_bytes()], seen.dialect))) == seen.records + seen.left_out


def test_a_record_without_a_value_has_its_line_and_stands_where_it_stood():
    reading = Reading([b"a,b\n1,NA\n,\nNA,2\n,\n"], Dialect(null="NA"), trimmed=True)

    assert [(line, *record.values()) for line, record in reading] == [(2, "1", None), (3, None, None), (4, None, "2")]


def test_an_empty_line_of_a_single_column_is_an_empty_cell_at_the_end_too():
    assert len(list(Reading([b"a\n1\n\n"], Dialect(), trimmed=True))) == 2


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_pieces_may_end_anywhere(size, encoding, mark):
    content = (mark + TREES).encode(encoding)
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    dialect = Dialect(encoding="utf-16" if encoding == "utf-16" else "utf-8", delimiter=";")

    reading = Reading(pieces, dialect)
    assert [record["Art"] for _, record in reading] == ["Bergahorn", "Linde; groß", None]
    assert reading.columns[0] == "Nr"


# JSON Lines


def test_json_lines_keep_every_digit_and_know_strings_from_numbers(file):
    path = file(
        '{"id": 1, "plz": "01067", "h": 1.50, "ok": true, "tags": ["a", 0.10], "day": "2024-02-29", "mix": 1}\n'
        '{"id": 2, "h": 12345678901234567890.123456789, "ok": null, "mix": "x", "late": "\\u00fc"}\n',
        "trees.jsonl",
    )

    seen = look(path, {})

    assert (seen.dialect.as_json(), seen.records) == ({"format": "jsonl", "encoding": "utf-8"}, 2)
    assert types(seen) == {
        "id": "integer",
        "plz": "text",
        "h": "decimal",
        "ok": "boolean",
        "tags": "json",
        "day": "date",
        "mix": "json",
        "late": "text",
    }
    assert {column.name: column.nulls for column in seen.columns}["ok"] == 1
    first, second = records(path.read_bytes(), format="jsonl")
    assert (first["h"], first["tags"], second["h"]) == ("1.50", '["a", 0.10]', "12345678901234567890.123456789")
    assert second["late"] == "ü"


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("[1]", 1),
        ('{"a": 1', 8),
        ('{"a": 1} x', 10),
        ('{"a" 1}', 6),
        ('{"a": 1 "b": 2}', 9),
        ('{"a": 1, "a": 2}', 10),
        ('{"": 1}', 2),
        ('{"a": NaN}', 7),
        ('{"a": 01}', 8),
        ('{"a": "x\\u0000"}', 2),
        ('{"a": "\\ud800"}', 2),
        ('{"a": 1,}', 9),
        ("{a: 1}", 2),
        ('{"a": nope}', 7),
    ],
)
def test_a_line_that_is_no_json_object_is_named(line, column):
    with pytest.raises(FileFault) as raised:
        records('{"a": 0}\n' + line + "\n", format="jsonl")

    assert (raised.value.line, raised.value.column) == (2, column)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("NaN", "NaN and Infinity aren't JSON's"),
        ("9" * 5_000, "a number has more than 4300 digits, which no column of numbers takes; quote it"),
        ("[" * 200_000, "it is nested too deeply"),
    ],
)
def test_a_value_that_is_not_taken_is_told_for_what_it_is(value, said):
    with pytest.raises(FileFault, match=f"ine 1, column 7: {said}"):
        records('{"a": ' + value + "}\n", format="jsonl")


def test_an_empty_line_between_objects_is_a_fault_and_at_the_end_nothing():
    assert len(records('{"a": 0}\n{"a": 1}\n\n', format="jsonl")) == 2
    with pytest.raises(FileFault, match="Line 2"):
        records('{"a": 0}\n\n{"a": 1}\n', format="jsonl")


def test_a_file_without_a_column_is_refused(file):
    with pytest.raises(FileFault):
        look(file("{}\n", "x.jsonl"), {})


def test_a_header_of_very_many_names_is_read_at_once_and_a_doubled_one_is_told_in_short():
    names = [f"c{n}" for n in range(60_000)]
    assert list(records(",".join(names) + "\n" + "," * 59_999)[0]) == names
    with pytest.raises(FileFault, match=f"ine 1, column 2: the header '{'x' * 100}' stands in column 1 already"):
        records("x" * 1000 + "," + "x" * 1000)
    with pytest.raises(FileFault, match=r"the header 'a\\x0ab' stands in column 1 already"):
        records('"a\nb","a\nb"\n')
