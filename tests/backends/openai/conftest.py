"""Every test of a call runs synchronously and in an event loop; nothing found out about a server is left behind."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration
from langchain_reasc_openai import ChatOpenAICompatible
from langchain_reasc_openai.probing.probe import _known

from backends.openai.fake_server import Fake, serving, vllm

Samples = list[tuple[int, Any]]


class SyncFace:
    is_async = False

    def invoke(self, model: Any, given: Any, **options: Any) -> AIMessage:
        answer: AIMessage = model.invoke(given, **options)
        return answer

    def stream(self, model: Any, given: Any, **options: Any) -> list[AIMessageChunk]:
        return list(model.stream(given, **options))

    def generate(self, model: Any, given: str, **options: Any) -> list[ChatGeneration]:
        generations: list[ChatGeneration] = model.generate([[HumanMessage(given)]], **options).generations[0]
        return generations

    def sample(self, model: Any, given: Any, **options: Any) -> Samples:
        with model.sample(given, **options) as samples:
            return list(samples)

    def solve(self, reasc: Any, given: Any) -> Any:
        return reasc.solve(given)


class AsyncFace:
    is_async = True

    def invoke(self, model: Any, given: Any, **options: Any) -> AIMessage:
        answer: AIMessage = asyncio.run(model.ainvoke(given, **options))
        return answer

    def stream(self, model: Any, given: Any, **options: Any) -> list[AIMessageChunk]:
        async def collect() -> list[AIMessageChunk]:
            return [chunk async for chunk in model.astream(given, **options)]

        return asyncio.run(collect())

    def generate(self, model: Any, given: str, **options: Any) -> list[ChatGeneration]:
        result = asyncio.run(model.agenerate([[HumanMessage(given)]], **options))
        generations: list[ChatGeneration] = result.generations[0]
        return generations

    def sample(self, model: Any, given: Any, **options: Any) -> Samples:
        async def collect() -> Samples:
            async with model.asample(given, **options) as samples:
                return [pair async for pair in samples]

        return asyncio.run(collect())

    def solve(self, reasc: Any, given: Any) -> Any:
        return asyncio.run(reasc.asolve(given))


Face = SyncFace | AsyncFace


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving(vllm()) as served:
        yield served


def model_of(fake: Fake, **fields: Any) -> ChatOpenAICompatible:
    return ChatOpenAICompatible(**{"base_url": fake.url, "model": "tiny", "preset": "vllm", **fields})


def asked(fake: Fake) -> dict[str, Any]:
    return fake.requests[-1]


@pytest.fixture(params=[SyncFace, AsyncFace], ids=["sync", "async"])
def face(request: pytest.FixtureRequest) -> Any:
    return request.param()


def forget() -> None:
    """Forget what this process knows of servers; files stay."""
    _known.clear()


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL", "LANGSMITH_GATEWAY_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    forget()
    yield
    forget()
