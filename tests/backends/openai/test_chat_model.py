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
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, StructuredOutputError
from langchain_core.load import dumpd, dumps, load
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langchain_reasc_openai import PRESETS, ChatOpenAICompatible, RetryPolicy
from pydantic import BaseModel, SecretStr

from backends.openai.conftest import model_of
from backends.openai.fake_server import Fake, llama_server, lm_studio, ollama, serving, vllm
from backends.openai.loopback import Face, eventually
from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError, ModelClosedError
from langchain_reasc.models import ParallelSampler, prepare_model
from langchain_reasc.models.fingerprint import fingerprint_of
from langchain_reasc.runnable.voter import running_fingerprint

KEY = "hush-hush"


class Total(BaseModel):
    """A sum."""

    value: int


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


def test_a_response_and_a_stream_with_logprobs_and_usage(fake: Fake, face: Face) -> None:
    model = model_of(fake, logprobs=True, top_logprobs=5)
    assert isinstance(model, ChatOpenAI) and isinstance(model, ParallelSampler)
    first, *rest = face.stream(model, "What is 2 + 2?")
    assert first.content == "So" and fake.requests[-1]["stream_options"] == {"include_usage": True}
    for message in (sum(rest, start=first), face.invoke(model, "What is 2 + 2?")):
        assert message.content == "So it is \\boxed{4}"
        assert [len(token["top_logprobs"]) for token in message.response_metadata["logprobs"]["content"]] == [5] * 4
        assert message.usage_metadata is not None and message.usage_metadata["output_tokens"] == 4


def test_several_responses_of_one_request_are_billed_once(fake: Fake, face: Face) -> None:
    [[first, second]] = face.generate(model_of(fake), [[HumanMessage("Hi")]], n=2).generations
    assert first.message.usage_metadata["output_tokens"] == 8 and second.message.usage_metadata is None  # type: ignore[attr-defined]


def of_provider_strategy(model: Any, face: Face) -> None:
    agent = create_agent(model, response_format=ProviderStrategy(Total))
    face.invoke(agent, {"messages": "What is 2 + 2?"})


WITHOUT_TOOLS: dict[str, Callable[[Any, Face], Any]] = {
    "an agent without tools": of_provider_strategy,
    "no tools bound": lambda model, face: face.invoke(model.bind_tools([]), "Hi"),
    "with a choice": lambda model, face: face.invoke(model.bind(tools=[], tool_choice="auto"), "Hi"),
    "a stream": lambda model, face: face.stream(model.bind_tools([]), "Hi"),
    "samples": lambda model, face: face.sample(model, "Hi", n=2, tools=[]),
    "a vote": lambda model, face: face.invoke(ReASCRunnable(model=model.bind_tools([]), max_samples=2), "Hi"),
}


@pytest.mark.parametrize("call", WITHOUT_TOOLS)
def test_no_empty_list_of_tools_is_sent(call: str, fake: Fake, face: Face) -> None:
    """Strict servers refuse one."""
    with suppress(StructuredOutputError):  # the fake server writes no JSON
        WITHOUT_TOOLS[call](model_of(fake), face)
    assert fake.requests
    for request in fake.requests:
        assert request.keys().isdisjoint(("tools", "tool_choice", "parallel_tool_calls"))


def test_requests_of_one_prompt_prefer_one_server_and_others_spread(face: Face) -> None:
    with serving(vllm()) as one, serving(vllm()) as other:
        model = model_of(one, base_url=[one.url, other.url])
        face.sample(model, "Hi", n=6)
        assert {len(one.requests), len(other.requests)} == {0, 6}
        for number in range(24):
            face.invoke(model, f"Question {number}")
        assert min(len(one.requests), len(other.requests)) >= 2
        assert sum(status.served for status in model.status()) == 30


def test_copies_share_servers_and_are_closed_together(fake: Fake, face: Face) -> None:
    with model_of(fake) as model:
        for same in (model.model_copy(update={"cache": False}), copy.copy(model)):
            face.invoke(same, "Hi")
        assert [status.served for status in model.status()] == [2]
    with pytest.raises(ModelClosedError):
        face.invoke(model.model_copy(), "Hi")
    model.close()


