"""Submit requests to the engine, all samples at once or paced by a rate limiter."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial

from langchain_core.messages import AIMessage
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_reasc_backend.bridge import AsyncStream, End, Stream

from langchain_reasc_llama_cpp.engine.engine import Engine
from langchain_reasc_llama_cpp.engine.request import Event, GenerationRequest

SampleStream = Stream[tuple[int, AIMessage]]
"""Samples of one prompt, as ``(index, message)`` in the order they end."""
AsyncSampleStream = AsyncStream[tuple[int, AIMessage]]
"""Samples of one prompt, for ``async for``."""
Submit = Callable[[GenerationRequest], Callable[[], None]]
"""Submits a request to the engine, and returns a function that cancels the request
within one decode step.
"""


def submit_at_once(engine: Engine, request: GenerationRequest) -> Callable[[], None]:
    """Submit a request to the engine as a whole."""
    engine.submit(request)
    return partial(engine.cancel, request)


def submit_paced(
    engine: Engine, limiter: BaseRateLimiter, request: GenerationRequest
) -> Callable[[], None]:
    """Submit a request to the engine sample by sample, each when the limiter permits
    it.

    The prompt is prefilled for the first sample; the others find it in the prompt
    cache. A thread waits for the limiter. It is a daemon, because a limiter may block
    forever.
    """
    parts = _Parts(engine, request)

    def wait() -> None:
        with parts.submitting():
            for index in request.samples:
                if not request.cancelled:
                    limiter.acquire(blocking=True)
                    parts.submit_sample(index)

    run = copy_context().run
    threading.Thread(
        target=run, args=[wait], name="llama.cpp rate limit", daemon=True
    ).start()
    return parts.cancel


def submit_paced_async(
    engine: Engine, limiter: BaseRateLimiter, request: GenerationRequest
) -> Callable[[], None]:
    """Like :func:`submit_paced`, but wait in a task of the caller's event loop, which
    is also the limiter's.
    """
    parts = _Parts(engine, request)

    async def wait() -> None:
        with parts.submitting():
            for index in request.samples:
                await limiter.aacquire(blocking=True)
                parts.submit_sample(index)

    task = asyncio.create_task(wait())

    def cancel() -> None:
        parts.cancel()
        with suppress(RuntimeError):  # the loop is closed, and the task with it
            task.get_loop().call_soon_threadsafe(task.cancel)

    return cancel


class _Parts:
    """The samples of a request, each submitted as a request of its own. Only the last
    end is passed on.
    """

    def __init__(self, engine: Engine, request: GenerationRequest) -> None:
        engine.check_usable()
        self._engine, self._request = engine, request
        # emitting to a closed stream cancels, in the same thread
        self._lock = threading.RLock()
        self._submitted: list[GenerationRequest] = []
        self._ends_to_come = 1  # one for each part, and one for submitting() itself
        self._submitting = True

    @contextmanager
    def submitting(self) -> Iterator[None]:
        """Enclose the submission of all parts; an error inside fails the request."""
        try:
            yield
        except Exception as error:
            self._receive(End(error))
        else:
            self._end_submitting()

    def submit_sample(self, index: int) -> None:
        """Submit a sample to the engine, unless the request is cancelled."""
        with self._lock:
            if not self._request.cancelled:
                part = replace(
                    self._request, samples=range(index, index + 1), emit=self._receive
                )
                self._engine.submit(part)
                self._submitted.append(part)
                self._ends_to_come += 1

    def cancel(self) -> None:
        """Cancel the submitted samples, and submit no others."""
        with self._lock:
            self._request.cancelled = True
            for part in self._submitted:
                self._engine.cancel(part)
            self._end_submitting()

    def _end_submitting(self) -> None:
        with self._lock:
            if self._submitting:
                self._submitting = False
                self._receive(End())

    def _receive(self, event: Event) -> None:
        with self._lock:
            failed = isinstance(event, End) and event.error is not None
            finished = isinstance(event, End) and not failed
            self._ends_to_come -= finished
            if not finished or not self._ends_to_come:
                self._request.emit(event)
            if failed:
                self.cancel()
