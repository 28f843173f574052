"""Several servers of one model behind one chat model, and the reader of their streams."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_reasc_backend.bridge import Start
from pydantic import BaseModel, ValidationError

from langchain_reasc.answers import UnknownFinish, finish_of
from langchain_reasc.exceptions import SamplingError
from langchain_reasc.models.chunks import (
    ResponseBound,
    refuse_failed,
    token_limit,
    warn_unknown_finish,
)
from langchain_reasc.models.contract import FINISH_REASON
from langchain_reasc_openai.event_loop import LoopThread
from langchain_reasc_openai.events import Json, Normalizer, checked_text, tokens_in
from langchain_reasc_openai.routing import (
    Attempt,
    Attempts,
    Replica,
    RetryPolicy,
    Router,
    prompt_key,
    scope_of,
)

_SLACK: Final = 1.05
"""The limit of silence is this many times the allowed seconds, so that it need not be
moved with each event.
"""


@dataclass(frozen=True, kw_only=True)
class ReplicaStatus:
    """The status of one server.

    Attributes:
        url: its address, without secrets.
        in_flight: how many responses it is working on.
        healthy: whether it gets its share of requests.
        retry_at: when a sidelined or resting server is tried again, on the clock of
            ``time.monotonic``. None for other servers.
        served: how many requests it answered to the end.
        failed: how many requests it failed.
        error: its last error, in a line.
    """

    url: str
    in_flight: int
    healthy: bool
    retry_at: float | None
    served: int
    failed: int
    error: str | None

    @classmethod
    def of_replica(cls, replica: Replica, scope: str, now: float) -> "ReplicaStatus":
        """Return the status of a server for requests of a scope, at a time."""
        healths, error = replica.healths(scope), replica.last_error
        until = max(max(health.retry_at, health.rests_until) for health in healths)
        return cls(
            **{
                name: getattr(replica, name)
                for name in ("url", "in_flight", "served", "failed")
            },
            healthy=all(health.healthy for health in healths),
            retry_at=until if until > now else None,
            error=None
            if error is None
            else f"{type(error).__name__}: {error}".splitlines()[0],
        )


class ReplicaPool:
    """One or several servers of the same model.

    A request goes to the server that has its prompt cached or the least to do. A server
    that fails is sidelined and tried again with growing pauses, and its requests go to
    another. All requests run in one event loop, in a thread of the pool, so that
    synchronous and asynchronous callers share code, connections and health.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        retry: RetryPolicy,
        *,
        affinity: bool,
        burst: int,
        closes: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        """Create the pool without connecting.

        Args:
            replicas: the servers.
            retry: when a request is tried again.
            affinity: whether requests of one prompt prefer one server, for its prefix
                cache.
            burst: the most responses to one prompt that a server generates at a time,
                however idle the others are.
            closes: functions that close the servers' connections.
        """
        self.retry = retry
        self.loop = LoopThread("openai-replicas", partial(_close_all, closes))
        self.router = Router(replicas, burst=burst)
        self._affinity = affinity

    def status(self, kwargs: Mapping[str, Any]) -> list[ReplicaStatus]:
        """Return the servers' status for requests with such arguments, in the order
        given.
        """
        scope, now = scope_of(kwargs), self.router.clock()
        return [
            ReplicaStatus.of_replica(replica, scope, now)
            for replica in self.router.replicas
        ]

    def attempts(
        self, messages: Sequence[BaseMessage], kwargs: Mapping[str, Any], **options: Any
    ) -> Attempts:
        """Return the attempts of one request, with options of
        :class:`~langchain_reasc_openai.routing.Attempts`.
        """
        key = prompt_key(messages) if self._affinity else None
        return Attempts(
            self.router, self.retry, key=key, scope=scope_of(kwargs), **options
        )

    def stream(
        self,
        messages: list[BaseMessage],
        kwargs: Mapping[str, Any],
        rate_limiter: BaseRateLimiter | None,
    ) -> Start[ChatGenerationChunk]:
        """Return the start of one response, chunk by chunk. After the first content,
        nothing is tried again.

        The rate limiter is asked before every attempt but the first, for which
        ``BaseChatModel`` has asked it.
        """
        schema = kwargs.get("response_format")

        async def produce(put: Callable[[ChatGenerationChunk], None]) -> None:
            begun = False

            async def once(attempt: Attempt) -> None:
                held: list[
                    ChatGenerationChunk
                ] = []  # while the response can still start again elsewhere
                beside: Json = {}
                text, normalizer = "", Normalizer()

                def put_chunk(_: int, event: Json, choice: Json | None) -> None:
                    nonlocal begun, text
                    if choice is not None:
                        choice = {
                            **choice,
                            "delta": normalizer.repaired(
                                choice["delta"], choice.get(FINISH_REASON)
                            ),
                        }
                    chunk = attempt.replica.client.chunk_of(event, choice)
                    text += chunk.text
                    if (
                        chunk.generation_info
                        and FINISH_REASON in chunk.generation_info
                        and isinstance(schema, type)
                        and issubclass(schema, BaseModel)
                    ):
                        # with_structured_output says what is missing.
                        with suppress(ValidationError):
                            parsed = schema.model_validate_json(text)
                            chunk.message.additional_kwargs["parsed"] = parsed
                    chunk.message.response_metadata |= beside
                    beside.clear()
                    held.append(chunk)
                    begun = begun or _has_content(chunk)
                    while begun and held:
                        put(held.pop(0))

                def put_usage(event: Json) -> None:
                    put_chunk(0, event, None)

                await read_responses(
                    attempt, messages, kwargs, put_chunk, put_usage, beside
                )

            options = {
                "rate_limiter": rate_limiter,
                "prepaid": True,
                "may_retry": lambda: not begun,
            }
            await self.attempts(messages, kwargs, **options).run(once)

        return self.loop.producing(produce)

    def generate(
        self,
        messages: list[BaseMessage],
        kwargs: Mapping[str, Any],
        rate_limiter: BaseRateLimiter | None,
    ) -> "Future[ChatResult]":
        """Request a response in one piece, with the arguments of :meth:`stream`.
        Cancelling the future closes it.
        """
        attempts = self.attempts(
            messages, kwargs, rate_limiter=rate_limiter, prepaid=True
        )
        return self.loop.run(
            attempts.run(lambda attempt: attempt.replica.client.whole(messages, kwargs))
        )

    def close(self) -> None:
        """Cut off running requests, and close the connections."""
        self.loop.close()


