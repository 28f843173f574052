"""Pools over loopback servers, and one set of names for their sync and async methods."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from langchain_reasc_backend.bridge import Start
from langchain_reasc_openai.drawing.draw import AsyncSampleStream, Draw, SampleStream
from langchain_reasc_openai.drawing.drawn import Drawn
from langchain_reasc_openai.routing.replicas import ReplicaPool
from langchain_reasc_openai.routing.retrying import RetryPolicy
from langchain_reasc_openai.routing.router import Replica, prompt_key
from pydantic import SecretStr
from servers import fake_server
from servers.exchange import Exchange
from servers.exchange import refuses as refuses

from langchain_reasc.models.contract import FailedSample

PROMPT = [HumanMessage("How much is 17 + 25?")]
FAST = RetryPolicy(first_wait=0.01, longest_wait=0.02, sideline=0.05)
Ended = tuple[int, AIMessage | FailedSample]


def client(url: str, **fields: Any) -> ChatOpenAI:
    given = {"model": "loopback", "logprobs": True, "top_logprobs": 2, "stream_usage": True, "timeout": 10.0}
    return ChatOpenAI(base_url=url, api_key=SecretStr("sk-loopback"), **{**given, **fields})


@contextmanager
def pool_of(
    *urls: str, retry: RetryPolicy = FAST, fields: dict[str, Any] | None = None, **options: Any
) -> Iterator[Any]:
    pool = ReplicaPool([(url, client(url, **(fields or {}))) for url in urls], retry=retry, **options)
    try:
        yield pool
        assert [status.in_flight for status in pool.status()] == [0] * len(urls) or eventually(
            lambda: all(status.in_flight == 0 for status in pool.status())
        )
    finally:
        pool.close()


def prompts_of_all(pool: ReplicaPool, count: int) -> list[list[BaseMessage]]:
    """Prompts that prefer each server in turn: where one goes depends on the ports."""
    home: dict[Replica, list[list[BaseMessage]]] = {replica: [] for replica in pool.router.replicas}
    for prompt in ([HumanMessage(f"question {at}")] for at in range(1000)):
        home[pool.router.choose(prompt_key(prompt))].append(prompt)
    return [prompt for turn in zip(*home.values(), strict=False) for prompt in turn][:count]


def sample(pool: ReplicaPool, **options: Any) -> SampleStream:
    return SampleStream(Draw(pool, PROMPT, **options).start, Drawn.outcome)


def asample(pool: ReplicaPool, **options: Any) -> AsyncSampleStream:
    async def begin() -> Start[Drawn]:
        return Draw(pool, PROMPT, **options).start

    return AsyncSampleStream(begin, Drawn.outcome)


@contextmanager
def serving(step: Any) -> Iterator[str]:
    """A server whose every request is answered by a step; gives its base URL."""
    with fake_server.serving(step) as served:
        yield served.url


def eventually(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether the condition comes true in time."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


class Script:
    """Answers request i with step i (the last one again and again), and keeps the requests."""

    def __init__(self, *steps: Any) -> None:
        self.steps, self.requests, self.times = steps, [], []
        self.open, self.lock = 0, threading.Lock()

    async def __call__(self, exchange: Exchange) -> None:
        step = self.steps[min(len(self.requests), len(self.steps) - 1)]
        self.requests.append(exchange.body)
        self.times.append(time.monotonic())
        self.open += 1
        try:
            await step(exchange)
        finally:
            self.open -= 1


def says(text: str) -> Any:
    async def step(exchange: Exchange) -> None:
        await exchange.say(text)

    return step


def cut_after(words: int) -> Any:
    """Ends the response after some words; with 0, after the head."""

    async def step(exchange: Exchange) -> None:
        await exchange.begin()
        for _ in range(words):
            await exchange.token("half ")

    return step


async def hangs(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.hang()


silent = Exchange.hang


async def endless(exchange: Exchange) -> None:
    while not exchange.gone.is_set():
        await exchange.token("on ")
        await asyncio.sleep(0.002)


class SyncCalls:
    def stream(self, pool: ReplicaPool, prompt: Any = PROMPT, **options: Any) -> list[ChatGenerationChunk]:
        return list(pool.stream(prompt, **options))

    def generate(self, pool: ReplicaPool, **options: Any) -> ChatResult:
        return pool.generate(PROMPT, **options)

    def sample(
        self, pool: ReplicaPool, *, then: Callable[[Any, Ended], None] | None = None, **options: Any
    ) -> list[Ended]:
        ended = []
        with sample(pool, **options) as stream:
            for pair in stream:
                ended.append(pair)
                if then:
                    then(stream, pair)
        return ended

    def cancelled_when(self, pool: ReplicaPool, condition: Callable[[], bool], **options: Any) -> list[Ended]:
        with sample(pool, **options) as stream:
            assert eventually(condition)
            stream.cancel()
            return list(stream)


class AsyncCalls:
    def stream(self, pool: ReplicaPool, prompt: Any = PROMPT, **options: Any) -> list[ChatGenerationChunk]:
        async def main() -> list[ChatGenerationChunk]:
            return [chunk async for chunk in pool.astream(prompt, **options)]

        return asyncio.run(main())

    def generate(self, pool: ReplicaPool, **options: Any) -> ChatResult:
        return asyncio.run(pool.agenerate(PROMPT, **options))

    def sample(
        self, pool: ReplicaPool, *, then: Callable[[Any, Ended], None] | None = None, **options: Any
    ) -> list[Ended]:
        async def main() -> list[Ended]:
            ended = []
            async with asample(pool, **options) as stream:
                async for pair in stream:
                    ended.append(pair)
                    if then:
                        then(stream, pair)
            return ended

        return asyncio.run(main())

    def cancelled_when(self, pool: ReplicaPool, condition: Callable[[], bool], **options: Any) -> list[Ended]:
        async def main() -> list[Ended]:
            async with asample(pool, **options) as stream:
                first = asyncio.ensure_future(anext(stream, None))
                await asyncio.sleep(0)
                assert await asyncio.to_thread(eventually, condition)
                stream.cancel()
                head = await first
                return ([head] if head else []) + [pair async for pair in stream]

        return asyncio.run(main())


def text_of(chunks: Sequence[ChatGenerationChunk]) -> str:
    return "".join(chunk.text for chunk in chunks)
