"""Serving a LangChain chat model in this process."""

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import openai
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_server.local import LangChainModel
from pydantic import Field

from langchain_reasc.exceptions import CalibrationFileError, MissingExtraError, ModelClosedError

from .serving import HELLO, SHAPE, TOOL, Front, events_in, front

USAGE: Any = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}


class Scripted(BaseChatModel):
    """Say its texts in turn, or call a tool. Keep the arguments of all calls."""

    texts: Sequence[str] = ("it is 42",)
    temperature: float | None = None
    calls: list[dict[str, Any]] = Field(default_factory=list)
    turns: Any = None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **kwargs: Any) -> Any:
        return self.bind(tools=tools, **({} if tool_choice is None else {"tool_choice": tool_choice}), **kwargs)

    def _message(self, kwargs: dict[str, Any]) -> AIMessage:
        self.calls.append(kwargs)
        if kwargs.get("tools"):
            return AIMessage(
                "", tool_calls=[{"name": "weather", "args": {"city": "Rome"}, "id": "1"}], usage_metadata=USAGE
            )
        text = '{"status": "fine"}' if kwargs.get("response_format") else next(self.turns)
        if isinstance(text, Exception):
            raise text
        return AIMessage(text, usage_metadata=USAGE, response_metadata={"finish_reason": "stop"})

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._message({**kwargs, "stop": stop}))])

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[Any]:
        message = self._message({**kwargs, "stop": stop})
        for at, word in enumerate(str(message.content).split(" ") if message.content else []):
            yield ChatGenerationChunk(message=AIMessageChunk(f" {word}" if at else word))
        calls = [
            {
                "name": one["name"],
                "args": json.dumps(one["args"]),
                "id": one["id"],
                "index": at,
                "type": "tool_call_chunk",
            }
            for at, one in enumerate(message.tool_calls)
        ]
        last: Any = {"content": "", "tool_call_chunks": calls, "usage_metadata": USAGE, "chunk_position": "last"}
        yield ChatGenerationChunk(message=AIMessageChunk(**last), generation_info={"finish_reason": "stop"})


@pytest.fixture
def server() -> Iterator[Front]:
    model = Scripted(turns=itertools.cycle(["it is 42"]))
    with front(served=LangChainModel(model, "scripted"), votes={"answer": "number"}) as made:
        yield made


