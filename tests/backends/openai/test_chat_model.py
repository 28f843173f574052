"""One chat model over one or several servers: what it answers, what a call asks of the server, and where keys go."""

import ast
import copy
import gc
import inspect
import logging
import pickle
import textwrap
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
from langchain_core.load import dumpd, dumps, load
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langchain_reasc_openai import ChatOpenAICompatible, RetryPolicy
from pydantic import BaseModel, SecretStr

from backends.openai.conftest import model_of
from backends.openai.fake_server import Fake, llama_server, lm_studio, ollama, serving, vllm
from backends.openai.loopback import Face, eventually
from langchain_reasc import ReASCRunnable
from langchain_reasc.calibration import fingerprint_of
from langchain_reasc.exceptions import ConfigurationError, ModelClosedError
from langchain_reasc.models import ParallelSampler, PreparedModel


def test_it_is_langchains_openai_model_and_samples_in_parallel(fake: Fake) -> None:
    model = model_of(fake)
    assert isinstance(model, ChatOpenAI) and isinstance(model, ParallelSampler)


def test_type_checkers_are_shown_every_option_of_ours() -> None:
    """They read a signature that is written by hand, which the fields could run away from."""
    [written] = (
        node
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(ChatOpenAICompatible))))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__" and node.args.kwonlyargs
    )
    shown = {argument.arg for argument in written.args.kwonlyargs}
    fields = ChatOpenAICompatible.model_fields
    assert fields.keys() - ChatOpenAI.model_fields.keys() - {"base_urls"} <= shown
    assert shown <= fields.keys() | {field.alias for field in fields.values()}
    for argument, default in zip(written.args.kwonlyargs, written.args.kw_defaults, strict=True):
        if argument.arg in fields and default is not None:
            assert ast.literal_eval(default) == fields[argument.arg].default


def test_a_response_with_its_logprobs_and_usage(fake: Fake, face: Face) -> None:
    message = face.invoke(model_of(fake, logprobs=True, top_logprobs=5), "What is 2 + 2?")
    assert message.content == "So it is \\boxed{4}"
    assert [len(token["top_logprobs"]) for token in message.response_metadata["logprobs"]["content"]] == [5] * 4
    assert message.usage_metadata is not None and message.usage_metadata["output_tokens"] == 4


def test_a_stream_with_its_logprobs_and_usage(fake: Fake, face: Face) -> None:
    first, *rest = face.stream(model_of(fake, logprobs=True, top_logprobs=5), "What is 2 + 2?")
    assert first.content == "So"
    whole = first
    for chunk in rest:
        whole = whole + chunk
    assert whole.content == "So it is \\boxed{4}" and len(whole.response_metadata["logprobs"]["content"]) == 4
    assert whole.usage_metadata is not None and whole.usage_metadata["output_tokens"] == 4
    assert fake.requests[-1]["stream_options"] == {"include_usage": True}


def test_several_responses_of_one_request_are_billed_once(fake: Fake, face: Face) -> None:
    [[first, second]] = face.generate(model_of(fake), [[HumanMessage("Hi")]], n=2).generations
    assert first.message.usage_metadata["output_tokens"] == 8 and second.message.usage_metadata is None  # type: ignore[attr-defined]


def test_samples_have_seeds_of_their_own(fake: Fake, face: Face) -> None:
    samples = dict(face.sample(model_of(fake, seed=40), "Hi", n=3, first=2))
    assert {index: message.content.split()[0] for index, message in samples.items()} == {
        2: "So42",
        3: "So43",
        4: "So44",
    }
    assert {request["seed"] for request in fake.requests} == {42, 43, 44}
    assert all(request["stream"] and "n" not in request for request in fake.requests)


def test_samples_without_a_seed_leave_it_to_the_server(fake: Fake, face: Face) -> None:
    assert len(face.sample(model_of(fake), "Hi", n=2)) == 2
    assert all("seed" not in request for request in fake.requests)


