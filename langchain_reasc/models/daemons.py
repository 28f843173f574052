"""Threads that keep no process alive: at the interpreter's end they get a moment to close their requests, and no more.

``concurrent.futures`` joins its threads before the interpreter may exit. A batch that is no longer read would so hold
an ending process until a server has answered all of it.
"""

import atexit
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import copy_context
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakSet

__all__ = ["DaemonExecutor", "start_daemon"]

P = ParamSpec("P")
T = TypeVar("T")
_MOMENT: Final = 1.0  # seconds
_started: WeakSet[threading.Thread] = WeakSet()


def start_daemon(run: Callable[[], object], name: str) -> threading.Thread:
    """Run a function in a thread that keeps no process alive, whatever it waits for."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    _started.add(thread)
    return thread


class DaemonExecutor(Executor):
    """A ``ThreadPoolExecutor`` of daemon threads. Each call runs in a copy of the context it was submitted in.

    Args:
        max_workers: how many calls run at once; None for the default of ``ThreadPoolExecutor``.
        name: the name of its threads.
    """

    def __init__(self, max_workers: int | None = None, name: str = "reasc") -> None:
        self._max_workers = max_workers or min(32, (os.cpu_count() or 1) + 4)
        self._name, self._lock, self._shut_down = name, threading.Lock(), False
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._threads: set[threading.Thread] = set()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Run a call as soon as fewer than ``max_workers`` others run."""
        future: Future[T] = Future()
        with self._lock:
            if self._shut_down:
                raise RuntimeError("cannot submit after shutdown")
            self._calls.put((future, partial(copy_context().run, partial(fn, *args, **kwargs))))
            if len(self._threads) < self._max_workers:
                self._threads.add(start_daemon(self._work, f"{self._name}-{len(self._threads)}"))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. With ``wait``, return when those that run have ended."""
        with self._lock:
            self._shut_down = True
            while cancel_futures and not self._calls.empty():
                self._calls.get()[0].cancel()
            threads = tuple(self._threads)
        for thread in threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._calls.empty():
                    self._threads.discard(threading.current_thread())
                    return
                future, call = self._calls.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del future, call  # or they would outlive their reader while this thread waits


@atexit.register
def _let_them_end() -> None:
    """Before Python 3.14, a daemon in the middle of compiled code may abort the process that ends around it."""
    ends = time.monotonic() + _MOMENT
    for thread in tuple(_started):
        thread.join(max(0.0, ends - time.monotonic()))
