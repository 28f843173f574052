"""Every provider's shape gives the same numbers, whole or merged from a stream; of these the signals are made."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import add_ai_message_chunks

from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable
from langchain_reasc.models import (
    Token,
    TokenLogprobs,
    count_tokens,
    read_signals,
    register_reader,
    token_lengths,
    token_logprobs_of,
)

from .payloads import CHOSEN, RANKED, SHAPES, TEXT, TOKENS, arrays, entries, message, sound


def logprobs_of(payload: Any, text: str = TEXT) -> TokenLogprobs:
    return token_logprobs_of(AIMessage(text, response_metadata={"logprobs": payload}))


def in_chunks(metadata: dict[str, Any]) -> Iterator[AIMessageChunk]:
    """The same payload as a stream brings it: the lists of one token per chunk, then a chunk without any."""
    for at, token in enumerate(TOKENS):
        yield AIMessageChunk(token, response_metadata=one_of(metadata, at))
    yield AIMessageChunk("", response_metadata={"finish_reason": "stop"}, chunk_position="last")


def one_of(node: Any, at: int) -> Any:
    if isinstance(node, list):
        return [node[at]]
    return {name: one_of(value, at) for name, value in node.items()} if isinstance(node, dict) else node


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_same_numbers(shape: str) -> None:
    messages = [AIMessage(TEXT, response_metadata=SHAPES[shape])]
    if shape not in ("OpenAI chat, as objects", "ChatOllama"):  # LangChain merges no objects
        messages.append(add_ai_message_chunks(*in_chunks(SHAPES[shape])))
    for found in map(token_logprobs_of, messages):
        assert found.chosen.tolist() == list(CHOSEN)
        assert found.alternatives.tolist() == [list(row) for row in RANKED]
        assert (found.k, found.notices, found.withheld) == (2, (), {})
    assert count_tokens(SHAPES[shape]) == 3 and token_lengths(messages[0]) == [2, 3, 2]


def test_chunks_without_logprobs_among_the_others_are_missed() -> None:
    chunks = list(in_chunks(SHAPES["OpenAI chat"]))
    chunks[1] = chunks[1].model_copy(update={"response_metadata": {}})
    with pytest.raises(LogprobsUnavailable, match=r"2 tokens, .* 4 of .*7 bytes"):
        token_logprobs_of(add_ai_message_chunks(*chunks))


def test_arrays_of_another_length_are_not_matched_to_the_tokens() -> None:
    found = logprobs_of(arrays() | {"top_logprobs": [{"It": -0.5}], "tokens": ["It"]})
    assert (found.chosen.tolist(), found.k) == (list(CHOSEN), 0)
    assert "no alternatives came" in found.withheld["top_k"]


def test_the_chosen_token_listed_twice_counts_once() -> None:
    doubled = entries()
    for one in doubled:
        one["top_logprobs"].append({"token": one["token"], "logprob": one["logprob"]})
    assert logprobs_of({"content": doubled}).alternatives.tolist() == [list(row) for row in RANKED]
    same_text = [{"token": "7", "logprob": -0.5}, *[{"token": "\ufffd", "logprob": -3.0}] * 3]
    assert logprobs_of({"content": [{**same_text[0], "top_logprobs": same_text}]}, "7").k == 4


@pytest.mark.parametrize("odd", [10**400, [[]], range(3)])
def test_values_that_cannot_be_compared_are_no_numbers(odd: Any) -> None:
    content = entries()
    content[1]["logprob"] = content[1]["top_logprobs"][0]["logprob"] = odd
    content[1]["top_logprobs"][1]["logprob"] = np.float32(-0.5)
    with pytest.raises(LogprobsUnavailable, match="1 of 3 tokens"):
        logprobs_of({"content": content})


def test_bytes_say_what_tokens_spell_whose_text_is_empty() -> None:
    raw = [[73, 116], [32, 105, 115], [32, 55]]
    content = [{"token": "", "logprob": -0.5, "bytes": one} for one in raw]
    assert len(logprobs_of({"content": content}).chosen) == 3
    with pytest.raises(LogprobsUnavailable, match="says nothing of the rest"):
        logprobs_of({"content": [{**one, "bytes": None} for one in content]})


@pytest.mark.parametrize(
    "metadata", [{}, {"logprobs": {"content": [], "refusal": None}}, {"logprobs": {"token_logprobs": []}}]
)
def test_what_is_missing_is_an_error_that_says_what_to_do(metadata: dict[str, Any]) -> None:
    for empty in (metadata, {**metadata, "token_signals": {}}):
        with pytest.raises(LogprobsUnavailable, match="logprobs=True, top_logprobs=20"):
            read_signals(AIMessage("x", response_metadata=empty))
        assert count_tokens(empty) == 0


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"avg_logprobs": -0.3}, "avg_logprobs.*logprobs=5"),
        ({"logprobs": -0.25}, r"\(float\).*register_reader"),
        ({"logprobs": {"steps": [1]}}, r"\(a dict of steps\).*register_reader"),
        ({"token_signals": 7, **SHAPES["Together"]}, "token_signals"),
        ({"token_signals": {"top_k": ["high"]}, **SHAPES["Together"]}, "token_signals"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_what_to_do(metadata: dict[str, Any], says: str) -> None:
    with pytest.raises(LogprobsUnavailable, match=says):
        read_signals(AIMessage(TEXT, response_metadata=metadata))


def test_reasoning_without_an_answer_and_tool_calls_are_named() -> None:
    usage = {"input_tokens": 1, "output_tokens": 9, "total_tokens": 10, "output_token_details": {"reasoning": 9}}
    thinking = AIMessage("", usage_metadata=usage, response_metadata={"logprobs": {"content": []}})
    with pytest.raises(LogprobsUnavailable, match="9 tokens"):
        read_signals(thinking)
    with pytest.raises(LogprobsUnavailable, match="tool call"):
        read_signals(AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}]))
    # Servers with a reasoning parser give the logprobs of all tokens, and the answer alone as the text.
    found = read_signals(AIMessage("7", response_metadata=SHAPES["OpenAI chat"]))
    np.testing.assert_allclose(found.signals["top_k"], [1.0, 1.5, 1.0])
    p = 1 / (1 + np.exp(-1.0))  # the first two pairs differ by one nat, so they renormalize to the same distribution
    assert found.signals["neg_entropy"][:2] == pytest.approx([p * np.log(p) + (1 - p) * np.log(1 - p)] * 2)
    assert found.k == {"top_k": 2, "neg_entropy": 2}


def test_a_reader_of_ones_own_is_asked_first() -> None:
    @register_reader("own_steps")
    def from_own_steps(metadata: Mapping[str, Any]) -> list[Token]:
        return [Token(None, step["lp"], tuple(step["top"])) for step in metadata["own_steps"]]

    own = {"own_steps": [{"lp": -0.5, "top": [-0.5, -1.0]}], **SHAPES["Together"]}
    assert token_logprobs_of(AIMessage("x", response_metadata=own)).alternatives.tolist() == [[-0.5, -1.0]]
    assert token_logprobs_of(AIMessage(TEXT, response_metadata=SHAPES["Together"])).k == 2


def test_a_reader_names_what_it_reads() -> None:
    for keys in ((), (lambda metadata: None,)):
        with pytest.raises(ConfigurationError, match=r'@register_reader\("details"\)'):
            register_reader(*keys)  # type: ignore[arg-type]


# Signals -------------------------------------------------------------------------------------------------------------


def test_recorded_signals_are_taken_as_they_are_and_first() -> None:
    recorded = {"self_certainty": np.array([12.0, 13.5], dtype=np.float32), "top_k": [1, 2], "neg_entropy": [-1, -2]}
    info = {"vocabulary_size": 1500, "top_k": 20}
    found = read_signals(message(*sound(2), token_signals=recorded, token_signals_info=info))
    for name, values, k in (
        ("self_certainty", [12.0, 13.5], None),
        ("top_k", [1.0, 2.0], 20),
        ("neg_entropy", [-1.0, -2.0], 1500),
    ):
        assert found.signals[name].tolist() == values
        assert found.provenance(name) == {"top_k": k, "vocabulary_size": 1500}


@pytest.mark.parametrize("info", [None, {"top_k": True, "vocabulary_size": "large"}, "20"])
def test_what_a_backend_does_not_say_is_unknown(info: Any) -> None:
    found = read_signals(message(token_signals={"top_k": [1.0]}, token_signals_info=info))
    assert (found.k, found.vocabulary_size) == ({}, None)


def test_with_fewer_alternatives_there_are_fewer_signals() -> None:
    none, one = read_signals(message((-1.0, None), (-2.0, None))), read_signals(message((-1.0, [-1.0]), (-2.0, [-2.0])))
    assert {name: values.tolist() for name, values in none.signals.items()} == {"token_logprob": [-1.0, -2.0]}
    assert none.withheld["top_k"] == none.withheld["neg_entropy"] and none.k == {}
    assert "top_logprobs=20" in none.withheld["top_k"]
    assert one.signals.keys() == {"top_k", "token_logprob"} and "has no entropy" in one.withheld["neg_entropy"]


@pytest.mark.parametrize(
    ("tokens", "k"),
    [
        ([(-9.0, [-0.5, -1.5, -9.0])], {}),  # an answer of one token that is not among the k likeliest
        ([(-9.0, [-0.5, -1.5, -9.0]), *sound(1)], {"top_k": 2, "neg_entropy": 2}),
        ([(-1.0, [-1.0])], {"top_k": 1}),
    ],
)
def test_k_is_not_known_where_k_plus_one_may_have_come(tokens: Any, k: dict[str, int]) -> None:
    assert read_signals(message(*tokens)).k == k
