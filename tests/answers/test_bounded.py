"""A model may write anything: nothing raises, nothing takes long, and normalizing twice changes nothing."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from langchain_reasc.answers import extractor, normalize, vote_of

SPECS = ["auto", "boxed", "number", "choice", "json:answer", "text"]
SIZE = 100_000
SECONDS = 2.0  # of this thread's processor time; the slowest measured takes 0.15

# What is repeated makes a regular expression without a bound take its time: nested, overlapping, almost matching.
REPEATED = [
    *("\\text{", "\\boxed{", "{", "}", "$", "(", "[", '"', "1", "1,", "1 ", "1.", "9/", "1:", "-", "\\", "`", "_"),
    *("the answer is ", "answer: ", "Answer:\n", "is the answer. ", "####", " (", "<think>", "</think>", "<answer>"),
    *('{"answer":', '{"answer":[', '"answer": "', '{"answer": {', "{'answer': 1}", "**", "*", "\n", " ", "(A) ", "A "),
    *("\\frac{", "\\frac{1}{", "½", "\\,", "é", "İ", "答案是", ",", "1'", "=1=", "12:34 ", "10^", "x10^", "(see "),
    *("<|channel|>", "<|channel|>final<|message|>", "note: ", "Therefore, ", "it is ", "1/1 ", "x = ", "^{", "? "),
    *("(A) is ", "is the correct ", "let me know\n", "1.000", "1 000 ", "a 1 b ", "because ", "1, ", "answer a "),
]


def _processor_time(text: str, spec: str, *, cut_off: bool) -> float:
    message = AIMessage(text, response_metadata={"finish_reason": "length"} if cut_off else {})
    extract, start = extractor(spec), time.thread_time()
    vote_of(message, extract)
    return time.thread_time() - start


@pytest.mark.parametrize("spec", SPECS)
def test_time_is_bounded_whatever_is_repeated(spec: str) -> None:
    slow = {
        (piece, text[:1], cut_off): seconds
        for piece in REPEATED
        for text in (piece * (SIZE // len(piece)), f"7 {piece * (SIZE // len(piece))} 7")
        for cut_off in (False, True)
        if (seconds := _processor_time(text, spec, cut_off=cut_off)) > SECONDS
    }
    assert slow == {}


@pytest.mark.parametrize("length", [900, SIZE])
def test_normalizing_takes_bounded_time_whatever_is_repeated(length: int) -> None:
    start = time.thread_time()
    for piece in REPEATED:
        normalize(piece * (length // len(piece)))
    normalize("\\text{" * 8000 + "}" * 8000)
    normalize("\\text{" * 140 + "}" * 140)
    assert time.thread_time() - start < SECONDS


def test_json_of_any_depth_is_no_error() -> None:
    for text in ('{"a":' * 2000, '{"answer":' * 20_000 + "}" * 20_000, '{"answer": ' + "[" * 50_000, "{" * 50_000):
        assert extractor("json:answer")(text) is None
    assert extractor("json:answer")('{"a":' * 2000 + '{"answer": 3}') == "3"
    assert _processor_time('{"answer": "' + '\\"' * (SIZE // 2), "json:answer", cut_off=False) < SECONDS
    assert extractor("json:answer")('{"answer": ' + "9" * 5000 + "}") is None  # more digits than Python reads


PIECES = st.sampled_from(
    [
        *"\\$,. (){}[]-−–+/*=^_`",
        '"',
        *("1", "20", "300", "000", "0", "%", "€", "x", "e", "C", "I", "İ", "ß", "½", "²", "٣", "１", "\u202f", "\n"),
        *("\\frac{1}{2}", "\\frac12", "\\text{", "\\boxed{", "\\,", "\\circ", "\\sqrt", "\\times 10^", "{,}", "3:45"),
        *(" pm", "million", "x=", "Answer: ", "answer is ", "#### ", "<think>", "</think>", "<answer>", "</answer>"),
        *('{"answer": ', "null", "NaN", "[{", '"args"', "}]", "is correct", "**", "usd ", "of the ", "1e99", "0^-1"),
    ]
)
WILD = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=14).map("".join))


@settings(deadline=None, max_examples=400)
@given(WILD)
def test_normalizing_twice_changes_nothing_of_anything(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)
    normalize(text).encode()  # half a surrogate pair could be written to no file


@settings(deadline=None, max_examples=400)
@given(WILD, st.booleans())
def test_no_text_makes_an_extractor_raise_and_answers_are_canonical(text: str, cut_off: bool) -> None:
    message = AIMessage(text, response_metadata={"finish_reason": "length"} if cut_off else {})
    for spec in SPECS:
        vote = vote_of(message, extractor(spec))
        assert (vote.answer is None) == (vote.why_none is not None)
        assert vote.answer is None or normalize(vote.answer) == vote.answer
