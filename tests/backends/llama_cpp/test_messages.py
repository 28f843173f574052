"""What messages say about themselves: log-probabilities, timing, why they ended."""

from typing import Any, cast

import pytest
from langchain_core.outputs import ChatGenerationChunk
from langchain_reasc_llama_cpp.engine.request import Completion, TextDelta, Timing
from langchain_reasc_llama_cpp.messages import ChunkMaker, MessageMaker
from langchain_reasc_llama_cpp.tools.tool_calls import HERMES, ToolCallReader

from backends.llama_cpp.faces import merged


def entry(token: str) -> dict[str, Any]:
    return {"token": token, "bytes": list(token.encode()), "logprob": -0.5, "top_logprobs": []}


def completion(text: str, reason: str = "stop", logprobs: list[dict[str, Any]] | None = None) -> Completion:
    return Completion(
        index=0,
        seed=3,
        text=text,
        signals={"token_logprob": [-0.5]},
        finish_reason=reason,
        prompt_tokens=5,
        cached_tokens=2,
        output_tokens=3,
        logprobs=logprobs,
        timing=Timing(queued=0.1, prefill=0.2, decode=0.3),
    )


def maker(*, tools: bool = False) -> MessageMaker:
    reader = (lambda: ToolCallReader(HERMES, ["ping"])) if tools else (lambda: None)
    return MessageMaker("m.gguf", {"vocabulary_size": 9, "top_k": 2}, reader)


def test_log_probabilities_have_openais_shape() -> None:
    entries = [entry("h"), entry("i"), entry("")]
    generation = maker().generation(completion("hi", logprobs=entries))
    assert generation.message.response_metadata["logprobs"] == {"content": entries}
    assert generation.generation_info == {"finish_reason": "stop", "logprobs": {"content": entries}}


def test_streamed_log_probabilities_add_up() -> None:
    entries = [entry("h"), entry("i"), entry("")]
    chunks = ChunkMaker(maker())
    parts: list[ChatGenerationChunk] = [
        chunks.chunk(TextDelta(0, "h", entries[:1])),
        chunks.chunk(TextDelta(0, "i", entries[1:2])),
        chunks.chunk(completion("hi", logprobs=entries[2:])),
    ]
    assert parts[0].message.response_metadata["logprobs"] == {"content": entries[:1]}
    total = merged([cast(Any, part.message) for part in parts])
    assert total.response_metadata["logprobs"] == {"content": entries}
    assert total.response_metadata["timing"]["decode"] == 0.3
    whole = parts[0] + parts[1] + parts[2]
    assert whole.generation_info == {"finish_reason": "stop", "logprobs": {"content": entries}}


@pytest.mark.parametrize(
    ("text", "reason", "expected"),
    [
        ('<tool_call>{"name": "ping", "arguments": {}}</tool_call>', "stop", "tool_calls"),
        ('<tool_call>{"name": "ping", "arguments": {}}</tool_call>', "length", "length"),
        ('<tool_call>{"name": "ping", "arguments": {}}</tool_call>', "cancelled", "cancelled"),
        ('<tool_call>{"name": "ping"</tool_call>', "stop", "stop"),
        ("Hello", "stop", "stop"),
    ],
)
def test_why_a_response_ended(text: str, reason: str, expected: str) -> None:
    made = maker(tools=True)
    assert made.message(completion(text, reason)).response_metadata["finish_reason"] == expected
    chunks = ChunkMaker(made)
    chunks.chunk(TextDelta(0, text))
    last = chunks.chunk(completion(text, reason))
    assert last.message.response_metadata["finish_reason"] == expected
    assert last.generation_info == {"finish_reason": expected}
    # Without tools, what looks like a call is text.
    assert maker().message(completion(text, reason)).content == text
