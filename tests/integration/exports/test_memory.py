"""OD-65: memory doesn't grow with the number of records, to files of this machine and into object storage."""

import json
import subprocess
import sys

import pytest

EXPORT = """
import json, re, sys
from pathlib import Path
from chalicelib.exports import CSV, JSON, XML, Column, FileSpec, LocalFile, Relation, Store, export
from chalicelib.exports.storage import client

dsn, folder, storage = sys.argv[1:]
columns = [Column("a", "integer", "a"), Column("b", "text", "b"), Column("c", "timestamptz", "c")]


def peak():  # in MB; ru_maxrss would begin with the memory of the process that started this one
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024


def run(relation):
    exported = export(
        Relation(dsn, relation, None, columns),
        [FileSpec(CSV), FileSpec(JSON), FileSpec(XML)],
        target,
        beat=lambda **_: None,
    )
    return {
        "records": exported.records,
        "bytes": sum(file.bytes for file in exported.files),
        "peak": peak(),
    }


if storage == "s3":
    class Forgetful:  # takes the parts as S3 does, keeps nothing: the memory is the exporter's own
        def create_multipart_upload(self, **_): return {"UploadId": "u"}
        def upload_part(self, **_): return {"ETag": "e"}
        def complete_multipart_upload(self, **_): return {"ETag": "e"}
        def get_paginator(self, _): return self
        def paginate(self, **_): return []


    store = Store("files", Forgetful)
    import chalicelib.exports.storage as s
    s.Upload._check = lambda *_: True
    target = lambda name, media_type: store.open_upload(name, media_type)
else:
    target = lambda name, _: LocalFile(Path(folder) / name)

print(json.dumps([run("open.small"), run("open.large")]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("storage", ["files", "s3"])
def test_OD_65_five_times_the_records_need_no_more_memory(source, tmp_path, storage):
    for name, records in (("small", 60_000), ("large", 300_000)):
        source.run(
            f"create table open.{name} as select g as a, repeat('<&>', 20) as b,"
            f" timestamptz '2026-01-01' + g * interval '1 second' as c from generate_series(1, {records}) g"
        )

    ran = subprocess.run(
        [sys.executable, "-c", EXPORT, source.dsn, tmp_path, storage], capture_output=True, text=True, check=True
    )

    small, large = json.loads(ran.stdout)
    assert (small["records"], large["records"]) == (60_000, 300_000)
    assert large["bytes"] > 140 * 1024 * 1024
    assert large["peak"] - small["peak"] < 12  # of 120 MB more
    assert large["peak"] < (64 if storage == "files" else 128)
