"""Which tokens spell the answer and the last step, in the tokens that models and servers give."""

from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage

from langchain_reasc.answers import extractor, places_of, vote_of
from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.method.confidence import Measure, Spans
from langchain_reasc.models.logprobs import SignalReading, read_signals

from .payloads import SHAPES, TEXT, in_process

ANSWER = Measure("token_logprob", "answer_span")


def read(message: AIMessage, spec: str = "auto") -> SignalReading:
    extract = extractor(spec)
    vote = vote_of(message, extract)
    return read_signals(message, of_calls=vote.calls, places=places_of(message, extract, vote))


def served(text: str, *pieces: str | bytes, **odd: Any) -> AIMessage:
    """As from a server: token i has the log-probability -(i + 1), but for those given as ``t3=None``."""
    entries = []
    for at, piece in enumerate(pieces):
        raw = piece.encode() if isinstance(piece, str) else piece
        token = {"token": raw.decode(errors="replace"), "bytes": list(raw), "logprob": -(at + 1.0)}
        entries.append(token | {"logprob": odd.get(f"t{at}", token["logprob"])})
    return AIMessage(text, response_metadata={"logprobs": {"content": entries}})


@pytest.mark.parametrize(
    ("pieces", "spec", "answer", "step"),
    [
        (["So", " 12", ".", " The", " answer", " is", " \\", "boxed", "{", "12", "}", "."], "auto", (9, 10), (0, 9)),
        (["5+7=1", "2. Answer", ": ", "12", "."], "auto", (3, 4), (0, 3)),
        (["The answer is", " 1", "2", " apples"], "auto", (1, 3), (0, 2)),
        (["It is \\boxed{1", "2}"], "boxed", (0, 2), (0, 1)),
        (
            ["答案是", "北".encode()[:1], "北".encode()[1:] + "京".encode()[:2], "京".encode()[2:], "。"],
            "auto",
            (1, 4),
            (0, 1),
        ),
        (["<think>", "12?", " no, 12", "</think>", "#### ", "12"], "auto", (5, 6), (1, 5)),
    ],
)
def test_the_tokens_that_spell_any_part(
    pieces: list[str | bytes], spec: str, answer: tuple[int, int], step: tuple[int, int]
) -> None:
    raw = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    text = b"".join(raw).decode()
    for message in (served(text, *raw), in_process(text, *raw)):
        assert read(message, spec).spans == Spans(answer, step)


def test_a_score_is_that_of_these_tokens() -> None:
    message = served("The answer is 12.", "The answer is ", "1", "2", ".")
    assert read(message).score(ANSWER) == -2.5
    with pytest.raises(LogprobsUnavailable, match="which tokens these are cannot be told"):
        read_signals(message).score(ANSWER)  # nobody asked for them


@pytest.mark.parametrize(
    ("text", "pieces", "answer"),
    [
        ("12", [" 12"], (0, 1)),  # a leading space that the server took off
        ("12", ["12", "<|im_end|>"], (0, 1)),
        ("12", ["12", "\n\nQ:"], (0, 1)),  # a stop string that was cut off
        (
            "It is 12.",
            ["<think>", "It is 12.", "</think>", "\n\n", "It is ", "12", "."],
            (5, 6),
        ),  # taken out by a parser
        ("It is 12.", ["It is ", "13."], None),  # other tokens than these
        ("It is 12.", [], None),
    ],
)
def test_tokens_may_spell_more_than_the_text(text: str, pieces: list[str], answer: tuple[int, int] | None) -> None:
    message = served(text, *pieces)
    if pieces:
        assert read(message).spans.answer_span == answer
    else:
        with pytest.raises(LogprobsUnavailable):
            read(message)


def test_a_stop_string_may_cut_a_token_of_ours_short() -> None:
    message = in_process("It is 12", b"It is ", b"12\n\n", b"Q:", b"")
    assert read(message).spans == Spans((1, 2), (0, 1))


def test_tokens_that_are_left_out_of_the_signals_do_not_count() -> None:
    pieces = [*["so "] * 20, "7 ", "it is ", "1", "2"]
    message = served("".join(pieces), *pieces, t3=None)
    reading = read(message)
    assert reading.signals["token_logprob"].size == 23 and reading.spans.answer_span == (21, 23)
    assert reading.score(ANSWER) == -23.5
    alone = read(served("".join(pieces[:-1]), *pieces[:-1], t22=None))
    assert alone.spans.answer_span is None, "the answer's only token has no value"


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_of_a_server(name: str) -> None:
    message = AIMessage(TEXT, response_metadata=SHAPES[name])
    reading = read(message, "number")
    assert reading.spans == Spans((2, 3), (0, 3)), "the space before the answer is part of its token"
    assert reading.score(ANSWER) == -0.25


@pytest.mark.parametrize(
    "held", [None, {"text": "It is 12", "sizes": [6]}, {"text": "\ufffd 12", "sizes": [6, 2]}, "12"]
)
def test_without_the_tokens_text_there_is_no_span(held: Any) -> None:
    signals = {"token_logprob": np.array([-1.0, -2.0])}
    message = AIMessage("It is 12", response_metadata={"token_signals": signals, "generated_text": held})
    reading = read(message)
    assert reading.spans == Spans() and reading.score(Measure("token_logprob", "mean")) == -1.5
    scalar = AIMessage(
        "12", response_metadata={"token_signals": {"top_k": 1.0}, "generated_text": {"text": "12", "sizes": [2]}}
    )
    assert read(scalar).spans == Spans()


def test_a_call_is_its_own_span() -> None:
    pieces = ["I call", ' {"name": "', "f", '", "arguments": ', '{"a": 1}', "}"]
    call = {"name": "f", "args": {"a": 1}, "id": "1"}
    logprobs = served("", *pieces).response_metadata
    reading = read(AIMessage("", tool_calls=[call], response_metadata=logprobs))
    assert reading.spans == Spans((0, 2), (0, 2)) and reading.score(ANSWER) == -4.0
    other = served("", "call f with a as 1").response_metadata
    assert read(AIMessage("", tool_calls=[call], response_metadata=other)).spans == Spans()


def test_a_response_without_an_answer_has_none() -> None:
    reading = read(served("I cannot say.", "I cannot", " say."), "number")
    assert reading.spans == Spans(None, (0, 2))


def test_a_stated_confidence_stands_beside_them() -> None:
    message = served("It is 12", "It is ", "12", "\nConfidence: ", "80%")
    message.response_metadata["verbalized_confidence"] = 0.8
    reading = read(message)
    assert reading.spans.answer_span == (1, 2)
    assert (reading.score(ANSWER), reading.score(Measure("verbalized", "mean"))) == (-2.0, 0.8)
