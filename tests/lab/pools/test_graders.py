"""Graders: which answers each takes for right, and what cannot be decided."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_reasc_lab.pools import label_normalizer
from langchain_reasc_lab.pools.graders import GRADERS, Alias, Choice, Exact, Grader, Mathematical, Numeric

from langchain_reasc.answers import EXTRACTION_VERSION, extractor, mathematics, normalize
from langchain_reasc.exceptions import ConfigurationError, MissingExtraError

CALLS = extractor("auto").label(json.dumps([{"name": "refund", "args": {"order": 7, "city": "Oslo"}}]))
HUGE = "so " * 200_000


def told(by: Grader, answer: str, *references: str) -> bool | None:
    return by.grade("How many?", answer, None, references)


# Of each grader: verdict -> an answer, and behind | the accepted answers.
GRADED: dict[type[Grader], dict[bool | None, tuple[str, ...]]] = {
    Exact: {
        True: ("7|7", "7|8|7.0", "oslo|Oslo.", f"{CALLS}|{CALLS}"),
        False: ("7|8", "18|18 dollars", f"{CALLS}|7", f"{HUGE}|7"),
    },
    Numeric: {
        True: (
            *("1000|1,000.0", "0.33333|1/3", "1 1/2|1.5", "12|12 km", "12 km|12", "45%|0.45", "45|45 %", "3:45|3:45"),
            *("20001.5|20001", "0|0.0", "blue|Blue|7", "nan|nan"),
        ),
        False: (
            *("0.333|1/3", "0.45|45", "-3|3", "20001|20000", "1e-9|0", "blue|7", "7|blue|8", "3:45|3.75", "inf|7"),
            *("1e999999999|7", f"{CALLS}|7", f"{HUGE}|7"),
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
def test_what_each_takes_for_right(kind: type[Grader]) -> None:
    for right, cases in GRADED[kind].items():
        for case in cases:
            assert told(kind(), *case.split("|")) is right, case[-80:]


def test_exact_spells_labels_as_what_found_the_answers() -> None:
    units = {"extraction_version": EXTRACTION_VERSION, "answer": "auto"}
    assert told(Exact(label_normalizer(units)), "18", "18 dollars") is True
    formulas = {"extraction_version": EXTRACTION_VERSION, "answer": "math"}
    assert told(Exact(label_normalizer(formulas)), "sqrt(2)/2", r"\frac{1}{\sqrt{2}}") is True
    assert label_normalizer({"answer": "auto"}) is normalize  # of an unknown version


def test_a_tolerance_that_is_given_holds_for_whole_numbers_too() -> None:
    assert told(Numeric(0.01), "101", "100") is True
    assert told(Numeric(0), "0.3333333333", "1/3") is False
    assert Numeric().name == "numeric" and Numeric(0.01).name == "numeric(0.01)"
    for wrong in (-0.1, 1.0, float("nan")):
        with pytest.raises(ConfigurationError, match="share of the number"):
            Numeric(wrong)


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
    answer = normalize(text)
    if answer.strip():
        assert told(GRADERS[name](), answer, text) is True


@given(st.sampled_from(sorted(GRADERS.keys() - {"math"})), st.text(min_size=1), st.lists(st.text(), min_size=1))
def test_no_text_makes_a_grader_raise(name: str, answer: str, references: list[str]) -> None:
    assert told(GRADERS[name](), answer, *references) in (True, False, None)
