"""The Responses API: voted on by chat completions, and read by its own clients."""

import asyncio
import functools
import itertools
import json
import operator
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_reasc_server.errors import Refused as Rejected
from langchain_reasc_server.local import LangChainModel
from langchain_reasc_server.responses import ResponseWriter
from langchain_reasc_server.responses_request import Untranslatable, chat_request
from langchain_reasc_server.translated import Translated
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter
from servers.chat_wire import DONE, Refused, Request
from servers.exchange import Exchange

from .serving import KEY, SHAPE, TOOL, Front, Said, front
from .test_live import CHAT, PART, call, delta, in_turn, says, says_after
from .test_local import Scripted

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
FUNCTION: dict[str, Any] = {"type": "function", **TOOL["function"]}
FORMAT = {"format": {"type": "json_schema", **SHAPE["json_schema"]}}
KINDS: dict[str, dict[str, Any]] = {
    "text": {"reasc": {"answer": "number"}},
    "tools": {"tools": [FUNCTION]},
    "structure": {"text": FORMAT},
}
ENDED = ("response.completed", "response.incomplete", "response.failed")


def ask(server: Front, **fields: Any) -> Any:
    return server.post({"model": "tiny", "input": "How much is 40 + 2?", **fields}, "/responses")


def events_of(server: Front, **fields: Any) -> list[dict[str, Any]]:
    """Return the events of a stream, after checking each by its type and number."""
    response = ask(server, stream=True, **fields)
    assert response.status_code == 200, response.text
    events = []
    for part in filter(None, response.text.split("\n\n")):
        if part.startswith(":"):
            continue
        named, data = part.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert named == f"event: {event['type']}"
        EVENT.validate_python(event)
        events.append(event)
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    return events


def whole_of(server: Front, streamed: bool, **fields: Any) -> dict[str, Any]:
    """Return the Response: whole, or from the last event of a stream."""
    if not streamed:
        whole: dict[str, Any] = ask(server, **fields).json()
        Response.model_validate(whole)
        return whole
    *_, last = events_of(server, **fields)
    assert last["type"] in ENDED
    response: dict[str, Any] = last["response"]
    return response


@pytest.fixture(scope="module")
def server() -> Iterator[Front]:
    with front(Said()) as made:
        yield made


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_winner_comes_back_as_a_response(kind: str, streamed: bool) -> None:
    asked = {**KINDS[kind], "metadata": {"a": "b"}, "temperature": 0.5, "store": True, "instructions": "Be brief."}
    with front(Said(), votes={"concurrency": 1}) as server:
        response = whole_of(server, streamed, **asked)
        [item] = response["output"]
        if kind == "tools":
            assert (item["type"], item["name"], item["arguments"]) == ("function_call", "weather", '{"city": "Paris"}')
            assert item["call_id"].startswith("call-") and response["tools"] == [
                {"strict": None, "description": None, **FUNCTION}
            ]
            assert response["tools"][0].keys() == {"type", "name", "description", "parameters", "strict"}
        else:
            said = '{"status": "fine"}' if kind == "structure" else "it is 42 "
            part = {"type": "output_text", "text": said, "annotations": [], "logprobs": []}
            assert (item["type"], item["role"], item["content"]) == ("message", "assistant", [part])
        assert response["id"].startswith("resp_") and response["object"] == "response"
        assert item["status"] == response["status"] == "completed" and response["incomplete_details"] is None
        assert (response["metadata"], response["temperature"], response["store"]) == ({"a": "b"}, 0.5, False)
        assert (response["model"], response["instructions"], response["top_p"]) == ("tiny", "Be brief.", 1.0)
        assert (response["presence_penalty"], response["frequency_penalty"]) == (0.0, 0.0)
        assert response["service_tier"] == "default"
        assert response["system_fingerprint"] == "fp_1" and response["x_timing"] == {"queued": 3}
        account, usage = response["reasc"], response["usage"]
        drawn = len(server.upstream.requests)
        assert account["samples"] == drawn > 1 and account["stop"] == "agreement"
        assert usage["total_tokens"] == account["tokens"]["spent"] == usage["input_tokens"] + usage["output_tokens"]
        assert usage["output_tokens"] == drawn * account["winner"]["completion_tokens"]


