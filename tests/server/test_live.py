"""Text that is not voted on is streamed as it is written, even if the request has tools."""

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from servers.chat_wire import DONE, Chat
from servers.exchange import Exchange

from .serving import HELLO, TOOL, Front, events_in, front

CHAT = Chat()


def delta(**fields: Any) -> dict[str, Any]:
    event: dict[str, Any] = CHAT.chunk(choices=[{"index": 0, "delta": fields, "finish_reason": None}])
    return event


def call(city: str) -> dict[str, Any]:
    function = {"name": "weather", "arguments": json.dumps({"city": city})}
    return delta(tool_calls=[{"index": 0, "id": f"call-{city}", "type": "function", "function": function}])


def says(parts: Sequence[Any], finish: str = "stop", pause: float = 0.0) -> Any:
    """Stream texts and events. None breaks the stream off."""

    async def answer(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for part in parts:
            if part is None:
                return await exchange.cut()
            await exchange.stream([delta(content=part) if isinstance(part, str) else part])
            await asyncio.sleep(pause)
        end = CHAT.chunk(choices=[{"index": 0, "delta": {}, "finish_reason": finish}])
        await exchange.stream([end, CHAT.chunk(choices=[], usage=CHAT.usage([["so"]])), DONE])

    return answer


def says_after(first: str, seen: threading.Event, rest: Sequence[Any]) -> Any:
    """Stream a text, and the rest after the client has seen the text."""

    async def answer(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.stream([CHAT.chunk(choices=[]), delta(content=first)])
        assert await asyncio.to_thread(seen.wait, 20)
        await says(rest)(exchange)

    return answer


def in_turn(*answers: Any) -> Any:
    async def answer(exchange: Exchange) -> None:
        await answers[min(exchange.at, len(answers) - 1)](exchange)

    return answer


def told(events: Sequence[Any]) -> tuple[str, list[str]]:
    """Return the text of a stream, and the arguments of its calls."""
    deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
    calls: dict[int, str] = {}
    for piece in (piece for one in deltas for piece in one.get("tool_calls", ())):
        calls[piece["index"]] = calls.get(piece["index"], "") + piece["function"]["arguments"]
    return "".join(one.get("content") or "" for one in deltas), [*calls.values()]


def test_a_text_comes_word_by_word_where_tools_are_offered() -> None:
    seen = threading.Event()
    with front(says_after("So", seen, [" it", " is", " fine"])) as server:
        body = json.dumps({"model": "tiny", "messages": HELLO, "tools": [TOOL], "stream": True})
        path, headers = f"{server.url}/chat/completions", {"content-type": "application/json"}
        with server.http.stream("POST", path, content=body, headers=headers) as response:
            text = ""
            for part in response.iter_text():
                text += part
                if '"So"' in text:
                    seen.set()
        *events, done = events_in(text)
        assert done == "[DONE]" and told(events) == ("So it is fine", [])
        assert events[-1]["choices"][0]["finish_reason"] == "stop" and events[-1]["reasc"]["stop"] == "alone"
        assert len({event["id"] for event in events}) == 1


def streamed(server: Front) -> list[Any]:
    return server.events(tools=[TOOL])


@pytest.mark.parametrize("preamble", ["", "Let me see."])
def test_the_winners_calls_follow_what_was_said_before_the_first_call(preamble: str) -> None:
    minority, majority = (
        says([*pre, call(city)], "tool_calls", 0.05) for pre, city in (([preamble], "Rome"), (["Hm."], "Oslo"))
    )
    with front(in_turn(minority, majority), votes={"max_samples": 8}) as server:
        *events, done = streamed(server)
        text, calls = told(events)
        assert done == "[DONE]" and calls == ['{"city": "Oslo"}'] and events[-1]["reasc"]["stop"] == "agreement"
        assert text == (preamble or "Hm.") and events[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_text_that_breaks_off_does_not_go_on_as_another() -> None:
    with front(in_turn(says(["It is", " 4", None], pause=0.1), says(["The answer: 42"]))) as server:
        *events, last = streamed(server)
        assert told(events)[0] == "It is 4" and last["error"]["code"] == "upstream_error"


def test_where_text_is_voted_on_none_of_it_is_shown_before() -> None:
    with front(in_turn(says(["it is 41"], pause=0.1), says(["it is 42"]))) as server:
        *events, done = server.events(reasc={"answer": "number"}, tools=[TOOL])
        assert told(events)[0] == "it is 42" and done == "[DONE]"


CUSTOM = {"id": "c", "type": "custom", "custom": {"name": "run", "input": "1 + 1"}}
PART = {"type": "text", "text": "hi"}
ODD: dict[str, tuple[list[Any], str, dict[str, Any]]] = {
    "calls of another type": (
        [delta(tool_calls=[{**CUSTOM, "index": 0}])],
        "tool_calls",
        {"content": None, "tool_calls": [CUSTOM]},
    ),
    "a refusal": ([delta(refusal="no "), delta(refusal="way")], "stop", {"content": None, "refusal": "no way"}),
    "reasoning": ([delta(reasoning_content="hm"), "so"], "stop", {"content": "so", "reasoning_content": "hm"}),
    "content in parts": ([delta(content=[PART])], "stop", {"content": [PART]}),
    "no delta": ([CHAT.chunk(choices=[{"delta": None}]), CHAT.chunk(choices=[{}]), "hi"], "stop", {"content": "hi"}),
    "no choices": ([CHAT.chunk(choices=None), {"own": 1}, "hi"], "length", {"content": "hi"}),
    "a filter": (["oh"], "content_filter", {"content": "oh"}),
}


@pytest.mark.parametrize("case", ODD)
def test_what_langchain_does_not_read_comes_back_all_the_same(case: str) -> None:
    parts, finish, expected = ODD[case]
    with front(says(parts, finish)) as server:
        [choice] = server.chat(tools=[TOOL]).json()["choices"]
        assert choice["message"] == {"role": "assistant", "refusal": None, **expected}
        assert choice["finish_reason"] == finish
        *events, done = streamed(server)
        assert done == "[DONE]"
        sent = [one for part in parts if isinstance(part, dict) for one in part.get("choices") or ()]
        got = [event["choices"][0]["delta"] for event in events if event["choices"]]
        assert all(one["delta"] in got for one in sent if one.get("delta"))
        assert [event for event in events if event["choices"]][-1]["choices"][0]["finish_reason"] == finish
