"""Graders: which answers each takes for right, and what cannot be decided."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_reasc_lab.pools import extractor_of
from langchain_reasc_lab.pools.graders import GRADERS, Alias, Choice, Exact, Grader, Mathematical, Numeric

from lab.pools.synthetic import write_lines
from langchain_reasc.answers import EXTRACTION_VERSION, extractor, mathematics, written
from langchain_reasc.data import read_questions
from langchain_reasc.exceptions import ConfigurationError, MissingExtraError

CALLS = extractor("auto").label(json.dumps([{"name": "refund", "args": {"order": 7, "city": "Oslo"}}]))
HUGE = "so " * 200_000


def told(by: Grader, answer: str, *references: str) -> bool | None:
    return by("How many?", answer, references)


# Of each grader: verdict -> an answer, and behind | the accepted answers.
GRADED: dict[Callable[[], Grader], dict[bool | None, tuple[str, ...]]] = {
    Exact: {
        True: ("7|7", "7|8|7.0", "oslo|Oslo.", "18|18 dollars", f"{CALLS}|{CALLS}"),
        False: ("7|8", "18 euros|18 dollars", f"{CALLS}|7", f"{HUGE}|7"),
    },
    Numeric: {
        True: (
            *("1000|1,000.0", "0.33333|1/3", "1 1/2|1.5", "12|12 km", "12 km|12", "45%|0.45", "45|45 %", "3:45|3:45"),
            *("20001.5|20001", "0|0.0", "blue|Blue|7", "nan|nan", "5 km|5000 m", "5.0001 km|5 km", "20001 g|20.001 kg"),
        ),
        False: (
            *("0.333|1/3", "0.45|45", "-3|3", "20001|20000", "1e-9|0", "blue|7", "7|blue|8", "3:45|3.75", "inf|7"),
            *("20001 g|20000 g", "5.0001 km|5 m", "1e999999999|7", f"{CALLS}|7", f"{HUGE}|7"),
        ),
        None: ("7|blue",),
    },
    Choice: {
        True: ("b|B", "(b) oslo|B", "B) Oslo|b", "b|(B)|(D)", "a, c|C and A", "oslo|Oslo"),
        False: ("the answer is C|B", "a, c|A"),
        None: ("a dog|A", "oslo|B", "b|Oslo", f"{CALLS}|B", f"{HUGE}|B"),
    },
    Alias: {
        True: (
            *("the beatles|Beatles", "Beatles!|Rolling Stones|The Beatles", "“Spider-Man”|spiderman", "a|A"),
            *("café de la gare|Cafe\u0301 de la Gare", "straße|STRASSE"),
        ),
        False: (
            *("beatles|rolling stones", "1.5|15", "-5|5", "a|the", "!|?", f"{HUGE}|so"),
            f"{CALLS}|{CALLS.replace('Oslo', 'oslo')}",
        ),
    },
    Mathematical: {
        True: (r"\frac{1}{\sqrt{2}}|\sqrt{2}/2", "x+1|1+x", "x+1|x+2|1+x", "oslo|Oslo"),
        False: ("x+1|x+2", r"\frac{1}{|7", f"{CALLS}|7", f"{HUGE}|7"),
    },
}


@pytest.mark.parametrize("kind", GRADED, ids=lambda kind: kind.__name__)
def test_what_each_takes_for_right(kind: Callable[[], Grader]) -> None:
    for right, cases in GRADED[kind].items():
        for case in cases:
            assert told(kind(), *case.split("|")) is right, case[-80:]


@pytest.mark.parametrize(
    ("spec", "label", "response"),
    [
        ("math", r"\frac{1}{\sqrt{2}}", r"\boxed{\sqrt{2}/2}"),
        ("choice", "B", "The answer is (B)."),
        ("choice", "(b)", "The answer is (B)."),
        ("choice", "A and C", "The answer is C and A."),
        ("spam,ham", "SPAM", "This message is spam."),
        ("json", '{"b": 1.0, "a": "x"}', 'So: {"a": "x", "b": 1}'),
    ],
)
def test_exact_reads_labels_as_what_found_the_answers(spec: str, label: str, response: str) -> None:
    extract = extractor_of({"extraction_version": EXTRACTION_VERSION, "answer": spec})
    answer = extract(response)
    assert answer is not None
    assert told(Exact(extract), answer, label) is True
    assert told(Exact(extract), answer, "J", "9", "eggs") is False


def test_labels_of_an_unknown_version_are_read_by_default() -> None:
    assert extractor_of({"answer": "math"}).name == extractor_of({}).name == "auto"


LABELS = ("20 °C", "10 m^2", "$18", "5 km", "March 5, 2024", "500a^7", "12 apples", "A and C")


@pytest.mark.parametrize("response", ["{}", "The answer is {}.", r"So it is \boxed{{{}}}.", "Answer: **{}**"])
@pytest.mark.parametrize("spec", ["auto", "math"])
@pytest.mark.parametrize("label", LABELS)
def test_a_label_that_a_response_repeats_is_right(tmp_path: Path, label: str, spec: str, response: str) -> None:
    [question] = read_questions(write_lines(tmp_path / "q.jsonl", {"question": "?", "answer": label}))
    extract = extractor(spec)
    answer = extract(response.format(label))
    assert answer is not None
    for reference in (label, question.reference):
        verdicts = {name: told(grader(), answer, reference) for name, grader in GRADERS.items()}
        assert verdicts == dict.fromkeys(GRADERS, True)
        assert told(Exact(extract), answer, reference) is True


def test_a_label_keeps_its_letters(tmp_path: Path) -> None:
    [question] = read_questions(write_lines(tmp_path / "q.jsonl", {"question": "?", "answer": "500a^7"}))
    assert question.references == ("500a^7",)


# An answer, and a label of which it is not.
OTHERS = {
    "500": "500a^7",
    "500b^7": "500a^7",
    "10 m": "10 m^2",
    "5 km": "5 m",
    "5 m": "5 km",
    "$18": "18 EUR",
    "3 cents": "$3",
    "20 °C": "20 °F",
    "12 apples": "12 pears",
    "A and C": "A and B",
    "March 5, 2024": "March 5, 2023",
}


@pytest.mark.parametrize("name", GRADERS)
@pytest.mark.parametrize("answer", OTHERS)
def test_another_unit_or_letter_is_wrong(answer: str, name: str) -> None:
    assert told(GRADERS[name](), answer, OTHERS[answer]) is not True
    assert told(GRADERS[name](), OTHERS[answer], answer) is not True


@pytest.mark.parametrize("name", GRADERS)
@pytest.mark.parametrize(
    ("number", "quantity"),
    [("5", "5 km"), ("10", "10 m^2"), ("18", "$18"), ("20", "20 °C"), ("12", "12 apples"), ("45", "45%")],
)
def test_a_label_or_an_answer_may_leave_out_the_unit(number: str, quantity: str, name: str) -> None:
    assert told(GRADERS[name](), number, quantity) is True
    assert told(GRADERS[name](), quantity, number) is True


def test_a_tolerance_that_is_given_holds_for_whole_numbers_too() -> None:
    assert told(Numeric(0.01), "101", "100") is True
    assert told(Numeric(0), "0.3333333333", "1/3") is False
    assert Numeric().name == "numeric" and Numeric(0.01).name == "numeric(0.01)"
    for wrong in (-0.1, 1.0, float("nan")):
        with pytest.raises(ConfigurationError, match=f"got {wrong}"):
            Numeric(wrong)


@pytest.mark.full  # its process has to be ended
def test_a_formula_that_would_take_for_ever_is_wrong_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    by = Mathematical()
    told(by, r"\sqrt{2}+4", "7")  # the worker runs
    monkeypatch.setattr(mathematics, "SECONDS", 0.3)
    start = time.monotonic()
    assert told(by, "8^{8^{8^{9}}}", "8^{8^{8^8}}") is False
    assert time.monotonic() - start < 20
    monkeypatch.undo()
    assert told(by, r"\frac{5}{\sqrt{5}}", r"\sqrt{5}") is True


def test_math_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langchain_reasc.answers.mathematics.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"langchain-reasc\[math\]"):
        GRADERS["math"]()


@given(st.sampled_from(sorted(GRADERS.keys() - {"math"})), st.text(min_size=1, max_size=30))
def test_whatever_stands_there_equals_itself(name: str, text: str) -> None:
    answer = written(text)
    if answer.strip():
        assert told(GRADERS[name](), answer, text) is True


@given(st.sampled_from(sorted(GRADERS.keys() - {"math"})), st.text(min_size=1), st.lists(st.text(), min_size=1))
def test_no_text_makes_a_grader_raise(name: str, answer: str, references: list[str]) -> None:
    assert told(GRADERS[name](), answer, *references) in (True, False, None)
