"""Models the backend tests share: the shipped one, and tiny ones with random weights."""

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.faces import AsyncFace, Face, SyncFace
from backends.llama_cpp.tiny_gguf import write_tiny_model


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF with random weights, whose responses may end by themselves."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def endless_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF with random weights and no end token: its responses run to their limit."""
    return write_tiny_model(tmp_path_factory.mktemp("endless") / "endless.gguf", ends=False)


@pytest.fixture(scope="session")
def shipped() -> Iterator[ChatLlamaCpp]:
    """The model that comes with the package."""
    with ChatLlamaCpp(seed=1) as model:
        yield model


@pytest.fixture(scope="session")
def solo() -> Iterator[ChatLlamaCpp]:
    """The same, with no cached prompts: what is asked alone is answered the same to the last bit, always."""
    with ChatLlamaCpp(seed=1, cached_prompts=0) as model:
        yield model


@pytest.fixture(scope="module")
def tiny(tiny_path: Path) -> Iterator[ChatLlamaCpp]:
    with ChatLlamaCpp(model_path=tiny_path, seed=1, max_tokens=64) as model:
        yield model


@pytest.fixture(scope="module")
def endless(endless_path: Path) -> Iterator[ChatLlamaCpp]:
    with ChatLlamaCpp(model_path=endless_path, seed=1, n_ctx=4096, n_cells=8192) as model:
        yield model


BELOW_THE_FACE = {"confidence", "native", "prompts", "sampling", "tools"}
"""Folders of tests whose behaviour lies below the faces: each runs through one of them, unless it streams."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that takes ``face`` through the sync methods and through the async ones, or through one of them."""
    if "face" in metafunc.fixturenames:
        faces: list[Face] = [SyncFace(), AsyncFace()]
        streams = "stream" in metafunc.function.__code__.co_names
        if metafunc.definition.path.parent.name in BELOW_THE_FACE and not streams:
            faces = [faces[crc32(metafunc.function.__name__.encode()) % 2]]
        names = [type(face).__name__.removesuffix("Face").lower() for face in faces]
        metafunc.parametrize("face", faces, ids=names)
