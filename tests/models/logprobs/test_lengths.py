"""How long each token is: with the text, where it stands."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from langchain_reasc.models.logprobs import token_lengths, token_signals_of
from langchain_reasc.models.logprobs.lengths import lengths_of

from .payloads import in_process


def from_provider(text: str, *tokens: dict[str, Any]) -> AIMessage:
    content = [{"logprob": -0.5, "top_logprobs": [], **token} for token in tokens]
    return AIMessage(text, response_metadata={"logprobs": {"content": content}})


def test_of_a_provider_and_of_a_model_in_this_process() -> None:
    assert token_lengths(from_provider("So 12.", {"token": "So"}, {"token": " 12"}, {"token": "."})) == [2, 3, 1]
    assert token_lengths(in_process("So 12.", b"So", b" 12", b".", b"")) == [2, 3, 1, 0]


def test_a_character_over_several_tokens_counts_for_the_one_in_which_it_begins() -> None:
    smile = "😀".encode()
    tokens: list[dict[str, Any]] = [
        {"token": "a"},
        *({"token": "�", "bytes": list(part)} for part in (smile[:2], smile[2:])),
    ]
    assert token_lengths(from_provider("a😀", *tokens)) == [1, 1, 0]
    assert token_lengths(in_process("né", b"n\xc3", b"\xa9")) == [2, 0]


def test_what_is_no_part_of_the_text_has_no_length() -> None:
    thought = "<think>2</think>2"
    assert token_lengths(in_process("2", b"<think>", b"2", b"</think>", b"2", spelled=thought)) == [0, 0, 0, 1]
    stopped = in_process("It is 7", b"It is 7\n", b"\nQ:", spelled="It is 7")  # a stop string is cut off the text
    assert token_lengths(stopped) is None or sum(token_lengths(stopped) or []) == 7


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("12"),
        AIMessage("12", response_metadata={"logprobs": {"vibes": 1}}),
        AIMessage("12", response_metadata={"token_signals": {"token_logprob": [-1.0]}}),
        from_provider("12", {"token": "12"}, {"token": None}),
        from_provider("twelve", {"token": "1"}, {"token": "2"}),
        from_provider("", {"token": "1"}),
        AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}]),
    ],
)
def test_where_nobody_says_what_tokens_spell_there_is_nothing(message: AIMessage) -> None:
    assert token_lengths(message) is None


@given(st.text(min_size=1), st.lists(st.integers(min_value=0)), st.text(), st.text())
def test_lengths_are_those_of_the_text_however_it_is_cut(text: str, cuts: list[int], before: str, after: str) -> None:
    whole = (before + text + after).encode(errors="replace")
    places = sorted(cut % (len(whole) + 1) for cut in cuts)
    pieces = [whole[begin:end] for begin, end in zip([0, *places], [*places, len(whole)], strict=True)]
    lengths = lengths_of(pieces, text)
    assert lengths is not None and len(lengths) == len(pieces) and sum(lengths) == len(text)
    assert all(length <= len(piece) for length, piece in zip(lengths, pieces, strict=True))


def test_real_tokens_have_as_many_lengths_as_values() -> None:
    pytest.importorskip("llama_cpp")
    from langchain_reasc_llama_cpp import ChatLlamaCpp

    with ChatLlamaCpp(seed=1) as model:
        message = model.invoke("Lena has 27 red cups and 14 blue cups. How many cups does Lena have now?")
    lengths = token_lengths(message)
    assert lengths is not None and sum(lengths) == len(str(message.text))
    assert {len(lengths)} == {values.size for values in token_signals_of(message).values()}
