"""One JSON line per thing worth knowing, on standard output, where CloudWatch Logs reads it.

Only names, numbers, ids and codes are passed in; never a text that a user, a source or an exception wrote.
"""

import json
import os
import sys
import time
import traceback


def log(event: str, **fields: object) -> None:
    """Write one line: the event's name, the process, the fields."""
    line = {"event": event, "time": time.time(), "pid": os.getpid(), **fields}
    sys.stdout.write(json.dumps(line, default=str) + "\n")
    sys.stdout.flush()


def failure(event: str, error: BaseException, **fields: object) -> None:
    """Write where an unexpected exception came from: classes, files, lines; not its text, which may be private."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = [f"{frame.filename.rsplit('/', 2)[-1]}:{frame.lineno} {frame.name}" for frame in frames]
    log(event, exception=type(error).__name__, places=places, **fields)
