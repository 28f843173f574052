"""The real llama-server, asked what it supports and sampled by what it said."""

from collections.abc import Iterator
from importlib.resources import files

import pytest
from langchain_reasc_openai import PRESETS, ChatOpenAICompatible, probe
from langchain_reasc_openai.server import Server, identify

from backends.openai.loopback import Face
from langchain_reasc.models import read_signals

pytestmark = pytest.mark.full  # a real server

pytest.importorskip("xllamacpp")
QUESTION = "Kira has 7 roses. Kira wants to have 12 roses. How many more roses does Kira need?"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    from servers.llama_server import llama_server

    with llama_server(files("langchain_reasc_llama_cpp") / "embedded" / "word_problems.gguf") as server:  # type: ignore[arg-type]
        yield server.url


def test_it_has_what_its_preset_promises_and_tells_of_its_weights(url: str) -> None:
    found, promised = probe(url), PRESETS["llama-server"].capabilities
    assert found.server == "llama-server" and found.models == ("word-problems",)
    for name in ("n", "logprobs", "top_logprobs", "streamed_logprobs", "streamed_usage", "seed", "samplers"):
        assert getattr(found, name) == getattr(promised, name), name
    assert found.notices == ()
    with Server(url) as server:
        [(model, weights)] = identify(server).weights.items()
    assert model == "word-problems" and all(name in weights for name in ("n_params", "size", "n_vocab", "n_embd"))


def test_samples_are_repeated_with_their_seeds(url: str, face: Face) -> None:
    with ChatOpenAICompatible(base_url=url, model="word-problems", seed=5, max_tokens=24, top_k=40) as model:
        drawn = [
            {index: message.content for index, message in face.sample(model, QUESTION, n=4, first=first)}
            for first in (0, 2)
        ]
    assert len(set(drawn[0].values())) > 1
    assert {index: drawn[0][index] for index in (2, 3)} == {index: drawn[1][index] for index in (2, 3)}


def test_parameters_reach_the_sampler(url: str, face: Face) -> None:
    model = ChatOpenAICompatible(
        base_url=url, model="word-problems", temperature=2.0, top_k=1, max_tokens=16, top_logprobs=50
    )
    with model:
        likeliest = face.sample(model, QUESTION, n=4)
        assert len({message.content for _, message in likeliest}) == 1
        # An easy question may be answered eight times alike at any temperature.
        free = face.sample(model, "Tell me something.", n=8, top_k=0, min_p=0.0, max_tokens=64)
        assert len({message.content for _, message in free}) > 1
        for message in (face.invoke(model, QUESTION), likeliest[0][1]):
            assert read_signals(message).k["top_k"] == 50