async def test_it_is_closed_at_the_end_of_async_with(fake: Fake) -> None:
    async with model_of(fake) as model:
        await model.ainvoke("Hi")
    with pytest.raises(ModelClosedError):
        await model.ainvoke("Hi")


def test_a_dropped_model_leaves_no_thread(fake: Fake, face: Face) -> None:
    model = model_of(fake)
    before = set(threading.enumerate())
    face.invoke(model, "Hi")
    started = {thread for thread in set(threading.enumerate()) - before if "replicas" in thread.name}
    assert started
    del model
    gc.collect()
    assert eventually(lambda: not any(thread.is_alive() for thread in started))


def test_tools_and_structured_output_are_langchains(face: Face) -> None:
    with serving(vllm(words=('{"value"', ": 4}"))) as fake:
        assert face.invoke(model_of(fake).with_structured_output(Total), "2 + 2?") == Total(value=4)
        assert fake.requests[-1]["response_format"]["json_schema"]["name"] == "Total"
        with model_of(fake) as model:
            assert [*model.with_structured_output(Total).stream("2 + 2?")] == [Total(value=4)]
        assert fake.requests[-1]["response_format"]["json_schema"]["strict"]
        face.invoke(model_of(fake).bind_tools([Total]), "2 + 2?")
        assert fake.requests[-1]["tools"][0]["function"]["name"] == "Total"


def test_a_calibration_knows_the_model_and_what_is_set(fake: Fake) -> None:
    model = model_of(fake, temperature=0.7, top_k=20, max_tokens=64, stop=["END"])
    found = fingerprint_of(model, kwargs={"min_p": 0.1, "temperature": 0.8})
    assert (found.model, found.stop) == ("tiny", ("END",))
    assert found.sampling == {"temperature": 0.8, "top_k": 20, "min_p": 0.1, "max_tokens": 64}
    bound = model.bind_tools([Total]).bind(stop=["\n", "END"], extra_body={"grammar": "root ::= [0-9]+"})
    found = running_fingerprint(prepare_model(bound))
    assert found.tools and found.grammar
    assert (found.tools.shown, found.grammar.shown, found.stop) == ("Total", "root ::= [0-9]+", ("\n", "END"))
    assert fake.gets == []


SAMPLERS = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "max_tokens": 9}
LLAMA = {"top_k": 5, "min_p": 0.1, "repeat_penalty": 1.1, "max_tokens": 9}


@pytest.mark.parametrize(
    ("server", "fields", "call", "sent"),
    [
        (vllm(), SAMPLERS, {}, {**SAMPLERS, "max_tokens": None, "max_completion_tokens": 9}),
        (llama_server(), {**SAMPLERS, "preset": "llama-server"}, {}, LLAMA),
        (llama_server(), {**SAMPLERS, "preset": "auto"}, {}, LLAMA),
        (
            vllm(),
            {"temperature": 0.2, "top_k": 9, "stop": ["A"]},
            {"temperature": 0.9, "top_k": 3, "stop": ["X"], "max_tokens": 2},
            {"temperature": 0.9, "top_k": 3, "stop": ["X"], "max_tokens": None, "max_completion_tokens": 2},
        ),
        (vllm(), {"stop": ["A"]}, {}, {"stop": ["A"]}),
        (vllm(), {"top_k": 5, "extra_body": {"priority": 3}}, {}, {"top_k": 5, "priority": 3}),
        (ollama(strict=True), {"preset": "ollama", "max_tokens": 2}, {}, {"max_tokens": 2}),
        (ollama(strict=True), {"preset": "ollama"}, {"max_completion_tokens": 2}, {"max_tokens": 2}),
        (lm_studio(), {"preset": "lm-studio", "logprobs": True, "top_logprobs": 20}, {}, {}),
    ],
)
def test_what_is_sent(face: Face, server: Fake, fields: Any, call: Any, sent: dict[str, Any]) -> None:
    with serving(server) as fake:
        model = model_of(fake, **fields)
        face.invoke(model, "Hi", **call)
        face.stream(model, "Hi", **call)
        face.sample(model, "Hi", n=1, **call)
    plain = {"messages", "model", "stream", "stream_options"}
    for request in fake.requests[-3:]:
        said = {name: value for name, value in request.items() if name not in plain}
        assert said == {name: value for name, value in sent.items() if value is not None}


