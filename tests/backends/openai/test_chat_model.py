"""One chat model over one or several OpenAI-compatible servers."""

import ast
import copy
import gc
import inspect
import textwrap
import threading
import time

import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langchain_reasc_openai import ChatOpenAICompatible
from pydantic import BaseModel

from backends.openai.conftest import Face, asked, model_of
from backends.openai.fake_server import Fake, ollama, serving, vllm
from langchain_reasc import ReASCRunnable
from langchain_reasc.calibration import fingerprint_of
from langchain_reasc.exceptions import ModelClosedError
from langchain_reasc.models.contract import ParallelSampler
from langchain_reasc.models.prepared import PreparedModel


def test_it_is_langchains_openai_model_and_samples_in_parallel(fake: Fake) -> None:
    model = model_of(fake)
    assert isinstance(model, ChatOpenAI) and isinstance(model, ParallelSampler)


def test_type_checkers_are_shown_every_option_of_ours() -> None:
    """They read a signature that is written by hand, which the fields could run away from."""
    [written] = (
        node
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(ChatOpenAICompatible))))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
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
    assert asked(fake)["stream_options"] == {"include_usage": True}


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
    deadline = time.monotonic() + 10
    while any(thread.is_alive() for thread in started):
        assert time.monotonic() < deadline
        time.sleep(0.01)


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
        assert asked(fake)["response_format"]["json_schema"]["name"] == "Total"
        face.invoke(model_of(fake).bind_tools([Total]), "2 + 2?")
        assert asked(fake)["tools"][0]["function"]["name"] == "Total"


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
