"""Equal answers have one spelling, different answers keep two; ``spellings.json`` says which are equal."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_reasc.answers import equivalent, normalize

SAME: dict[str, list[str]] = json.loads(Path(__file__).with_name("spellings.json").read_text("utf-8"))["normalize"]


@pytest.mark.parametrize("canonical", SAME)
def test_spellings_of_one_answer_are_one_answer(canonical: str) -> None:
    assert {spelling: normalize(spelling) for spelling in SAME[canonical]} == dict.fromkeys(SAME[canonical], canonical)
    assert all(equivalent(spelling, canonical) for spelling in SAME[canonical])


DIFFERENT = [
    *("1000 100", "1 -1", "1/3 0.333", "1,2 12", "1.000 1,000", "5/0 5"),
    "0.1 0.10000000000000000000000000000001",
    "123456789012345678901234567891/2 123456789012345678901234567892/2",
]


def test_different_answers_stay_different() -> None:
    for one, other in (("1 1/2", "11/2"), ("10 20", "1020"), ("12", "12 apples"), *map(str.split, DIFFERENT)):
        assert normalize(one) != normalize(other)
        assert not equivalent(one, other)
    assert not equivalent(None, None) and not equivalent("1", None)


@given(st.integers(-(10**40), 10**40))
def test_an_integer_is_one_answer_however_it_is_written(number: int) -> None:
    assert {normalize(form) for form in (f"{number}", f"{number:,}", f"{number}.00", f"${number:,}")} == {str(number)}


@given(st.integers(-(10**29), 10**29), st.integers(1, 10**29), st.integers(1, 9))
def test_a_fraction_is_its_reduced_form(top: int, bottom: int, factor: int) -> None:
    assert normalize(f"{top * factor}/{bottom * factor}") == normalize(f"{top}/{bottom}")


@given(st.integers(0, 10**29))
def test_a_finite_fraction_is_its_exact_decimal(thousandths: int) -> None:
    decimal = f"{thousandths // 1000}.{thousandths % 1000:03}"
    assert normalize(f"-{thousandths}/1000") == normalize(f"-{decimal}")
