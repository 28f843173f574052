"""Several servers of one model behind the calls of one chat model."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_reasc_backend.bridge import AsyncStream, Start, Stream

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.threads import as_they_end
from langchain_reasc_openai.langchain_openai_internals import chunk_timeout, response, with_own_connections
from langchain_reasc_openai.probing.addresses import without_secrets
from langchain_reasc_openai.routing.attempts import Attempt, Attempts
from langchain_reasc_openai.routing.event_loop import LoopThread
from langchain_reasc_openai.routing.reading import logprobs_of, read, says_something
from langchain_reasc_openai.routing.retrying import RetryPolicy
from langchain_reasc_openai.routing.router import Replica, Router, prompt_key

__all__ = ["ReplicaPool", "ReplicaStatus"]


@dataclass(frozen=True, kw_only=True)
class ReplicaStatus:
    """What is known of one server.

    Attributes:
        url: its address, without secrets.
        in_flight: how many responses it is working on.
        healthy: whether it gets its share of requests.
        retry_at: when a sidelined or resting server is tried again, on the pool's clock; None for the others.
        served: how many requests it answered to the end.
        failed: how many requests it failed.
        error: what it failed with last, in a line.
    """

    url: str
    in_flight: int
    healthy: bool
    retry_at: float | None
    served: int
    failed: int
    error: str | None


class ReplicaPool:
    """One or several servers of the same model.

    Requests go to the server that knows their prompt or has least to do; one that fails is sidelined and tried again
    with growing pauses, and its requests go to another. All requests run in one event loop in a thread of the pool's
    own, whoever makes them, so that synchronous and asynchronous callers share code, connections and health.
    """

    def __init__(
        self,
        clients: Sequence[tuple[str, BaseChatModel]],
        *,
        retry: RetryPolicy | None = None,
        affinity: bool = True,
        burst: int = 16,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a pool; nothing is connected yet.

        Args:
            clients: each server's base URL and the chat model that talks to it, without retries of its own. Those of
                langchain-openai get connections of their own, unless they were given an ``http_async_client``, which
                is then used in the pool's event loop and must not be used in another.
            retry: when a request is tried again.
            affinity: whether requests of one prompt prefer one server, for its prefix cache.
            burst: responses to one prompt that this server works on at a time, however idle the others are; the number
                of sequences that it decodes together is a good choice.
            clock: returns seconds that never go back.

        Raises:
            ConfigurationError: no server, the same one twice, or a wrong option.
        """
        urls = [without_secrets(url) for url, _ in clients]
        if not urls or len(set(urls)) < len(urls):
            raise ConfigurationError(f"base URLs must be given, each once, got {urls}")
        if not isinstance(burst, int) or burst < 1:
            raise ConfigurationError(f"burst must be a whole number from 1, got {burst!r}")
        replicas, closes = [], []
        for url, (_, client) in zip(urls, clients, strict=True):
            own, close = with_own_connections(client)
            replicas.append(Replica(url, own, silence=chunk_timeout(client)))
            closes += [close] if close else []
        self.retry = retry or RetryPolicy()
        self.loop = LoopThread("openai-replicas", partial(_close_all, closes))
        self.router = Router(replicas, burst=burst, clock=clock)
        self._affinity = affinity

    def status(self) -> list[ReplicaStatus]:
        """The servers, in the order given."""
        return [_status(replica, self.router.clock()) for replica in self.router.replicas]

    def stream(
        self,
        messages: list[BaseMessage],
        *,
        rate_limiter: BaseRateLimiter | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        """One response, chunk by chunk; closing the iterator closes the connection, and the server stops generating.

        Args:
            messages: the prompt.
            rate_limiter: asked before every further attempt; for the first, ``BaseChatModel.stream`` has asked it.
            run_manager: told of every chunk.
            kwargs: arguments of the chat model's ``_astream``, such as ``stop``.

        Raises:
            SamplingError: the stream was cut.
            Exception: what the server's client raised; in the middle of a response nothing is tried again.
        """
        with Stream[ChatGenerationChunk](self._streaming(messages, rate_limiter, kwargs)) as chunks:
            for chunk in chunks:
                if run_manager:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk, logprobs=logprobs_of(chunk))
                yield chunk

    async def astream(
        self,
        messages: list[BaseMessage],
        *,
        rate_limiter: BaseRateLimiter | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        """The asynchronous :meth:`stream`."""

        async def begin() -> Start[ChatGenerationChunk]:
            return self._streaming(messages, rate_limiter, kwargs)

        async with AsyncStream[ChatGenerationChunk](begin) as chunks:
            async for chunk in chunks:
                if run_manager:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk, logprobs=logprobs_of(chunk))
                yield chunk

    def generate(
        self,
        messages: list[BaseMessage],
        *,
        rate_limiter: BaseRateLimiter | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        """A response in one piece, with the arguments and errors of :meth:`stream`."""
        future = self.loop.run(self._generated(messages, rate_limiter, kwargs))
        try:
            next(as_they_end([future]))
            return future.result()
        finally:
            future.cancel()  # on Ctrl-C; does nothing to one that is done

    async def agenerate(
        self,
        messages: list[BaseMessage],
        *,
        rate_limiter: BaseRateLimiter | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        """The asynchronous :meth:`generate`."""
        return await asyncio.wrap_future(self.loop.run(self._generated(messages, rate_limiter, kwargs)))

    def attempts(self, messages: Sequence[BaseMessage], **options: Any) -> Attempts:
        """The tries of one request; options as of :class:`~langchain_reasc_openai.routing.attempts.Attempts`."""
        return Attempts(self.router, self.retry, key=prompt_key(messages) if self._affinity else None, **options)

    def close(self) -> None:
        """Cut off what is running and close the connections."""
        self.loop.close()

    def _streaming(
        self,
        messages: list[BaseMessage],
        rate_limiter: BaseRateLimiter | None,
        kwargs: dict[str, Any],
    ) -> Start[ChatGenerationChunk]:
        async def produce(put: Callable[[ChatGenerationChunk], None]) -> None:
            said = False

            async def once(attempt: Attempt) -> None:
                held: list[ChatGenerationChunk] = []  # until it is too late to start again elsewhere

                def take(chunk: ChatGenerationChunk) -> None:
                    nonlocal said
                    held.append(chunk)
                    said = said or says_something(chunk)
                    while said and held:
                        put(held.pop(0))

                await read(attempt, messages, kwargs, take)

            attempts = self.attempts(messages, rate_limiter=rate_limiter, prepaid=True, goes_on=lambda: not said)
            await attempts.run(once)

        return self.loop.producing(produce)

    async def _generated(
        self,
        messages: list[BaseMessage],
        rate_limiter: BaseRateLimiter | None,
        kwargs: dict[str, Any],
    ) -> ChatResult:
        attempts = self.attempts(messages, rate_limiter=rate_limiter, prepaid=True)
        return await attempts.run(lambda attempt: response(attempt.replica.client, messages, kwargs))


async def _close_all(closes: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Close every connection, whatever happens to the others."""
    for close in closes:
        with suppress(Exception):
            await close()


def _status(replica: Replica, now: float) -> ReplicaStatus:
    until, error = max(replica.retry_at, replica.rests_until), replica.last_error
    return ReplicaStatus(
        **{name: getattr(replica, name) for name in ("url", "in_flight", "healthy", "served", "failed")},
        retry_at=until if until > now else None,
        error=None if error is None else f"{type(error).__name__}: {error}".splitlines()[0],
    )
