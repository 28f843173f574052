"""Tool calls in text, however the text is cut into pieces."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessageChunk
from langchain_reasc_llama_cpp.tools import HERMES, LLAMA_JSON, ToolCallReader, ToolFormat
from properties import examples

from backends.llama_cpp.faces import merged

TOOLS = ["weather", "ping"]
HERMES_TEXTS = [
    ("Hello there \n", "Hello there \n", [], []),
    ('<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>', "", [("ping", {})], []),
    (
        'Let me see.\n<tool_call>{"name": "weather", "arguments": {"city": "a}\\"</tool_call>{"}}</tool_call>\n',
        "Let me see.",
        [("weather", {"city": 'a}"</tool_call>{'})],
        [],
    ),
    (
        '<tool_call>{"name":"ping","arguments":{}}</tool_call>\n<tool_call>{"arguments": {"x": [1, {}]}, "name": "é"}'
        "</tool_call> and so on",
        " and so on",
        [("ping", {}), ("é", {"x": [1, {}]})],
        [],
    ),
    ('<tool_call>{"name": "ping", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [("ping", {"a": 1})], []),
    ('<tool_call>{"function": {"name": "ping", "arguments": {"a": 1}}}</tool_call>', "", [("ping", {"a": 1})], []),
    ('<tool_call>{"name": "ping", "arguments": {"a": 1}}', "", [("ping", {"a": 1})], []),
    ("a < b <tool_cal", "a < b <tool_cal", [], []),
    ("<tool_call>no JSON</tool_call> so", " so", [], [(None, "no JSON", "it is not a JSON object")]),
    ('<tool_call>{"foo": 1}</tool_call>', "", [], [(None, '{"foo": 1}', "it is not a JSON object")]),
    ('<tool_call>{"name": "ping", "arguments": {"a": "b', "", [], [("ping", '{"a": "b', "the response ended")]),
    ('<tool_call>{"name": "ping", "arguments": {"a": "b\\', "", [], [("ping", '{"a": "b\\', "the response ended")]),
    ('<tool_call>{"name": "ping", "arguments": {"a": [1', "", [], [("ping", '{"a": [1', "the response ended")]),
    ('<tool_call>{"name": "pi', "", [], [(None, '{"name": "pi', "the response ended")]),
    ("<tool_call>", "", [], []),
    ('<tool_call>{"name":"ping","arguments":{}}\n</too', "", [("ping", {})], []),
    ('<tool_call>{"name":"ping","arguments":{}}</tool_call>\n<tool_c', "", [("ping", {})], []),
]
LLAMA_TEXTS = [
    ('{"name": "anything", "parameters": {"a": 1}}', "", [("anything", {"a": 1})], []),
    ('<|python_tag|>{"name": "ping", "parameters": {}}', "", [("ping", {})], []),
    ('{"type": "function", "name": "ping", "parameters": {"a": {}}}', "", [("ping", {"a": {}})], []),
    ('{"name": "ping", "parameters": {}}; {"name": "b", "parameters": {}}', "", [("ping", {}), ("b", {})], []),
    ('Sure: {"name": "weather", "parameters": {"city": "é"}}', "Sure:", [("weather", {"city": "é"})], []),
    ('{"name": "Ann", "age": 3}', '{"name": "Ann", "age": 3}', [], []),
    ('As in {"name": "b", "parameters": {}}', 'As in {"name": "b", "parameters": {}}', [], []),
    ("f(x) = {x} and {", "f(x) = {x} and {", [], []),
    ('{"name": "pi', "", [], [(None, '{"name": "pi', "the response ended")]),
]
CASES = [(HERMES, *case) for case in HERMES_TEXTS] + [(LLAMA_JSON, *case) for case in LLAMA_TEXTS]


def streamed(form: ToolFormat, pieces: Sequence[str]) -> tuple[AIMessageChunk, ToolCallReader]:
    reader = ToolCallReader(form, TOOLS)
    chunks = []
    for number, piece in enumerate([*pieces, ""]):
        content, calls = reader.read_text(piece, final=number == len(pieces))
        chunks.append(AIMessageChunk(content=content, tool_call_chunks=calls))
    return merged(chunks), reader


@pytest.mark.parametrize(("form", "text", "content", "valid", "invalid"), CASES)
@examples(12)
@given(data=st.data())
def test_pieces_add_up_to_the_whole(
    form: ToolFormat, text: str, content: str, valid: list[Any], invalid: list[Any], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)))))
    message, reader = streamed(form, [text[a:b] for a, b in pairwise([0, *cuts, len(text)])])
    calls, broken = reader.calls()
    assert message.content == content
    assert [(call["name"], call["args"]) for call in calls] == valid
    assert [(call["name"], call["args"]) for call in broken] == [case[:2] for case in invalid]
    assert all(case[2] in (call["error"] or "") for call, case in zip(broken, invalid, strict=True))
    assert len({call["id"] for call in calls}) == len(calls)
    # LangChain's own sum of the chunks finds the same calls, under the same ids.
    assert message.tool_calls == calls
    assert [call["id"] for call in message.invalid_tool_calls] == [call["id"] for call in broken]


def test_arguments_come_as_they_are_written() -> None:
    call = {"name": "weather", "arguments": {"city": "Tartu", "days": 2}}
    reader = ToolCallReader(HERMES, TOOLS)
    pieces = [reader.read_text(sign)[1] for sign in f"<tool_call>{json.dumps(call)}</tool_call>"]
    chunks = [chunk for piece in pieces for chunk in piece]
    first, *rest = chunks
    assert (first["name"], first["args"], first["index"]) == ("weather", "{", 0)
    assert first["id"]
    assert len(rest) == len(json.dumps(call["arguments"])) - 1
    assert all(chunk["name"] is None and chunk["id"] is None and chunk["index"] == 0 for chunk in rest)


def test_text_is_not_held_back_longer_than_it_must() -> None:
    reader = ToolCallReader(HERMES, TOOLS)
    assert [reader.read_text(piece)[0] for piece in ("1 <", " 2", " <to", "p>")] == ["1", " < 2", "", " <top>"]
