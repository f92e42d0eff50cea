"""Stop the stacks of this checkout and remove what they keep outside of it: `make clean`."""

import os
import shutil
import sys

from localstack.stack import STATE, Stack


def main() -> None:
    """Stop every stack below .leaseway, and remove the data directories that had to be elsewhere."""
    for name in ("DATABASE_URL", "LOCALSTACK_ENDPOINT"):  # somebody else's, which stay
        os.environ.pop(name, None)
    for file in STATE.rglob("ports.json"):
        stack = Stack(file.parent)
        stack.say = lambda text: print(f"… {text}", file=sys.stderr, flush=True)
        stack.say(f"stopping the stack of {stack.folder.name}/")
        stack.down()
        if stack.postgresql and stack.postgresql.data.parent != stack.postgresql.folder:
            shutil.rmtree(stack.postgresql.data.parent)


if __name__ == "__main__":
    main()