def test_nothing_is_asked_of_a_server_that_ignores_n(face: Face) -> None:
    with serving(ollama()) as fake:
        assert len(face.sample(model_of(fake, preset="ollama", samples_per_request=4), "Hi", n=4)) == 4
    assert len(fake.requests) == 4 and not any("n" in request for request in fake.requests)


def test_no_more_alternatives_are_asked_for_than_the_server_grants(face: Face) -> None:
    with serving(vllm(k=5)) as fake:
        model = model_of(fake, preset="auto", logprobs=True, top_logprobs=20)
        for message in (face.invoke(model, "Hi"), face.sample(model, "Hi", n=1)[0][1]):
            assert len(message.response_metadata["logprobs"]["content"][0]["top_logprobs"]) == 5  # type: ignore[union-attr]


def test_token_counts_are_not_asked_of_streams_that_lack_them(face: Face) -> None:
    with serving(vllm(streams_usage=False)) as fake:
        face.stream(model_of(fake, preset="auto"), "Hi")
    assert "stream_options" not in fake.requests[-1]


def test_where_streams_lack_logprobs_responses_come_whole(face: Face) -> None:
    with serving(vllm(streams_logprobs=False)) as fake:
        model = model_of(fake, preset="auto", logprobs=True, top_logprobs=5)
        samples = face.sample(model, "Hi", n=2)
        assert all(len(message.response_metadata["logprobs"]["content"]) == 4 for _, message in samples)
        assert all(message.usage_metadata["output_tokens"] == 4 for _, message in samples)
        assert not any(request.get("stream") for request in fake.requests[-2:])
        assert "".join(str(chunk.content) for chunk in face.stream(model, "Hi")) == "So it is \\boxed{4}"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"temprature": 0.5}, r"'temprature'; did you mean 'temperature'\?"),
        ({"top_k": "many"}, r"top_k: .*got 'many'"),
        ({"preset": "vlm"}, r"'vlm'.*auto, vllm, sglang"),
        ({"base_url": []}, "empty list"),
        ({"base_url": None, "preset": "auto"}, "server's address"),
        ({"model": None}, r"name the model; `reasc probe http"),
        ({"use_responses_api": True}, "Responses API"),
    ],
)
def test_a_wrong_option_is_refused(fake: Fake, fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        model_of(fake, **fields)


@pytest.mark.parametrize(
    ("call", "preset", "options", "complaint"),
    [
        ("invoke", "vllm", {"topk": 3}, r"'topk'; did you mean 'top_k'\?"),
        ("stream", "vllm", {"top_k": 0.5}, "top_k"),
        ("sample", "vllm", {"n": 2, "grammar": "root"}, r"extra_body=\{'grammar': ...\}"),
        ("stream", "vllm", {"n": 2}, "one response"),
        ("invoke", "ollama", {"top_k": 5}, r"Ollama .*top_k"),
        ("sample", "ollama", {"n": 2, "min_p": 0.1}, "min_p"),
        ("invoke", "ollama", {"n": 2}, "n is 2"),
    ],
)
def test_a_wrong_argument_of_a_call_is_refused(
    fake: Fake, face: Face, call: str, preset: str, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        getattr(face, call)(model_of(fake, preset=preset), "Hi", **options)
    assert fake.requests == []


@pytest.mark.filterwarnings("ignore:The function `load` is in beta")
def test_it_is_serialised_without_its_key_and_read_again(fake: Fake) -> None:
    model = model_of(fake, base_url=[fake.url, "http://b:1"], top_k=3, api_key=KEY)
    assert "hush" not in dumps(model)
    again = load(
        dumpd(model),
        valid_namespaces=["langchain_reasc_openai"],
        allowed_objects=[ChatOpenAICompatible],
        secrets_map={"OPENAI_API_KEY": KEY},
    )
    assert (again.base_urls, again.top_k, again.preset) == (model.base_urls, 3, "vllm")
    assert again.openai_api_key == SecretStr(KEY)


def test_a_pickled_model_asks_the_same_servers_with_the_same_options(face: Face, fake: Fake) -> None:
    model = model_of(fake, api_key=KEY, temperature=0.5, top_k=5)
    again = pickle.loads(pickle.dumps(model))
    assert (again.base_urls, again.openai_api_key) == (model.base_urls, SecretStr(KEY))
    assert face.invoke(again, "q").content == face.invoke(model, "q").content
    first, second = fake.requests
    assert first == second


def test_a_key_is_sent_and_shown_nowhere(face: Face, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(vllm(key=KEY)) as fake:
        model = model_of(fake, preset="auto", api_key=KEY, retry=RetryPolicy(attempts=1))
        message = face.invoke(model, "Hi")
        samples = face.sample(model, "Hi", n=2)
        fake.key = "another"  # which this server quotes, with ours, in its refusal
        with pytest.raises(Exception, match="401") as refused:
            face.invoke(model, "Hi")
        [(_, failed)] = face.sample(model, "Hi", n=1)
    assert all(headers["authorization"] == f"Bearer {KEY}" for headers in fake.headers)
    shown = [repr(model), str(model), repr(model.status()), repr(message), repr(samples), repr(failed)]
    shown += [dumps(model), str(fingerprint_of(model)), caplog.text]
    assert not [text for text in shown if "hush" in text]
    assert "quoted: Bearer ***" in str(refused.value)
    assert "hush" not in "".join(traceback.format_exception(refused.value)) + str(vars(refused.value))


@pytest.mark.parametrize("preset", ["vllm", "auto"])
def test_no_key_is_sent_where_none_was_given(
    fake: Fake, face: Face, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    face.invoke(model_of(fake, preset=preset), "Hi")
    assert not [headers for headers in fake.headers if "hush" in str(headers)]


@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
def test_openais_preset_asks_the_gateway_in_the_environment_with_its_key(
    fake: Fake, face: Face, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, fake.url)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        ChatOpenAICompatible(model="tiny", preset="openai")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ChatOpenAICompatible(model="tiny", preset="openai") as model:
        face.invoke(model, "Hi")
        face.stream(model, "Hi")
        assert pickle.loads(pickle.dumps(model)).base_urls == (fake.url,)
    assert [headers["authorization"] for headers in fake.headers] == [f"Bearer {KEY}"] * 2
    assert ChatOpenAI(model="tiny").root_client.base_url == f"{fake.url}/", "as in langchain-openai"
    with serving(vllm()) as other, model_of(other, preset="openai") as given:
        face.invoke(given, "Hi")
        assert not [headers for headers in other.headers if KEY in str(headers)], "an address that was given"


def test_openais_own_key_is_for_openai_alone(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"OPENAI_API_KEY.*api_key"):
        ChatOpenAICompatible(model="gpt-4o-mini", preset="openai")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for own in ({"preset": "openai"}, {"base_url": "https://api.openai.com/v1"}):
        model = ChatOpenAICompatible(model="gpt-4o-mini", **own)
        assert model.base_urls == ("https://api.openai.com/v1",) and model.openai_api_key == SecretStr(KEY)
        assert model.capabilities() is PRESETS["openai"].capabilities
    assert model_of(fake, preset="openai").openai_api_key == SecretStr("no-key")
    other = ChatOpenAICompatible(model="m", base_url="https://api.openai.com.example.org/v1")
    assert other.openai_api_key == SecretStr("no-key")
