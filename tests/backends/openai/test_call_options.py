"""What a call asks of the server: names, limits, and what is refused before anything is sent."""

from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from backends.openai.conftest import Face, asked, model_of
from backends.openai.fake_server import Fake, llama_server, lm_studio, ollama, serving, vllm
from langchain_reasc.exceptions import ConfigurationError


def test_a_calls_options_win_over_the_models(fake: Fake, face: Face) -> None:
    face.invoke(model_of(fake, temperature=0.2, top_k=9), "Hi", temperature=0.9, top_k=3, stop=["X"], max_tokens=2)
    request = asked(fake)
    assert (request["temperature"], request["top_k"], request["stop"]) == (0.9, 3, ["X"])
    assert request["max_completion_tokens"] == 2 and "max_tokens" not in request


@pytest.mark.parametrize(
    ("make", "preset", "sent"),
    [
        (vllm, "vllm", {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "max_completion_tokens": 9}),
        (llama_server, "llama-server", {"top_k": 5, "min_p": 0.1, "repeat_penalty": 1.1, "max_tokens": 9}),
        (llama_server, "auto", {"top_k": 5, "min_p": 0.1, "repeat_penalty": 1.1, "max_tokens": 9}),
    ],
)
def test_parameters_go_out_under_the_servers_names(make: Any, preset: str, sent: dict[str, Any], face: Face) -> None:
    fields = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "max_tokens": 9}
    with serving(make()) as fake:
        face.invoke(model_of(fake, preset=preset, **fields), "Hi")
    assert asked(fake).items() >= sent.items()
    assert asked(fake).keys() == {"messages", "model", "stream", *sent}


def test_a_calls_stop_replaces_the_models(fake: Fake, face: Face) -> None:
    model = model_of(fake, stop=["A"])
    for call in (face.invoke, face.stream):
        call(model, "Hi")
        call(model, "Hi", stop=["B"])
    face.sample(model, "Hi", n=1)
    face.sample(model, "Hi", n=1, stop=["B"])
    assert [request["stop"] for request in fake.requests] == [["A"], ["B"]] * 3


def test_extra_body_goes_out_as_it_is_beside_them(fake: Fake, face: Face) -> None:
    model = model_of(fake, top_k=5, extra_body={"priority": 3})
    face.invoke(model, "Hi")
    assert (asked(fake)["top_k"], asked(fake)["priority"]) == (5, 3)


def test_a_parameter_the_server_does_not_read_is_refused_before_anything_is_sent(face: Face) -> None:
    with serving(ollama()) as fake:
        with pytest.raises(ConfigurationError, match=r"Ollama does not read top_k .it reads none beyond OpenAI's"):
            face.invoke(model_of(fake, preset="ollama", top_k=5), "Hi")
        with pytest.raises(ConfigurationError, match="does not read min_p"):
            face.sample(model_of(fake, preset="ollama"), "Hi", n=2, min_p=0.1)
        assert fake.requests == []


def test_the_limit_has_the_name_that_the_server_knows(face: Face) -> None:
    with serving(ollama(strict=True)) as fake:
        assert face.invoke(model_of(fake, preset="ollama", max_tokens=2), "Hi").content == "So it"
        assert len(face.stream(model_of(fake, preset="ollama"), "Hi", max_completion_tokens=2)) >= 2
    assert [request["max_tokens"] for request in fake.requests] == [2, 2]


def test_no_more_alternatives_are_asked_for_than_the_server_grants(face: Face) -> None:
    with serving(vllm(k=5)) as fake:
        message = face.invoke(model_of(fake, preset="auto"), "Hi", logprobs=True, top_logprobs=20)
        assert len(message.response_metadata["logprobs"]["content"][0]["top_logprobs"]) == 5
        [(_, sampled)] = face.sample(model_of(fake, preset="auto"), "Hi", n=1, top_logprobs=20)
        assert len(sampled.response_metadata["logprobs"]["content"][0]["top_logprobs"]) == 5


def test_where_streams_lack_logprobs_responses_come_whole(face: Face) -> None:
    with serving(vllm(streams_logprobs=False)) as fake:
        model = model_of(fake, preset="auto", logprobs=True, top_logprobs=5)
        samples = face.sample(model, "Hi", n=2)
        assert all(len(message.response_metadata["logprobs"]["content"]) == 4 for _, message in samples)
        assert all(message.usage_metadata["output_tokens"] == 4 for _, message in samples)
        assert not any(request.get("stream") for request in fake.requests[-2:])
        assert "".join(str(chunk.content) for chunk in face.stream(model, "Hi")) == "So it is \\boxed{4}"


def test_logprobs_are_not_asked_of_a_server_that_has_none(face: Face) -> None:
    with serving(lm_studio()) as fake:
        face.invoke(model_of(fake, preset="lm-studio", logprobs=True, top_logprobs=20), "Hi")
    assert not {"logprobs", "top_logprobs"} & asked(fake).keys()


def test_n_is_refused_where_the_server_ignores_it(face: Face) -> None:
    with serving(ollama()) as fake, pytest.raises(ConfigurationError, match=r"one response per request, and n is 2"):
        face.generate(model_of(fake, preset="ollama"), [[HumanMessage("Hi")]], n=2)


def test_a_stream_of_several_responses_is_refused(fake: Fake, face: Face) -> None:
    with pytest.raises(ConfigurationError, match="a stream carries one response"):
        face.stream(model_of(fake), "Hi", n=2)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"temprature": 0.5}, r"unknown option 'temprature'; did you mean 'temperature'\?"),
        ({"repeat_penalty": 1.1}, r"did you mean 'repetition_penalty'\?"),
        ({"top_k": "many"}, r"top_k: .*got 'many'"),
        ({"min_p": 2}, r"min_p: .*got 2"),
        ({"preset": "vlm"}, r"unknown preset 'vlm'"),
        ({"base_url": []}, "empty list"),
        ({"base_url": "localhost:8000"}, "a base URL looks like"),
        ({"model": None}, r"name the model; `reasc probe http"),
        ({"use_responses_api": True}, "Responses API"),
        ({"sample_timeout": 0}, "sample_timeout"),
        ({"n": 0}, "n must be at least 1"),
    ],
)
def test_a_wrong_option_is_refused(fake: Fake, fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        model_of(fake, **fields)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"topk": 3}, r"unknown argument 'topk'; did you mean 'top_k'\? What only this server knows"),
        ({"top_k": 0.5}, "top_k"),
        ({"grammar": "root"}, r"extra_body=\{'grammar': ...\}"),
    ],
)
def test_a_wrong_argument_of_a_call_is_refused(fake: Fake, face: Face, options: dict[str, Any], complaint: str) -> None:
    for call in (face.invoke, face.stream):
        with pytest.raises(ConfigurationError, match=complaint):
            call(model_of(fake), "Hi", **options)
    with pytest.raises(ConfigurationError, match=complaint):
        face.sample(model_of(fake), "Hi", n=2, **options)
    assert fake.requests == []