ITEMS: list[dict[str, Any]] = [
    {
        "role": "developer",
        "content": [{"type": "input_text", "text": text} for text in ("Tell the truth.", "Be kind.")],
    },
    {"type": "message", "role": "user", "content": "How is the weather?"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "See.", "annotations": []}]},
    *({"type": "function_call", "call_id": name, "name": "weather", "arguments": "{}"} for name in "ab"),
    {"type": "function_call_output", "call_id": "a", "output": "fine"},
    {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "wet"}]},
    {"role": "assistant", "content": "Fine."},
    {"role": "assistant", "content": "And wet."},
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "And this?"},
            {"type": "input_image", "image_url": "data:,", "detail": "low"},
            {"type": "input_file", "file_data": "data:,", "filename": "a.pdf"},
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        ],
    },
]
CALLS = [{"id": name, "type": "function", "function": {"name": "weather", "arguments": "{}"}} for name in "ab"]
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief.\n\nTell the truth.\n\nBe kind."},
    {"role": "user", "content": "How is the weather?"},
    {"role": "assistant", "content": "See.", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "a", "content": "fine"},
    {"role": "tool", "tool_call_id": "b", "content": "wet"},
    {"role": "assistant", "content": "Fine."},
    {"role": "assistant", "content": "And wet."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "And this?"},
            {"type": "image_url", "image_url": {"url": "data:,", "detail": "low"}},
            {"type": "file", "file": {"file_data": "data:,", "filename": "a.pdf"}},
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        ],
    },
]


