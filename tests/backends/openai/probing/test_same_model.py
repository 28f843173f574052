"""Several base URLs have to be of one model."""

from typing import Any

import pytest
from langchain_reasc_openai import ChatOpenAICompatible

from backends.openai.fake_server import Fake, llama_server, ollama, serving, sglang, vllm
from langchain_reasc.exceptions import ConfigurationError

SMALL = {"n_params": 1_000, "size": 2_000, "n_vocab": 97, "n_embd": 16}
LARGE = {"n_params": 7_000, "size": 9_000, "n_vocab": 97, "n_embd": 64}


def model_of(*fakes: Fake, **fields: Any) -> ChatOpenAICompatible:
    return ChatOpenAICompatible(base_url=[fake.url for fake in fakes], model="tiny", **fields)


def test_llama_servers_with_other_weights_are_refused_with_both_sides_named(face: Any) -> None:
    with serving(llama_server(meta=SMALL)) as one, serving(llama_server(meta=LARGE)) as other:
        with model_of(one, other) as model, pytest.raises(ConfigurationError) as refused:
            face.sample(model, "Hi", n=2)
        assert f"{one.url}: n_params 1000, size 2000" in str(refused.value)
        assert f"{other.url}: n_params 7000, size 9000" in str(refused.value)


def test_the_name_that_a_llama_server_gives_its_model_does_not_matter(face: Any) -> None:
    renamed = llama_server(meta=SMALL, models=("m.gguf", "tiny"))
    with serving(llama_server(meta=SMALL)) as one, serving(renamed) as two, model_of(one, two) as model:
        assert len(face.sample(model, "Hi", n=2)) == 2


@pytest.mark.parametrize("kind", [vllm, sglang])
def test_a_server_that_does_not_have_the_model_is_refused_with_what_it_has(face: Any, kind: Any) -> None:
    with (
        serving(kind()) as one,
        serving(kind(models=("huge", "vast"))) as other,
        model_of(one, other) as model,
        pytest.raises(ConfigurationError, match=rf"{other.url} serves huge, vast and not 'tiny'"),
    ):
        face.invoke(model, "Hi")


def test_servers_that_say_nothing_of_their_weights_are_taken_at_their_word(face: Any) -> None:
    renamed = ollama(models=("tiny:latest", "tiny"))
    with serving(ollama()) as one, serving(renamed) as two, model_of(one, two) as model:
        face.invoke(model, "Hi")


def test_a_server_that_is_away_says_nothing(face: Any, gone: Fake) -> None:
    with serving(llama_server(meta=SMALL)) as one, model_of(one, gone) as model:
        face.invoke(model, "Hi")


def test_servers_are_asked_once_and_not_where_the_preset_is_named(face: Any) -> None:
    with serving(vllm()) as one, serving(vllm()) as two:
        with model_of(one, two) as model:
            face.invoke(model, "Hi")
            asked = len(two.gets)
            face.invoke(model.model_copy(update={"temperature": 0.5}), "Hi")
            assert len(two.gets) == asked > 0
        with model_of(one, two, preset="vllm") as named:
            face.invoke(named, "Hi")
            assert len(two.gets) == asked
