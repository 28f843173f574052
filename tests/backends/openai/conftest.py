"""Every test of a call runs synchronously and in an event loop; nothing found out about a server is left behind."""

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_reasc_openai import ChatOpenAICompatible
from langchain_reasc_openai.probing import _known

from backends.openai.fake_server import Fake, serving, vllm
from backends.openai.loopback import Face


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving(vllm()) as served:
        yield served


def model_of(fake: Fake, **fields: Any) -> ChatOpenAICompatible:
    return ChatOpenAICompatible(**{"base_url": fake.url, "model": "tiny", "preset": "vllm", **fields})


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def face(request: pytest.FixtureRequest) -> Face:
    return Face(is_async=request.param)


@pytest.fixture
def gone() -> Fake:
    """A server that is there no more."""
    with serving(vllm()) as served:
        return served


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
