"""Every provider's shape gives the same numbers, whole or merged from a stream; an unknown shape is named."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import add_ai_message_chunks

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.models.logprobs import (
    Token,
    count_tokens,
    read_signals,
    register_reader,
    token_logprobs_of,
)

from .payloads import CHOSEN, RANKED, SHAPES, TEXT, TOKENS, arrays, entries


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_same_numbers(shape: str) -> None:
    found = token_logprobs_of(AIMessage(TEXT, response_metadata=SHAPES[shape]))
    assert found.chosen.tolist() == list(CHOSEN)
    assert found.alternatives.tolist() == [list(row) for row in RANKED]
    assert (found.k, found.notices, found.withheld) == (2, (), {})
    assert count_tokens(SHAPES[shape]) == 3


def in_chunks(metadata: dict[str, Any]) -> Iterator[AIMessageChunk]:
    """The same payload as a stream brings it: the lists of one token per chunk, then a chunk without any."""
    for at, token in enumerate(TOKENS):
        yield AIMessageChunk(token, response_metadata=one_of(metadata, at))
    yield AIMessageChunk("", response_metadata={"finish_reason": "stop"}, chunk_position="last")


def one_of(node: Any, at: int) -> Any:
    if isinstance(node, list):
        return [node[at]]
    return {name: one_of(value, at) for name, value in node.items()} if isinstance(node, dict) else node


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape not in ("OpenAI chat, as objects", "ChatOllama")])
def test_chunks_merged_by_langchain_give_them_too(shape: str) -> None:
    merged = add_ai_message_chunks(*in_chunks(SHAPES[shape]))
    assert merged.text == TEXT
    found = token_logprobs_of(merged)
    assert found.chosen.tolist() == list(CHOSEN)
    assert found.alternatives.tolist() == [list(row) for row in RANKED]


def test_chunks_without_logprobs_among_the_others_are_missed() -> None:
    bare = [chunk.model_copy(update={"response_metadata": {}}) if at == 1 else chunk for at, chunk in whole_stream()]
    with pytest.raises(LogprobsUnavailable, match="2 tokens, which spell 4 of the response's 7 bytes"):
        token_logprobs_of(add_ai_message_chunks(*bare))


def whole_stream() -> Iterator[tuple[int, AIMessageChunk]]:
    yield from enumerate(in_chunks(SHAPES["OpenAI chat"]))


def test_arrays_of_another_length_are_not_matched_to_the_tokens() -> None:
    short = arrays() | {"top_logprobs": [{"It": -0.5}], "tokens": ["It"]}
    found = token_logprobs_of(AIMessage(TEXT, response_metadata={"logprobs": short}))
    assert found.chosen.tolist() == list(CHOSEN)
    assert found.k == 0
    assert "no alternatives came" in found.withheld["top_k"]


def test_the_chosen_token_listed_twice_counts_once() -> None:
    doubled = entries()
    for one in doubled:
        one["top_logprobs"].append({"token": one["token"], "logprob": one["logprob"]})
    found = token_logprobs_of(AIMessage(TEXT, response_metadata={"logprobs": {"content": doubled}}))
    assert found.alternatives.tolist() == [list(row) for row in RANKED]


@pytest.mark.parametrize("odd", [10**400, -(10**400), [1], [[]], range(3)])
def test_values_that_cannot_be_compared_are_no_numbers(odd: Any) -> None:
    content = entries()
    content[1]["logprob"] = content[1]["top_logprobs"][0]["logprob"] = odd
    content[1]["top_logprobs"][1]["logprob"] = np.float32(-0.5)
    with pytest.raises(LogprobsUnavailable, match="1 of 3 tokens carry no log-probability"):
        token_logprobs_of(AIMessage(TEXT, response_metadata={"logprobs": {"content": content}}))


def test_alternatives_with_one_text_are_still_several() -> None:
    bytes_of = [{"token": "\ufffd", "logprob": -3.0} for _ in range(3)]
    one = {"token": "7", "logprob": -0.5, "top_logprobs": [{"token": "7", "logprob": -0.5}, *bytes_of]}
    assert token_logprobs_of(AIMessage("7", response_metadata={"logprobs": {"content": [one]}})).k == 4


@pytest.mark.parametrize(
    ("texts", "raw", "refused"),
    [
        (["▁It", "▁is", "▁7"], None, False),
        (["\ufffd"] * 7, None, False),
        (["", "", " 7"], [[73, 116], [32, 105, 115], [32, 55]], False),
        (["It", " is"], None, True),
        (["", "", " 7"], None, True),
    ],
)
def test_tokens_must_spell_the_response(texts: list[str], raw: Any, refused: bool) -> None:
    content = [{"token": text, "logprob": -0.5} for text in texts]
    for one, given in zip(content, raw or (), strict=False):
        one["bytes"] = given
    answer = AIMessage(TEXT, response_metadata={"logprobs": {"content": content}})
    if refused:
        with pytest.raises(LogprobsUnavailable, match="says nothing of the rest"):
            token_logprobs_of(answer)
    else:
        assert len(token_logprobs_of(answer).chosen) == len(texts)


def test_the_mean_alone_is_no_confidence() -> None:
    with pytest.raises(LogprobsUnavailable, match=r"avg_logprobs.*ChatVertexAI: logprobs=5"):
        token_logprobs_of(AIMessage(TEXT, response_metadata={"avg_logprobs": -0.3}))


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"logprobs": None},
        {"logprobs": {}},
        {"logprobs": []},
        {"logprobs": {"content": None}},
        {"logprobs": {"content": [], "refusal": None}},
        {"logprobs": {"tokens": [], "token_logprobs": []}},
        {"token_signals": {}},
        {"token_signals": None},
    ],
    ids=json.dumps,
)
def test_missing_logprobs_are_an_error_that_says_how_to_get_them(metadata: dict[str, Any]) -> None:
    with pytest.raises(LogprobsUnavailable, match="logprobs=True, top_logprobs=20"):
        read_signals(AIMessage("x", response_metadata=metadata))
    assert count_tokens(metadata) == 0


@pytest.mark.parametrize(("held", "named"), [(-0.25, "float"), ({"steps": [1]}, "a dict of steps")])
def test_an_unknown_shape_is_named_with_the_way_to_add_it(held: Any, named: str) -> None:
    with pytest.raises(LogprobsUnavailable, match=rf"shape that no reader knows \({named}\).*register_reader"):
        token_logprobs_of(AIMessage("x", response_metadata={"logprobs": held}))


def test_a_reader_of_ones_own_is_asked_first() -> None:
    @register_reader
    def from_own_steps(metadata: Mapping[str, Any]) -> list[Token] | None:
        steps = metadata.get("own_steps")
        return steps and [Token(None, step["lp"], tuple(step["top"])) for step in steps]

    own = {"own_steps": [{"lp": -0.5, "top": [-0.5, -1.0]}], **SHAPES["Together"]}
    assert token_logprobs_of(AIMessage("x", response_metadata=own)).alternatives.tolist() == [[-0.5, -1.0]]
    assert token_logprobs_of(AIMessage(TEXT, response_metadata=SHAPES["Together"])).k == 2


def test_reasoning_without_an_answer_and_tool_calls_are_named() -> None:
    usage = {"input_tokens": 1, "output_tokens": 9, "total_tokens": 10, "output_token_details": {"reasoning": 9}}
    thinking = AIMessage("", usage_metadata=usage, response_metadata={"logprobs": {"content": []}})
    with pytest.raises(LogprobsUnavailable, match="spent 9 tokens on reasoning"):
        read_signals(thinking)
    with pytest.raises(LogprobsUnavailable, match="is a tool call"):
        read_signals(AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}]))


def test_reasoning_tokens_beside_an_answer_are_read_with_it() -> None:
    """Servers with a reasoning parser give the logprobs of all tokens, and the answer alone as the text."""
    found = read_signals(AIMessage("7", response_metadata=SHAPES["OpenAI chat"]))
    np.testing.assert_allclose(found.signals["top_k"], [1.0, 1.5, 1.0])
