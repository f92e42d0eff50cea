"""`make bench`: every figure that Leaseway promises, measured on this machine and written to docs/benchmarks.md.

ONLY=exports|engine|cold|scale runs one part. BENCH=short runs everything so small that nothing it says means anything,
to see that it ends; it writes to the file that REPORT names, never to the docs unless REPORT names them.
"""

import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import report
from tests.bench.server import server

PARTS = ("exports", "engine", "cold", "scale")


def main() -> None:
    only = os.environ.get("ONLY") or None
    if only and only not in PARTS:
        sys.exit(f"ONLY takes one of {', '.join(PARTS)}.")
    short = os.environ.get("BENCH") == "short"
    size = report.SHORT if short else report.FULL
    file = Path(os.environ.get("REPORT") or (report.CHECKOUT / ".leaseway" / "benchmarks.md" if short else report.DOCS))
    if file != report.DOCS:
        shutil.copy(report.DOCS, file)
    # Whoever ends this ends its server, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    folder = Path(tempfile.mkdtemp(prefix="leaseway-bench-"))
    try:
        with server() as postgresql:
            for part in [only] if only else PARTS:
                began = time.monotonic()
                about = report.circumstances(size.runs)
                lines = importlib.import_module(f"tests.bench.{part}").run(size, postgresql, folder)
                took = f"It took {time.monotonic() - began:.0f} s; load {os.getloadavg()[0]:.1f} at its end."
                warning = ["**BENCH=short: too small to mean anything.**", ""] if short else []
                report.write(file, part, [*warning, f"{about} {postgresql.version()}. {took}", "", *lines])
                print("\n".join([f"## {part}", "", *lines, "", took, ""]), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"Written to {file}")


if __name__ == "__main__":
    main()
