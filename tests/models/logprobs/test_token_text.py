"""Which tokens spell the answer, the last step and the calls, and how long each is, as models and servers give them."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from properties import examples

from langchain_reasc.answers import extractor, places_of, vote_of
from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.method.confidence import Measure, Spans
from langchain_reasc.models import SignalReading, read_signals, token_lengths

from .payloads import in_process, served

ANSWER = Measure("token_logprob", "answer_span")
PARIS = {"name": "weather", "args": {"city": "Paris", "days": 3}, "id": "1"}
PLAIN = '{"name": "weather", "arguments": {"city": "Paris", "days": 3}}'
ROME = {**PARIS, "args": {"city": "Rome", "days": 3}}
OTHER = '{"days":3,\n"city": "\\u0050aris"}'
ARGUMENTS = ('{"city": "Paris", "days": 3}', '{"city": "Rome", "days": 3}')


# Calls ---------------------------------------------------------------------------------------------------------------


def cut(text: str, size: int = 1) -> list[bytes]:
    raw = text.encode()
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def spelled(pieces: list[bytes], *calls: dict[str, Any]) -> list[str] | None:
    """The runs of tokens that are read of a response with these calls; None if all are."""
    reading = read_signals(served("", *pieces, calls=calls, scale=1e-3), of_calls=True)
    if reading.spans == Spans():
        assert reading.signals["token_logprob"].size == len(pieces)
        return None
    kept = {-1 - round(1000 * value) for value in reading.signals["token_logprob"]}
    shown = b"".join(piece if at in kept else b"\0" * len(piece) for at, piece in enumerate(pieces))
    return [run for run in shown.decode(errors="replace").split("\0") if run]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PLAIN, None),
        (f"I look up the weather in Paris for 3 days. [TOOL_CALLS] [{PLAIN}]", None),
        ('{"name": "weather", "parameters": ' + OTHER + "}", OTHER),
        (f"functions.weather:0<|tool_call_argument_begin|>{ARGUMENTS[0]}<|tool_call_end|>", None),  # Kimi
        (f"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{ARGUMENTS[0]}", None),  # Harmony
    ],
)
def test_the_name_and_the_arguments_of_a_call_are_read_alone(text: str, expected: str | None) -> None:
    assert spelled(cut(text), PARIS) == ["weather", expected or ARGUMENTS[0]]


@pytest.mark.parametrize(
    "text",
    [
        'weather(city="Paris", days=3)',
        r'{"name": "weather", "arguments": "{\"city\": \"Paris\", \"days\": 3}"}',
        '{"name": "weather", "arguments": {"city": "Paris", "days": true}}',
        '{"name": "weathers", "arguments": {"city": "Paris", "days": 3}}',
        '{"name": "weather", "arguments": {"city": "Paris", "days": 3',
        "weather" + " then" * 20 + '{"city": "Paris", "days": 3}',
        "{" * 5_000 + '"weather"',  # odd texts take no time
        '{"weather": ' * 2000 + "{}",
    ],
)
def test_calls_that_are_not_found_leave_all_tokens(text: str) -> None:
    assert spelled(cut(text), PARIS) is None


def test_several_calls() -> None:
    both = cut(f"<tool_call>{PLAIN}</tool_call><tool_call>{PLAIN.replace('Paris', 'Rome')}</tool_call>")
    assert spelled(both, PARIS, ROME) == ["weather", ARGUMENTS[0], "weather", ARGUMENTS[1]]
    assert spelled(both, PARIS, PARIS) is None, "one of them is not there"
    assert spelled(both, ROME, PARIS) is None, "they were written in another order"
    assert spelled(both) is None, "nothing was called"
    ping = {"name": "ping", "args": {}, "id": "1"}
    assert spelled(cut('<tool_call>{"name": "ping", "arguments": {}}'), ping) == ["ping", "{}"]


def test_a_draft_in_the_reasoning_is_not_read() -> None:
    thought = f"<think>Shall I call {PLAIN}?</think>"
    reading = read_signals(served("", *cut(thought + PLAIN), calls=[PARIS], scale=1e-3), of_calls=True)
    assert reading.signals["token_logprob"].max() < -len(thought) / 1000


def test_tokens_are_bytes() -> None:
    call = {"name": "weather", "args": {"city": "Zürich 🌦", "days": 3}, "id": "1"}
    text = "Grüße: " + json.dumps({"name": "weather", "arguments": call["args"]}, ensure_ascii=False) + " ✓"
    assert spelled(cut(text), call) == ["weather", json.dumps(call["args"], ensure_ascii=False)]
    name, arguments = spelled(cut(text, 3), call) or ["", ""]
    assert "weather" in name and json.dumps(call["args"], ensure_ascii=False) in arguments
    assert spelled([b"\xff\xfe", *cut(PLAIN), b"\xf0\x9f"], PARIS) == ["weather", ARGUMENTS[0]]


def test_tokens_without_a_value_or_a_text() -> None:
    pieces = cut(f"I ask. {PLAIN}")
    message = served("I ask.", *pieces, calls=[PARIS], t3=None)
    everything, calls = read_signals(message), read_signals(message, of_calls=True)
    assert everything.signals["token_logprob"].size == len(pieces) - 1
    assert calls.signals["token_logprob"].size == len("weather" + ARGUMENTS[0])
    assert calls.notices == everything.notices


def test_calls_that_a_backend_recorded() -> None:
    text = f"Hm. {PLAIN}"
    recorded = {
        "token_signals": {"top_k": [float(at) for at in range(len(text) + 2)]},
        "generated_text": {"text": text, "sizes": [1] * len(text) + [4, 0]},  # a stop string, and the end token
    }
    message = AIMessage("Hm.", tool_calls=[PARIS], response_metadata=recorded)
    found = read_signals(message, of_calls=True).signals["top_k"]
    assert found.tolist() == [*range(14, 21), *range(text.index('{"city'), len(text) - 1)]
    assert read_signals(message).signals["top_k"].size == len(text) + 2


# The answer and the last step ----------------------------------------------------------------------------------------


def read(message: AIMessage, spec: str = "auto") -> SignalReading:
    extract = extractor(spec)
    vote = vote_of(message, extract)
    return read_signals(message, of_calls=vote.calls, places=places_of(message, extract, vote))


@pytest.mark.parametrize(
    ("pieces", "spec", "answer", "step"),
    [
        (["So", " 12", ".", " The", " answer", " is", " \\", "boxed", "{", "12", "}", "."], "auto", (9, 10), (0, 9)),
        (["The answer is", " 1", "2", " apples", "."], "auto", (1, 4), (0, 2)),
        (["答案是", *cut("北京", 2)[:1], *(b"\x97\xe4\xba", b"\xac"), "。"], "auto", (1, 4), (0, 1)),
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


@pytest.mark.parametrize(
    ("text", "pieces", "answer"),
    [
        ("12", [" 12"], (0, 1)),  # a leading space that the server took off
        ("12", ["12", "\n\nQ:"], (0, 1)),  # a stop string that was cut off
        # reasoning that a parser took out
        ("It is 12.", ["<think>", "It is 12.", "</think>", "\n\n", "It is ", "12", "."], (5, 6)),
        ("It is 12.", ["It is ", "13."], None),  # other tokens than these
    ],
)
def test_tokens_may_spell_more_than_the_text(text: str, pieces: list[str], answer: tuple[int, int] | None) -> None:
    assert read(served(text, *pieces)).spans.answer_span == answer


def test_a_stop_string_may_cut_a_token_of_ours_short() -> None:
    message = in_process("It is 12", b"It is ", b"12\n\n", b"Q:", b"", spelled="It is 12\n\nQ:")
    assert read(message).spans == Spans((1, 2), (0, 1))


def test_a_score_is_that_of_the_tokens_of_a_span() -> None:
    message = served("The answer is 12.", "The answer is ", "1", "2", ".")
    assert read(message).score(ANSWER) == -2.5
    with pytest.raises(LogprobsUnavailable, match="'answer_span'"):
        read_signals(message).score(ANSWER)  # nobody asked for them
    assert read(served("I cannot say.", "I cannot", " say."), "number").spans == Spans(None, (0, 2))


def test_tokens_that_are_left_out_of_the_signals_do_not_count() -> None:
    pieces = [*["so "] * 20, "7, ", "the answer is ", "1", "2"]
    reading = read(served("".join(pieces), *pieces, t3=None))
    assert reading.signals["token_logprob"].size == 23 and reading.spans.answer_span == (21, 23)
    assert reading.score(ANSWER) == -23.5
    alone = read(served("".join(pieces[:-1]), *pieces[:-1], t22=None))
    assert alone.spans.answer_span is None, "the answer's only token has no value"


@pytest.mark.parametrize(
    "held",
    [
        None,
        {"text": "It is 12", "sizes": [6]},
        {"text": "It is 12", "sizes": ["6", "2"]},
        {"text": "\ufffd 12", "sizes": [6, 2]},
        {"text": "", "sizes": []},
    ],
)
def test_a_record_that_does_not_fit_tells_nothing(held: Any) -> None:
    signals = {"token_logprob": np.array([-1.0, -2.0])}
    message = AIMessage("It is 12", response_metadata={"token_signals": signals, "generated_text": held})
    reading = read(message)
    assert reading.spans == Spans() and reading.score(Measure("token_logprob", "mean")) == -1.5
    assert token_lengths(message) is None
    one = {"token_signals": {"top_k": 1.0}, "generated_text": {"text": "12", "sizes": [2]}}
    assert read(AIMessage("12", response_metadata=one)).spans == Spans()


def test_a_call_is_its_own_span() -> None:
    call = {"name": "f", "args": {"a": 1}, "id": "1"}
    pieces = ["I call", ' {"name": "', "f", '", "arguments": ', '{"a": 1}', "}"]
    reading = read(served("", *pieces, calls=[call]))
    assert reading.spans == Spans((0, 2), (0, 2)) and reading.score(ANSWER) == -4.0
    assert read(served("", "call f with a as 1", calls=[call])).spans == Spans()


# Lengths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "lengths"),
    [
        (in_process("So 12.", b"So", b" 12", b".", b""), [2, 3, 1, 0]),
        # a character over several tokens counts for the one in which it begins
        (served("a😀", "a", "😀".encode()[:2], "😀".encode()[2:]), [1, 1, 0]),
        (in_process("né", b"n\xc3", b"\xa9"), [2, 0]),
        # what is no part of the text has no length: reasoning, and a stop string, which is cut off the text
        (in_process("It is 7", b"It is 7\n", b"\nQ:", spelled="It is 7"), [7, 0]),
        (AIMessage("12", response_metadata={"logprobs": {"vibes": 1}}), None),
        (AIMessage("12"), None),
        (AIMessage("12", response_metadata={"token_signals": {"token_logprob": [-1.0]}}), None),
        (AIMessage("12", response_metadata={"logprobs": {"content": [{"token": "12"}, {"token": None}]}}), None),
        (served("twelve", "1", "2"), None),
        (AIMessage("", tool_calls=[PARIS]), None),
    ],
)
def test_the_length_of_each_token(message: AIMessage, lengths: list[int] | None) -> None:
    assert token_lengths(message) == lengths


@examples(25)
@given(st.text(min_size=1), st.lists(st.integers(0, 10**6)), st.text(), st.text())
def test_lengths_are_those_of_the_text_however_it_is_cut(text: str, cuts: list[int], before: str, after: str) -> None:
    whole = (before + text + after).encode(errors="replace")
    places = sorted(cut % (len(whole) + 1) for cut in cuts)
    pieces = [whole[begin:end] for begin, end in zip([0, *places], [*places, len(whole)], strict=True)]
    lengths = token_lengths(served(text, *pieces))
    assert lengths is not None and len(lengths) == len(pieces) and sum(lengths) == len(text)
    assert all(length <= len(piece) for length, piece in zip(lengths, pieces, strict=True))
