"""Start of a function process: `python launcher.py LIFELINE HANDLER`, run by the function's own interpreter.

Standard library only. LIFELINE is the read end of a pipe whose write end LocalStack alone holds and never writes to:
it reaches its end when LocalStack is gone, however it went, and then this process and its children go too.
(PR_SET_PDEATHSIG would not do: it follows the thread that started the process, and LocalStack's threads come and go.)
"""

import os
import runpy
import signal
import sys
import threading


def follow(lifeline: int) -> None:
    """Wait for LocalStack's end, then end the process group."""
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    fd, handler = int(sys.argv[1]), sys.argv[2]
    os.set_inheritable(fd, False)
    threading.Thread(target=follow, args=(fd,), name="lifeline", daemon=True).start()
    # from here on as `python -m awslambdaric HANDLER` in the folder of the code
    sys.path[0] = str(os.getcwd())  # noqa: PTH109
    sys.argv[:] = ["awslambdaric", handler]
    runpy.run_module("awslambdaric", run_name="__main__", alter_sys=True)
