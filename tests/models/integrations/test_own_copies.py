"""Samples drawn at the same time do not see each other's requests, whatever a model keeps on itself."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import ConfigurableField, Runnable
from pydantic import BaseModel, Field, PrivateAttr
from servers.fake_server import serving

from langchain_reasc.models import Integration, integration_of, prepare_model, register_integration
from langchain_reasc.sampling import Wave

from .providers import PROVIDERS, Provider, each

SAMPLES = 4


class Meeting:
    """Where every sample waits until all have written down what they are about to send."""

    def __init__(self) -> None:
        self.barrier, self.arrived = threading.Barrier(SAMPLES), 0

    def wait(self) -> None:
        self.barrier.wait(timeout=60)

    async def await_all(self) -> None:
        self.arrived += 1
        async with asyncio.timeout(60):
            while self.arrived < SAMPLES:
                await asyncio.sleep(0)


class Client(BaseModel):
    payload: int = 0


class Forgetful(BaseChatModel):
    """Keeps what it is about to send on itself, or on its client, and reads it there when all have done the same."""

    seed: int = 3
    on_client: bool = False
    is_down: bool = False
    last: Client = Client()
    meeting: Any = Field(default_factory=Meeting)
    _payload: int = 0
    _client: Client = PrivateAttr(default_factory=Client)

    @property
    def _llm_type(self) -> str:
        return "forgetful"

    def _write(self, seed: int) -> None:
        if self.is_down:
            raise ConnectionError("down")
        self._payload = self._client.payload = self.last.payload = seed

    def _read(self) -> str:
        found = {self._client.payload, self.last.payload} if self.on_client else {self._payload}
        return " ".join(map(str, found))

    def _said(self, seed: int) -> str:
        self._write(seed)
        self.meeting.wait()
        return self._read()

    async def _asaid(self, seed: int) -> str:
        self._write(seed)
        await self.meeting.await_all()
        return self._read()

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self._said(kwargs["seed"])))])

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(await self._asaid(kwargs["seed"])))])


class Streaming(Forgetful):
    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        yield ChatGenerationChunk(message=AIMessageChunk(self._said(kwargs["seed"])))

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        yield ChatGenerationChunk(message=AIMessageChunk(await self._asaid(kwargs["seed"])))


def drawn(runner: Any, model: Runnable[Any, Any]) -> list[str]:
    found = runner.wave(Wave(prepare_model(model), [AIMessage("q")], range(SAMPLES), {}))
    for sample in found:
        if sample.error is not None:
            raise sample.error
    return sorted(sample.message.text for sample in found)


@pytest.mark.parametrize(
    "model",
    [
        lambda: Forgetful(),
        lambda: Forgetful(on_client=True),
        lambda: Streaming(),
        lambda: Streaming(on_client=True).bind(stop=["END"]).with_config(tags=["mine"]),
        lambda: Streaming(on_client=True).with_listeners(on_end=lambda run: None),
        lambda: Forgetful(is_down=True).with_fallbacks([Streaming()]),
        lambda: Forgetful().configurable_alternatives(ConfigurableField("which"), other=Forgetful()),
        lambda: Forgetful(on_client=True).with_fallbacks([Forgetful()]).with_retry(stop_after_attempt=2),
    ],
)
def test_every_sample_sends_its_own_request(runner: Any, model: Any) -> None:
    assert drawn(runner, model()) == ["3", "4", "5", "6"]


class Counting(BaseChatModel):
    """A double as many write them: its next response is found by a count."""

    given: int = 0

    @property
    def _llm_type(self) -> str:
        return "counting"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        self.given += 1
        return ChatResult(generations=[ChatGeneration(message=AIMessage(str(self.given)))])


def test_a_model_that_counts_its_calls_is_shared_once_it_is_registered(runner: Any) -> None:
    assert drawn(runner, Counting().with_retry()) == ["1", "1", "1", "1"]
    registered = type("Registered", (Counting,), {"__module__": __name__})
    describe = register_integration(f"{__name__}.Registered")
    describe(lambda model: Integration(logprobs=None, n=None, own_copy=False))
    assert drawn(runner, registered()) == ["1", "2", "3", "4"]


# Their clients are meant to be used by many threads or tasks, and what else is found in them is Python's.
NOT_LOOKED_INTO = {"httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "requests", "asyncio", "threading", "logging"}


def left(model: Any) -> dict[str, Any]:
    """What hangs on a model and on its clients: the path there -> the value, or which object it is."""
    found: dict[str, Any] = {}
    to_do, seen = [("model", model)], {id(model): model}
    while to_do:
        path, at = to_do.pop()
        named = {**getattr(at, "__dict__", {}), **(getattr(at, "__pydantic_private__", None) or {})}
        for name, value in (at if isinstance(at, dict) else named).items():
            inner = f"{path}.{name}"
            found[inner] = value if isinstance(value, str | int | float | None) else id(value)
            if id(value) in seen or isinstance(value, type) or path.count(".") > 4:
                continue
            seen[id(value)] = value
            if not NOT_LOOKED_INTO & {base.__module__.partition(".")[0] for base in type(value).__mro__}:
                to_do.append((inner, value))
    return found


@each(PROVIDERS)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_which_known_models_leave_something_on_themselves(is_async: bool, provider: Provider) -> None:
    """The first call may build a client, which stays; the second leaves what it found, or samples need copies."""

    async def called(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        states = []
        for _ in range(2):
            if is_async:
                async for _chunk in model.astream("q"):
                    pass
            else:
                list(model.stream("q"))
            states.append(left(model))
        return states[0], states[1]

    with serving(provider.wire) as served:
        model = provider.model(served.root)
        before, after = asyncio.run(called(model))
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert bool(changed) == integration_of(model).own_copy, sorted(changed)
