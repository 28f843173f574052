"""Equal answers have one key, different answers have two; ``spellings.json`` says which are equal.

``numbers`` are written as their name, however a response spells them; ``others`` are groups of equal answers. Each pair
of ``less`` is the same answer with and without its unit.
"""

import json
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_reasc.answers import equivalent, form_of

SPELLINGS = json.loads(Path(__file__).with_name("spellings.json").read_text("utf-8"))
NUMBERS: dict[str, list[str]] = SPELLINGS["numbers"]
OTHERS: list[list[str]] = SPELLINGS["others"]
LESS: list[list[str]] = SPELLINGS["less"]
GROUPS = [*NUMBERS.values(), *OTHERS]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_written_in_one_way(number: str) -> None:
    written = {spelling: form_of(spelling).written for spelling in NUMBERS[number]}
    assert written == dict.fromkeys(NUMBERS[number], number)


@pytest.mark.parametrize("spellings", GROUPS, ids=lambda spellings: spellings[0])
def test_spellings_of_one_answer_have_one_key(spellings: list[str]) -> None:
    key = form_of(spellings[0]).key
    assert {spelling: form_of(spelling).key for spelling in spellings} == dict.fromkeys(spellings, key)
    assert all(equivalent(spelling, spellings[0]) for spelling in spellings)


def test_different_answers_have_different_keys() -> None:
    keys = {group[0]: form_of(group[0]).key for group in GROUPS}
    assert len(set(keys.values())) == len(keys), keys


UNLIKE = [
    *("1000 100", "1 -1", "1/3 0.333", "1,2 12", "1.000 1,000", "5/0 5", "$5 €5", "$1000 €1000", "5% 5‰", "12A 12"),
    "0.1 0.10000000000000000000000000000001",
    "123456789012345678901234567891/2 123456789012345678901234567892/2",
]
UNLIKE_TEXTS = [("1 1/2", "11/2"), ("10 20", "1020"), ("about 5", "5"), ("5 km", "5 m"), ("12 apples", "12 pears")]


@pytest.mark.parametrize(("answer", "other"), [*UNLIKE_TEXTS, *map(str.split, UNLIKE)])
def test_different_answers_are_not_equivalent(answer: str, other: str) -> None:
    assert form_of(answer).key != form_of(other).key
    assert not equivalent(answer, other) and not equivalent(other, answer)


def test_answers_of_different_groups_are_not_equivalent() -> None:
    may_leave_out = {frozenset(pair) for pair in (["1000", "$1000"], ["25", "25%"], ["-7", "-$7"])}
    joined = [
        (one[0], other[0])
        for one, other in combinations(GROUPS, 2)
        if equivalent(one[0], other[0]) and frozenset((one[0], other[0])) not in may_leave_out
    ]
    assert joined == []


@pytest.mark.parametrize(("answer", "less"), LESS)
def test_an_answer_may_leave_out_its_unit(answer: str, less: str) -> None:
    assert form_of(answer).key != form_of(less).key
    assert equivalent(answer, less) and equivalent(less, answer)


def test_no_answer_is_equivalent_to_none() -> None:
    assert not equivalent(None, None) and not equivalent("1", None) and not equivalent(None, "1")


@given(st.integers(-(10**40), 10**40))
def test_an_integer_is_one_answer_however_it_is_written(number: int) -> None:
    assert {form_of(form).written for form in (f"{number}", f"{number:,}", f"{number}.00")} == {str(number)}
    assert form_of(f"${number:,}").key == form_of(f"${number}").key
    assert equivalent(f"${number:,}", str(number))


@given(st.integers(-(10**29), 10**29), st.integers(1, 10**29), st.integers(1, 9))
def test_a_fraction_is_its_reduced_form(top: int, bottom: int, factor: int) -> None:
    assert form_of(f"{top * factor}/{bottom * factor}").key == form_of(f"{top}/{bottom}").key


@given(st.integers(0, 10**29))
def test_a_finite_fraction_is_its_exact_decimal(thousandths: int) -> None:
    decimal = f"{thousandths // 1000}.{thousandths % 1000:03}"
    assert form_of(f"-{thousandths}/1000").key == form_of(f"-{decimal}").key
