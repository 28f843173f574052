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

from .serving import HELLO, SHAPE, TOOL, Front, Said, events_in, front

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
        assert fits["stop"] == "agreement" and not any("does not fit" in notice for notice in fits["notices"])
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


CUT = '{"euros": '
BAD_CALLS: dict[str, Any] = {
    "cut": (CUT, CUT),
    "text": ("no JSON", "no JSON"),
    "a list": ("[1]", "[1]"),
    "a number": (5, "5"),
    "half of a name": ('{"eu', '{"eu'),
    "empty": ("", {}),
    "white space": (" \n", {}),
    "null": (None, {}),
    "the word null": ("null", {}),
    "an object": ({"euros": 2}, {"euros": 2}),
    "whole": ('{"euros": 2}', {"euros": 2}),
}
"""Arguments of a call in a conversation -> the arguments that the model gets: a text is an invalid call."""
IDS: dict[str, tuple[Any, Any]] = {
    "both": ("c1", "c1"),
    "none": (None, None),
    "empty": ("", ""),
    "the result's alone": (None, "c1"),
    "the call's alone": ("c1", None),
}
"""The id of a call, and that of its result."""
CONVERSATIONS = [(case, "both") for case in BAD_CALLS] + [("cut", ids) for ids in IDS if ids != "both"]


def conversation(case: str, ids: str) -> list[dict[str, Any]]:
    """Return a conversation with a call."""
    arguments, (id, of_result) = BAD_CALLS[case][0], IDS[ids]
    call = {"type": "function", "function": {"name": "convert", "arguments": arguments}}
    call |= {} if id is None else {"id": id}
    result = {"role": "tool", "content": "that was wrong"} | ({} if of_result is None else {"tool_call_id": of_result})
    return [*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}, result]


def items(case: str, ids: str) -> list[dict[str, Any]]:
    """Return the same conversation for the Responses API, which has no arguments but texts."""
    _, called, answered = conversation(case, ids)
    [call] = called["tool_calls"]
    item = {"type": "function_call", "call_id": call.get("id"), **call["function"]}
    output = {"type": "function_call_output", "call_id": answered.get("tool_call_id"), "output": answered["content"]}
    return [*HELLO, item, output]


class Hearing(Scripted):
    """Keep the messages of all calls."""

    heard: list[Any] = Field(default_factory=list)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        self.heard.append(messages)
        return super()._generate(messages, stop, run_manager, **kwargs)

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[Any]:
        self.heard.append(messages)
        yield from super()._stream(messages, stop, run_manager, **kwargs)


def asked_in_both_apis(server: Front, case: str, ids: str, way: dict[str, Any]) -> Iterator[Any]:
    yield server.chat(messages=conversation(case, ids), **way)
    if not isinstance(BAD_CALLS[case][0], int | dict):
        yield server.post({"model": "tiny", "input": items(case, ids), **way}, "/responses")


@pytest.fixture(scope="module")
def hearing() -> Iterator[Front]:
    """Serve a chat model that keeps the messages of all calls."""
    model = Hearing(turns=itertools.cycle(["it is 42"]))
    with front(served=LangChainModel(model, "scripted"), votes={"answer": "number"}) as made:
        yield made


@pytest.mark.parametrize("way", WAYS, ids=["voted", "one", "streamed"])
@pytest.mark.parametrize(("case", "ids"), CONVERSATIONS)
def test_a_chat_model_gets_bad_calls_as_invalid_ones(hearing: Front, case: str, ids: str, way: dict[str, Any]) -> None:
    for response in asked_in_both_apis(hearing, case, ids, way):
        assert response.status_code == 200, response.text
        _, called, result = hearing.gateway.upstream.chat_model.heard.pop()  # type: ignore[attr-defined]
        [call] = [*called.tool_calls, *called.invalid_tool_calls]
        assert (call["name"], call["args"]) == ("convert", BAD_CALLS[case][1])
        assert bool(called.tool_calls) == isinstance(BAD_CALLS[case][1], dict)
        assert call["id"] == result.tool_call_id and (call["id"] == "c1" or IDS[ids][0] != "c1")


@pytest.mark.parametrize("way", WAYS, ids=["voted", "one", "streamed"])
@pytest.mark.parametrize(("case", "ids"), CONVERSATIONS)
def test_a_gguf_goes_on_after_a_bad_call(shipped: Front, case: str, ids: str, way: dict[str, Any]) -> None:
    for response in asked_in_both_apis(shipped, case, ids, way):
        assert response.status_code == 200, response.text


