"""Run the server in this process, or in several workers that uvicorn's supervisor
restarts.
"""

import asyncio
import faulthandler
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.config import STARTUP_FAILURE as FAILED_TO_START
from uvicorn.supervisors import Multiprocess

from langchain_reasc_server.metrics import METRICS
from langchain_reasc_server.reading import LARGEST_HEAD

__all__ = [
    "FAILED_TO_START",
    "cut_off_requests",
    "end_with_supervisor",
    "reloading_on_hangup",
    "run_here",
    "run_workers",
    "shared_folder",
    "uvicorn_options",
    "watched_event_loop",
]

# seconds; longer than clients keep an idle connection, or they would send into a closed
# one
_KEPT_ALIVE: Final = 75
_STANDS_STILL: Final = 30.0
"""Seconds after which a process with a blocked event loop is ended."""
_WRITES_FOR: Final = 5
"""Seconds that such a process has to write where it hangs. Without a reader of stderr
it would write for ever.
"""
_STARTED_WITHIN: Final = 40
"""Seconds that the supervisor waits for a new worker, or for one that hangs, which has
to write where before.
"""
_CUT_OFF_WITHIN: Final = 5.0
"""Seconds that requests have to tell their clients that they were cut off."""


def uvicorn_options(connections: int) -> dict[str, Any]:
    """Return uvicorn's options for limits and logs.

    A request on more connections than allowed is refused with 503. A proxy in front has
    to disconnect slow clients.
    """
    return {
        "http": "h11",
        "ws": "none",
        "lifespan": "on",
        "limit_concurrency": _possible_connections(connections),
        "h11_max_incomplete_event_size": 2
        * LARGEST_HEAD,  # check_head refuses a head that is a little too large
        "timeout_keep_alive": _KEPT_ALIVE,
        "access_log": False,  # see request_log
        # its errors are written like all others, and so to sys.stderr as it is then
        "log_config": None,
        "log_level": "error",  # uvicorn warns of each malformed request
        "server_header": False,
    }


def _possible_connections(wanted: int) -> int:
    """Raise this process's limit of open files. Return how many connections it allows,
    each with one upstream.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if files == resource.RLIM_INFINITY else min(wanted, files // 2)


def run_here(app: Any, listening: socket.socket, options: Mapping[str, Any]) -> None:
    """Serve an application on a socket with uvicorn's options, until SIGTERM or Ctrl-C."""
    server = uvicorn.Server(uvicorn.Config(app, **options))
    server.run(sockets=[listening])
    if not server.started:
        sys.exit(FAILED_TO_START)


def run_workers(
    make_app: Callable[[], Any],
    count: int,
    listening: socket.socket,
    options: Mapping[str, Any],
) -> None:
    """Serve on one socket with several worker processes until SIGTERM or Ctrl-C.

    uvicorn's supervisor restarts a worker that exits, and on SIGHUP one worker after
    another. It sends ``make_app`` to each worker through a pipe.

    Raises:
        SystemExit: a worker failed before it served.
    """
    config = uvicorn.Config(
        make_app,
        factory=True,
        workers=count,
        timeout_worker_healthcheck=_STARTED_WITHIN,
        **options,
    )
    supervisor = Multiprocess(config, sockets=[listening])
    supervisor.run()
    if any(worker.exitcode == FAILED_TO_START for worker in supervisor.processes):
        sys.exit(FAILED_TO_START)


def end_with_supervisor() -> None:
    """Stop this worker, as SIGTERM does, when its supervisor has died."""

    def wait() -> None:
        if (supervisor := multiprocessing.parent_process()) is not None:
            supervisor.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="supervisor", daemon=True).start()


async def cut_off_requests() -> None:
    """Wait until the requests that uvicorn has cancelled have told their clients so.

    Otherwise a worker would die of its SIGTERM before.
    """
    cancelled = [task for task in asyncio.all_tasks() if task.cancelling()]
    if cancelled:
        await asyncio.wait(cancelled, timeout=_CUT_OFF_WITHIN)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Make a folder in which workers share their counts, and delete it at the end."""
    with tempfile.TemporaryDirectory(
        prefix="reasc-serve-", ignore_cleanup_errors=True
    ) as folder:
        os.environ[METRICS] = folder
        try:
            yield Path(folder)
        finally:
            del os.environ[METRICS]


@contextmanager
def reloading_on_hangup(reload: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """Reload on SIGHUP, in this process. If the terminal of this process was closed,
    stop as on SIGTERM.
    """
    if not hasattr(signal, "SIGHUP"):  # Windows
        yield
        return
    of_terminal, reloads = os.isatty(2), set[asyncio.Future[None]]()

    def hang_up() -> None:
        if of_terminal and not os.isatty(2):
            signal.raise_signal(signal.SIGTERM)
            return
        # the event loop itself forgets a task that nobody keeps
        reloads.add(task := asyncio.ensure_future(reload()))
        task.add_done_callback(reloads.discard)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, hang_up)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


@asynccontextmanager
async def watched_event_loop() -> AsyncIterator[None]:
    """End this process, and print where it hangs, if the event loop is blocked for too
    long.

    A thread in C does that, so it works while Python itself hangs. Whoever started the
    process starts another: uvicorn's supervisor, systemd or Docker.
    """
    watching = asyncio.create_task(_put_off_the_end())
    try:
        yield
    finally:
        watching.cancel()
        faulthandler.cancel_dump_traceback_later()
        if hasattr(signal, "alarm"):
            signal.alarm(0)


async def _put_off_the_end() -> None:
    while True:
        # to the file descriptor, past the queue
        faulthandler.dump_traceback_later(_STANDS_STILL, exit=True)
        if hasattr(signal, "alarm"):  # not on Windows
            signal.alarm(int(_STANDS_STILL) + _WRITES_FOR)  # which ends the process
        await asyncio.sleep(1)
