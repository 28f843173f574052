"""Several servers of one model behind the calls of one chat model."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_reasc_backend.bridge import Start

from langchain_reasc_openai.event_loop import LoopThread
from langchain_reasc_openai.reading import has_content, read
from langchain_reasc_openai.routing import Attempt, Attempts, Replica, RetryPolicy, Router, prompt_key

__all__ = ["ReplicaPool", "ReplicaStatus"]


@dataclass(frozen=True, kw_only=True)
class ReplicaStatus:
    """What is known of one server.

    Attributes:
        url: its address, without secrets.
        in_flight: how many responses it is working on.
        healthy: whether it gets its share of requests.
        retry_at: when a sidelined or resting server is tried again, on the clock of ``time.monotonic``; None for the
            others.
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

    @classmethod
    def of(cls, replica: Replica, now: float) -> "ReplicaStatus":
        """Return the status of a server at a time."""
        until, error = max(replica.retry_at, replica.rests_until), replica.last_error
        return cls(
            **{name: getattr(replica, name) for name in ("url", "in_flight", "healthy", "served", "failed")},
            retry_at=until if until > now else None,
            error=None if error is None else f"{type(error).__name__}: {error}".splitlines()[0],
        )


class ReplicaPool:
    """One or several servers of the same model.

    Requests go to the server that knows their prompt or has least to do; one that fails is sidelined and tried again
    with growing pauses, and its requests go to another. All requests run in one event loop in a thread of the pool's
    own, whoever makes them, so that synchronous and asynchronous callers share code, connections and health.
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
        """Set it up; nothing is connected yet.

        Args:
            replicas: the servers.
            retry: when a request is tried again.
            affinity: whether requests of one prompt prefer one server, for its prefix cache.
            burst: responses to one prompt that a server works on at a time, however idle the others are.
            closes: what closes the servers' connections.
        """
        self.retry = retry
        self.loop = LoopThread("openai-replicas", partial(_close_all, closes))
        self.router = Router(replicas, burst=burst)
        self._affinity = affinity

    def status(self) -> list[ReplicaStatus]:
        """Return the servers' status, in the order given."""
        return [ReplicaStatus.of(replica, self.router.clock()) for replica in self.router.replicas]

    def tells_choices_apart(self, kwargs: Mapping[str, Any]) -> bool:
        """Whether several responses of one streamed request can be told apart."""
        return all(replica.client.tells_choices_apart(kwargs) for replica in self.router.replicas)

    def attempts(self, messages: Sequence[BaseMessage], **options: Any) -> Attempts:
        """Return the tries of one request; options as of :class:`~langchain_reasc_openai.routing.Attempts`."""
        return Attempts(self.router, self.retry, key=prompt_key(messages) if self._affinity else None, **options)

    def stream(
        self, messages: list[BaseMessage], kwargs: Mapping[str, Any], rate_limiter: BaseRateLimiter | None
    ) -> Start[ChatGenerationChunk]:
        """Return what begins one response, chunk by chunk; in the middle of it nothing is tried again.

        The rate limiter is asked before every further attempt; for the first, ``BaseChatModel`` has asked it.
        """

        async def produce(put: Callable[[ChatGenerationChunk], None]) -> None:
            begun = False

            async def once(attempt: Attempt) -> None:
                held: list[ChatGenerationChunk] = []  # until it is too late to start again elsewhere

                def take(_: int, chunk: ChatGenerationChunk) -> None:
                    nonlocal begun
                    held.append(chunk)
                    begun = begun or has_content(chunk)
                    while begun and held:
                        put(held.pop(0))

                await read(attempt, messages, kwargs, take)

            options = {"rate_limiter": rate_limiter, "prepaid": True, "may_retry": lambda: not begun}
            await self.attempts(messages, **options).run(once)

        return self.loop.producing(produce)

    def generate(
        self, messages: list[BaseMessage], kwargs: Mapping[str, Any], rate_limiter: BaseRateLimiter | None
    ) -> "Future[ChatResult]":
        """Begin a response in one piece, with the arguments of :meth:`stream`; cancelling the future closes it."""
        attempts = self.attempts(messages, rate_limiter=rate_limiter, prepaid=True)
        return self.loop.run(attempts.run(lambda attempt: attempt.replica.client.whole(messages, kwargs)))

    def close(self) -> None:
        """Cut off what is running and close the connections."""
        self.loop.close()


async def _close_all(closes: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Close every connection, whatever happens to the others."""
    for close in closes:
        with suppress(Exception):
            await close()
