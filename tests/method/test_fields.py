"""Objects decided field by field: medians, votes, what is left out, contradictions, and properties of all of it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_reasc.method import (
    ABSENT,
    ASC,
    ESC,
    ByField,
    Cap,
    ReASC,
    Response,
    Standardizer,
    StoppingRule,
    assembled,
    decide,
    field_name,
    number_in,
    within,
)

from .by_hand import check_that_a_stop_stands, having, outcome
from .test_rules import rule_and_scores

UNIT = Standardizer(mean=0.0, std=1.0)


def numbers(*values: Any) -> list[Response]:
    return [having(n=value) for value in values]


def test_the_object_is_put_together_from_what_each_field_says() -> None:
    given = [having(city="Rome", days=3), having(city="Rome", days=2), having(city="Bern", days=3)]
    decision = decide(ByField(ASC()) | Cap(3), given)
    assert outcome(decision) == (True, '{"city": "Rome", "days": 3}', "budget", 3)
    assert decision.parts["city"].evidence == {'"Rome"': 2.0, '"Bern"': 1.0}
    assert decision.whole == decision.answer
    other = decide(ByField(Cap(3)), [having(a=1, b=1, c=2), having(a=1, b=2, c=1), having(a=2, b=1, c=1)])
    assert other.answer == '{"a": 1, "b": 1, "c": 1}'  # which nobody gave
    assert other.whole == '{"a": 1, "b": 1, "c": 2}'
    assert list(other.evidence.values()) == [1, 1, 1]


def test_it_stops_when_every_field_has() -> None:
    decision = decide(ByField(ASC()), [having(city="Rome", note=at) for at in "abcdefgh"])
    assert not decision.stop and decision.parts["city"].stop and not decision.parts["note"].stop
    assert decision.posterior == decision.parts["note"].posterior
    assert decide(ByField(ASC()), [having(city="Rome", note="a")] * 4).reason == "evidence"
    gated = decide(ByField(ReASC(UNIT, gate=1.0)), [having(1.5, a="x", n=2)])
    assert outcome(gated) == (True, '{"a": "x", "n": 2}', "gate", 1)


@pytest.mark.parametrize(
    ("values", "tolerance", "median", "stops"),
    [
        ([3, 3, 3, 3], 0, "3", True),
        ([1, 2, 100], 0, "2", False),
        ([1, 2], 0, "1", False),  # the lower one, which somebody has said
        ([9.9, 10, 10.1, 10], 0.1, "10", True),
        ([9.9, 10, 10.1, 10], 0.05, "10", False),
        ([0.3, 0.4, 0.4, 0.3, 0.3], 0.1, "0.3", True),  # 0.4 - 0.3 is a little more than 0.1
        ([4, 1, 5, 1, 6, 1, 7, 1, 8, 1, 9, 1, 10], 0, "4", False),  # the most frequent is not the middle
        ([10**400, 10**400 + 1, 0.5, 10**400], 1, str(10**400), False),
    ],
)
def test_numbers_take_their_median(values: list[float], tolerance: float, median: str, stops: bool) -> None:
    decision = decide(ByField(ASC(), tolerance={"n": tolerance}), numbers(*values))
    assert (decision.parts["n"].answer, decision.stop) == (median, stops)


def test_the_evidence_for_a_median_is_what_is_near_it_against_all_others() -> None:
    decision = decide(ByField(ASC(), tolerance={"n": 1}), numbers(1, 5, 5, 6, 20))
    assert decision.parts["n"].parts["answer"].evidence == {"farther away": 2.0, "5": 3.0}
    scattered = decide(ByField(ASC()) | Cap(5), numbers(1, 2, 3, 4, 5))
    assert outcome(scattered) == (True, '{"n": 3}', "budget", 5) and scattered.posterior < 0.5
    for rule in (ASC(), ESC(2), ReASC(UNIT, on_missing_confidence="count")):  # while others outweigh it
        assert not decide(ByField(rule), numbers(*range(100))).stop
        assert decide(ByField(rule | Cap(50)), numbers(*range(100))).reason == "budget"


@pytest.mark.parametrize(
    ("options", "given", "answer"),
    [
        ({}, [7, 7, 1, 2, 3], "3"),
        ({"voted": ["n"]}, [7, 7, 1, 2, 3], "7"),  # numbers that are names
        ({}, [None, None, 5], "null"),
        ({}, [5, None, 6, 5], "5"),
        ({}, ["5", "5", 5], '"5"'),
        ({}, [True, True, 1], "true"),
        ({}, [1, True, 1], "1"),
        ({}, [[1, 2], [1, 2], [2, 1]], "[1, 2]"),
        ({}, ["é", "é", "e"], '"é"'),
    ],
)
def test_other_values_are_voted_on_as_they_are(options: dict[str, Any], given: list[Any], answer: str) -> None:
    assert decide(ByField(Cap(len(given)), **options), numbers(*given)).answer == f'{{"n": {answer}}}'


def test_votes_and_medians_are_weighted() -> None:
    given = [having(-2.0, n=1), having(-2.0, n=2), having(4.0, n=9)]
    assert decide(ByField(ReASC(UNIT)), given).answer == '{"n": 9}'
    assert decide(ByField(ReASC(UNIT, weight="count")), given).answer == '{"n": 2}'


def test_a_field_may_be_missing_or_all_of_them() -> None:
    given = [having(a=1), having(a=1), having(a=1, b=2)]
    assert decide(ByField(Cap(3)), given).answer == '{"a": 1}'
    assert decide(ByField(Cap(3)), given).parts["b"].evidence == {ABSENT: 2.0, "a number": 1.0}
    assert decide(ByField(Cap(3)), given[1:] + given[2:]).answer == '{"a": 1, "b": 2}'
    whole = decide(ByField(ASC()), [having()] * 4)
    assert outcome(whole) == (True, "{}", "evidence", 4) and not whole.parts


def test_an_object_that_is_not_accepted_gives_way_to_the_best_whole_one() -> None:
    given = [having(0.0, a=1, b=1, c=2), having(1.0, a=1, b=2, c=1), having(0.5, a=2, b=1, c=1)]
    refused: list[str] = []
    decision = decide(ByField(ReASC(UNIT), accepts=lambda answer: bool(refused.append(answer))) | Cap(3), given)
    assert decision.answer == '{"a": 1, "b": 2, "c": 1}'  # two fields each; it weighs most
    assert '{"a": 1, "b": 1, "c": 1}' in refused


def test_fields_that_contradict_each_other_give_way_too() -> None:
    inside = Response('{"a": {"b": 1}}', fields={"a.b": "1"})
    outside = Response('{"a": 5}', fields={"a": "5"})
    both = Response('{"a": 5}', fields={"a": "5", "a.b": "1"})
    assert assembled({"a": "5", "a.b": "1"}) is assembled({"a.b": "1", "a": "5"}) is None
    assert decide(ByField(Cap(3)), [inside, outside, both]).answer == '{"a": 5}'


def test_other_kinds_have_no_say_in_the_fields() -> None:
    given = [having(kind="f", a=1, b=1), Response("text"), having(kind="f", a=1, b=2), having(kind="g", a=9, b=2)]
    decision = decide(ByField(ASC()) | Cap(4), given)
    assert decision.answer == decision.whole == '{"a": 1, "b": 1}'
    assert decision.parts["kind"].evidence == {"f": 2.0, "answer": 1.0, "g": 1.0}
    assert decision.parts["answer"].parts["a"].evidence == {"1": 2.0}


@pytest.mark.parametrize("keys", [["a", "b"], ["a.b"], ["a\\", "b"], ["a\\.b", ""], ["", "."], ["ü", "🦜.x"]])
def test_a_name_leads_to_its_field(keys: list[str]) -> None:
    expected: Any = 1
    for key in reversed(keys):
        expected = {key: expected}
    assert json.loads(assembled({field_name(keys): "1"}) or "") == expected


def test_which_values_are_numbers_and_how_near_they_are() -> None:
    for value in ("true", '"5"', "null", "", "NaN", "1e999", "[1]", "9" * 5000):
        assert number_in(value) is None
    assert within(0.3, 0.4, 0.1) and not within(0.3, 0.401, 0.1)
    assert within(10**400, 10**400 + 1, 1) and not within(10**400, 1.5, 1e300)
    assert not within(1e308, -1e308, 1e307)


values = st.sampled_from([1, 2, 2.5, 10, "x", "y", True, None, [1], {}])
objects = st.dictionaries(st.sampled_from(["a", "b", "n"]), values, max_size=3)
rules, scores = rule_and_scores()


def _response(fields: Mapping[str, Any] | None, score: float, kind: str | None) -> Response:
    return Response(None, score) if fields is None else having(score, kind, **fields)


given_objects = st.lists(
    st.builds(_response, st.none() | objects, scores, st.sampled_from(["f", None])), min_size=1, max_size=10
)
by_field = st.builds(
    ByField, rules, tolerance=st.dictionaries(st.sampled_from("abn"), st.floats(0, 3)), voted=st.sampled_from(["", "n"])
)


@given(by_field, given_objects, given_objects)
def test_later_responses_never_change_an_earlier_stop_and_every_value_was_said(
    rule: ByField, given: list[Response], later: list[Response]
) -> None:
    check_that_a_stop_stands(rule, given, later)
    decision = decide(rule, given)
    seen = [json.loads(one.answer) for one in given if one.answer]
    for name, value in json.loads(decision.answer or "{}").items():
        assert any(name in one and json.dumps(one[name]) == json.dumps(value) for one in seen)


@given(rules, given_objects)
def test_one_field_of_text_decides_as_the_answers_do(rule: StoppingRule, given: list[Response]) -> None:
    wrapped = [replace(one, fields=None if one.answer is None else {"all": json.dumps(one.answer)}) for one in given]
    decision, flat = decide(ByField(rule), wrapped), decide(rule, given)
    assert (decision.stop, decision.reason, decision.samples) == (flat.stop, flat.reason, flat.samples)
    assert (decision.whole, decision.posterior) == (flat.answer, flat.posterior)


@given(st.integers(1, 12), rules, objects)
def test_unanimous_objects_stop_as_early_as_flat_ones(count: int, rule: StoppingRule, fields: dict[str, Any]) -> None:
    given = [having(0.5, **fields)] * count
    decision, flat = decide(ByField(rule), given), decide(rule, given)
    assert outcome(decision) == outcome(flat)
    assert decision.whole in (None, flat.answer)