def test_each_sample_is_the_request_as_a_chat_completion() -> None:
    asked: dict[str, Any] = {
        "model": "tiny:reasc-2",
        "instructions": "Be brief.",
        "input": ITEMS,
        "tools": [{**FUNCTION, "strict": True, "description": None}],
        "tool_choice": {"type": "function", "name": "weather"},
        "text": {**FORMAT, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "max_output_tokens": 9,
        "truncation": "disabled",
        "store": True,
        "metadata": {"a": "b"},
        "previous_response_id": None,
        "background": False,
    }
    same = {"parallel_tool_calls": False, "temperature": 0.5, "user": "u", "x_unknown": {"deep": [1.5, None]}}
    with front(Said()) as server:
        assert ask(server, **asked, **same).json()["reasc"]["samples"] == 2
        assert all(request == server.upstream.requests[0] for request in server.upstream.requests)
        assert server.upstream.requests[0] == {
            "model": "tiny",
            "messages": MESSAGES,
            "tools": [{"type": "function", "function": {**TOOL["function"], "strict": True}}],
            "tool_choice": {"type": "function", "function": {"name": "weather"}},
            "response_format": SHAPE,
            "verbosity": "low",
            "reasoning_effort": "low",
            "max_completion_tokens": 9,
            "logprobs": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **same,
        }


TEXT = ["output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done"]
CALL = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done"]


def shape_of(events: Sequence[dict[str, Any]]) -> list[str]:
    """Return the types of events, without repetitions in a row."""
    kinds = [event["type"].removeprefix("response.") for event in events]
    return [kind for at, kind in enumerate(kinds) if at == 0 or kind != kinds[at - 1]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_has_every_event_in_its_order(server: Front, kind: str) -> None:
    server.upstream.answer = Said()
    events = events_of(server, **KINDS[kind])
    middle = CALL if kind == "tools" else TEXT
    assert shape_of(events) == ["created", "in_progress", *middle, "output_item.done", "completed"]
    last = events[-1]["response"]
    assert [event["item"] for event in events if event["type"].endswith("item.done")] == last["output"]
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1
    deltas = "".join(event.get("delta", "") for event in events)
    [item] = last["output"]
    assert deltas == (item["arguments"] if kind == "tools" else item["content"][0]["text"])
    assert kind != "tools" or sum("delta" in event for event in events) > 3


def call_piece(index: int, arguments: str, **fields: Any) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": "weather"} if fields else {})}
    return delta(tool_calls=[{"index": index, **fields, "function": function}])


BY_TURNS = [
    call_piece(0, '{"city"', id="a"),
    call_piece(1, "{", id="b"),
    call_piece(0, ': "Rome"}'),
    call_piece(1, "}"),
]
TOKENS = {"content": [{"token": "ä", "logprob": -0.5, "top_logprobs": [{"token": "b", "logprob": -1.0}]}]}
STOP, CUT = (CHAT.chunk(choices=[{"delta": {}, "finish_reason": reason}]) for reason in ("stop", "length"))
WITH_LOGPROBS = delta(content="ä")
WITH_LOGPROBS["choices"][0]["logprobs"] = TOKENS
AS_OBJECT = delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "weather", "arguments": {"city": "Rome"}}}])
ODD: dict[str, tuple[list[Any], str, list[Any], str | None]] = {
    "a refusal": ([delta(refusal="no "), delta(refusal="way")], "stop", [("refusal", "no way")], None),
    "cut off": (["it is"], "length", [("output_text", "it is")], "max_output_tokens"),
    "filtered": (["oh"], "content_filter", [("output_text", "oh")], "content_filter"),
    "reasoning": (
        [delta(reasoning_content="hm"), "so"],
        "stop",
        [("reasoning_text", "hm"), ("output_text", "so")],
        None,
    ),
    "content in parts": ([delta(content=[PART])], "stop", [("output_text", "hi")], None),
    "nothing": ([], "stop", [("output_text", "")], None),
    "a text, then a call": (
        ["See.", call("Rome")],
        "tool_calls",
        [("output_text", "See."), ("weather", '{"city": "Rome"}')],
        None,
    ),
    "calls by turns": (BY_TURNS, "tool_calls", [("weather", '{"city": "Rome"}'), ("weather", "{}")], None),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("case", ODD)
def test_whatever_the_upstream_says_becomes_items(server: Front, case: str, streamed: bool) -> None:
    parts, finish, expected, incomplete = ODD[case]
    server.upstream.answer = says(parts, finish)
    response = whole_of(server, streamed, tools=[FUNCTION])
    found = []
    for item in response["output"]:
        if item["type"] == "function_call":
            found.append((item["name"], item["arguments"]))
        else:
            [part] = item["content"]
            found.append((part["type"], part.get("text", part.get("refusal"))))
    assert found == expected
    assert response["status"] == ("incomplete" if incomplete else "completed")
    assert response["incomplete_details"] == ({"reason": incomplete} if incomplete else None)
    assert {item["status"] for item in response["output"]} == {response["status"]}


@pytest.mark.parametrize("streamed", [False, True])
def test_a_function_of_a_namespace_keeps_it(server: Front, streamed: bool) -> None:
    server.upstream.answer = Named()
    tool = {"type": "namespace", "name": "city", "description": "Of cities.", "tools": [FUNCTION]}
    [called] = whole_of(server, streamed, tools=[tool])["output"]
    assert (called["name"], called["namespace"]) == ("weather", "city")
    told = [called, {"type": "function_call_output", "call_id": called["call_id"], "output": "fine"}]
    assert whole_of(server, streamed, tools=[tool], input=told)["output"]
    said, answered = server.upstream.requests[-1]["messages"]
    assert said["tool_calls"][0]["function"]["name"] == "city__weather" and answered["content"] == "fine"


class Named(Said):
    """Call the first tool by its name in the request."""

    def called(self, request: Request, at: int) -> list[dict[str, Any]]:
        name = request["tools"][0]["function"]["name"]
        return [{**one, "function": {**one["function"], "name": name}} for one in super().called(request, at)]


@pytest.mark.parametrize("streamed", [False, True])
def test_logprobs_have_the_bytes_of_their_tokens(server: Front, streamed: bool) -> None:
    server.upstream.answer = says([WITH_LOGPROBS])
    response = whole_of(server, streamed, tools=[FUNCTION], top_logprobs=1)
    expected = {"token": "ä", "logprob": -0.5, "bytes": [195, 164]}
    assert response["output"][0]["content"][0]["logprobs"] == [
        {**expected, "top_logprobs": [{"token": "b", "logprob": -1.0, "bytes": [98]}]}
    ]


class Both(Said):
    """A server that has both APIs. Its Responses API answers with the request."""

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.path.endswith("/chat/completions"):
            await super().__call__(exchange)
        else:
            await exchange.reply(404 if "previous_response_id" in exchange.body else 200, {"asked": exchange.body})


UNTRANSLATABLE: dict[str, tuple[dict[str, Any], str]] = {
    "a hosted tool": ({"tools": [FUNCTION, {"type": "web_search"}]}, "web_search"),
    "a tool of free text": ({"tools": [{"type": "custom", "name": "run"}]}, "custom"),
    "some tools": ({"tools": [FUNCTION], "tool_choice": {"type": "allowed_tools", "tools": []}}, "allowed_tools"),
    "what was said before": ({"previous_response_id": "resp_1", "tools": [FUNCTION]}, "previous_response_id"),
    "a conversation": ({"conversation": "conv_1"}, "conversation"),
    "in the background": ({"background": True}, "background"),
    "a template": ({"prompt": {"id": "pmpt_1"}, "input": None}, "prompt"),
    "a reference": ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "item_reference"),
    "a reference without a type": ({"input": [{"id": "msg_1"}]}, "item_reference"),
    "a kept image": (
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        "input_image",
    ),
    "a kept file": ({"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "u"}]}]}, "input_file"),
    "an image from a tool": (
        {
            "input": [
                {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_image", "image_url": "u"}]}
            ]
        },
        "function_call_output",
    ),
    "another form of text": ({"text": {"format": {"type": "grammar"}}}, "grammar"),
    "a type of many lines": ({"tools": [{"type": "a\r\nx-evil: 1"}]}, "not understood"),
}
ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "a text": ({}, "nothing to vote on"),
    "greedy": ({"tools": [FUNCTION], "temperature": 0}, "temperature"),
    "one sample": ({"tools": [FUNCTION], "reasc": {"max_samples": 1}}, "max_samples"),
}


@pytest.fixture(scope="module")
def both() -> Iterator[Front]:
    with front(Both()) as server:
        yield server


@pytest.mark.parametrize("case", [*UNTRANSLATABLE, *ALONE])
def test_what_is_not_voted_on_goes_to_the_upstreams_own_responses(both: Front, case: str) -> None:
    body, why = {**UNTRANSLATABLE, **ALONE}[case]
    before = len(both.upstream.exchanges)
    response = ask(both, **body)
    assert response.headers["x-reasc-passed-through"] == why
    assert response.status_code == (404 if "previous_response_id" in body else 200)
    asked = {"model": "tiny", "input": "How much is 40 + 2?", **body}
    asked.pop("reasc", None)
    assert response.json() == {"asked": asked} and len(both.upstream.exchanges) == before + 1


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("case", ALONE)
def test_where_the_upstream_has_no_responses_it_is_one_chat_completion(case: str, streamed: bool) -> None:
    body, why = ALONE[case]
    with front(Said()) as server:
        response = ask(server, **body, stream=streamed)
        assert response.headers["x-reasc-passed-through"] == why and "x-reasc-samples" not in response.headers
        [refused, sent] = server.upstream.exchanges
        assert refused.path == "/v1/responses" and sent.path == "/v1/chat/completions"
        whole = whole_of(server, streamed, **body)
        [item] = whole["output"]
        assert item["type"] == ("function_call" if "tools" in body else "message") and whole["status"] == "completed"
        assert whole["usage"]["total_tokens"] > 0 and "reasc" not in whole


def test_an_upstream_that_does_not_stream_is_translated_all_the_same() -> None:
    async def whole(exchange: Exchange) -> None:
        await exchange.reply(200, Said().whole({**exchange.body, "stream": False}))

    with front(chat_alone(whole)) as server:
        *_, last = events_of(server)
        assert last["type"] == "response.completed" and last["response"]["output"][0]["type"] == "message"


def test_what_a_choice_says_beside_its_message_is_kept(server: Front) -> None:
    for streamed in (False, True):
        for voted in ({}, KINDS["text"]):
            server.upstream.answer = Said() if voted else chat_alone(Said())
            response = whole_of(server, streamed, **voted)
            in_pieces = streamed or voted  # where the upstream says it
            assert response["x_timing"] == {"queued": 3} and response.get("x_of_choice") == (
                [1, 2] if in_pieces else None
            )


def test_what_is_kept_under_an_id_is_the_upstreams_where_that_is_open() -> None:
    with front(Both(), paths=["responses"]) as server:
        assert server.post({}, "/responses/resp_1/cancel").json() == {"asked": {}}
        assert server.http.get(f"{server.url}/responses/resp_1").json()["object"] == "list"
        assert server.upstream.gets[-1] == "/v1/responses/resp_1"


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "no input": ({"input": None}, "input"),
    "a number": ({"input": 7}, "input"),
    "texts": ({"input": ["a"]}, "input"),
    "no content": ({"input": [{"role": "user"}]}, "input"),
    "another role": ({"input": [{"role": "tool", "content": "x"}]}, "input"),
    "a role of no name": ({"input": [{"role": ["user"], "content": "x"}]}, "input"),
    "a call without a name": ({"input": [{"type": "function_call", "call_id": "a", "arguments": ""}]}, "input"),
    "an answer to nobody": ({"input": [{"type": "function_call_output", "output": ""}]}, "input"),
    "a part without its text": ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input"),
    "tools by name": ({"tools": {"a": 1}}, "tools"),
    "a tool without a name": ({"tools": [{"type": "function"}]}, "tools"),
    "instructions in a list": ({"instructions": []}, "instructions"),
    "text of text": ({"text": "json"}, "text"),
    "another wish": ({"reasc": {"rounds": 3}}, "reasc"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_request_is_refused_and_says_what_is_wrong(both: Front, case: str) -> None:
    body, param = MALFORMED[case]
    before = len(both.upstream.exchanges)
    response = ask(both, **body)
    error = response.json()["error"]
    assert response.status_code == 400 and error["type"] == "invalid_request_error" and param in error["message"]
    assert error["param"] in (param, None) and len(both.upstream.exchanges) == before


def test_an_error_keeps_its_status_or_ends_the_stream() -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.refuse(400, f"too long, {exchange.headers['authorization']}")

    for stream in (False, True):
        for upstream, tools in ((refuse, [FUNCTION]), (chat_alone(refuse), [])):
            with front(upstream) as server:
                response = ask(server, tools=tools, stream=stream)
                assert response.status_code == 400 and "too long" in response.json()["error"]["message"]
                assert KEY not in response.text and ("x-reasc-passed-through" in response.headers) != bool(tools)
    broken = says(["It is", " 4", None], pause=0.1)
    for server_says, voted in ((in_turn(broken, says(["The answer: 42"])), True), (chat_alone(broken), False)):
        with front(server_says) as server:
            *_, item, last = events_of(server, **({"tools": [FUNCTION]} if voted else {}))
            assert last["type"] == "response.failed" and last["response"]["error"]["code"] == "server_error"
            assert last["response"]["output"] == [item["item"]] and item["item"]["status"] == "incomplete"
            assert item["item"]["content"][0]["text"] == "It is 4"


def chat_alone(answers: Any) -> Any:
    async def answer(exchange: Exchange) -> None:
        if exchange.path.endswith("/responses"):
            raise Refused("no such path", 404)
        await answers(exchange)

    return answer


@pytest.mark.parametrize("reply", [{"detail": "hello"}, {"choices": [{}]}, "<html>"])
def test_a_reply_that_is_none_is_a_bad_gateway(server: Front, reply: Any) -> None:
    async def odd(exchange: Exchange) -> None:
        await exchange.reply(200, reply)

    server.upstream.answer = chat_alone(odd)
    response = ask(server)
    assert response.status_code == 502 and response.json()["error"]["code"] == "upstream_error"


def test_an_upstream_that_is_not_there_is_a_bad_gateway_whatever_is_asked() -> None:
    with front(None) as server:
        for fields in ({}, {"tools": [FUNCTION]}, {"tools": [{"type": "web_search"}]}):
            assert ask(server, **fields).status_code == 502


def test_what_passes_through_counts_as_a_sample_of_its_key() -> None:
    with front(Both(), admission={"samples_per_minute": 1}) as server:
        assert [ask(server).status_code for _ in range(2)] == [200, 429]


def with_reason(reason: str, text: str = "") -> Any:
    return CHAT.chunk(choices=[{"delta": {"content": text}, "finish_reason": reason}])


GOES_ON, UNKNOWN = with_reason("null", "so"), with_reason("so far", "so")
HALF = {"content": [{"token": "\ud83d", "logprob": -1.0}]}
STREAMS: dict[str, tuple[list[Any], str, list[str], str | None]] = {
    "whole": ([delta(content="hi"), STOP, DONE], "completed", ["completed"], None),
    "no last line": ([delta(content="hi"), STOP], "completed", ["completed"], None),
    "more than the end": ([delta(content="hi"), STOP, DONE, delta(content="so")], "completed", ["completed"], None),
    "no end": ([delta(content="hi")], "failed", ["incomplete"], "server_error"),
    "half": ([GOES_ON, GOES_ON], "failed", ["incomplete"], "server_error"),
    "half in a word that nobody knows": ([UNKNOWN, UNKNOWN], "failed", ["incomplete"], "server_error"),
    "an end in a word that nobody knows": ([with_reason("over", "so")], "completed", ["completed"], None),
    "an error": ([GOES_ON, with_reason("error"), DONE], "failed", ["incomplete"], "server_error"),
    "cut off": ([GOES_ON, with_reason("max_tokens"), DONE], "incomplete", ["incomplete"], None),
    "no finish reason": ([delta(content="hi"), DONE], "completed", ["completed"], None),
    "one index for all": ([call("Rome"), call("Oslo"), STOP, DONE], "completed", ["completed"] * 2, None),
    "arguments as an object": ([AS_OBJECT, STOP, DONE], "completed", ["completed"], None),
    "nothing": ([], "failed", [], "server_error"),
    "no JSON": (["{"], "failed", [], "server_error"),
    "too long": ([{"error": {"code": "context_length_exceeded"}}], "failed", [], "context_length_exceeded"),
    "too often": ([{"error": {"type": "rate_limit_error", "code": 429}}], "failed", [], "rate_limit_exceeded"),
    "an error in words": ([{"error": "no"}], "failed", [], "server_error"),
    "the last call cut off": ([*BY_TURNS, CUT], "incomplete", ["completed", "incomplete"], None),
    "half a character": (
        [CHAT.chunk(choices=[{"delta": {"content": "\ud83d"}, "logprobs": HALF}]), STOP],
        "completed",
        ["completed"],
        None,
    ),
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("case", STREAMS)
async def test_a_stream_is_translated_in_whatever_pieces_it_comes(case: str, end: str) -> None:
    events, status, items, code = STREAMS[case]
    data = [one if isinstance(one, str) else json.dumps(one) for one in events]
    raw = "".join(f"data: {one}{end}{end}" for one in data).encode()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    translated = Translated(send, ResponseWriter({}, "tiny"))
    head = [(b"content-type", b"text/event-stream"), (b"content-length", b"7")]
    await translated({"type": "http.response.start", "status": 200, "headers": head})
    for at in range(0, len(raw) + 1, 3):
        await translated({"type": "http.response.body", "body": raw[at : at + 3], "more_body": at + 3 <= len(raw)})
    assert sent[0]["headers"] == head[:1] and not sent[-1]["more_body"]
    *_, last = b"".join(message["body"] for message in sent[1:]).decode().strip().split("data: ")
    response = json.loads(last)["response"]
    assert response["status"] == status and [item["status"] for item in response["output"]] == items
    calls = [json.loads(item["arguments"]) for item in response["output"] if item["type"] == "function_call"]
    assert case == "the last call cut off" or all(one in ({"city": "Rome"}, {"city": "Oslo"}) for one in calls)
    assert (response["error"] or {"code": None})["code"] == code


def test_a_stream_shows_life_and_then_its_text_word_by_word() -> None:
    alive, seen = threading.Event(), threading.Event()

    async def late(exchange: Exchange) -> None:
        assert await asyncio.to_thread(alive.wait, 20)
        await says_after("So", seen, [" it"])(exchange)

    body = json.dumps({"input": "?", "tools": [FUNCTION], "stream": True})
    with front(late, ping=0.05) as server:
        text, headers = "", {"content-type": "application/json"}
        with server.http.stream("POST", f"{server.url}/responses", content=body, headers=headers) as response:
            for part in response.iter_text():
                text += part
                alive.set() if ": ping" in text else None
                seen.set() if '"delta":"So"' in text else None
    created, added, first, last = map(text.index, ("response.created", "item.added", '"So"', '"delta":" it"'))
    assert text.index(": ping") < created < added < first < last


fields = st.sampled_from(
    ["input", "tools", "tool_choice", "text", "format", "type", "role", "content", "name", "output", "include"]
)
values = st.recursive(
    st.none() | st.integers(-1, 2) | st.sampled_from(["message", "function", "function_call", "user", "input_text"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields, inner, max_size=5),
    max_leaves=12,
)


@given(st.dictionaries(fields, values, max_size=6))
def test_any_body_is_translated_or_refused(body: dict[str, Any]) -> None:
    try:
        translated = chat_request(body, "max_tokens")
    except (Untranslatable, Rejected):
        return
    assert json.loads(json.dumps(translated))["messages"] == translated["messages"]
    assert all(message["role"] in ("system", "user", "assistant", "tool") for message in translated["messages"])


class Status(BaseModel):
    status: str


class AnswersTools(Said):
    """Call a tool, and answer after the tool's result."""

    def called(self, request: Request, at: int) -> list[dict[str, Any]]:
        return [] if request["messages"][-1]["role"] == "tool" else super().called(request, at)


@pytest.mark.full
def test_openais_client_reads_everything() -> None:
    with front(AnswersTools()) as server, openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client:
        asked: Any = {"model": "tiny", "tools": [FUNCTION]}
        items: list[Any] = [{"role": "user", "content": "How is the weather?"}]
        first = client.responses.create(**asked, input=items)
        [called] = first.output
        assert called.type == "function_call" and json.loads(called.arguments) == {"city": "Paris"}
        items += [*first.output, {"type": "function_call_output", "call_id": called.call_id, "output": "fine"}]
        assert client.responses.create(**asked, input=items).output_text == "it is 42 "
        with client.responses.stream(**asked, input=items) as stream:
            assert "".join(event.delta for event in stream if event.type == "response.output_text.delta") == "it is 42 "
            assert stream.get_final_response().output_text == "it is 42 "
        parsed = client.responses.parse(model="tiny", input="How is it?", text_format=Status)
        assert parsed.output_parsed == Status(status="fine")


def test_langchains_client_works_by_responses() -> None:
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"fine in {city}"

    chat_openai = pytest.importorskip("langchain_openai").ChatOpenAI
    agents = pytest.importorskip("langchain.agents")
    with front(AnswersTools()) as server:
        model = chat_openai(base_url=server.url, model="tiny", api_key="any", max_retries=0, use_responses_api=True)
        assert model.with_structured_output(Status).invoke("How is it?") == Status(status="fine")
        bound = model.bind_tools([weather])
        for said in (bound.invoke("?"), functools.reduce(operator.add, bound.stream("?"))):
            assert [one["args"] for one in said.tool_calls] == [{"city": "Paris"}] and said.usage_metadata
        agent = agents.create_agent(model, [weather])
        told = agent.invoke({"messages": [("user", "How is the weather in Paris?")]})["messages"]
        assert [message.type for message in told] == ["human", "ai", "tool", "ai"] and told[-1].text == "it is 42 "


@pytest.mark.parametrize("streamed", [False, True])
def test_a_model_in_this_process_has_it_too(streamed: bool) -> None:
    model = Scripted(turns=itertools.cycle(["it is 42"]))
    with front(served=LangChainModel(model, "scripted"), votes={"answer": "number"}) as server:
        for fields, voted in (({}, True), ({"temperature": 0}, False), ({"tools": [FUNCTION]}, True)):
            response = whole_of(server, streamed, **fields, max_output_tokens=9)
            [item] = response["output"]
            assert item["type"] == ("function_call" if fields.get("tools") else "message")
            assert ("reasc" in response) == voted and response["usage"]["total_tokens"] % 7 == 0
            assert response["model"] == "tiny" and response["max_output_tokens"] == 9
        for body, why in UNTRANSLATABLE.values():
            refused = ask(server, **body, stream=streamed)
            assert refused.status_code == 400 and why in refused.json()["error"]["message"]
        assert server.post({}, "/responses/resp_1/cancel").status_code == 404
