"""A message as a chunk is that message, whatever is in it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, message_chunk_to_message
from langchain_core.messages.ai import UsageMetadata

from langchain_reasc.agents.streaming import chunks_of

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


@given(content=st.text(max_size=30) | st.just(ANTHROPIC), calls=CALLS)
def test_it_is_the_message(content: Any, calls: Any) -> None:
    message = AIMessage(
        content,
        tool_calls=calls,
        id="mine",
        additional_kwargs={"refusal": None},
        response_metadata={"model_name": "m", "reasc": {"samples": 3}},
        usage_metadata=USAGE,
    )
    [chunk] = chunks_of(message)
    assert message_chunk_to_message(chunk) == message
    assert chunk.chunk_position == "last"
    assert [call["index"] for call in chunk.tool_call_chunks] == [*range(len(calls))]


@given(content=st.text(max_size=30) | st.just(ANTHROPIC), calls=CALLS)
def test_it_is_so_once_it_is_added_to_others(content: Any, calls: Any) -> None:
    message = AIMessage(content, tool_calls=calls, response_metadata={"model_provider": "anthropic"})
    whole = AIMessageChunk(content="" if isinstance(content, str) else []) + chunks_of(message)
    assert (whole.content, whole.tool_calls) == (content, calls)


@pytest.mark.parametrize("args", ["not json", "[1]", "{a: 1", '{"at": "/tm', '{"a": 1', "{", "{}{}", "", None])
def test_calls_that_could_not_be_read_stay_so(args: str | None) -> None:
    broken = {"name": "f", "args": args, "id": "1", "error": "no JSON", "type": "invalid_tool_call"}
    fine = {"name": "g", "args": {}, "id": "2", "type": "tool_call"}
    chunks = chunks_of(AIMessage("", tool_calls=[fine], invalid_tool_calls=[broken]))
    assert ([call for chunk in chunks for call in chunk.tool_calls], chunks[0].invalid_tool_calls) == ([fine], [broken])
    whole = AIMessageChunk(content="") + chunks
    assert whole.tool_calls == [fine]
    [call] = whole.invalid_tool_calls
    assert call["name"] == "f" and call["args"] is not None and call["args"].endswith(args or "")
