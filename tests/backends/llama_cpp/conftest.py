"""Models the backend tests share: the shipped one, SmolLM2 in slow tests, and tiny ones with random weights."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.faces import AsyncFace, Face, SyncFace
from backends.llama_cpp.tiny_gguf import write_tiny_model
from backends.llama_cpp.tool_models import HERMES, HERMES_WORD, LLAMA_WORD

REAL = ["shipped", pytest.param("smollm2", marks=pytest.mark.slow)]
"""Real models for tests from end to end: the shipped one, and one with a vocabulary and a template of the world."""
REAL_BY_GRAMMAR = [pytest.param("shipped", marks=pytest.mark.full), *REAL[1:]]
"""The same for tests of grammars, which cost most over a real vocabulary."""


def real_options(request: pytest.FixtureRequest, max_tokens: int = 400) -> dict[str, Any]:
    """The options that load the real model of a fixture's parameter; SmolLM2, which is slow, stops at a limit."""
    if request.param == "shipped":
        return {}
    return {"model_path": request.getfixturevalue("smollm2"), "max_tokens": max_tokens}


@pytest.fixture(params=[SyncFace(), AsyncFace()], ids=["sync", "async"])
def face(request: pytest.FixtureRequest) -> Face:
    """The sync methods of a model, then the async ones: for tests of what the two do separately."""
    made: Face = request.param
    return made


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF with random weights, whose responses may end by themselves."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def endless_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF with random weights and no end token: its responses run to their limit."""
    return write_tiny_model(tmp_path_factory.mktemp("endless") / "endless.gguf", ends=False)


@pytest.fixture(scope="session")
def tools_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with one token for what begins a call, so that a test can make it likely."""
    path = tmp_path_factory.mktemp("tools") / "tools.gguf"
    return write_tiny_model(path, words=[HERMES_WORD, LLAMA_WORD], context=4096, ends=False)


@pytest.fixture(scope="session")
def shipped() -> Iterator[ChatLlamaCpp]:
    """The model that comes with the package."""
    with ChatLlamaCpp(seed=1) as model:
        yield model


@pytest.fixture(scope="session", params=REAL)
def real(request: pytest.FixtureRequest) -> Iterator[ChatLlamaCpp]:
    """A real model with no cached prompts: what is asked alone is answered the same to the last bit, always."""
    with ChatLlamaCpp(seed=1, cached_prompts=0, **real_options(request)) as model:
        yield model


@pytest.fixture(scope="module")
def tiny(tiny_path: Path) -> Iterator[ChatLlamaCpp]:
    with ChatLlamaCpp(model_path=tiny_path, seed=1, max_tokens=64) as model:
        yield model


@pytest.fixture(scope="module")
def endless(endless_path: Path) -> Iterator[ChatLlamaCpp]:
    with ChatLlamaCpp(model_path=endless_path, seed=1, n_ctx=4096, n_cells=16384) as model:
        yield model


@pytest.fixture(scope="session")
def hermes(tools_path: Path) -> Iterator[ChatLlamaCpp]:
    """A random model whose chat template knows tools."""
    with ChatLlamaCpp(model_path=tools_path, chat_template=HERMES, seed=1, n_ctx=4096, max_tokens=1000) as model:
        yield model
