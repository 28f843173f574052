"""Draw the samples of one call from a pool of servers, with a task for each request.

**One request per sample, or one for several?** On a real llama-server
(``python -m benchmarks.abort``; 8 samples of a new prompt of 398 tokens), 8 requests
computed 3,184 prompt tokens, and one request with ``n=8`` computed 398 and ended
sooner. Servers that charge for the prompt also charge it once. Both ways can be cut
off: a request with ``n=8`` is streamed, each response comes out when it ends, and the
stream is closed with the decision. In both ways the server then generated under 1 % of
the rest. A request per sample lets samples fail, move to another server and be seeded
one by one, and some servers offer nothing else. So ``per_request`` is the caller's
choice, 1 by default.

All this runs in the pool's event loop, for synchronous callers too. A thread blocked in
a read sees a cancellation only with its next token; a task is cancelled at once, and
its connection is closed.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_reasc_backend.bridge import AsyncStream, Sender, Stream
from openai import APIStatusError

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.chunks import message_of, metadata_of, salvaged
from langchain_reasc.models.contract import (
    CANCELLED,
    FAILED_ATTEMPTS,
    FINISH_REASON,
    RECEIVED_TOKENS,
    FailedSample,
    sample_id,
)
from langchain_reasc.models.payloads import without_texts
from langchain_reasc_openai.client import RAW
from langchain_reasc_openai.events import Json, MergedResponse, without_bytes
from langchain_reasc_openai.replicas import ReplicaPool, read_responses
from langchain_reasc_openai.routing import Attempt, Replica

SampleStream = Stream[tuple[int, AIMessage | FailedSample]]
"""Samples as ``(index, message)`` in the order they end."""
AsyncSampleStream = AsyncStream[tuple[int, AIMessage | FailedSample]]
"""Samples for ``async for``. The requests are sent when the iteration begins."""


@dataclass(eq=False)
class Attempted:
    """One sample, during its attempts and afterwards.

    Attributes:
        index: the sample's index.
        response: the response of the last attempt, once its first event has come.
        beside: metadata of the response that is not in its events.
        server: the server of the last attempt, once there was one.
        error: the error of the last attempt.
        cancelled: whether it was cut off.
        ended: whether its finish reason was received.
        handed_over: whether the reader has the sample.
        shares_prompt: whether another sample of the same request is billed for the
            prompt.
        usage: its usage, once reported.
        failed_attempts: a record of each attempt before the last.
    """

    index: int
    response: MergedResponse | None = None
    beside: Json = field(default_factory=dict)
    server: Replica | None = None
    error: Exception | None = None
    cancelled: bool = False
    ended: bool = False
    handed_over: bool = False
    shares_prompt: bool = False
    usage: UsageMetadata | None = None
    failed_attempts: list[dict[str, Any]] = field(default_factory=list)

    def start_attempt(self, server: Replica, beside: Json) -> None:
        """Start an attempt, and record the failed one before it."""
        if self.server is not None:
            error = f"{type(self.error).__name__}: {self.error}".splitlines()[0]
            self.failed_attempts.append(
                {
                    "server": self.server.url,
                    "error": error,
                    RECEIVED_TOKENS: self.tokens,
                }
            )
        self.response, self.beside, self.ended, self.server, self.error = (
            None,
            beside,
            False,
            server,
            None,
        )
        self.usage = None

    def add_event(self, event: Json, choice: Json, kept: Callable[[Any], Any]) -> None:
        """Add an event to the response. Its finish reason ends the sample. For ``kept``
        see :class:`MergedResponse`.
        """
        self.ended |= bool(choice.get("finish_reason"))
        self.response = self.response or MergedResponse(kept)
        self.response.add_event(event, choice)

    def hand_over(self, put: Callable[["Attempted"], None]) -> None:
        """Give the sample to the reader."""
        self.handed_over = True
        put(self)

    @property
    def tokens(self) -> int:
        """Tokens received in the last attempt."""
        return self.response.tokens if self.response else 0

    @property
    def left_out(self) -> bool:
        """Whether the server answered the request without this sample."""
        return self.server is not None and not (
            self.handed_over or self.cancelled or self.error or self.response
        )

    def outcome(self) -> tuple[int, AIMessage | FailedSample]:
        """Return the item of the stream of samples: a message, or a ``FailedSample``."""
        parts: list[BaseMessage] = []
        try:
            if self.server and (self.response or self.usage):
                event = (self.response or MergedResponse()).event
                chunk = self.server.client.chunk_of(event, event["choices"][0])
                metadata = {**metadata_of(chunk), **self.beside}
                parts.append(
                    chunk.message.model_copy(update={"response_metadata": metadata})
                )
            if self.error is None:
                return self.index, self._message(
                    message_of(parts) if parts else AIMessage("")
                )
        except Exception as error:  # LangChain cannot read this response
            self.error = self.error or error
        paid = salvaged(parts)
        return self.index, FailedSample(
            self.error, None if paid is None else self._message(paid)
        )

    def _message(self, message: AIMessage) -> AIMessage:
        """Return the response with its usage, server and failed attempts."""
        usage = self.usage
        metadata = {
            **message.response_metadata,
            "server": self.server.url if self.server else None,
        }
        if self.failed_attempts:
            metadata[FAILED_ATTEMPTS] = self.failed_attempts
        if self.cancelled or self.error:
            metadata[RECEIVED_TOKENS] = self.tokens
            metadata[FINISH_REASON] = CANCELLED if self.cancelled else "error"
        if self.shares_prompt:
            usage = UsageMetadata(
                input_tokens=0, output_tokens=self.tokens, total_tokens=self.tokens
            )
        update: dict[str, Any] = {
            "response_metadata": metadata,
            "id": message.id or sample_id(),
        }
        return message.model_copy(
            update=update if usage is None else {**update, "usage_metadata": usage}
        )


@dataclass
class Draw:
    """Samples ``first`` to ``first + n - 1`` of one prompt, drawn together.

    If a sample is refused for good before any was answered, the others are not tried
    again.

    If the server fails in the middle of a sample, the sample starts again on another
    server. The lost attempt is listed in ``response_metadata["failed_attempts"]`` of
    the message, and is not part of its usage. ``response_metadata["server"]`` names the
    server. A sample that was cut off has ``response_metadata["received_tokens"]``
    instead of a usage.

    Attributes:
        pool: the servers.
        messages: the prompt.
        n: the number of samples.
        first: the index of the first sample.
        kwargs: arguments of the chat model's ``_astream``.
        seed: the seed of sample 0; sample i has ``seed + i``. The samples of one
            request share the first one's seed.
        per_request: the samples in one request, by ``n``, if the server supports that.
            Samples that such a request does not return are drawn one by one. The server
            reports one usage for all. The prompt is billed to the sample that ends
            last, and so are output tokens that no other sample is billed for.
        sample_timeout: seconds for a sample, with all its attempts; then it has failed.
        timeout: seconds for all samples together.
        rate_limiter: asked before each attempt.
        cancelled: whether the running samples are cut off.

    Raises:
        ConfigurationError: n is below 1.
    """

    pool: ReplicaPool
    messages: list[BaseMessage]
    _: KW_ONLY
    n: int
    first: int = 0
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    per_request: int = 1
    sample_timeout: float | None = None
    timeout: float | None = None
    rate_limiter: BaseRateLimiter | None = None
    cancelled: bool = field(default=False, init=False)
    _heard: bool = field(default=False, init=False)
    _refused: bool = field(default=False, init=False)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ConfigurationError(f"at least 1 sample is drawn; got n={self.n}")

    def start(self, sender: Sender[Attempted]) -> Callable[[], None]:
        """Start drawing, and return :meth:`cancel`.

        Raises:
            ModelClosedError: the pool was closed.
        """
        self.pool.loop.producing(self._produce)(sender)
        return self.cancel

    def cancel(self) -> None:
        """Close the connections of all live samples at once, from any thread.

        Samples that were sent still come out, with ``finish_reason="cancelled"`` and
        their text so far. The others cost nothing and do not come out.
        """
        self.cancelled = True
        self.pool.loop.call_soon(self._cancel_tasks)

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _produce(self, put: Callable[[Attempted], None]) -> None:
        """Draw all samples, and hand over each of them when it ends."""
        if self.cancelled:
            return
        limits = [
            seconds
            for seconds in (self.sample_timeout, self.timeout)
            if seconds is not None
        ]
        deadline = time.monotonic() + min(limits) if limits else None
        samples = [Attempted(self.first + at) for at in range(self.n)]
        size = self.per_request
        groups = [samples[at : at + size] for at in range(0, self.n, size)]
        self._tasks = [
            asyncio.create_task(self._draw_group(group, deadline, put))
            for group in groups
        ]
        try:
            while running := [task for task in self._tasks if not task.done()]:
                await asyncio.wait(running)
        finally:
            self.cancelled = True
            self._cancel_tasks()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _draw_group(
        self,
        group: Sequence[Attempted],
        deadline: float | None,
        put: Callable[[Attempted], None],
    ) -> None:
        """Draw the samples of one request."""
        options = {
            "rate_limiter": self.rate_limiter,
            "may_retry": lambda: self._heard or not self._refused,
        }
        attempts = self.pool.attempts(
            self.messages, self.kwargs, responses=len(group), **options
        )
        error: Exception | None = None
        try:
            await attempts.run(
                lambda attempt: self._attempt(attempt, group, put), deadline=deadline
            )
        except asyncio.CancelledError:
            if not self.cancelled:
                raise
            group = [
                sample for sample in group if sample.server is not None
            ]  # the others cost nothing
            for sample in group:
                sample.cancelled = not sample.handed_over
        except Exception as failure:
            error, self._refused = (
                failure,
                self._refused or isinstance(failure, APIStatusError),
            )
        self._hand_over_rest(group, error, deadline, put)

    def _hand_over_rest(
        self,
        group: Sequence[Attempted],
        error: Exception | None,
        deadline: float | None,
        put: Callable[[Attempted], None],
    ) -> None:
        """Hand over the samples that are left. Each sample that the server left out
        gets a request of its own.
        """
        left = [sample for sample in group if not sample.handed_over]
        for sample in left:
            sample.error = error
        left_out = [sample for sample in left if sample.left_out]
        for sample in left_out:
            self._tasks.append(
                asyncio.create_task(
                    self._draw_group([Attempted(sample.index)], deadline, put)
                )
            )
        for at, sample in enumerate(
            sample for sample in left if sample not in left_out
        ):
            sample.shares_prompt = at > 0
            sample.hand_over(put)

    async def _attempt(
        self,
        attempt: Attempt,
        group: Sequence[Attempted],
        put: Callable[[Attempted], None],
    ) -> None:
        """Request the samples that are left, and hand over each that ends before the
        others.
        """
        asked, beside = [sample for sample in group if not sample.handed_over], Json()
        # a raw request's texts are in its events
        kept = without_texts if RAW in self.kwargs else without_bytes
        for sample in asked:
            sample.start_attempt(attempt.replica, beside)

        def add_event(index: int, event: Json, choice: Json) -> None:
            self._heard = True
            asked[index].add_event(event, choice, kept)
            if self.cancelled:  # a client may have swallowed the cancellation
                raise asyncio.CancelledError
            # The last sample waits for the bill.
            if len(asked) > 1 and any(
                sample.response and not sample.ended for sample in asked
            ):
                for sample in asked:
                    if sample.ended and not sample.handed_over:
                        sample.shares_prompt = True
                        sample.hand_over(put)

        def bill(event: Json) -> None:
            usage = attempt.replica.client.chunk_of(event, None).message.usage_metadata  # type: ignore[attr-defined]
            if len(asked) == 1:
                asked[0].usage = usage
            elif ended := [sample for sample in asked if sample.ended]:
                _bill(usage, ended)

        index = group[0].index
        own: dict[str, Any] = {} if self.seed is None else {"seed": self.seed + index}
        try:
            await read_responses(
                attempt,
                self.messages,
                {**self.kwargs, **own},
                add_event,
                bill,
                beside,
                n=len(asked),
            )
        except Exception as error:
            for sample in asked:
                sample.error = None if sample.handed_over else error
            if RAW in self.kwargs:
                self.kwargs[RAW].on_events([])
            raise


def _bill(usage: UsageMetadata, samples: Sequence[Attempted]) -> None:
    """Bill the last sample for the prompt, and for the output tokens that the others
    were not billed for.
    """
    last = next(sample for sample in samples if not sample.handed_over)
    others = sum(sample.tokens for sample in samples if sample is not last)
    # llama-server reports only one sample's
    output = max(usage["output_tokens"] - others, last.tokens)
    last.usage = UsageMetadata(
        **{
            **usage,
            "output_tokens": output,
            "total_tokens": usage["input_tokens"] + output,
        }
    )
