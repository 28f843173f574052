"""Threads that nobody waits for, but for a moment at the interpreter's end."""

import atexit
import threading
import time
from collections.abc import Callable
from typing import Final
from weakref import WeakSet

__all__ = ["start_daemon"]

_MOMENT: Final = 1.0  # seconds
_started: WeakSet[threading.Thread] = WeakSet()


def start_daemon(run: Callable[[], object], name: str) -> threading.Thread:
    """Run a function in a thread that keeps no process alive, whatever it waits for."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    _started.add(thread)
    return thread


@atexit.register
def _let_them_end() -> None:
    """Before Python 3.14, a daemon in the middle of compiled code may abort the process that ends around it."""
    ends = time.monotonic() + _MOMENT
    for thread in tuple(_started):
        thread.join(max(0.0, ends - time.monotonic()))