def test_several_samples_may_share_a_request(fake: Fake, face: Face) -> None:
    samples = face.sample(model_of(fake, samples_per_request=4, max_tokens=3), "Hi", n=6)
    assert sorted(request["n"] for request in fake.requests if "n" in request) == [2, 4]
    assert sorted(index for index, _ in samples) == list(range(6))
    assert sum(message.usage_metadata["output_tokens"] for _, message in samples) == 6 * 3


def test_they_share_none_where_the_server_ignores_n(face: Face) -> None:
    with serving(ollama()) as fake:
        assert len(face.sample(model_of(fake, preset="ollama", samples_per_request=4), "Hi", n=4)) == 4
    assert len(fake.requests) == 4 and not any("n" in request for request in fake.requests)


def test_requests_of_one_prompt_prefer_one_server_and_others_spread(face: Face) -> None:
    with serving(vllm()) as one, serving(vllm()) as other:
        model = model_of(one, base_url=[one.url, other.url])
        face.sample(model, "Hi", n=6)
        assert {len(one.requests), len(other.requests)} == {0, 6}
        for number in range(24):
            face.invoke(model, f"Question {number}")
        assert min(len(one.requests), len(other.requests)) >= 2
        assert sum(status.served for status in model.status()) == 30


def test_copies_share_servers_health_and_connections(fake: Fake, face: Face) -> None:
    model = model_of(fake)
    for same in (model.model_copy(update={"cache": False}), copy.copy(model)):
        face.invoke(same, "Hi")
    assert [status.served for status in model.status()] == [2]


async def test_it_is_closed_at_the_end_of_async_with(fake: Fake) -> None:
    async with model_of(fake) as model:
        await model.ainvoke("Hi")
    with pytest.raises(ModelClosedError):
        await model.ainvoke("Hi")


def test_closing_ends_it_for_copies_too(fake: Fake, face: Face) -> None:
    with model_of(fake) as model:
        face.invoke(model, "Hi")
    with pytest.raises(ModelClosedError):
        face.invoke(model.model_copy(), "Hi")
    model.close()


def test_a_dropped_model_leaves_no_thread(fake: Fake, face: Face) -> None:
    model = model_of(fake)
    before = set(threading.enumerate())
    face.invoke(model, "Hi")
    started = {thread for thread in set(threading.enumerate()) - before if "replicas" in thread.name}
    assert started
    del model
    gc.collect()
    assert eventually(lambda: not any(thread.is_alive() for thread in started))


def test_reasc_decides_over_it(fake: Fake, face: Face) -> None:
    result = face.solve(ReASCRunnable(model=model_of(fake), max_samples=8), "What is 2 + 2?")
    assert result.answer == "4" and result.decision.samples == 3
    assert len(fake.requests) <= 8 and result.usage.output_tokens <= 4 * 8


class Total(BaseModel):
    """A sum."""

    value: int


def test_tools_and_structured_output_are_langchains(face: Face) -> None:
    with serving(vllm(words=('{"value"', ": 4}"))) as fake:
        assert face.invoke(model_of(fake).with_structured_output(Total), "2 + 2?") == Total(value=4)
        assert fake.requests[-1]["response_format"]["json_schema"]["name"] == "Total"
        face.invoke(model_of(fake).bind_tools([Total]), "2 + 2?")
        assert fake.requests[-1]["tools"][0]["function"]["name"] == "Total"


def test_a_calibration_knows_the_model_and_what_is_set(fake: Fake) -> None:
    model = model_of(fake, temperature=0.7, top_k=20, max_tokens=64, stop=["END"])
    found = fingerprint_of(model, kwargs={"min_p": 0.1, "temperature": 0.8})
    assert (found.model, found.stop) == ("tiny", ("END",))
    assert found.sampling == {"temperature": 0.8, "top_k": 20, "min_p": 0.1, "max_tokens": 64}
    bound = model.bind_tools([Total]).bind(stop=["\n", "END"], extra_body={"grammar": "root ::= [0-9]+"})
    found = PreparedModel.of(bound).fingerprint()
    assert found.tools and found.grammar
    assert (found.tools.shown, found.grammar.shown, found.stop) == ("Total", "root ::= [0-9]+", ("\n", "END"))
    assert fake.gets == []


