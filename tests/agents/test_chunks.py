"""The chunks of a message add up to it, whatever is in it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, message_chunk_to_message
from langchain_core.messages.ai import UsageMetadata

from langchain_reasc.agents.chunks import chunks_of

USAGE = UsageMetadata(input_tokens=3, output_tokens=4, total_tokens=7)
ANTHROPIC: list[Any] = [
    {"type": "thinking", "thinking": "hm", "signature": "abc"},
    {"type": "text", "text": "I look."},
    {"type": "text", "text": "And again."},
    {"type": "tool_use", "id": "a", "name": "look", "input": {"at": "é"}},
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=6,
)
CALLS = st.lists(
    st.builds(
        lambda name, args, number: {"name": name, "args": args, "id": f"c{number}", "type": "tool_call"},
        st.text("abc", min_size=1, max_size=3),
        st.dictionaries(st.text(max_size=4), JSON, max_size=3),
        st.integers(0, 9),
    ),
    max_size=3,
)


def added(message: AIMessage) -> AIMessage:
    first, *rest = chunks_of(message)
    whole = message_chunk_to_message(sum(rest, first))
    assert isinstance(whole, AIMessage)
    return whole


@given(content=st.text(max_size=30) | st.just(ANTHROPIC), calls=CALLS)
def test_they_add_up(content: Any, calls: Any) -> None:
    message = AIMessage(
        content,
        tool_calls=calls,
        id="mine",
        additional_kwargs={"refusal": None},
        response_metadata={"model_name": "m", "reasc": {"samples": 3}},
        usage_metadata=USAGE,
    )
    assert added(message) == message


def test_the_last_one_says_so_and_only_that_one() -> None:
    chunks = list(chunks_of(AIMessage("hi", tool_calls=[{"name": "f", "args": {}, "id": "1", "type": "tool_call"}])))
    assert [chunk.chunk_position for chunk in chunks] == [None, None, "last"]
    assert all(isinstance(chunk, AIMessageChunk) for chunk in chunks)


def test_a_message_without_anything_is_one_chunk() -> None:
    [chunk] = chunks_of(AIMessage("", usage_metadata=USAGE))
    assert chunk.usage_metadata == USAGE


@pytest.mark.parametrize("args", ["not json", "[1]"])
def test_calls_that_could_not_be_read_stay_so(args: str) -> None:
    broken = {"name": "f", "args": args, "id": "1", "error": "no JSON", "type": "invalid_tool_call"}
    whole = added(AIMessage("", invalid_tool_calls=[broken]))
    assert [(call["name"], call["args"]) for call in whole.invalid_tool_calls] == [("f", args)]
    assert not whole.tool_calls
