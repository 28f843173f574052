"""Anthropic's Messages API: voted on by chat completions, and read by its own clients."""

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_reasc_server.errors import Refused as Rejected
from langchain_reasc_server.local import LangChainModel
from langchain_reasc_server.messages import ErrorsTranslated, MessageWriter
from langchain_reasc_server.messages_request import chat_request
from langchain_reasc_server.metering import reported_tokens
from langchain_reasc_server.translated import Translated
from pydantic import TypeAdapter
from servers.chat_wire import DONE, Request
from servers.exchange import Exchange

from .serving import HELLO, KEY, SHAPE, TOOL, Front, Said, endless, eventually, front
from .test_live import CHAT, PART, call, delta, in_turn, says, says_after
from .test_local import Scripted
from .test_responses import BY_TURNS, CUT, STOP

anthropic: Any = pytest.importorskip("anthropic")
EVENT: TypeAdapter[Any] = TypeAdapter(anthropic.types.RawMessageStreamEvent)
WEATHER = {"name": "weather", "description": "Of a city.", "input_schema": TOOL["function"]["parameters"]}
FORMAT = {"format": {"type": "json_schema", "schema": SHAPE["json_schema"]["schema"]}}
KINDS: dict[str, dict[str, Any]] = {
    "text": {"reasc": {"answer": "number"}},
    "tools": {"tools": [WEATHER]},
    "structure": {"output_config": FORMAT},
}


