"""Requests whose samples begin one by one, each when a rate limiter permits it.

The prompt is prefilled for the first; the others find it in the prompt cache. The engine's thread waits for nobody: the
waiting is done in a thread of its own, or in a task of the caller's event loop.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace

from langchain_core.rate_limiters import BaseRateLimiter

from langchain_reasc_llama_cpp.engine.engine import Engine
from langchain_reasc_llama_cpp.engine.request import Event, Failed, Finished, GenerationRequest
from langchain_reasc_llama_cpp.engine.streams import Submit

__all__ = ["apaced", "paced"]


def paced(engine: Engine, limiter: BaseRateLimiter) -> Submit:
    """What gives a request to the engine sample by sample, for synchronous callers."""

    def submit(request: GenerationRequest) -> Callable[[], None]:
        parts = _Parts(engine, request)

        def wait() -> None:
            with parts.beginning():
                for index in request.samples:
                    if not request.cancelled:
                        limiter.acquire(blocking=True)
                        parts.begin(index)

        # A daemon: nobody waits for a limiter that permits nothing any more.
        run = copy_context().run
        threading.Thread(target=run, args=[wait], name="llama.cpp rate limit", daemon=True).start()
        return parts.cancel

    return submit


def apaced(engine: Engine, limiter: BaseRateLimiter) -> Submit:
    """:func:`paced` in the caller's event loop, which is the limiter's too."""

    def submit(request: GenerationRequest) -> Callable[[], None]:
        parts = _Parts(engine, request)

        async def wait() -> None:
            with parts.beginning():
                for index in request.samples:
                    await limiter.aacquire(blocking=True)
                    parts.begin(index)

        task = asyncio.create_task(wait())

        def cancel() -> None:
            parts.cancel()
            with suppress(RuntimeError):  # the loop is closed, and the task with it
                task.get_loop().call_soon_threadsafe(task.cancel)

        return cancel

    return submit


class _Parts:
    """The samples of a request, each a request of its own; of all their ends only the last is the request's."""

    def __init__(self, engine: Engine, request: GenerationRequest) -> None:
        engine.check_usable()
        self._engine, self._request = engine, request
        self._lock = threading.RLock()  # where nobody reads any more, emitting cancels
        self._begun: list[GenerationRequest] = []
        self._ends = 1  # to come: each part's, and the beginning's
        self._beginning = True

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """While parts begin; an error in it fails the request."""
        try:
            yield
        except Exception as error:
            self._receive(Failed(error))
        else:
            self._all_begun()

    def begin(self, index: int) -> None:
        """Give one to the engine, where it is still wanted."""
        with self._lock:
            if not self._request.cancelled:
                part = replace(self._request, samples=range(index, index + 1), emit=self._receive)
                self._engine.submit(part)
                self._begun.append(part)
                self._ends += 1

    def cancel(self) -> None:
        """What was begun comes out as it is, the rest never costs anything."""
        with self._lock:
            self._request.cancelled = True
            for part in self._begun:
                self._engine.cancel(part)
            self._all_begun()

    def _all_begun(self) -> None:
        with self._lock:
            if self._beginning:
                self._beginning = False
                self._receive(Finished())

    def _receive(self, event: Event) -> None:
        with self._lock:
            self._ends -= isinstance(event, Finished)
            if not isinstance(event, Finished) or not self._ends:
                self._request.emit(event)
            if isinstance(event, Failed):
                self.cancel()
