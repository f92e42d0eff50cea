"""DuckDB's three files: `python one_duckdb.py RELATION FOLDER` by .leaseway/bench-env. Prints what one_export does.

Its XML is put together as text, for it has no such format. Values are spelt its way. Without an order its scanner
gives another one each time, so it sorts, by the one column that suffices.
"""

import json
import os
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import duckdb

dsn, (relation, folder) = os.environ["BENCH_DSN"], sys.argv[1:]
package = Path(find_spec("duckdb_extension_postgres_scanner").origin).parent
[extension] = package.glob("extensions/**/postgres_scanner.duckdb_extension")

began, used = time.perf_counter(), sum(os.times()[:2])
connection = duckdb.connect()
connection.execute(f"load '{extension}'")
connection.execute(f"attach '{dsn}' as source (type postgres, read_only)")
connection.execute(f"copy (select * from source.{relation} order by id) to '{folder}/csv' (header)")
connection.execute(f"copy (select * from source.{relation} order by id) to '{folder}/json' (format json, array true)")
names = [row[0] for row in connection.execute(f"describe source.{relation}").fetchall()]
escaped = "replace(replace(replace({}::varchar, '&', '&amp;'), '<', '&lt;'), '>', '&gt;')"
elements = ", ".join(f"coalesce('<{name}>' || {escaped.format(name)} || '</{name}>', '<{name}/>')" for name in names)
connection.execute(
    f"copy (select concat('<record>', {elements}, '</record>') from source.{relation} order by id)"
    f" to '{folder}/xml' (header false, quote '', escape '', delimiter '\x02')"
)
seconds = time.perf_counter() - began
peak = int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
print(json.dumps({"seconds": seconds, "cpu": sum(os.times()[:2]) - used, "peak": peak}))