def ask(server: Front, *, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    body = {"model": "tiny", "max_tokens": 99, "messages": HELLO, **fields}
    return server.post(body, "/messages", headers=headers or {})


def events_in(text: str) -> list[dict[str, Any]]:
    """Return the events of a stream, after checking each by its name and type."""
    events = []
    for part in filter(None, text.split("\n\n")):
        named, data = part.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert named == f"event: {event['type']}"
        if event["type"] not in ("ping", "error"):
            EVENT.validate_python(event)
        events.append(event)
    return events


def added_up(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the Message that a stream tells."""
    message: dict[str, Any] = {}
    arguments: dict[int, str] = {}
    for event in events:
        if event["type"] == "message_start":
            message = event["message"]
        elif event["type"] == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"])
        elif event["type"] == "content_block_delta":
            block, said = message["content"][event["index"]], event["delta"]
            if said["type"] == "input_json_delta":
                arguments[event["index"]] = arguments.get(event["index"], "") + said["partial_json"]
            else:
                block[block["type"]] += said[block["type"]]
        elif event["type"] == "message_delta":
            message |= event["delta"] | {name: event[name] for name in ("usage", "reasc") if name in event}
    for place, text in arguments.items():
        message["content"][place]["input"] = json.loads(text)
    return message


def whole_of(server: Front, streamed: bool, **fields: Any) -> dict[str, Any]:
    """Return a Message: whole, or what the events of its stream tell."""
    response = ask(server, **fields, stream=streamed)
    assert response.status_code == 200, response.text
    if streamed:
        return added_up(events_in(response.text))
    whole: dict[str, Any] = response.json()
    anthropic.types.Message.model_validate(whole)
    return whole


def error_in(response: Any) -> tuple[int, str, str]:
    """Return the status, type and message of an error, after checking its form."""
    body = response.json()
    assert body.keys() == {"type", "error"} and body["type"] == "error"
    assert body["error"].keys() - {"details"} == {"type", "message"}
    return response.status_code, body["error"]["type"], body["error"]["message"]


@pytest.fixture(scope="module")
def server() -> Iterator[Front]:
    with front(Said()) as made:
        yield made


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_winner_comes_back_as_a_message(kind: str, streamed: bool) -> None:
    with front(Said(), votes={"concurrency": 1}) as server:
        message = whole_of(server, streamed, **KINDS[kind])
        [block] = message["content"]
        if kind == "tools":
            called = {"type": "tool_use", "id": block["id"], "name": "weather", "input": {"city": "Paris"}}
            assert block == called and block["id"].startswith("call-")
        else:
            assert block == {"type": "text", "text": '{"status": "fine"}' if kind == "structure" else "it is 42 "}
        assert message["stop_reason"] == ("tool_use" if kind == "tools" else "end_turn")
        assert message["id"].startswith("msg_") and message["stop_sequence"] is None
        assert (message["type"], message["role"], message["model"]) == ("message", "assistant", "tiny")
        account, usage = message["reasc"], message["usage"]
        drawn = len(server.upstream.requests)
        assert account["samples"] == drawn > 1 and account["stop"] == "agreement"
        assert usage["input_tokens"] + usage["output_tokens"] == account["tokens"]["spent"]
        assert usage["output_tokens"] == drawn * account["winner"]["completion_tokens"]


@pytest.mark.parametrize("streamed", [False, True])
def test_usage_may_be_the_winners_own(server: Front, streamed: bool) -> None:
    fields = {"stream": streamed, **KINDS["tools"]}
    response = ask(server, headers={"x-reasc-usage": "winner", "x-reasc-max-samples": "3"}, **fields)
    message = added_up(events_in(response.text)) if streamed else response.json()
    assert message["usage"] == {"input_tokens": 7, "output_tokens": 3} and message["reasc"]["samples"] == 2
    assert streamed or response.headers["x-reasc-samples"] == "2"


@pytest.mark.parametrize("streamed", [False, True])
def test_cached_tokens_are_no_input_tokens(server: Front, streamed: bool) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 5}}

    async def cached(exchange: Exchange) -> None:
        await exchange.stream([delta(content="hi"), STOP, CHAT.chunk(choices=[], usage=usage), DONE])

    server.upstream.answer = cached
    response = ask(server, tools=[WEATHER], stream=streamed)
    message = added_up(events_in(response.text)) if streamed else response.json()
    assert message["usage"] == {"input_tokens": 4, "cache_read_input_tokens": 5, "output_tokens": 2}
    assert reported_tokens(response.content) == 11, "what the log tells"


SYSTEM = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in ("Be brief.", "Be kind.")]
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
CALL = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Köln"}'}}
CONVERSATION: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    (
        {"role": "user", "content": "Hi."},
        [{"role": "user", "content": "Hi.\n\n<system-reminder>\nBe slow.\n</system-reminder>\n\nPlease."}],
    ),
    ({"role": "system", "content": [{"type": "text", "text": "Be slow."}]}, []),
    ({"role": "user", "content": "Please."}, []),
    (
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I "},
                {"type": "text", "text": "look."},
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Köln"}},
            ],
        },
        [{"role": "assistant", "content": "I look.", "tool_calls": [CALL]}],
    ),
    (
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "And this?", "cache_control": {"type": "ephemeral"}},
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "wet"}, IMAGE]},
                {"type": "tool_result", "tool_use_id": "b", "content": "no city", "is_error": True},
                {"type": "tool_result", "tool_use_id": "c"},
                {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
            ],
        },
        [
            {"role": "tool", "tool_call_id": "a", "content": "wet"},
            {"role": "tool", "tool_call_id": "b", "content": "Error:\nno city"},
            {"role": "tool", "tool_call_id": "c", "content": ""},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "And this?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                    {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
                ],
            },
        ],
    ),
    (
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "weather", "input": {}}]},
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{**CALL, "function": {"name": "weather", "arguments": "{}"}}],
            }
        ],
    ),
    (
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "of no call", "content": ""}]},
        [{"role": "tool", "tool_call_id": "of no call", "content": ""}],
    ),
    ({"role": "assistant", "content": []}, [{"role": "assistant", "content": ""}]),
    ({"role": "user", "content": []}, [{"role": "user", "content": ""}]),
]


def test_each_sample_is_the_request_as_a_chat_completion() -> None:
    asked: dict[str, Any] = {
        "model": "tiny:reasc-2",
        "system": SYSTEM,
        "messages": [message for message, _ in CONVERSATION],
        "tools": [{**WEATHER, "type": "custom", "strict": True, "cache_control": {"type": "ephemeral"}}],
        "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
        "output_config": {**FORMAT, "effort": "high"},
        "max_tokens": 9,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u"},
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": []},
        "service_tier": "auto",
        "mcp_servers": [],
    }
    same = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "reasoning_effort": "low"}
    with front(Said()) as server:
        given = {"anthropic-version": "2023-06-01", "anthropic-beta": "a", "x-trace": "t1"}
        assert ask(server, headers=given, **asked, **same).json()["reasc"]["samples"] == 2
        first, *others = server.upstream.requests
        assert others == [first]
        function = {**TOOL["function"], "description": "Of a city.", "strict": True}
        assert first == {
            "model": "tiny",
            "messages": [
                {"role": "system", "content": "Be brief.\n\nBe kind."},
                *itertools.chain.from_iterable(translated for _, translated in CONVERSATION),
            ],
            "tools": [{"type": "function", "function": function}],
            "tool_choice": {"type": "function", "function": {"name": "weather"}},
            "parallel_tool_calls": False,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": FORMAT["format"]["schema"]},
            },
            "max_completion_tokens": 9,
            "stop": ["END"],
            "user": "u",
            "stream": True,
            "stream_options": {"include_usage": True},
            **same,
        }
        for sent in server.upstream.headers:
            assert sent["x-trace"] == "t1" and not any(name.startswith("anthropic-") for name in sent)


@pytest.mark.parametrize(("kind", "expected"), [("auto", "auto"), ("any", "required"), ("none", "none")])
def test_a_choice_of_tools_has_another_name(kind: str, expected: str) -> None:
    asked = {"messages": HELLO, "tools": [WEATHER], "tool_choice": {"type": kind}}
    body = chat_request(asked, "max_tokens")
    assert body["tool_choice"] == expected and "parallel_tool_calls" not in body
    assert "tool_choice" not in chat_request({**asked, "tools": []}, "max_tokens"), "which servers refuse alone"


def test_the_older_name_of_structured_output_is_known_too() -> None:
    body = chat_request({"messages": HELLO, "output_format": FORMAT["format"]}, "max_tokens")
    assert body["response_format"]["json_schema"]["schema"] == FORMAT["format"]["schema"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_has_every_event_in_its_order(server: Front, kind: str) -> None:
    server.upstream.answer = Said()
    response = ask(server, **KINDS[kind], stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    kinds = [event["type"] for event in events_in(response.text)]
    middle = [kind for kind in kinds if kind != "content_block_delta"]
    block = ["content_block_start", "content_block_stop"]
    assert middle == ["message_start", *block, "message_delta", "message_stop"]
    assert kinds[2:-3] == ["content_block_delta"] * (len(kinds) - 5) and len(kinds) > 5


def stopped_by(**fields: Any) -> dict[str, Any]:
    event: dict[str, Any] = CHAT.chunk(choices=[{"delta": {}, "finish_reason": "stop", **fields}])
    return event


SHOWN = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
ODD: dict[str, tuple[list[Any], str, list[Any], str]] = {
    "a refusal": ([delta(refusal="no "), delta(refusal="way")], "stop", ["no way"], "refusal"),
    "cut off": (["it is"], "length", ["it is"], "max_tokens"),
    "filtered": (["oh"], "content_filter", ["oh"], "refusal"),
    "reasoning": ([delta(reasoning_content="hm"), "so"], "stop", ["so"], "end_turn"),
    "content in parts": ([delta(content=[PART])], "stop", ["hi"], "end_turn"),
    "nothing": ([], "stop", [], "end_turn"),
    "a text, then a call": (["See.", call("Rome")], "tool_calls", ["See.", {"city": "Rome"}], "tool_use"),
    "a call, and another word for the end": ([call("Rome")], "stop", [{"city": "Rome"}], "tool_use"),
    "calls by turns": (BY_TURNS, "tool_calls", [{"city": "Rome"}, {}], "tool_use"),
    "vLLM's stop sequence": (["so", stopped_by(stop_reason="END")], "stop", ["so"], "stop_sequence"),
    "SGLang's stop sequence": (["so", stopped_by(matched_stop="END")], "stop", ["so"], "stop_sequence"),
    "a stop token": (["so", stopped_by(stop_reason=7)], "stop", ["so"], "end_turn"),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("case", ODD)
def test_whatever_the_upstream_says_becomes_blocks(server: Front, case: str, streamed: bool) -> None:
    parts, finish, expected, reason = ODD[case]
    server.upstream.answer = says(parts, finish)
    message = whole_of(server, streamed, tools=[WEATHER], stop_sequences=["END"])
    assert [block.get("text", block.get("input")) for block in message["content"]] == expected
    stopped = "END" if reason == "stop_sequence" else None
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, stopped)


@pytest.mark.parametrize("streamed", [False, True])
def test_thoughts_are_shown_to_those_who_ask_for_them(server: Front, streamed: bool) -> None:
    server.upstream.answer = says([delta(reasoning_content="h"), delta(reasoning_content="m"), "so"])
    thoughts, text = whole_of(server, streamed, tools=[WEATHER], **SHOWN)["content"]
    assert thoughts == {"type": "thinking", "thinking": "hm", "signature": ""} and text["text"] == "so"


def test_arguments_that_are_not_an_object_are_kept_as_a_text() -> None:
    for arguments in ('{"city": "Ro', "[1]", "NaN", "[" * 100_000, '{"city": 1e999}'):
        piece = {"index": 0, "id": "a", "function": {"name": "weather", "arguments": arguments}}
        writer = MessageWriter({}, "tiny")
        assert all([*writer.events_for(delta(tool_calls=[piece])), *writer.events_for(CUT), *writer.closing_events()])
        assert writer.whole["content"][0]["input"] == {"INVALID_JSON": arguments}
        assert writer.whole["stop_reason"] == "max_tokens"


HOSTED = [
    {"type": "web_search_20250305", "name": "web_search"},
    {"type": "computer_20250124", "name": "computer", "display_width_px": 1, "display_height_px": 1},
    {"type": "bash_20250124", "name": "bash"},
    {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
]


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*blocks]}]}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"messages": [*HELLO, {"role": "assistant", "content": [*blocks]}]}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    **{f"the tool {tool['type']}": ({"tools": [WEATHER, tool]}, f'"{tool["type"]}"') for tool in HOSTED},
    "a thread": ({"thread": {"type": "create"}}, "thread"),
    "a summary": ({"compaction": {"type": "summary"}}, "compaction"),
    "servers of tools": ({"mcp_servers": [{"type": "url", "url": "u", "name": "n"}]}, "mcp_servers"),
    "another form": ({"output_config": {"format": {"type": "grammar"}}}, '"grammar"'),
    "a document": (user({"type": "document", "source": {"type": "base64", "data": ""}}), '"document"'),
    "a kept image": (user({"type": "image", "source": {"type": "file", "file_id": "f"}}), '"image"'),
    "a search by the server": (assistant({"type": "server_tool_use", "id": "a"}), '"server_tool_use"'),
    "a block of no type": (user({"text": "hi"}), "null"),
    "a block whose type is a list": (user({"type": ["text"]}), '["text"]'),
    "no messages": ({"messages": None}, "messages"),
    "empty messages": ({"messages": []}, "messages"),
    "a text for messages": ({"messages": "hi"}, "messages"),
    "a number as content": ({"messages": [{"role": "user", "content": 7}]}, "content"),
    "texts as content": ({"messages": [{"role": "user", "content": ["hi"]}]}, "content"),
    "no content": ({"messages": [{"role": "user"}]}, "content"),
    "another role": ({"messages": [{"role": "tool", "content": "x"}]}, '"tool"'),
    "a role in a list": ({"messages": [{"role": ["user"], "content": "x"}]}, '["user"]'),
    "a text without its text": (user({"type": "text"}), "text"),
    "an image without a source": (user({"type": "image"}), '"image"'),
    "a source in a text": (user({"type": "image", "source": "u"}), "source"),
    "a result of no call": (user({"type": "tool_result", "content": "x"}), "tool_use_id"),
    "a result with a number": (user({"type": "tool_result", "tool_use_id": "a", "content": 7}), "content"),
    "input in a text": (assistant({"type": "tool_use", "id": "a", "name": "f", "input": "{}"}), "input"),
    "a call of no tool": (assistant({"type": "tool_use", "id": "a", "input": {}}), "name"),
    "a call without an id": (assistant({"type": "tool_use", "name": "f", "input": {}}), "id"),
    "tools by name": ({"tools": {"a": 1}}, "tools"),
    "a tool without a name": ({"tools": [{"input_schema": {}}]}, "name"),
    "a schema in a text": ({"tools": [{"name": "f", "input_schema": "{}"}]}, "input_schema"),
    "another choice": ({"tools": [WEATHER], "tool_choice": {"type": "all"}}, '"all"'),
    "a choice in a list": ({"tools": [WEATHER], "tool_choice": {"type": ["auto"]}}, '["auto"]'),
    "a choice in a text": ({"tools": [WEATHER], "tool_choice": "auto"}, "tool_choice"),
    "a number as system": ({"system": 7}, "content"),
    "one stop sequence": ({"stop_sequences": "END"}, "stop_sequences"),
    "metadata in a text": ({"metadata": "u"}, "metadata"),
    "another wish": ({"reasc": {"rounds": 3}}, "reasc"),
    "a stream in words": ({"stream": "true"}, "stream"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_translated_is_refused_and_says_what_it_is(server: Front, case: str) -> None:
    body, said = REFUSED[case]
    before = len(server.upstream.exchanges)
    status, kind, message = error_in(ask(server, **body))
    assert (status, kind) == (400, "invalid_request_error") and said in message
    assert len(server.upstream.exchanges) == before


ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "a text": ({}, "nothing to vote on"),
    "greedy": ({"tools": [WEATHER], "temperature": 0}, "temperature"),
    "one sample": ({"tools": [WEATHER], "reasc": {"max_samples": 1}}, "max_samples"),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("case", ALONE)
def test_what_is_not_voted_on_is_one_chat_completion(case: str, streamed: bool) -> None:
    body, why = ALONE[case]
    with front(Said()) as server:
        message = whole_of(server, streamed, **body)
        [exchange] = server.upstream.exchanges
        assert exchange.path == "/v1/chat/completions"
        assert message["stop_reason"] == ("tool_use" if "tools" in body else "end_turn")
        assert message["usage"] == {"input_tokens": 7, "output_tokens": 3} and "reasc" not in message
        query = server.post({"model": "tiny", "messages": HELLO, **body}, "/messages?beta=true")
        assert query.headers["x-reasc-passed-through"] == why and "x-reasc-samples" not in query.headers
        assert server.upstream.exchanges[-1].path == "/v1/chat/completions"


def test_an_upstream_that_does_not_stream_is_translated_all_the_same() -> None:
    async def whole(exchange: Exchange) -> None:
        await exchange.reply(200, Said().whole({**exchange.body, "stream": False}))

    with front(whole) as server:
        message = whole_of(server, streamed=True)
        assert message["content"] == [{"type": "text", "text": "it is 42 "}]


@pytest.mark.full
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("tools", [[], [WEATHER]])
def test_an_upstreams_refusal_has_anthropics_form(tools: list[Any], streamed: bool) -> None:
    kinds = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
    kinds |= {404: "not_found_error", 413: "request_too_large", 422: "invalid_request_error"}
    for status, expected in kinds.items():

        async def refuse(exchange: Exchange, status: int = status) -> None:
            await exchange.refuse(status, f"not {exchange.headers['authorization']}")

        with front(refuse) as server:
            response = ask(server, tools=tools, stream=streamed)
            got, kind, message = error_in(response)
            assert (got, kind) == (status, expected) and message.startswith("not Bearer ***")
            assert KEY not in response.text and response.headers["content-type"] == "application/json"


@pytest.mark.parametrize("streamed", [False, True])
def test_an_upstream_that_is_not_there_is_an_error_of_the_api(streamed: bool) -> None:
    with front(None) as server:
        for fields in ({}, {"tools": [WEATHER]}):
            status, kind, _ = error_in(ask(server, **fields, stream=streamed))
            assert (status, kind) == (502, "api_error")


@pytest.mark.parametrize("reply", [{"detail": "hello"}, {"choices": [{}]}, "<html>"])
def test_a_reply_that_is_none_is_a_bad_gateway(server: Front, reply: Any) -> None:
    async def odd(exchange: Exchange) -> None:
        await exchange.reply(200, reply)

    server.upstream.answer = odd
    assert error_in(ask(server))[:2] == (502, "api_error")


def test_a_reply_that_has_failed_is_a_bad_gateway(server: Front) -> None:
    async def failed(exchange: Exchange) -> None:
        choice = {"index": 0, "message": {"role": "assistant", "content": "so"}, "finish_reason": "error"}
        await exchange.reply(200, CHAT.document("chat.completion", choices=[choice]))

    server.upstream.answer = failed
    assert error_in(ask(server))[:2] == (502, "api_error")


@pytest.mark.parametrize("voted", [False, True])
def test_a_stream_that_breaks_off_ends_with_an_error(voted: bool) -> None:
    broken = says(["It is", " 4", None], pause=0.1)
    with front(in_turn(broken, says(["The answer: 42"])) if voted else broken) as server:
        *events, last = events_in(ask(server, stream=True, tools=[WEATHER] if voted else []).text)
        assert last["type"] == "error" and last["error"]["type"] == "api_error" and last["error"]["message"]
        assert added_up(events)["content"] == [{"type": "text", "text": "It is 4"}]
        assert "message_stop" not in [event["type"] for event in events]


UNICODE = "Grüße, 😀 and 你好"
STREAMS: dict[str, tuple[list[Any], str | None, str]] = {
    "whole": ([delta(content=UNICODE), STOP, DONE], "end_turn", ""),
    "no last line": ([delta(content=UNICODE), STOP], "end_turn", ""),
    "no finish reason": ([delta(content=UNICODE), DONE], "end_turn", ""),
    "more than the end": ([delta(content=UNICODE), STOP, DONE, delta(content="so")], "end_turn", ""),
    "no end": ([delta(content=UNICODE)], None, "api_error"),
    "cut off": ([delta(content=UNICODE), CUT, DONE], "max_tokens", ""),
    "too often": ([delta(content=UNICODE), {"error": {"type": "rate_limit_error"}}], None, "rate_limit_error"),
    "another error": ([delta(content=UNICODE), {"error": {"type": ["odd"], "message": 7}}], None, "api_error"),
    "an error in words": ([delta(content=UNICODE), {"error": "no"}], None, "api_error"),
    "no JSON": ([delta(content=UNICODE), "{"], None, "api_error"),
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("case", STREAMS)
async def test_a_stream_is_translated_in_whatever_pieces_it_comes(case: str, end: str) -> None:
    parts, reason, error = STREAMS[case]
    data = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in parts]
    raw = "".join(f"data: {one}{end}{end}" for one in data).encode()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    translated = Translated(send, MessageWriter({}, "tiny"))
    head = [(b"content-type", b"text/event-stream"), (b"content-length", b"7")]
    await translated({"type": "http.response.start", "status": 200, "headers": head})
    for at in range(0, len(raw) + 1, 3):
        await translated({"type": "http.response.body", "body": raw[at : at + 3], "more_body": at + 3 <= len(raw)})
    assert sent[0]["headers"] == head[:1] and not sent[-1]["more_body"]
    events = events_in(b"".join(message["body"] for message in sent[1:]).decode())
    message = added_up(events)
    assert message["content"] == [{"type": "text", "text": UNICODE}] and message["stop_reason"] == reason
    assert [event["error"]["type"] for event in events if event["type"] == "error"] == ([error] if error else [])


def test_a_stream_pings_and_then_tells_its_text_word_by_word() -> None:
    alive, seen = threading.Event(), threading.Event()

    async def late(exchange: Exchange) -> None:
        assert await asyncio.to_thread(alive.wait, 20)
        await says_after("So", seen, [" it"])(exchange)

    body = json.dumps({"model": "tiny", "messages": HELLO, "tools": [WEATHER], "stream": True})
    with front(late, ping=0.05) as server:
        text, headers = "", {"content-type": "application/json"}
        with server.http.stream("POST", f"{server.url}/messages", content=body, headers=headers) as response:
            for part in response.iter_text():
                text += part
                alive.set() if "event: ping" in text else None
                seen.set() if '"text":"So"' in text else None
    marks = ("event: message_start", "event: ping", "content_block_start", '"text":"So"', '"text":" it"')
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places) and text.count("event: message_start") == 1
    assert added_up(events_in(text))["content"] == [{"type": "text", "text": "So it"}]


@pytest.mark.parametrize("voted", [False, True])
def test_where_the_client_goes_the_upstream_is_closed(voted: bool) -> None:
    body: dict[str, Any] = {"model": "tiny", "messages": HELLO, "stream": True}
    body |= {"reasc": {"answer": "number"}} if voted else {}
    with front(endless, ping=0.05) as server:
        path, headers = f"{server.url}/messages", {"content-type": "application/json"}
        with server.http.stream("POST", path, content=json.dumps(body), headers=headers) as response:
            assert "message_start" in next(response.iter_text())
        assert eventually(lambda: all(one.gone.is_set() for one in server.upstream.exchanges), 15)


def test_a_key_may_come_as_anthropics_clients_send_it() -> None:
    with front(Said(), admission={"keys": ["sk-mine"], "samples_per_minute": 3}) as server:
        assert error_in(ask(server))[:2] == (401, "authentication_error")
        assert error_in(ask(server, headers={"x-api-key": "sk-other"}))[:2] == (401, "authentication_error")
        for headers in ({"x-api-key": "sk-mine"}, {"authorization": "Bearer sk-mine"}):
            assert ask(server, headers=headers).status_code == 200
        asked = ask(server, headers={"x-api-key": "sk-mine"}, tools=[WEATHER])
        assert asked.json()["reasc"]["samples"] > 1, "samples are counted afterwards"
        refused = ask(server, headers={"x-api-key": "sk-mine"})
        assert error_in(refused)[:2] == (429, "rate_limit_error") and int(refused.headers["retry-after"]) > 0
        for sent in server.upstream.headers:
            assert sent["authorization"] == f"Bearer {KEY}" and "x-api-key" not in sent


def test_a_clients_own_key_is_passed_on_as_upstreams_take_it() -> None:
    with front(Said(), pass_keys=True) as server:
        for fields in ({}, {"tools": [WEATHER]}, {"stream": True}):
            assert ask(server, headers={"x-api-key": "mine"}, **fields).status_code == 200
        assert error_in(ask(server))[:2] == (401, "authentication_error")
        assert {sent["authorization"] for sent in server.upstream.headers} == {"Bearer mine"}


def test_what_else_is_below_its_path_is_the_upstreams_where_that_is_open() -> None:
    async def counts(exchange: Exchange) -> None:
        await exchange.reply(200, {"input_tokens": 7})

    asked, path = {"model": "tiny", "messages": HELLO}, "/messages/count_tokens?beta=true"
    with front(counts) as server:
        status, kind, message = error_in(server.post(asked, path))
        assert (status, kind) == (404, "not_found_error") and "--allow-path" in message
        assert not server.upstream.exchanges
    with front(counts, paths=["messages/count_tokens"]) as server:
        assert server.post(asked, path).json() == {"input_tokens": 7}


names = ("messages", "system", "tools", "tool_choice", "stop_sequences", "metadata", "output_config", "format")
inner_names = ("type", "role", "content", "name", "id", "input", "source", "tool_use_id", "text", "input_schema")
words = ("user", "assistant", "text", "image", "tool_use", "tool_result", "thinking", "base64", "custom")
values = st.recursive(
    st.none() | st.integers(-1, 2) | st.booleans() | st.sampled_from(words),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(inner_names), inner, max_size=5),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(names), values, max_size=6))
def test_any_body_is_translated_or_refused(body: dict[str, Any]) -> None:
    try:
        translated = chat_request({"messages": HELLO, **body}, "max_tokens")
    except Rejected:
        return
    assert json.loads(json.dumps(translated))["messages"] == translated["messages"]
    assert all(message["role"] in ("system", "user", "assistant", "tool") for message in translated["messages"])


class AnswersTools(Said):
    """Call a tool, and answer after the tool's result."""

    def called(self, request: Request, at: int) -> list[dict[str, Any]]:
        return [] if request["messages"][-1]["role"] == "tool" else super().called(request, at)


def weather(city: str) -> str:
    """Tell the weather."""
    return f"fine in {city}"


@pytest.mark.full
def test_anthropics_client_reads_everything() -> None:
    with front(AnswersTools(), admission={"keys": ["mine"]}) as server:
        options: dict[str, Any] = {"base_url": server.url.removesuffix("/v1"), "max_retries": 0}
        asked: dict[str, Any] = {"model": "tiny", "max_tokens": 99, "tools": [WEATHER]}
        with anthropic.Anthropic(api_key="mine", **options) as client:
            messages: list[Any] = [*HELLO]
            first = client.messages.create(**asked, messages=messages)
            [called] = first.content
            assert called.type == "tool_use" and called.input == {"city": "Paris"}
            result = {"type": "tool_result", "tool_use_id": called.id, "content": "fine"}
            messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
            with client.messages.stream(**asked, messages=messages) as stream:
                assert "".join(stream.text_stream) == "it is 42 "
                message = stream.get_final_message()
            assert message.stop_reason == "end_turn" and message.usage.output_tokens == 3
            functions = [anthropic.beta_tool(weather)]
            runner = client.beta.messages.tool_runner(**{**asked, "tools": functions}, messages=HELLO)
            kinds = [[block.type for block in message.content] for message in runner]
            assert kinds == [["tool_use"], ["text"]]
            roles = [message["role"] for message in server.upstream.requests[-1]["messages"]]
            assert roles == ["user", "assistant", "tool"], "the whole conversation, instead of a thread"
            with pytest.raises(anthropic.BadRequestError, match="web_search"):
                client.messages.create(**{**asked, "tools": HOSTED}, messages=HELLO)
            with pytest.raises(anthropic.NotFoundError):
                client.messages.count_tokens(model="tiny", messages=HELLO)
            server.upstream.answer = says(["It is", None], pause=0.1)
            with pytest.raises(anthropic.APIStatusError), client.messages.stream(**asked, messages=HELLO) as stream:
                stream.get_final_message()
        with anthropic.Anthropic(api_key="other", **options) as client, pytest.raises(anthropic.AuthenticationError):
            client.messages.create(**asked, messages=HELLO)


@pytest.mark.full
def test_langchains_client_drives_an_agent() -> None:
    chat_anthropic = pytest.importorskip("langchain_anthropic").ChatAnthropic
    agents = pytest.importorskip("langchain.agents")
    with front(AnswersTools()) as server:
        url = server.url.removesuffix("/v1")
        model = chat_anthropic(base_url=url, model="tiny", api_key="any", max_retries=0, max_tokens=99)
        said = None
        for chunk in model.bind_tools([weather]).stream("?"):
            said = chunk if said is None else said + chunk
        assert said is not None and [one["args"] for one in said.tool_calls] == [{"city": "Paris"}]
        assert said.usage_metadata["total_tokens"] == said.usage_metadata["input_tokens"] + 3 * 4
        agent = agents.create_agent(model, [weather])
        told = agent.invoke({"messages": [("user", "How is the weather in Paris?")]})["messages"]
        assert [message.type for message in told] == ["human", "ai", "tool", "ai"] and told[-1].text == "it is 42 "


@pytest.mark.parametrize("streamed", [False, True])
def test_a_model_in_this_process_has_it_too(streamed: bool) -> None:
    model = Scripted(turns=itertools.cycle(["it is 42"]))
    with front(served=LangChainModel(model, "scripted"), votes={"answer": "number"}) as server:
        for fields, voted in (({}, True), ({"temperature": 0}, False), ({"tools": [WEATHER]}, True)):
            message = whole_of(server, streamed, **fields, stop_sequences=["END"])
            [block] = message["content"]
            assert block["type"] == ("tool_use" if fields.get("tools") else "text")
            assert ("reasc" in message) == voted and message["usage"]["output_tokens"] > 0
            assert message["model"] == "tiny" and model.calls[-1]["stop"] == ["END"]
        for body, _ in REFUSED.values():
            assert error_in(ask(server, **{**body, "stream": body.get("stream", streamed)}))[0] == 400
        assert error_in(server.post({}, "/messages/count_tokens"))[0] == 404


async def test_an_error_in_several_pieces_is_translated_once() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 429, "headers": []})
        for piece in (b'{"error": {"mess', b'age": "too many"}}'):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})

    transport = httpx.ASGITransport(ErrorsTranslated(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        reply = await client.get("/v1/messages/count_tokens")
    assert reply.status_code == 429
    assert reply.json() == {"type": "error", "error": {"type": "rate_limit_error", "message": "too many"}}