async def _close_all(closes: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Close every connection, even if closing another fails."""
    for close in closes:
        with suppress(Exception):
            await close()


class _Response:
    """One of the responses to a request, as far as it was read."""

    def __init__(
        self, limit: int | None, on_event: Callable[[Json, Json], None]
    ) -> None:
        self._bound, self._on_event = ResponseBound(limit), on_event
        self._unknown = UnknownFinish()
        self.begun = self.ended = self.passed = False

    @property
    def over(self) -> bool:
        """Whether the response has ended, or passed its limit of tokens."""
        return self._bound.over

    def receive(self, event: Json, choice: Json) -> None:
        """Check and pass on a choice of an event. A finish reason that we do not know
        waits for the stream's end.

        Raises:
            SamplingError: the server failed to generate the response, or sent a delta
                that cannot be read.
        """
        if self.passed:
            return
        if choice.get("delta") is None:
            choice["delta"] = {}
        text = checked_text(choice["delta"])
        self.begun = True
        reason = choice.get(FINISH_REASON)
        finish = None if reason is None else finish_of(reason)
        if reason is not None and finish != "ended":
            choice[FINISH_REASON] = None
        self._unknown.add(reason, says=bool(text))
        self.ended = self.ended or finish == "ended"
        self._on_event(event, choice)
        if finish == "failed":
            refuse_failed({FINISH_REASON: reason})
        self._bound.count(tokens_in(choice), text, ended=finish == "ended")
        if self._bound.passed:  # the rest of the response is not received
            self.passed = True
            if self._bound.cut():
                self.end("length")

    def end(self, reason: str) -> None:
        """End the response, for a reason that the server did not name."""
        if self.begun and not self.ended:
            self.ended = True
            self._on_event({}, {"delta": {}, "finish_reason": reason})

    def end_of_stream(self) -> None:
        """End the response for the last finish reason, if it is a word that we do not
        know and no content followed.
        """
        if self._unknown.reason is not None and not self.ended:
            warn_unknown_finish(self._unknown.reason)
            self.end(self._unknown.reason)


async def read_responses(
    attempt: Attempt,
    messages: list[BaseMessage],
    kwargs: Mapping[str, Any],
    on_event: Callable[[int, Json, Json], None],
    bill: Callable[[Json], None],
    beside: Json,
    n: int = 1,
) -> None:
    """Read n responses to their ends. A cancellation closes the connection, so that the
    server stops generating.

    A response that passes its limit of tokens is ended there, as the server should have
    done. A server that ignores ``n`` leaves some responses out.

    Args:
        attempt: the attempt, with its server.
        messages: the prompt.
        kwargs: the arguments of the call.
        on_event: called with the number of a response, from 0, an event, and the
            response's choice in the event.
        bill: called with the last event with a usage, if there is one. The usage is
            that of all responses together.
        beside: receives the metadata of the responses that is not in their events.
        n: the number of responses.

    Raises:
        TimeoutError: the stream was silent for too long.
        SamplingError: the stream ended without a finish reason. If the headers have no
            length, nothing else tells a cut connection from the end of a response.
        Exception: an error of the server's client.
    """
    server = attempt.replica
    last: Json | None = None
    heard = False
    limit = token_limit(server.client, kwargs)
    responses = [_Response(limit, partial(on_event, index)) for index in range(n)]

    def hear(_: bytes, event: Json | None) -> None:
        nonlocal last, heard
        if event is None:
            for response in responses:
                response.end_of_stream()
                response.end("stop")
            return
        heard = True
        if event.get("usage"):
            last = event
        for choice in event.get("choices") or ():
            responses[choice.get("index") or 0].receive(event, choice)

    arriving = server.client.events(messages, kwargs, hear, beside, n)
    async with _silence_limit(server) as restart, aclosing(arriving) as pieces:
        async for _ in pieces:
            restart()
            attempt.record_answer()
            if any(response.passed for response in responses) and all(
                response.over for response in responses
            ):
                break
    for response in responses:
        response.end_of_stream()
    if last is not None:
        bill(last)
    if not heard:
        raise SamplingError(
            f"{server.url} answered without a single event of a stream; is that the "
            "address of an OpenAI-compatible API?"
        )
    if not all(response.ended for response in responses if response.begun) or not any(
        one.begun for one in responses
    ):
        raise SamplingError(
            f"{server.url} ended the stream before the response had a finish_reason"
        )


@asynccontextmanager
async def _silence_limit(server: Replica) -> AsyncIterator[Callable[[], None]]:
    """Limit the seconds of silence of a server. Yield a function that starts them anew."""
    loop, silence = asyncio.get_running_loop(), server.silence
    try:
        async with asyncio.timeout(silence) as scope:

            def restart() -> None:
                """Move the limit, though not with each event, because that takes a
                tenth of an event's time.
                """
                now = loop.time()
                if silence is not None and (scope.when() or now) < now + silence:
                    scope.reschedule(now + silence * _SLACK)

            yield restart
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise TimeoutError(
            f"{server.url} was silent for {server.silence:g} s (stream_chunk_timeout)"
        ) from error


def logprobs_of(chunk: ChatGenerationChunk) -> Any:
    """Return the provider's logprobs of a chunk, as langchain-openai passes them to
    callbacks.
    """
    return (chunk.generation_info or {}).get("logprobs")


def _has_content(chunk: ChatGenerationChunk) -> bool:
    """Whether a chunk carries a part of the response; the first often names only the
    role.
    """
    message, info = chunk.message, chunk.generation_info or {}
    if (
        message.content
        or message.additional_kwargs
        or info.keys() & {FINISH_REASON, "logprobs"}
    ):
        return True
    return isinstance(message, AIMessageChunk) and bool(
        message.tool_call_chunks or message.usage_metadata
    )