def test_a_calls_options_win_over_the_models(fake: Fake, face: Face) -> None:
    face.invoke(model_of(fake, temperature=0.2, top_k=9), "Hi", temperature=0.9, top_k=3, stop=["X"], max_tokens=2)
    request = fake.requests[-1]
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
    assert fake.requests[-1].items() >= sent.items()
    assert fake.requests[-1].keys() == {"messages", "model", "stream", *sent}


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
    assert (fake.requests[-1]["top_k"], fake.requests[-1]["priority"]) == (5, 3)


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
    assert not {"logprobs", "top_logprobs"} & fake.requests[-1].keys()


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
        ({"preset": "vlm"}, r"unknown preset 'vlm'; choose from auto, vllm, sglang"),
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


@pytest.mark.filterwarnings("ignore:The function `load` is in beta")
def test_it_is_serialised_without_its_key_and_read_again(fake: Fake) -> None:
    model = model_of(fake, base_url=[fake.url, "http://b:1"], top_k=3, api_key="hush-hush")
    assert "hush" not in dumps(model)
    again = load(
        dumpd(model),
        valid_namespaces=["langchain_reasc_openai"],
        allowed_objects=[ChatOpenAICompatible],
        secrets_map={"OPENAI_API_KEY": "hush-hush"},
    )
    assert (again.base_urls, again.top_k, again.preset) == (model.base_urls, 3, "vllm")
    assert again.openai_api_key == SecretStr("hush-hush")


def test_a_key_is_sent_and_shown_nowhere(face: Face, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cache = tmp_path / "servers.json"
    with serving(vllm(key="hush-hush")) as fake:
        model = model_of(fake, preset="auto", api_key="hush-hush", probe_cache=cache, retry=RetryPolicy(attempts=1))
        message = face.invoke(model, "Hi")
        samples = face.sample(model, "Hi", n=2)
        fake.key = "another"  # which this server quotes, with ours, in its refusal
        with pytest.raises(Exception, match="401") as refused:
            face.invoke(model, "Hi")
    assert all(headers["authorization"] == "Bearer hush-hush" for headers in fake.headers)
    shown = [repr(model), str(model), repr(model.status()), repr(message), repr(samples), cache.read_text()]
    shown += [dumps(model), str(fingerprint_of(model)), caplog.text]
    assert not [text for text in shown if "hush" in text]
    assert "quoted: Bearer ***" in str(refused.value)
    assert "hush" not in "".join(traceback.format_exception(refused.value)) + str(vars(refused.value))


@pytest.mark.parametrize("preset", ["vllm", "auto"])
def test_no_key_is_sent_where_none_was_given(
    fake: Fake, face: Face, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "hush-hush")
    face.invoke(model_of(fake, preset=preset), "Hi")
    assert not [headers for headers in fake.headers if "hush" in str(headers)]


def test_openais_own_key_is_for_openai_alone(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="set OPENAI_API_KEY, or give api_key"):
        ChatOpenAICompatible(model="gpt-4o-mini", preset="openai")
    monkeypatch.setenv("OPENAI_API_KEY", "hush-hush")
    own = ChatOpenAICompatible(model="gpt-4o-mini", preset="openai")
    assert own.base_urls == ("https://api.openai.com/v1",) and own.openai_api_key == SecretStr("hush-hush")
    proxy = model_of(fake, preset="openai")
    assert proxy.openai_api_key == SecretStr("no-key")


def test_a_pickled_model_asks_the_same_servers_with_the_same_options(face: Face, fake: Fake) -> None:
    model = model_of(fake, preset="vllm", api_key="sk-of-mine", temperature=0.5, top_k=5)
    again = pickle.loads(pickle.dumps(model))
    assert again.base_urls == model.base_urls
    assert face.invoke(again, "q").content == face.invoke(model, "q").content
    first, second = fake.requests
    assert first == second
    assert again.openai_api_key.get_secret_value() == "sk-of-mine"