ASKED: dict[str, Any] = {"model": "scripted", "messages": HELLO, "temperature": 0.7, "no_model_knows_this": 1}


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("voted", [True, False])
@pytest.mark.parametrize("kind", [MissingExtraError, CalibrationFileError, ModelClosedError])
def test_what_the_operator_has_to_mend_is_no_fault_of_the_upstream(
    kind: type[Exception], voted: bool, streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    error = kind(f"/srv/{kind.__name__}-{voted}-{streamed}")  # what was logged lately is not logged again
    asked: dict[str, Any] = {"stream": streamed, **({} if voted else {"seed": 3})}
    model = Scripted(turns=itertools.cycle([error]))
    with front(served=LangChainModel(model, "scripted"), votes={"answer": "number"}) as server:
        reply = server.chat(**asked)
        refused = events_in(reply.text)[-1] if reply.status_code == 200 else reply.json()
        assert refused["error"]["code"] == "internal_error" and (streamed or reply.status_code == 500)
        assert str(error) not in reply.text
        assert server.gateway.metrics.total("reasc_upstream_errors_total") == 0
    assert str(error) in caplog.text and "ERROR" in caplog.text


@pytest.mark.parametrize("voted", [True, False])
def test_openais_client_reads_all_kinds_of_replies(server: Front, voted: bool) -> None:
    with openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client:
        asked: Any = {"model": "scripted", "messages": HELLO, **({} if voted else {"seed": 3})}
        reply = client.chat.completions.create(**asked)
        assert reply.choices[0].message.content == "it is 42" and reply.choices[0].finish_reason == "stop"
        spent = reply.usage.total_tokens if reply.usage else 0
        assert spent == 7 * (getattr(reply, "reasc", None) or {"samples": 1})["samples"]
        shaped = client.chat.completions.create(**asked, response_format=SHAPE)  # type: ignore[call-overload]
        assert json.loads(shaped.choices[0].message.content) == {"status": "fine"}
        for tool_choice in ("auto", "required"):
            with client.chat.completions.stream(**asked, tools=[TOOL], tool_choice=tool_choice) as stream:
                final = stream.get_final_completion()
            [call] = final.choices[0].message.tool_calls or ()
            assert json.loads(call.function.arguments) == {"city": "Rome"}
            assert final.choices[0].finish_reason == "tool_calls"
        assert [one.id for one in client.models.list()] == ["scripted"] == [client.models.retrieve("scripted").id]


def test_options_that_the_model_has_reach_it(server: Front) -> None:
    server.post({**ASKED, "stop": "x", "reasc": {"max_samples": 2}})
    [first, *_] = server.gateway.upstream.chat_model.calls  # type: ignore[attr-defined]
    assert (first["temperature"], first["stop"]) == (0.7, ["x"]) and "no_model_knows_this" not in first


@pytest.mark.parametrize("streamed", [True, False])
def test_n_responses_come_as_n_choices(server: Front, streamed: bool) -> None:
    body = {**ASKED, "n": 3, "stream": streamed, "stream_options": {"include_usage": True}}
    response = server.post(body)
    assert response.headers["x-reasc-passed-through"] == "n"
    if streamed:
        *events, last, done = [json.loads(one[6:]) if "{" in one else one for one in response.text.split("\n\n") if one]
        said = [
            "".join(c["delta"].get("content", "") for e in events for c in e["choices"] if c["index"] == i)
            for i in range(3)
        ]
        assert said == ["it is 42"] * 3 and last["usage"]["total_tokens"] == 21 and done == "data: [DONE]"
    else:
        reply = response.json()
        assert [one["index"] for one in reply["choices"]] == [0, 1, 2] and reply["usage"]["total_tokens"] == 21


def test_the_winners_own_tokens_are_told(server: Front) -> None:
    account = server.post(ASKED).json()["reasc"]
    assert account["winner"] == {"prompt_tokens": 5, "completion_tokens": 2}
    assert account["tokens"]["spent"] == 7 * account["samples"]
    mean = server.post({**ASKED, "reasc": {"usage": "winner"}}).json()["usage"]
    assert mean == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def test_a_reply_names_the_model_where_the_client_does_not_and_no_probability_of_the_votes(server: Front) -> None:
    reply = server.post({"messages": HELLO}).json()
    assert reply["model"] == "scripted" and "posterior" not in reply["reasc"]
    [first, *_] = [
        json.loads(one[6:]) for one in server.post({"messages": HELLO, "stream": True}).text.split("\n\n")[:1]
    ]
    assert first["model"] == "scripted"


def test_outcomes_that_are_found_out_later_are_learned() -> None:
    model = Scripted(turns=itertools.cycle(["it is 42"]))
    for learns, status in (("online", 200), (None, 400)):
        votes = {"answer": "number", "calibration": learns}
        with front(served=LangChainModel(model, "scripted"), votes=votes) as server:
            reply = server.post(ASKED)
            told = {"id": reply.json()["reasc"].get("id", "none"), "correct": True}
            assert told["id"] == reply.headers.get("x-reasc-id", "none")
            url = server.url.removesuffix("/v1") + "/reasc/outcome"
            assert server.http.post(url, json=told).status_code == status
            if learns:
                assert server.http.post(url, json={**told, "id": "unknown"}).status_code == 404
                assert server.http.post(url, json={**told, "correct": "yes"}).status_code == 400


def test_a_calibration_that_does_not_fit_a_request_is_left_aside_for_it() -> None:
    backend = pytest.importorskip("langchain_reasc_llama_cpp")
    path = backend.embedded_model_path().with_name("calibration.json")
    question = {"role": "user", "content": "Emma has 27 old and 14 new cups. How many more does Emma need to have 60?"}
    system = {"role": "system", "content": "Be brief."}
    votes = {"answer": "number", "calibration": str(path)}
    with backend.ChatLlamaCpp(seed=1) as model, front(served=LangChainModel(model, "shipped"), votes=votes) as server:
        fits, differs = (
            server.chat(messages=messages).json()["reasc"] for messages in ([question], [system, question])
        )
        assert fits["stop"] in ("gate", "evidence") and not any("does not fit" in notice for notice in fits["notices"])
        assert "does not fit" in differs["notices"][0] and differs["stop"] in ("agreement", "budget")


REFUSED = {
    "/embeddings": ({"input": "x"}, 404),
    "/chat/completions": ({"model": "m", "messages": "hello"}, 400),
    "/chat/completions?": ({"model": "m", "messages": HELLO, "n": 0}, 400),
}


@pytest.mark.parametrize("path", REFUSED)
def test_what_the_model_does_not_have_is_refused(server: Front, path: str) -> None:
    body, status = REFUSED[path]
    response = server.post(body, path)
    assert response.status_code == status and response.json()["error"]["message"]


@pytest.fixture(scope="module")
def shipped() -> Iterator[Front]:
    """Serve the shipped model."""
    model = ChatLlamaCpp(seed=1, max_tokens=12)
    with model, front(served=LangChainModel(model, "shipped"), votes={"answer": "number"}) as made:
        yield made


WAYS: list[dict[str, Any]] = [{"reasc": {"max_samples": 2}}, {"seed": 1}, {"seed": 1, "stream": True}]
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"v": {"type": "integer", "maximum": 99}}, "required": ["v"]}
CALLED: list[dict[str, Any]] = [
    {
        "role": "assistant",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "5"},
]


