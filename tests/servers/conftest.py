"""Clients under test, and the real server they share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from runnable.conftest import runner

from .llama_server import LlamaServer, llama_server

__all__ = ["runner"]

Chat = Callable[..., Any]
KEY = "sk-this-is-a-secret"


def chat_openai(url: str, **fields: Any) -> Any:
    """LangChain's own client."""
    langchain_openai = pytest.importorskip("langchain_openai")
    return langchain_openai.ChatOpenAI(
        **{"base_url": url, "model": "gpt-test", "api_key": KEY, "temperature": 0.7, "seed": 0, "max_retries": 0}
        | fields
    )


@pytest.fixture(scope="session", params=[chat_openai], ids=["ChatOpenAI"])
def chat(request: pytest.FixtureRequest) -> Chat:
    """Makes a chat model of a server's URL; it asks once, and sample i with seed i."""
    made: Chat = request.param
    return made


@pytest.fixture(scope="session")
def real_server() -> Iterator[LlamaServer]:
    """The real llama-server with the shipped model."""
    pytest.importorskip("xllamacpp")
    backend = pytest.importorskip("langchain_reasc_llama_cpp")
    with llama_server(backend.embedded_model_path()) as server:
        yield server