@pytest.mark.full
def test_servers_get_a_conversation_unchanged_or_translated() -> None:
    system = {"role": "system", "content": "Be brief."}
    with front(Said(), votes={"answer": "number", "calibration": "online"}) as server:
        expected = server.chat(messages=[system, *HELLO]).json()["reasc"]["kind"]
        for case, ids in CONVERSATIONS:
            sent = [system, *conversation(case, ids)]
            account = server.chat(messages=sent).json()["reasc"]
            assert account["kind"] == expected, "the conversation is understood, and what its kind taught applies"
            assert server.upstream.requests[-1]["messages"] == sent
            if isinstance(BAD_CALLS[case][0], int | dict):
                continue
            assert server.post({"model": "tiny", "input": items(case, ids)}, "/responses").status_code == 200
            _, called, result = server.upstream.requests[-1]["messages"]
            [call] = called["tool_calls"]
            assert call["id"] == result["tool_call_id"] and call["id"]
            expected_arguments = "{}" if BAD_CALLS[case][1] == {} else BAD_CALLS[case][0]
            assert call["function"]["arguments"] == expected_arguments


def test_events_of_a_vote_have_the_fields_of_those_without_a_vote(hearing: Front) -> None:
    for options in ({}, {"stream_options": {"include_usage": True}}):
        voted, alone = (hearing.events(**options, **own)[:-1] for own in ({}, {"seed": 1}))
        assert "reasc" in voted[-1] and alone[-1].keys() == voted[-1].keys() - {"reasc"}
        assert {frozenset(event) for event in alone[:-1]} == {frozenset(event) for event in voted[:-1]}


def test_results_belong_to_calls_by_their_order() -> None:
    model = Hearing(turns=itertools.cycle(["it is 42"]))
    ids: list[Any] = ["a", None, None]
    calls = [{"id": id, "function": {"name": f"f{at}", "arguments": CUT}} for at, id in enumerate(ids)]
    results = [{"role": "tool", "content": str(at), "tool_call_id": id} for at, id in enumerate(["a", "unknown", None])]
    messages = [*HELLO, {"role": "assistant", "content": "", "tool_calls": calls}, *results]
    with front(served=LangChainModel(model, "scripted"), votes={"answer": "number"}) as server:
        assert server.chat(messages=[*messages, *messages], seed=1).status_code == 200
        [heard] = model.heard
        made = [call["id"] for message in heard if message.type == "ai" for call in message.invalid_tool_calls]
        assert [message.tool_call_id for message in heard if message.type == "tool"] == made
        assert made[0] == made[3] == "a" and len({*made}) == 5
        assert server.chat(messages=[*messages, *messages], seed=1).status_code == 200
        assert model.heard[0] == model.heard[1], "the same conversation is the same prompt"


def test_a_call_without_a_name_is_refused_by_its_place(server: Front) -> None:
    for calls in (5, ["f"], [{}], [{"id": "1", "function": {}}], [{"function": {"name": 5}}]):
        response = server.chat(messages=[*HELLO, {"role": "assistant", "content": "", "tool_calls": calls}])
        assert response.status_code == 400 and "messages[1].tool_calls" in response.json()["error"]["message"]


@pytest.mark.full
def test_the_models_own_call_that_was_cut_may_be_sent_back() -> None:
    with ChatLlamaCpp(seed=1) as model, front(served=LangChainModel(model, "shipped")) as server:
        for way in WAYS:
            asked = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 60, **way, "stream": False}
            said = server.chat(**asked).json()["choices"][0]["message"]
            [call] = said["tool_calls"]
            with pytest.raises(json.JSONDecodeError):
                json.loads(call["function"]["arguments"])
            result = {"role": "tool", "tool_call_id": call["id"], "content": "that was no JSON"}
            again = server.chat(messages=[*HELLO, said, result], max_tokens=5, tools=[TOOL], **way)
            assert again.status_code == 200, again.text


NOT_FUNCTIONS: list[dict[str, Any]] = [
    {"type": "web_search"},
    {"type": "web_search_preview"},
    {"type": "mcp", "server_label": "web_search"},
    {"type": "custom", "custom": {"name": "web_search"}},
    {"type": "function", "name": "web_search", "parameters": {}},
    {"type": "function", "function": "web_search"},
    {"type": "of next year", "name": {"web_search": 1}},
]


@pytest.mark.parametrize("tool", NOT_FUNCTIONS, ids=str)
def test_a_tool_that_is_not_a_function_is_named(shipped: Front, tool: dict[str, Any]) -> None:
    for way in WAYS:
        response = shipped.chat(tools=[TOOL, tool], **way)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "invalid_value")
        assert "tool 2" in error["message"] and "web_search" in error["message"] and "Error" not in error["message"]


@pytest.mark.parametrize("name", ["stream", "logprobs", "parallel_tool_calls", "store", "stream_options.include_usage"])
def test_a_boolean_in_another_form_is_refused(server: Front, name: str) -> None:
    outer, _, inner = name.partition(".")
    for path, value in itertools.product(("/chat/completions", "/responses"), ("false", "true", "", 0, 1, [])):
        asked = {"messages": HELLO, "input": HELLO, outer: {inner: value} if inner else value}
        response = server.post({"model": "tiny", **asked}, path)
        assert (response.status_code, response.json()["error"]["param"]) == (400, name)
        assert json.dumps(value) in response.json()["error"]["message"]