@pytest.mark.parametrize("way", WAYS, ids=["voted", "one", "streamed"])
@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"messages": [123]}, "messages[0]"),
        ({"messages": [{}]}, "messages[0]"),
        ({"messages": [["user", "hi"]]}, "messages[0]"),
        ({"messages": [*HELLO, {"role": "user"}]}, "messages[1]"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages[0]"),
        ({"messages": [{"role": "wizard", "content": "hi"}]}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": HELLO * 4097}, "messages"),
        ({"stop": 5}, "stop"),
        ({"stop": {"a": 1}}, "stop"),
        ({"stop": ["x", 5]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"tools": 5}, "tools"),
        ({"grammar": 5}, "grammar"),
        ({"grammar": "root"}, "grammar"),
        ({"json_schema": 5}, "schema"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"guided_json": SCHEMA}, "guided_json"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": [1]}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"max_completion_tokens": "many"}, "max_tokens"),
        ({"seed": "x"}, "seed"),
        ({"n": "x"}, "n is"),
        ({"top_logprobs": 99}, "top_logprobs"),
        ({"presence_penalty": {}}, "presence_penalty"),
        ({"response_format": 5}, "response_format"),
    ],
)
def test_what_is_wrong_with_a_request_is_named(
    shipped: Front, way: dict[str, Any], asked: dict[str, Any], names: str
) -> None:
    response = shipped.post({"model": "shipped", "messages": HELLO, **way, **asked})
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    assert names in response.json()["error"]["message"]


@pytest.mark.parametrize("way", WAYS[:2], ids=["voted", "one"])
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        pytest.param({"grammar": 'root ::= "42"'}, "42", marks=pytest.mark.full),
        pytest.param({"json_schema": SCHEMA}, r'\{ ?"v" ?: ?-?\d+ ?\}', marks=pytest.mark.full),
        ({"logit_bias": {"7": 100}, "max_tokens": 3}, r"(.+)\1\1"),
        ({"messages": [*HELLO, *CALLED]}, ".+"),
        ({"stop": []}, ".+"),
    ],
)
def test_what_the_model_can_do_is_done(shipped: Front, way: dict[str, Any], asked: dict[str, Any], says: str) -> None:
    response = shipped.post({"model": "shipped", "messages": HELLO, **way, **asked})
    assert response.status_code == 200, response.text
    assert re.fullmatch(says, response.json()["choices"][0]["message"]["content"], re.DOTALL)


@pytest.mark.parametrize("asked", [{"grammar": 'root ::= "42"'}, {"logit_bias": {"7": 100}}])
def test_what_a_model_cannot_do_is_refused(server: Front, asked: dict[str, Any]) -> None:
    response = server.post({**ASKED, **asked})
    assert (response.status_code, response.json()["error"]["param"]) == (400, *asked)
