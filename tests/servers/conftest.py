"""Clients under test, and the real server they share."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from runnable.conftest import AsyncRunner, Runner, await_no_sampling_threads

from .llama_server import LlamaServer, llama_server

KEY = "sk-this-is-a-secret"
FIELDS = {"model": "gpt-test", "api_key": KEY, "temperature": 0.7, "seed": 0}


class SettledRunner(AsyncRunner):
    """Call asynchronously, and check that no task is left."""

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(settled(main))


async def settled(main: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await main
    finally:
        # After an error openai's client leaves generators to the garbage collector, which closes them in tasks, and
        # each leaves the next one behind it.
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            _, pending = await asyncio.wait(left, timeout=10)
            assert not pending, f"tasks left behind: {pending}"


@pytest.fixture(params=[Runner, SettledRunner], ids=["sync", "async"])
def runner(request: pytest.FixtureRequest) -> Iterator[Any]:
    yield request.param()
    await_no_sampling_threads()


@dataclass(frozen=True)
class Chat:
    """Create chat models of a class. By default they try once, and ask for sample i with seed i."""

    name: str

    def __call__(self, url: str, **fields: Any) -> Any:
        return CLIENTS[self.name](**{"base_url": url} | FIELDS | fields)

    def real(self, server: LlamaServer, **fields: Any) -> Any:
        """Create a chat model for the real llama-server, with the server's samplers off."""
        samplers = {"top_k": 0, "min_p": 0.0}  # the model's own distribution, not cut off anywhere
        own = {"preset": "auto", **samplers} if self.name == "ChatOpenAICompatible" else {"extra_body": samplers}
        return self(
            server.url, **({"model": server.name, "temperature": 1.0, "top_p": 1.0, "max_tokens": 256} | own | fields)
        )


def chat_openai(**fields: Any) -> Any:
    """LangChain's own client."""
    return pytest.importorskip("langchain_openai").ChatOpenAI(**{"max_retries": 0} | fields)


def chat_openai_compatible(*, max_retries: int = 0, **fields: Any) -> Any:
    """Our client, with a preset, because the fault server cannot be asked what it supports."""
    backend = pytest.importorskip("langchain_reasc_openai")
    retry = backend.RetryPolicy(attempts=1 + max_retries, first_wait=0.1, sideline=0.1)
    return backend.ChatOpenAICompatible(**{"preset": "generic", "retry": retry} | fields)


CLIENTS = {"ChatOpenAI": chat_openai, "ChatOpenAICompatible": chat_openai_compatible}
WAYS = [Runner, SettledRunner]
each_client = pytest.mark.parametrize(("chat", "runner"), [*zip(CLIENTS, WAYS, strict=True)], indirect=True)
"""One client is called synchronously, the other in an event loop."""


def each_client_with(name: str, cases: Mapping[str, Iterable[Any]] | Iterable[Any]) -> pytest.MarkDecorator:
    """Run each client with all cases or with its own, alternating between sync and async."""
    given = cases if isinstance(cases, Mapping) else {client: [*cases] for client in CLIENTS}
    rows = [
        (client, case, WAYS[(at + number) % 2])
        for number, client in enumerate(CLIENTS)
        for at, case in enumerate(given[client])
    ]
    return pytest.mark.parametrize(("chat", name, "runner"), rows, indirect=["chat", "runner"])


@pytest.fixture(scope="session", params=CLIENTS)
def chat(request: pytest.FixtureRequest) -> Chat:
    return Chat(request.param)


@pytest.fixture(scope="session")
def real_server() -> Iterator[LlamaServer]:
    """The real llama-server with the shipped model."""
    pytest.importorskip("xllamacpp")
    backend = pytest.importorskip("langchain_reasc_llama_cpp")
    with llama_server(backend.embedded_model_path()) as server:
        yield server
