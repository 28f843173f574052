"""Models over loopback servers that behave as a script says, and one set of names for their sync and async methods."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_reasc_openai import ChatOpenAICompatible, RetryPolicy
from servers import fake_server
from servers.exchange import Exchange
from servers.exchange import refuses as refuses

from langchain_reasc.models import FailedSample

PROMPT = [HumanMessage("How much is 17 + 25?")]
FAST = RetryPolicy(first_wait=0.01, longest_wait=0.02, sideline=0.05)
Ended = tuple[int, AIMessage | FailedSample]


def model_at(*urls: str, **fields: Any) -> ChatOpenAICompatible:
    given: dict[str, Any] = {"logprobs": True, "top_logprobs": 2, "timeout": 10.0, "retry": FAST}
    given |= {"api_key": "sk-loopback", **fields}
    return ChatOpenAICompatible(base_url=urls, model="loopback", preset="vllm", **given)


@contextmanager
def pool_of(*urls: str, **fields: Any) -> Iterator[ChatOpenAICompatible]:
    """A model over servers that is left with nothing in flight."""
    with model_at(*urls, **fields) as model:
        yield model
        assert eventually(lambda: not any(status.in_flight for status in model.status()))


@contextmanager
def serving(step: Any) -> Iterator[str]:
    """A server whose every request is answered by a step; gives its base URL."""
    with fake_server.serving(step) as served:
        yield served.url


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
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
        self.open = 0

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
        await exchange.begin_stream()
        for _ in range(words):
            await exchange.token("half ")

    return step


def by_seed(*steps: Any) -> Any:
    """Answers the sample with seed i with step i."""

    async def step(exchange: Exchange) -> None:
        await steps[exchange.body["seed"]](exchange)

    return step


async def hangs(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.hang()


silent = Exchange.hang


async def endless(exchange: Exchange) -> None:
    while not exchange.gone.is_set():
        await exchange.token("on ")
        await asyncio.sleep(0.002)


class Face:
    """Calls methods of a chat model, or their asynchronous twins in an event loop; streams are read to their ends."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async

    def invoke(self, model: Any, given: Any, **options: Any) -> Any:
        return self._call(model, "invoke", given, **options)

    def generate(self, model: Any, given: Any, **options: Any) -> Any:
        return self._call(model, "generate", given, **options)

    def solve(self, reasc: Any, given: Any) -> Any:
        return self._call(reasc, "solve", given)

    def batch(self, model: Any, given: Any) -> Any:
        return self._call(model, "batch", given)

    def capabilities(self, model: Any) -> Any:
        return self._call(model, "capabilities")

    def stream(self, model: Any, given: Any = PROMPT, **options: Any) -> list[AIMessageChunk]:
        return self._read(model, "stream", given, **options)

    def sample(self, model: Any, given: Any = PROMPT, **options: Any) -> list[Ended]:
        return self._read(model, "sample", given, **options)

    def cancelled_when(self, model: Any, condition: Callable[[], bool], **options: Any) -> list[Ended]:
        """Samples that are cancelled once this holds."""
        if not self.is_async:
            with model.sample(PROMPT, **options) as stream:
                assert eventually(condition)
                stream.cancel()
                return list(stream)

        async def main() -> list[Ended]:
            async with model.asample(PROMPT, **options) as stream:
                first = asyncio.ensure_future(anext(stream, None))
                await asyncio.sleep(0)
                assert await asyncio.to_thread(eventually, condition)
                stream.cancel()
                head = await first
                return ([head] if head else []) + [pair async for pair in stream]

        return asyncio.run(main())

    def _call(self, model: Any, name: str, *args: Any, **options: Any) -> Any:
        if self.is_async:
            return asyncio.run(getattr(model, f"a{name}")(*args, **options))
        return getattr(model, name)(*args, **options)

    def _read(self, model: Any, name: str, given: Any, *, then: Any = lambda stream, item: None, **options: Any) -> Any:
        items = []
        if not self.is_async:
            stream = getattr(model, name)(given, **options)
            for item in stream:
                items.append(item)
                then(stream, item)
            return items

        async def main() -> None:
            stream = getattr(model, f"a{name}")(given, **options)
            async for item in stream:
                items.append(item)
                then(stream, item)

        asyncio.run(main())
        return items


def text_of(chunks: Sequence[AIMessageChunk]) -> str:
    return "".join(chunk.text for chunk in chunks)
