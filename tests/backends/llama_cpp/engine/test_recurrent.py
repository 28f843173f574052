"""A model with a recurrent state: samples share it, requests mix, and only whole prompts are continued."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.engine.tiny_mamba import write_tiny_mamba
from backends.llama_cpp.faces import Face, cache_read, texts


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_mamba(tmp_path_factory.mktemp("mamba") / "mamba.gguf")


@pytest.fixture
def mamba(path: Path) -> Iterator[ChatLlamaCpp]:
    with ChatLlamaCpp(model_path=path, seed=1, max_tokens=20) as model:
        assert model.engine.model.is_recurrent
        yield model


def test_samples_continue_one_state(mamba: ChatLlamaCpp, path: Path, face: Face) -> None:
    together = texts(face.sample(mamba, "hello there", n=6))
    with ChatLlamaCpp(model_path=path, max_tokens=20, cached_prompts=0) as fresh:
        alone = {index: str(face.invoke(fresh, "hello there", seed=1 + index).content) for index in range(6)}
    assert together == alone
    assert len(set(alone.values())) > 1


def test_the_same_prompt_is_found_and_a_longer_one_is_not_cut(mamba: ChatLlamaCpp, path: Path, face: Face) -> None:
    prompt, other = "tell me something " * 3, "tell me something " * 2 + "else"
    first = face.invoke(mamba, prompt)
    again = face.invoke(mamba, prompt)
    assert (again.content, cache_read(again)) == (first.content, len(mamba.prompt_tokens(prompt)))
    cut = face.invoke(mamba, other)
    assert cache_read(cut) == 0
    with ChatLlamaCpp(model_path=path, seed=1, max_tokens=20) as fresh:
        assert face.invoke(fresh, other).content == cut.content


def test_requests_share_steps(mamba: ChatLlamaCpp) -> None:
    prompts = [f"question {number} " * (1 + number % 4) for number in range(12)]
    alone = [mamba.invoke(prompt).content for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as threads:
        assert [message.content for message in threads.map(mamba.invoke, prompts, timeout=60)] == alone
