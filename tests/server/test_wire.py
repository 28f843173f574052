"""Events add up to a reply, and a reply comes apart into events."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_reasc_openai.events import merged
from langchain_reasc_server.calls import Call
from langchain_reasc_server.chat import Won
from langchain_reasc_server.wire import encoded, event_of, events_of, reply_of, sse, with_message

HEAD = {"id": "x", "created": 1, "model": "m"}


def events(*deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [event_of(HEAD, delta) for delta in deltas]


def call(index: int, **fields: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **fields}]}


DELTAS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "text": ([{"role": "assistant", "content": ""}, {"content": "a"}, {"content": "b"}], {"content": "ab"}),
    "a role in each": (
        [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
        {"content": "ab"},
    ),
    "reasoning": ([{"reasoning": "a"}, {"reasoning": "b"}, {"content": "c"}], {"content": "c", "reasoning": "ab"}),
    "nulls": ([{"content": None, "refusal": None}, {"content": "a"}], {"content": "a", "refusal": None}),
    "calls that take turns": (
        [
            call(0, id="i", type="function", function={"name": "f", "arguments": ""}),
            call(1, id="j", type="function", function={"name": "g", "arguments": "{"}),
            call(0, function={"arguments": "{}"}),
            call(1, function={"arguments": "}"}),
        ],
        {
            "content": None,
            "tool_calls": [
                {"id": "i", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "j", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
    ),
    "a call said again in each": (
        [call(0, id="i", type="function", function={"name": "f", "arguments": piece}) for piece in ("{", "}")],
        {
            "content": None,
            "tool_calls": [{"id": "i", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
    ),
    "lists without an index": (
        [{"parts": [{"a": 1}]}, {"parts": [{"a": 2}]}],
        {"content": None, "parts": [{"a": 1}, {"a": 2}]},
    ),
}


@pytest.mark.parametrize("case", DELTAS)
def test_deltas_add_up(case: str) -> None:
    deltas, expected = DELTAS[case]
    given = events(*deltas)
    before = json.dumps(given)
    assert merged(given)["choices"][0]["message"] == {"role": "assistant", **expected}
    assert json.dumps(given) == before  # the events stay as they came


def test_what_stands_beside_the_choices_is_the_last_that_was_said() -> None:
    first = {**HEAD, "object": "chat.completion.chunk", "usage": None, "own": {"a": 1}, "choices": []}
    last = {"id": "x", "usage": {"total_tokens": 3}, "own": None, "choices": [{"index": 1, "delta": {"content": "no"}}]}
    reply = merged([first, last])
    assert reply["usage"] == {"total_tokens": 3} and reply["own"] == {"a": 1} and reply["object"] == "chat.completion"
    assert reply["choices"][0]["message"] == {"role": "assistant", "content": None}


texts = st.text(max_size=200)
calls = st.lists(st.tuples(st.text(min_size=1, max_size=5), st.dictionaries(texts, st.integers() | texts)), max_size=3)


@given(texts, calls)
def test_a_message_survives_the_wire(text: str, called: list[tuple[str, dict[str, Any]]]) -> None:
    tool_calls = [{"name": name, "args": args, "id": f"c{at}"} for at, (name, args) in enumerate(called)]
    message = AIMessage(text, tool_calls=tool_calls)
    reply = reply_of(message, "m")
    arrived = [json.loads(sse(event).removeprefix(b"data: ")) for event in events_of(reply)]
    again = merged(arrived)
    said = reply["choices"][0]["message"]
    assert (again["choices"][0]["message"]["content"] or "") == (said["content"] or "")
    assert again["choices"][0]["message"].get("tool_calls", []) == said.get("tool_calls", [])
    assert with_message(again, message) is None
    assert (with_message(again, AIMessage("something else")) is not None) or text == "something else"


@given(st.text(alphabet=st.characters(), max_size=5) | st.just("\ud83d"))
def test_any_text_can_be_sent(text: str) -> None:
    assert json.loads(encoded({"a": text})) == {"a": text}


@pytest.mark.parametrize("name", ["p_correct", "p_agree"])
def test_what_a_calibration_says_stands_in_the_account(name: str) -> None:
    tokens = {"input": 10, "output": 20, "unused_output": 5, "estimated": False, "winner": 6}
    told = {
        "launched": 4,
        "samples": 3,
        "reason": "evidence",
        "evidence": {"42": 3.0},
        "answer": "42",
        "posterior": 0.97,
    }
    told |= {"notices": ["so"], "tokens": tokens, name: {"value": 0.91, "source": "labels", "interval": [0.8, 0.95]}}
    won = Won(Call({"model": "m"}), AIMessage("42", response_metadata={"reasc": told}), 16, "left aside")
    assert won.account[name] == 0.91 and won.account["notices"] == ["left aside", "so"]
    assert won.account.get("p_correct_interval") == ([0.8, 0.95] if name == "p_correct" else None)
    assert won.headers.get("x-reasc-p-correct") == ("0.9100" if name == "p_correct" else None)
    assert won.account["tokens"] == {"spent": 30, "saved": int(16 * (10 / 4 + 15 / 3)) - 30, "one_response": 8}
    assert won.whole["reasc"] == won.account and won.whole["choices"][0]["message"]["content"] == "42"
