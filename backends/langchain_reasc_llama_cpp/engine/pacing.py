"""Requests whose samples begin one by one, each when a rate limiter permits it.

The prompt is prefilled for the first; the others find it in the prompt cache. The engine's thread waits for nobody: the
waiting is done in a thread of its own, or in a task of the caller's event loop.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Protocol

from langchain_core.rate_limiters import BaseRateLimiter

from langchain_reasc_llama_cpp.engine.engine import Engine
from langchain_reasc_llama_cpp.engine.request import Event, Failed, Finished, GenerationRequest

__all__ = ["AsyncPaced", "Paced", "TakesRequests"]


class TakesRequests(Protocol):
    """The engine, or what stands in front of it."""

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request; its events come through ``request.emit``."""

    def cancel(self, request: GenerationRequest) -> None:
        """End it within one decode step."""


class _Pacing(ABC):
    """Takes one request, and gives it to the engine sample by sample."""

    def __init__(self, engine: Engine, limiter: BaseRateLimiter) -> None:
        self._engine, self._limiter = engine, limiter
        self._lock = threading.Lock()
        self._live: set[GenerationRequest] = set()
        self._to_begin = 0
        self._over = False

    def submit(self, request: GenerationRequest) -> None:
        """Begin to wait for the limiter.

        Raises:
            ModelClosedError: see :meth:`Engine.check_usable`.
        """
        self._engine.check_usable()
        self._to_begin = len(request.samples)
        self._pace(request)

    def cancel(self, request: GenerationRequest) -> None:
        """End it: what was begun comes out as it is, the rest never costs anything."""
        with self._lock:
            request.cancelled, self._to_begin = True, 0
            for part in self._live:
                self._engine.cancel(part)
            if not self._live:
                self._end(request, Finished())

    @abstractmethod
    def _pace(self, request: GenerationRequest) -> None:
        """See to it that :meth:`_begin` is called for each sample in turn, once the limiter permits it."""

    def _begin(self, request: GenerationRequest, index: int) -> None:
        part = replace(request, samples=range(index, index + 1))
        part.emit = partial(self._receive, request, part)
        with self._lock:
            if not self._over and not request.cancelled:
                self._to_begin -= 1
                self._live.add(part)
                self._engine.submit(part)

    def _fail(self, request: GenerationRequest, error: Exception) -> None:
        with self._lock:
            self._end(request, Failed(error))

    def _receive(self, request: GenerationRequest, part: GenerationRequest, event: Event) -> None:
        """Pass an event on; of all the parts' ends only the last is one."""
        with self._lock:
            if isinstance(event, Finished | Failed):
                self._live.discard(part)
            if isinstance(event, Failed) or (isinstance(event, Finished) and not self._live and not self._to_begin):
                self._end(request, event)
            elif not isinstance(event, Finished) and not self._over:
                request.emit(event)

    def _end(self, request: GenerationRequest, event: Finished | Failed) -> None:
        if self._over:
            return
        self._over = True
        for part in self._live:
            self._engine.cancel(part)
        request.emit(event)


class Paced(_Pacing):
    """Waits in threads, for synchronous callers."""

    def _pace(self, request: GenerationRequest) -> None:
        run = (copy_context().run, (self._wait, request))
        # A daemon: nobody waits for a limiter that permits nothing any more.
        threading.Thread(target=run[0], args=run[1], name="llama.cpp rate limit", daemon=True).start()

    def _wait(self, request: GenerationRequest) -> None:
        try:
            for index in request.samples:
                if self._over or request.cancelled:
                    return
                self._limiter.acquire(blocking=True)
                self._begin(request, index)
        except Exception as error:
            self._fail(request, error)


class AsyncPaced(_Pacing):
    """Waits in the caller's event loop, which is the limiter's too."""

    _task: asyncio.Task[None] | None = None

    def cancel(self, request: GenerationRequest) -> None:
        """Cancel the request, and stop waiting for its permits; callable from any thread."""
        super().cancel(request)
        if self._task is not None:
            with suppress(RuntimeError):  # the loop is closed, and the task with it
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def _pace(self, request: GenerationRequest) -> None:
        self._task = asyncio.get_running_loop().create_task(self._wait(request))

    async def _wait(self, request: GenerationRequest) -> None:
        try:
            for index in request.samples:
                await self._limiter.aacquire(blocking=True)
                self._begin(request, index)
        except Exception as error:
            self._fail(request, error)
