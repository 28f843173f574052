"""Several processes that serve on one socket."""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from langchain_reasc.exceptions import ConfigurationError

__all__ = ["METRICS", "fork_workers", "shared_folder"]

METRICS: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder in which processes count together."""
_AT_ONCE: Final = 5.0
"""Seconds within which a worker that fails would fail again."""
_PAUSE: Final = 0.5
"""Seconds before one that was killed so soon is replaced, so that not all time goes into that."""


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Give a folder for what workers share, which goes with the process that made it."""
    owner, folder = os.getpid(), Path(tempfile.mkdtemp(prefix="reasc-serve-"))
    os.environ[METRICS] = str(folder)
    try:
        yield folder
    finally:
        if os.getpid() == owner:
            del os.environ[METRICS]
            shutil.rmtree(folder, ignore_errors=True)


def fork_workers(count: int) -> int:
    """Go on in so many new processes; this one stays here, and replaces each of them that ends.

    SIGTERM and Ctrl-C end them all, and then this process. So does a worker that fails as soon as it was begun.

    Returns:
        In each new process, how many were begun before it.

    Raises:
        ConfigurationError: the system cannot fork.
        SystemExit: in this process, with 0 or what the failed worker returned.
    """
    if not hasattr(os, "fork"):
        raise ConfigurationError("--workers needs a system that can fork; leave it out")
    parent, begun, running, code = os.getpid(), 0, dict[int, float](), 0
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        if os.getpid() == parent:
            stopping = True
            for pid in running:
                os.kill(pid, signal.SIGTERM)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    while running or not stopping:
        while not stopping and len(running) < count:
            if (pid := os.fork()) == 0:
                for number, handler in before.items():
                    signal.signal(number, handler)
                return begun
            running[pid], begun = time.monotonic(), begun + 1
            if stopping:  # while it was begun
                os.kill(pid, signal.SIGTERM)
        pid, status = os.wait()
        _mark_dead(pid)
        returned, lived = os.waitstatus_to_exitcode(status), time.monotonic() - running.pop(pid)
        if lived < _AT_ONCE and not stopping:
            if returned > 0:  # below 0 it was killed
                code = returned
                stop()
            else:
                time.sleep(_PAUSE)
    sys.exit(code)


def _mark_dead(pid: int) -> None:
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(pid)  # type: ignore[no-untyped-call]
