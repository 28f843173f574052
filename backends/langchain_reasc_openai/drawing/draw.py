"""The samples of one call, drawn from a pool of servers together: in the pool's event loop, a task for each request.

**One request per sample, or one for several?** On a real llama-server (``python -m benchmarks.abort``; 8 samples of a
prompt of 398 tokens that it had not seen) a request per sample computed 3,184 prompt tokens, one request with ``n=8``
398, and was done sooner; servers that charge for the prompt charge it once, too. Early abort is no reason against it:
the request is streamed, its responses are told apart and come out as each ends, and the whole stream is closed when the
decision falls. In both ways the server generated under 1 % of what was to come. A request per sample is worth its price
where samples should fail, move and be seeded one by one, or be spread over servers, and it is all that some servers
offer. So ``per_request`` is the caller's choice, 1 by default.

All this runs in the pool's event loop, for synchronous callers too. A thread blocked in a read sees a cancellation
only when its next token arrives; a task is cancelled where it waits, and its connection is closed in the same moment.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_reasc_backend.bridge import AsyncStream, Sender, Stream

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.contract import FailedSample
from langchain_reasc_openai.drawing.choices import reads_choices
from langchain_reasc_openai.drawing.drawn import Drawn
from langchain_reasc_openai.drawing.sample_requests import SharedRequest, draw_one
from langchain_reasc_openai.routing.attempts import Attempt
from langchain_reasc_openai.routing.replicas import ReplicaPool

__all__ = ["AsyncSampleStream", "Draw", "SampleStream"]

SampleStream = Stream[tuple[int, AIMessage | FailedSample]]
"""Samples as ``(index, message)`` in the order they end."""
AsyncSampleStream = AsyncStream[tuple[int, AIMessage | FailedSample]]
"""The same for ``async for``; the requests are sent when iteration begins."""
Put = Callable[[Drawn], None]


@dataclass
class Draw:
    """Samples ``first`` to ``first + n - 1`` of one prompt, drawn together.

    A sample whose server fails in the middle is begun again on another: what was lost is listed in the message's
    ``response_metadata["failed_attempts"]`` and is not part of its usage. ``response_metadata["server"]`` names the
    server; one that was cut off has no usage but ``response_metadata["received_tokens"]``.

    Attributes:
        pool: the servers.
        messages: the prompt.
        n: how many.
        first: the index of the first sample.
        kwargs: arguments of the chat model's ``_astream``.
        seeds: one for each sample, or None for those without. Samples of one request are drawn with the first one's.
        per_request: how many samples are asked for in one request, by ``n``, of servers that know it. What such a
            request does not return is drawn one by one; its prompt is billed to the sample that ends last.
        sample_timeout: seconds that a sample may take, all its attempts together; then it has failed.
        timeout: seconds that all samples may take together.
        rate_limiter: asked before each attempt.
        cancelled: whether what still runs is cut off.

    Raises:
        ConfigurationError: an option is wrong.
    """

    pool: ReplicaPool
    messages: list[BaseMessage]
    _: KW_ONLY
    n: int
    first: int = 0
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    seeds: Sequence[int | None] | None = None
    per_request: int = 1
    sample_timeout: float | None = None
    timeout: float | None = None
    rate_limiter: BaseRateLimiter | None = None
    cancelled: bool = field(default=False, init=False)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.n < 1 or self.per_request < 1:
            raise ConfigurationError(
                f"at least 1 sample is drawn, at least 1 per request; got n={self.n}, per_request={self.per_request}"
            )
        if self.seeds is not None and len(self.seeds) != self.n:
            raise ConfigurationError(f"a seed for each of the {self.n} samples is needed, got {len(self.seeds)}")
        for name in ("sample_timeout", "timeout"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise ConfigurationError(f"{name} must be a positive number of seconds, got {seconds!r}")

    def start(self, sender: Sender[Drawn]) -> Callable[[], None]:
        """Begin to draw; returns :meth:`cancel`.

        Raises:
            ModelClosedError: the pool was closed.
        """
        self.pool.loop.producing(self._produce)(sender)
        return self.cancel

    async def _produce(self, put: Put) -> None:
        """Draw them all, handing over each when it ends."""
        if self.cancelled:
            return
        begun = time.monotonic()
        deadlines = [begun + seconds for seconds in (self.sample_timeout, self.timeout) if seconds is not None]
        deadline = min(deadlines, default=None)
        size = self.per_request if self._may_share() else 1
        groups = [range(at, min(at + size, self.n)) for at in range(0, self.n, size)]
        self._tasks = [asyncio.create_task(self._some(group, deadline, put)) for group in groups]
        try:
            while running := [task for task in self._tasks if not task.done()]:
                await asyncio.wait(running)
        finally:
            self.cancelled = True
            self._cancel_tasks()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cancel(self) -> None:
        """Close the connections of all live samples at once; callable from any thread.

        Those that were sent still come out, with ``finish_reason="cancelled"`` and what they said so far. The others
        cost nothing and do not come out.
        """
        self.cancelled = True
        self.pool.loop.call_soon(self._cancel_tasks)

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _may_share(self) -> bool:
        return all(reads_choices(replica.client, self.kwargs) for replica in self.pool.router.replicas)

    async def _some(self, positions: Sequence[int], deadline: float | None, put: Put) -> None:
        group = [Drawn(self.first + position) for position in positions]
        kwargs = {**self.kwargs}
        if self.seeds is not None and (seed := self.seeds[positions[0]]) is not None:
            kwargs["seed"] = seed

        def hand_over(drawn: Drawn) -> None:
            drawn.over = True
            put(drawn)

        async def once_alone(attempt: Attempt) -> None:
            await draw_one(attempt, self.messages, kwargs, group[0], lambda: self.cancelled)

        once = once_alone
        if len(group) > 1:
            once = SharedRequest(self.messages, kwargs, group, lambda: self.cancelled, hand_over).once
        try:
            attempts = self.pool.attempts(self.messages, responses=len(group), rate_limiter=self.rate_limiter)
            await attempts.run(once, deadline=deadline)
        except asyncio.CancelledError:
            if not self.cancelled:
                raise
            for drawn in group:
                drawn.cancelled, drawn.error = True, None
        except Exception as error:
            for drawn in group:
                drawn.error = error
        for position, drawn in zip(positions, group, strict=True):
            if drawn.missing:
                self._tasks.append(asyncio.create_task(self._some([position], deadline, put)))
        left = [drawn for drawn in group if not (drawn.over or drawn.missing)]
        for drawn in left[1:]:
            drawn.shares_prompt = True
        for drawn in left:
            if not drawn.cancelled or drawn.server is not None:  # else never sent, and so never paid for
                hand_over(drawn)
