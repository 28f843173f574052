"""A sample drawn together with others is traced as ``invoke`` would trace a call of its own, field by field."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from backends.openai.fake_server import serving, vllm
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage, SystemMessage

from langchain_reasc import Cap, ReASCRunnable
from langchain_reasc.models import prepare_model
from langchain_reasc.sampling import Wave
from sampling.tracers import Kept

backend = pytest.importorskip("langchain_reasc_llama_cpp")
openai = pytest.importorskip("langchain_reasc_openai")
MESSAGES = [SystemMessage("Be brief."), HumanMessage("How much is 2 + 3?")]


class Told(BaseCallbackHandler):
    """All that is said of runs when they start, and the ids of the messages they end with."""

    run_inline = True

    def __init__(self) -> None:
        self.starts: dict[UUID, dict[str, Any]] = {}
        self.ids: dict[UUID, str | None] = {}

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self.starts[run_id] = {"serialized": serialized, "messages": messages, **kwargs}

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self.ids[run_id] = response.generations[0][0].message.id


@pytest.fixture(scope="module")
def local() -> Iterator[Any]:
    with backend.ChatLlamaCpp(seed=5, max_tokens=6, tags=["of the model"], metadata={"kind": "local"}) as model:
        yield model


@pytest.fixture(scope="module")
def remote() -> Iterator[Any]:
    fields = {"preset": "vllm", "temperature": 0.7, "max_tokens": 9, "seed": 5, "metadata": {"kind": "remote"}}
    with serving(vllm()) as fake, openai.ChatOpenAICompatible(base_url=fake.url, model="tiny", **fields) as model:
        yield model


@pytest.fixture(params=["local", "remote"])
def model(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


TOOL = {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}}}
BOUND: dict[str, Any] = {
    "plain": {},
    "stop and temperature": {"stop": ["END"], "temperature": 0.3, "max_tokens": 5},
    "tools": {"tools": [TOOL], "top_p": 0.9},
    "structured output": {
        "ls_structured_output_format": {"kwargs": {"method": "json_schema"}, "schema": {"title": "A", "type": "object"}}
    },
}


@pytest.mark.parametrize("bound", BOUND.values(), ids=BOUND)
def test_a_sample_s_run_says_what_invoke_says(runner: Any, model: Any, bound: dict[str, Any]) -> None:
    above = uuid4()
    config: Any = {"tags": ["mine"], "metadata": {"user": 7}}
    source, drawn, called = prepare_model(model.bind(**bound)), Told(), Told()
    own = {**config, "callbacks": [drawn], "run_id": above}
    samples = runner.wave(Wave(source, MESSAGES, range(2, 4), own))
    assert [sample.error for sample in samples] == [None, None]
    for index in (2, 3):
        call = source.call_config({**config, "callbacks": [called]}, index)
        runner.invoke(source.model, MESSAGES, call, **source.call_kwargs(index))
    first, second = drawn.starts.values()
    assert [first, second] == list(called.starts.values())
    assert first["invocation_params"]["seed"] == 7, "and they were moved on"
    metadata = first["metadata"]
    assert metadata["ls_provider"] == ("vllm" if metadata["kind"] == "remote" else "llama_cpp")
    assert metadata["ls_model_name"] == ("tiny" if metadata["kind"] == "remote" else "word_problems.gguf")
    assert (metadata["ls_model_type"], metadata["user"]) == ("chat", 7)
    assert metadata["ls_temperature"] == bound.get("temperature", 0.7 if metadata["kind"] == "remote" else 1.0)
    assert metadata["ls_max_tokens"] == bound.get("max_tokens", model.max_tokens)
    assert metadata.get("ls_stop") == bound.get("stop")
    assert first["name"] is None and first["options"]["stop"] == bound.get("stop")


def test_what_langsmith_is_sent_is_the_same(runner: Any, model: Any) -> None:
    source, extras = prepare_model(model.bind(stop=["END"])), []
    for how in ("wave", "invoke"):
        Kept.sent.clear()
        tracer = Kept()
        config: Any = {"callbacks": [tracer], "metadata": {"user": 7}}
        if how == "wave":
            runner.wave(Wave(source, MESSAGES, [0], config))
        else:
            runner.invoke(source.model, MESSAGES, source.call_config(config, 0), **source.call_kwargs(0))
        [run] = Kept.sent
        extras.append((run.name, run.run_type, run.inputs, run.serialized, sorted(run.tags or []), run.extra))
    assert extras[0] == extras[1]
    assert extras[0][-1]["metadata"]["ls_model_type"] == "chat"


def test_messages_are_named_after_their_runs(runner: Any, model: Any) -> None:
    told = Told()
    result = runner.solve(ReASCRunnable(model=model, rule=Cap(3)), MESSAGES, {"callbacks": [told]})
    ids = {response.message.id for response in result.responses}
    assert ids == set(told.ids.values()) == {f"lc_run--{run_id}" for run_id in told.starts}
    assert result.message.id in ids


def test_where_nobody_listens_they_have_ids_too(runner: Any, model: Any) -> None:
    samples = runner.wave(Wave(prepare_model(model), MESSAGES, range(3), {}))
    ids = {sample.message.id for sample in samples}
    assert len(ids) == 3
    assert all(UUID(id_.removeprefix("lc_run--")) and id_.startswith("lc_run--") for id_ in ids)
    with model.sample("q", n=2) as stream:
        assert len({message.id for _, message in stream} - {None}) == 2


@pytest.mark.parametrize(
    ("fields", "given", "expected"),
    [
        ({"preset": "auto"}, {}, ("openai_compatible", None)),
        ({"base_url": "https://api.openai.com/v1", "api_key": "k", "max_tokens": 9}, {}, ("openai", 9)),
        ({"preset": "vllm", "max_tokens": 9}, {"max_completion_tokens": 3}, ("vllm", 3)),
    ],
)
def test_servers_are_called_what_they_are(fields: dict[str, Any], given: dict[str, Any], expected: Any) -> None:
    model = openai.ChatOpenAICompatible(**{"base_url": "http://127.0.0.1:9", "model": "m", **fields})
    params = model._get_ls_params(**given)
    assert (params["ls_provider"], params.get("ls_max_tokens")) == expected
