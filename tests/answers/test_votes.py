"""What responses vote for: two tables of messages, and bounds that hold for whatever a model may write.

``endings.jsonl`` holds realistic ends of responses, one a line: its kind, the extractor, what a reader finds in it, the
message's text or other fields, and the question if a reader needs it.

``votes.jsonl`` holds what whole messages vote for: cut off, with tool calls, refused, with reasoning.
"""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk

from answers.messages import LENGTH, call
from langchain_reasc.answers import Vote, boxed, equivalent, extractor, form_of, json_field, vote_of, written


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()]


ENDINGS = lines("endings.jsonl")
KINDS = list(dict.fromkeys(ending["kind"] for ending in ENDINGS))
KNOWN_MISSES = {
    # kind, or what the row is about -> texts whose answer is not found; take off the list what is mended
    "word problems": [
        "So the number of wheels is 4 × 12, which equals 48.",
        "Total: $45. Split among 3 people, that is $15 each.",
    ],
    "latex": ["The length is therefore $x = 2\\sqrt{3}$.", "We conclude that $k=4$."],
    "money": ["It will cost fifteen dollars ($15)."],
    "negative": ["The rows 1-3", "The answers, in order:\n- 5"],
    "chatty closings": ["58 🎯\n\nKeep practicing, you'll be at level 3 in no time!"],
    "languages": ["所以一共有42个。", "Итого: 17 яблок."],
    "choice": ["Answer: A. A dog has 4 legs.", "The answer is A: it is the only even number."],
    "votes of texts": ["First I chose (A), but then (B)", "The answer is a number, so (C)"],
    "votes of cut off": ["#### 28\nQ: and"],
}


def is_expected(answer: str | None, expected: str | None) -> bool:
    return answer == expected or equivalent(answer, expected)


def missed(kind: str) -> dict[str, str | None]:
    """What is found instead in the texts of a kind whose answer is not."""
    wrong = {}
    for ending in (ending for ending in ENDINGS if ending["kind"] == kind):
        beside = ("kind", "spec", "question", "expected", "text")
        fields = {key: value for key, value in ending.items() if key not in beside}
        message = AIMessage(**{"content": ending.get("text", "")} | fields)
        answer = vote_of(message, extractor(ending["spec"]), question=ending.get("question", "")).answer
        if not is_expected(answer, ending["expected"]):
            wrong[ending.get("text", str(ending))] = answer
    return wrong


@pytest.mark.parametrize("kind", KINDS)
def test_the_answers_of_a_kind(kind: str) -> None:
    wrong = missed(kind)
    assert sorted(wrong) == sorted(KNOWN_MISSES.get(kind, [])), wrong


VOTES = lines("votes.jsonl")


@pytest.mark.parametrize("about", dict.fromkeys(row["about"] for row in VOTES))
def test_the_votes_of_messages(about: str) -> None:
    wrong = {}
    for row in (row for row in VOTES if row["about"] == about):
        fields = {key: value for key, value in row.items() if key not in ("about", "spec", "vote")}
        message, expected = AIMessage(**fields), Vote(**row["vote"])
        vote = vote_of(message, extractor(row["spec"]))
        if vote != expected:
            wrong[str(row["content"])] = vote
        if expected.why_none in ("a refusal", "stopped by a content filter"):
            assert vote_of(message, extractor(lambda text: "5")).why_none == expected.why_none, row
        if about == "reasoning":
            assert vote_of(message, extractor(lambda seen: "5" if "5" in seen else "6")).answer == "6", row
    assert sorted(wrong) == sorted(KNOWN_MISSES.get(f"votes of {about}", [])), wrong


def test_chunks_of_a_stream_add_up_to_the_same_vote() -> None:
    chunks = [AIMessageChunk("9*26=234. "), AIMessageChunk("4*7=28.", **LENGTH)]
    assert vote_of(chunks[0] + chunks[1], extractor()) == Vote(None, True, "cut off before an explicit answer")  # type: ignore[arg-type]


def test_what_a_function_finds_in_half_a_response_may_be_half_an_answer() -> None:
    found = vote_of(AIMessage("9*26=234. 4*7=28.", **LENGTH), extractor(lambda text: text[-3:-1]))
    assert found == Vote(None, cut_off=True, why_none="cut off before an explicit answer")


@pytest.mark.parametrize("spec", [lambda text: "5" if "n" in text else None, json_field("n") | boxed()])
def test_functions_and_json_go_before_calls_where_they_find_an_answer(spec: Any) -> None:
    for said, answer in (('{"n": 5}', "5"), ("?", '[{"args": {}, "name": "f"}]')):
        assert vote_of(AIMessage(said, tool_calls=[call("f")]), extractor(spec)).answer == answer


# Bounds

SPECS = ["auto", "boxed", "number", "choice", "json:answer", "text"]
SIZE = 20_000
SECONDS = 1.0  # of this thread's processor time; the slowest measured takes 0.08

# What is repeated makes a regular expression without a bound take its time: nested, overlapping, almost matching.
REPEATED = [
    *("\\text{", "\\boxed{", "{", "$", "(", "[", '"', "1", "1,", "1 ", "1.", "9/", "1:", "-", "\\", "`", "_"),
    *("the answer is ", "Answer:\n", "is the answer. ", "####", " (", "<think>", "</think>", "<answer>", "(see "),
    *('{"answer":', '{"answer":[', '"answer": "', "{'answer': 1}", "**", "\n", " ", "(A) ", "A ", "is the correct "),
    *("\\frac{", "\\frac{1}{", "½", "İ", "答案是", "1'", "=1=", "12:34 ", "10^", "x10^", "^{", "? ", "because "),
    *("<|channel|>", "<|channel|>final<|message|>", "note: ", "it is ", "let me know\n", "1 000 ", "answer a "),
]


def _processor_time(text: str, spec: str, *, cut_off: bool) -> float:
    message = AIMessage(text, **LENGTH) if cut_off else AIMessage(text)
    extract, start = extractor(spec), time.thread_time()
    vote_of(message, extract)
    return time.thread_time() - start


@pytest.mark.full
@pytest.mark.parametrize("spec", SPECS)
def test_time_is_bounded_whatever_is_repeated(spec: str) -> None:
    slow = {
        (piece, cut_off): seconds
        for piece in REPEATED
        for text, cut_off in ((piece * (SIZE // len(piece)), True), (f"7 {piece * (SIZE // len(piece))} 7", False))
        if (seconds := _processor_time(text, spec, cut_off=cut_off)) > SECONDS
    }
    assert slow == {}


@pytest.mark.parametrize("length", [900, SIZE])
def test_a_form_takes_bounded_time_whatever_is_repeated(length: int) -> None:
    start = time.thread_time()
    for text in (
        *(piece * (length // len(piece)) for piece in REPEATED),
        *("\\text{" * n + "}" * n for n in (140, 8000)),
    ):
        form_of(text)
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


@given(WILD)
def test_an_answer_that_was_written_has_the_same_form(text: str) -> None:
    form = form_of(text)
    assert form_of(form.written).key == form.key
    assert written(form.written) == form.written
    form.written.encode()  # half a surrogate pair could be written to no file


@given(WILD, st.booleans())
def test_no_text_makes_an_extractor_raise_and_answers_are_canonical(text: str, cut_off: bool) -> None:
    for spec in SPECS:
        vote = vote_of(AIMessage(text, **LENGTH) if cut_off else AIMessage(text), extractor(spec))
        assert (vote.answer is None) == (vote.why_none is not None)
        assert vote.answer is None or extractor(spec).label(vote.answer) == vote.answer
