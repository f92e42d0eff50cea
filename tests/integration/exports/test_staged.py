"""A copy of the source in a staging table gives the files that the source itself gives, in whatever pieces."""

import json
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from chalicelib.exports import Column, FileSpec, LocalFile, Relation, Store, export, gzipped, staged, storage
from chalicelib.exports import relation as relation_module
from chalicelib.exports.errors import SourceError, Stale, StorageMismatch, StorageRefused
from chalicelib.exports.formats import CSV, CSV_WITH_BOM, JSON, JSON_LINES, XML, excel_csv, geojson
from chalicelib.exports.relation import snapshot, variants
from chalicelib.exports.staged import Output, Pieces, columns_of, copy_records, measured, sealed
from chalicelib.exports.types import TYPES

from . import memory
from .memory import MemoryS3
from .test_records import NULLED, TEXTS, VALUES, quiet

TABLE = "staging.job_x"
EVERY_FORMAT = [
    *(FileSpec(format_, gzip=True) for format_ in (CSV, JSON, XML)),
    *(FileSpec(format_) for format_ in (CSV_WITH_BOM, JSON_LINES, excel_csv(), geojson("", "lon", "lat"))),
]
MORE = {  # what VALUES hasn't; values as SQL
    "json": ("json", ['\'{"a" :\n [1, 1e400, "<\\u0001>"]}\'', "'null'", "'\" \"'"]),
    "jsonb": ("json", ["'{\"b\": 1.50}'"]),
    "interval": ("interval", ["'1 year -2 days 03:04:05.6'", "'-00:00:01'"]),
    "text[]": ("text[]", [r"array['', null, '\N', e'\n\x01\"<&>', 'ä']", "'{}'"]),
    "int8[]": ("integer[]", ["array[9223372036854775807, null]"]),
    "float4[]": ("double[]", ["array[0.1, 'NaN', 1e-45]::float4[]"]),
    "numeric[]": ("decimal[]", ["array[1.00, 123456789012345678901234567890.10]"]),
    "timestamptz[]": ("timestamptz[]", ["array[timestamptz '2024-07-01 12:00:00+02', 'infinity']"]),
    "float4": ("double", ["1234567", "1e-5", "0.1"]),
}
CONTROLS = [f"<{chr(code)}>" for code in range(1, 0x20)] + ["\ufffe|\uffff", "a\x01b\nc", "\t", "\\t", "\\\n"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Pieces, members of gzip and parts so small that a few records are many of them."""
    monkeypatch.setattr(staged, "PIECE", 20)
    monkeypatch.setattr(staged, "MEMBER", 10)
    monkeypatch.setattr(gzipped, "MEMBER", 10)
    monkeypatch.setattr(storage, "PART", 700)


@pytest.fixture
def own(make_source):
    """Leaseway's own database, as far as a copy is concerned."""
    made = make_source("encoding 'UTF8'")
    made.run("create schema staging")
    made.run(f"grant usage, create on schema staging to {made.name}")
    with psycopg.connect(make_conninfo(made.dsn), autocommit=True) as connection:
        yield connection


@pytest.fixture
def s3():
    return MemoryS3()


@pytest.fixture
def store(s3):
    return Store("files", lambda: s3)


def everything(source, texts):
    """A table of every type with the nastiest values, each in a row of its own; its columns."""
    source.run("create type open.mood as enum ('so, so', '<glad>'); create domain open.letters as text")
    source.run("create extension citext schema open")
    declared = [(name, declared, type_, [f"'{v.replace("'", "''")}'" for v in [*values, *NULLED.get(name, [])]])
                for name, declared, type_, values, _ in VALUES]  # fmt: skip
    declared += [(f"m{n}", declared, type_, values) for n, (type_, (declared, values)) in enumerate(MORE.items())]
    columns = [Column("n", "integer", "n"), Column("text", "text", "txt"), Column("lon", "double", "lon"),
               Column("lat", "decimal", "lat")]  # fmt: skip
    columns += [Column(name, declared, name) for name, declared, *_ in declared]
    source.run(
        "create table open.everything (n int generated always as identity, txt text, lon float8, lat numeric, "
        + ", ".join(f"{name} {type_}" for name, _, type_, _ in declared)
        + ")"
    )
    for text in texts:
        source.run("insert into open.everything (txt, lon, lat) values (%s, 11.5, 48.10)", text)
    for name, _, type_, values in declared:
        for value in values:
            source.run(f"insert into open.everything ({name}) values ({value}::{type_})".encode())
    source.run("insert into open.everything default values")
    return columns


def directly(relation, folder, specs):
    names = iter(range(100))
    exported = export(relation, specs, lambda *_: LocalFile(folder / f"file-{next(names)}"), beat=quiet)
    return exported, [(folder / f"file-{n}").read_bytes() for n in range(len(exported.files))]


def copied(relation, own, alive=lambda size: None):
    with snapshot(relation) as source, own.transaction():
        records = copy_records(source, own, TABLE, len(relation.columns), alive=alive)
    copy = sealed_by(own)
    assert copy.records == records
    return copy


def sealed_by(connection):
    with connection.transaction():
        return sealed(connection, TABLE, lambda: None)


def of_copy(relation, own):
    dsn = make_conninfo(own.info.dsn, password="only-reads")
    return snapshot(Relation(dsn, TABLE, None, columns_of(relation.columns)))


def begun(spec, store):
    outputs = [Output(how, store.open_upload(suffix, "x")) for suffix, _, how in variants(spec)]
    return Pieces(spec, outputs)


def by_way_of_the_copy(relation, own, store, s3, specs, records):
    files, contents, removed = [], [], 0
    with of_copy(relation, own) as copy:
        for spec in specs:
            pieces = begun(spec, store)
            removed += pieces.write(copy, records, lambda row: None)
            files += (made := pieces.complete())
            contents += [s3.objects[file.key]["bytes"] for file in made]
    return files, contents, removed


@pytest.mark.parametrize("encoding", ["UTF8", "WIN1252", "LATIN1"])
def test_every_format_of_every_type_is_the_same_by_way_of_a_copy(make_source, own, store, s3, tmp_path, encoding):
    source = make_source(f"encoding '{encoding}' locale 'C'")
    texts = [*TEXTS, *CONTROLS, None] if encoding == "UTF8" else ["", "grün ß", r"\N", "a\tb\r\n\\", "\x01", "\x7f"]
    columns = everything(source, texts)
    relation = Relation(source.dsn, "open.everything", None, columns)
    exported, expected = directly(relation, tmp_path, EVERY_FORMAT)
    assert {column.type for column in columns} >= set(TYPES) - {"geometry"} - {t for t in TYPES if t.endswith("[]")}

    copy = copied(relation, own)
    files, contents, removed = by_way_of_the_copy(relation, own, store, s3, EVERY_FORMAT, copy.records)

    assert (copy.records, removed) == (exported.records, exported.removed)
    assert contents == expected
    assert [(file.suffix, file.bytes, file.sha256) for file in files] == [
        (file.suffix, file.bytes, file.sha256) for file in exported.files
    ]


def test_a_copy_of_an_older_server_gives_the_files_that_it_gives_itself(old_source, own, store, s3, tmp_path):
    relation = Relation(old_source.dsn, "open.everything", None, everything(old_source, [*TEXTS, *CONTROLS, None]))
    exported, expected = directly(relation, tmp_path, EVERY_FORMAT)

    copied(relation, own)

    assert by_way_of_the_copy(relation, own, store, s3, EVERY_FORMAT, exported.records)[1] == expected


@pytest.mark.parametrize("records", [0, 1, 20, 40])
def test_an_empty_source_and_whole_pieces(source, own, store, s3, tmp_path, records):
    relation = numbers(source, records)
    _, expected = directly(relation, tmp_path, EVERY_FORMAT[:3])

    copied(relation, own)

    assert by_way_of_the_copy(relation, own, store, s3, EVERY_FORMAT[:3], records)[1] == expected


def test_a_file_is_in_the_order_of_the_copy_wherever_its_records_lie(source, own, store, s3, tmp_path):
    relation = numbers(source, 75)
    _, expected = directly(relation, tmp_path, EVERY_FORMAT[:1])
    copied(relation, own)
    own.execute(f"update {TABLE} set c1 = c1 where ordinal = 1")  # behind all others

    assert by_way_of_the_copy(relation, own, store, s3, EVERY_FORMAT[:1], 75)[1] == expected


def numbers(source, records):
    source.run(
        "create table open.numbers as select n, md5(n::text) || chr(11) || repeat('x', n % 90) as t"
        f" from generate_series(1, {records}) n order by random()"
    )
    return Relation(source.dsn, "open.numbers", None, [Column("n", "integer", "n"), Column("t", "text", "t")])


class Killed(BaseException):
    """A worker that dies here."""


class Killer:
    """Counts what it hears of and kills at the number that is wanted, once."""

    def __init__(self, at):
        self.left = at

    def __call__(self, *_):
        self.left -= 1
        if self.left == 0:
            raise Killed


def lives(spec, relation, own, store, records, alive):
    """Write a file in as many lives as it takes, each from what the one before it had saved."""
    saved, number = None, 0
    while True:
        number += 1
        try:
            state = json.loads(json.dumps(saved))
            pieces = Pieces.resumed(spec, state, store, lambda: None) if state else begun(spec, store)
            with of_copy(relation, own) as copy:

                def save(row, pieces=pieces):
                    nonlocal saved
                    if pieces.due:
                        saved = pieces.state()
                    alive()

                removed = pieces.write(copy, records, save)
            saved = pieces.state()
            alive()
            return number, pieces.complete(), removed
        except Killed:
            continue


@pytest.mark.parametrize("spec", [FileSpec(CSV), FileSpec(XML, gzip=True)], ids=["csv", "xml and its gzip variant"])
def test_whoever_dies_wherever_the_file_is_the_same(source, own, store, s3, tmp_path, spec):
    relation = numbers(source, 75)
    exported, expected = directly(relation, tmp_path, [spec])
    copied(relation, own)
    deaths = at = 0
    while at == deaths:  # at every call of object storage and every batch, until one isn't reached any more
        at += 1
        killer = Killer(at)
        s3.__init__()
        s3.at = killer

        number, files, removed = lives(spec, relation, own, store, 75, killer)

        deaths += number - 1
        assert [s3.objects[file.key]["bytes"] for file in files] == expected, at
        assert [(file.bytes, file.sha256) for file in files] == [(f.bytes, f.sha256) for f in exported.files], at
        assert removed == exported.removed, at
    assert deaths > 20


def dying(spec, relation, own, store, records, *, at):
    """What is saved of a file when its worker dies at a batch."""
    killer, saved = Killer(at), []
    pieces = begun(spec, store)

    def save(row):
        saved.append(pieces.state())
        killer()

    with pytest.raises(Killed), of_copy(relation, own) as copy:
        pieces.write(copy, records, save)
    return saved[-1]


def go_on(state, spec, relation, own, store, records):
    pieces = Pieces.resumed(spec, state, store, lambda: None)
    with of_copy(relation, own) as copy:
        pieces.write(copy, records, lambda row: None)
    return pieces


def test_a_part_that_a_zombie_puts_in_its_place_fails_the_completion(source, own, store, s3):
    relation = numbers(source, 75)
    copied(relation, own)
    state = dying(FileSpec(CSV), relation, own, store, 75, at=3)
    (output,) = state["outputs"]
    assert output["parts"]

    part = {"UploadId": output["upload"], "Key": "csv", "PartNumber": 1}
    s3.upload_part(**part, Body=b"?", ChecksumSHA256=memory._checksum(b"?"))

    with pytest.raises(StorageRefused):
        go_on(state, FileSpec(CSV), relation, own, store, 75).complete()
    assert s3.objects == {}


@pytest.mark.parametrize("changed", [lambda body: body[:-1] + b"?", lambda body: body[:-1]], ids=["other", "short"])
def test_what_the_store_gives_back_is_compared_with_every_part(source, own, store, s3, changed):
    relation = numbers(source, 75)
    copied(relation, own)
    state = dying(FileSpec(CSV), relation, own, store, 75, at=3)
    pieces = go_on(state, FileSpec(CSV), relation, own, store, 75)
    store.read = lambda key: iter([changed(s3.objects[key]["bytes"])])

    with pytest.raises(StorageMismatch):
        pieces.complete()


@pytest.mark.parametrize(
    "change",
    ["update {} set c1 = c1 || '!' where ordinal = {}", "delete from {} where ordinal = {}"],
    ids=["other bytes", "a record less"],
)
def test_a_file_is_never_mixed_from_two_copies(source, own, store, s3, change):
    relation = numbers(source, 75)
    copied(relation, own)
    state = dying(FileSpec(CSV), relation, own, store, 75, at=3)
    (piece, offset, _), = [output["reached"] for output in state["outputs"]]  # fmt: skip
    assert offset

    own.execute(change.format(TABLE, piece * staged.PIECE + 1))

    with pytest.raises(Stale):
        go_on(state, FileSpec(CSV), relation, own, store, 75)


@pytest.mark.parametrize(
    "change",
    [
        "update {} set c1 = 'x' where ordinal = 7",
        "delete from {} where ordinal = 75",
        "update {} set ordinal = default where ordinal = 1",
    ],
)
def test_a_copy_that_was_changed_is_known_by_its_hash(source, own, change):
    copy = copied(numbers(source, 75), own)
    assert measured(own, TABLE, lambda: None) == copy
    own.execute(change.format(TABLE))

    assert measured(own, TABLE, lambda: None) != copy


def test_a_copy_is_sealed_once_and_measured_each_time(source, own):
    copy = copied(numbers(source, 75), own)

    assert sealed_by(own) == copy

    indexes = own.execute("select indexdef from pg_indexes where schemaname = 'staging'").fetchall()
    assert len(indexes) == 1
    assert "UNIQUE" in indexes[0][0]


def test_two_who_seal_a_copy_at_once_find_the_same(source, own):
    relation = numbers(source, 75)
    with snapshot(relation) as seen, own.transaction():
        copy_records(seen, own, TABLE, 2, alive=lambda size: None)
    dsn = make_conninfo(own.info.dsn, password="only-reads")
    waits = "select exists (select from pg_locks where not granted and pid = %s)"

    with psycopg.connect(dsn, autocommit=True) as other, ThreadPoolExecutor(1) as another:
        with own.transaction():
            first = sealed(own, TABLE, lambda: None)
            second = another.submit(sealed_by, other)
            while not (second.done() or source.run(waits, other.info.backend_pid).fetchone()[0]):
                pass

        assert second.result() == first


def test_a_copy_is_logged_else_a_crash_of_the_server_would_empty_it(source, own):
    copied(numbers(source, 75), own)

    logged = own.execute("select relpersistence = 'p' from pg_class where oid = %s::regclass", [TABLE])
    assert logged.fetchone() == (True,)


def test_a_record_that_cannot_be_copied_is_found(source, own):
    source.run("create view open.bad as select n, 10 / (n - 3) as t from generate_series(1, 5) n")
    relation = Relation(source.dsn, "open.bad", None, [Column("n", "integer", "n"), Column("t", "integer", "t")])

    def copy(snapshot, _total):
        with own.transaction():
            copy_records(snapshot, own, TABLE, 2, alive=lambda size: None)

    with pytest.raises(SourceError) as raised:
        export(relation, [], None, beat=quiet, counted=copy)

    assert raised.value.code == "source_bad_record"
    assert raised.value.details == {"sqlstate": "22012", "relation": "open.bad", "record": 3, "column": "t"}
    assert own.execute("select to_regclass(%s)", [TABLE]).fetchone() == (None,)


def test_the_copy_beats_while_a_server_says_nothing_and_what_that_raises_leaves_no_table(source, own, monkeypatch):
    monkeypatch.setattr(relation_module, "QUIET", 0.01)
    source.run("create table open.slow as select 1 as n, 'a' as t")
    columns = [Column("n", "integer", "n"), Column("t", "text", "t")]
    query = "select n, t from open.slow, pg_sleep(30)"
    sizes = []

    def stop(size):
        sizes.append(size)
        if len(sizes) == 3:
            raise Killed

    with pytest.raises(Killed):
        copied(Relation(source.dsn, None, query, columns), own, stop)

    assert sizes == [0, 0, 0]
    assert own.execute("select to_regclass(%s)", [TABLE]).fetchone() == (None,)
