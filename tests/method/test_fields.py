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
from method.test_properties import rules, scores

from .by_hand import check_that_a_stop_stands, outcome

UNIT = Standardizer(mean=0.0, std=1.0)


def response(score: float | None = None, kind: str | None = None, **fields: Any) -> Response:
    spelled = {name: json.dumps(value) for name, value in fields.items()}
    return Response(json.dumps(fields, sort_keys=True), score, kind=kind, fields=spelled)


def numbers(*values: Any) -> list[Response]:
    return [response(n=value) for value in values]


def test_the_object_is_put_together_from_what_each_field_says() -> None:
    given = [response(city="Rome", days=3), response(city="Rome", days=2), response(city="Bern", days=3)]
    decision = decide(ByField(ASC()) | Cap(3), given)
    assert outcome(decision) == (True, '{"city": "Rome", "days": 3}', "budget", 3)
    assert decision.parts["city"].evidence == {'"Rome"': 2.0, '"Bern"': 1.0}
    assert decision.whole == '{"city": "Rome", "days": 3}'
    other = decide(ByField(Cap(3)), [response(a=1, b=1, c=2), response(a=1, b=2, c=1), response(a=2, b=1, c=1)])
    assert other.answer == '{"a": 1, "b": 1, "c": 1}'  # which nobody gave
    assert other.whole == '{"a": 1, "b": 1, "c": 2}'
    assert other.evidence == {
        '{"a": 1, "b": 1, "c": 2}': 1,
        '{"a": 1, "b": 2, "c": 1}': 1,
        '{"a": 2, "b": 1, "c": 1}': 1,
    }


def test_it_stops_when_every_field_has() -> None:
    given = [response(city="Rome", note=at) for at in "abcdefgh"]
    decision = decide(ByField(ASC()), given)
    assert not decision.stop and decision.parts["city"].stop and not decision.parts["note"].stop
    assert decision.posterior == decision.parts["note"].posterior
    assert decide(ByField(ASC()), [response(city="Rome", note="a")] * 4).reason == "evidence"


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
        ([-5, -5.0, -5, -5], 0, "-5", True),
    ],
)
def test_numbers_take_their_median(values: list[float], tolerance: float, median: str, stops: bool) -> None:
    decision = decide(ByField(ASC(), tolerance={"n": tolerance}), numbers(*values))
    assert decision.parts["n"].answer == median
    assert decision.stop == stops


def test_the_evidence_for_a_median_is_what_is_near_it_against_all_others() -> None:
    decision = decide(ByField(ASC(), tolerance={"n": 1}), numbers(1, 5, 5, 6, 20))
    assert decision.parts["n"].parts["answer"].evidence == {"farther away": 2.0, "5": 3.0}
    scattered = decide(ByField(ASC()) | Cap(5), numbers(1, 2, 3, 4, 5))
    assert outcome(scattered) == (True, '{"n": 3}', "budget", 5)
    assert scattered.posterior < 0.5


def test_only_a_budget_stops_where_others_outweigh_the_median() -> None:
    far = numbers(*range(100))
    for rule in (ASC(), ESC(2), ReASC(UNIT, on_missing_confidence="count")):
        assert not decide(ByField(rule), far).stop
        assert outcome(decide(ByField(rule | Cap(50)), far))[2:] == ("budget", 50)


def test_medians_are_weighted() -> None:
    given = [response(-2.0, n=1), response(-2.0, n=2), response(4.0, n=9)]
    assert decide(ByField(ReASC(UNIT)), given).answer == '{"n": 9}'
    assert decide(ByField(ReASC(UNIT, weight="count")), given).answer == '{"n": 2}'


def test_numbers_that_are_names_are_voted_on() -> None:
    given = numbers(7, 7, 1, 2, 3)
    assert decide(ByField(Cap(5)), given).answer == '{"n": 3}'
    assert decide(ByField(Cap(5), voted=["n"]), given).answer == '{"n": 7}'


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ([None, None, 5], '{"n": null}'),
        ([5, None, 6, 5], '{"n": 5}'),
        (["5", "5", 5], '{"n": "5"}'),
        ([True, True, 1], '{"n": true}'),
        ([1, True, 1], '{"n": 1}'),
        ([[1, 2], [1, 2], [2, 1]], '{"n": [1, 2]}'),
        (["é", "é", "e"], '{"n": "é"}'),
        ([{}, {}, 1], '{"n": {}}'),
    ],
)
def test_other_values_are_voted_on_as_they_are(values: list[Any], answer: str) -> None:
    assert decide(ByField(Cap(len(values))), numbers(*values)).answer == answer


def test_a_field_may_be_missing() -> None:
    given = [response(a=1), response(a=1), response(a=1, b=2)]
    assert decide(ByField(Cap(3)), given).answer == '{"a": 1}'
    assert decide(ByField(Cap(3)), given[1:] + given[2:]).answer == '{"a": 1, "b": 2}'
    assert decide(ByField(Cap(3)), given).parts["b"].evidence == {ABSENT: 2.0, "a number": 1.0}


def test_objects_without_fields_are_voted_on_as_a_whole() -> None:
    decision = decide(ByField(ASC()), [response()] * 4)
    assert outcome(decision) == (True, "{}", "evidence", 4)
    assert not decision.parts


def test_fields_are_read_by_their_rule_alone() -> None:
    given = [response(a=1, b=1), response(a=1, b=2), response(a=2, b=1)]
    assert decide(Cap(3), given) == decide(Cap(3), [replace(one, fields=None) for one in given])


def test_an_object_that_is_not_accepted_gives_way_to_the_best_whole_one() -> None:
    given = [response(0.0, a=1, b=1, c=2), response(1.0, a=1, b=2, c=1), response(0.5, a=2, b=1, c=1)]
    refused: list[str] = []

    def refuse(answer: str) -> bool:
        refused.append(answer)
        return False

    decision = decide(ByField(ReASC(UNIT), accepts=refuse) | Cap(3), given)
    assert decision.answer == decision.whole == '{"a": 1, "b": 2, "c": 1}'  # two fields each; it weighs most
    assert '{"a": 1, "b": 1, "c": 1}' in refused


def test_fields_that_contradict_each_other_give_way_too() -> None:
    inside = Response('{"a": {"b": 1}}', fields={"a.b": "1"})
    outside = Response('{"a": 5}', fields={"a": "5"})
    both = Response('{"a": 5}', fields={"a": "5", "a.b": "1"})
    assert assembled({"a": "5", "a.b": "1"}) is None
    assert assembled({"a.b": "1", "a": "5"}) is None
    assert decide(ByField(Cap(3)), [inside, outside, both]).answer == '{"a": 5}'


def test_other_kinds_have_no_say_in_the_fields() -> None:
    given = [response(kind="f", a=1, b=1), Response("text"), response(kind="f", a=1, b=2), response(kind="g", a=9, b=2)]
    decision = decide(ByField(ASC()) | Cap(4), given)
    assert decision.answer == '{"a": 1, "b": 1}'
    assert decision.parts["kind"].evidence == {"f": 2.0, "answer": 1.0, "g": 1.0}
    assert decision.parts["answer"].parts["a"].evidence == {"1": 2.0}
    assert decision.whole == '{"a": 1, "b": 1}'


def test_the_gate_accepts_an_object_alone() -> None:
    decision = decide(ByField(ReASC(UNIT, gate=1.0)), [response(1.5, a="x", n=2)])
    assert outcome(decision) == (True, '{"a": "x", "n": 2}', "gate", 1)


@pytest.mark.parametrize("keys", [["a"], ["a", "b"], ["a.b"], ["a\\", "b"], ["a\\.b", ""], ["", "."], ["ü", "🦜.x"]])
def test_a_name_leads_to_its_field(keys: list[str]) -> None:
    expected: Any = 1
    for key in reversed(keys):
        expected = {key: expected}
    assert json.loads(assembled({field_name(keys): "1"}) or "") == expected


@given(st.lists(st.text(alphabet="ab.\\\n"), min_size=1, max_size=4), st.lists(st.text(alphabet="ab.\\"), min_size=1))
def test_two_fields_have_two_names(one: list[str], other: list[str]) -> None:
    assert (field_name(one) == field_name(other)) == (one == other)


@pytest.mark.parametrize("value", ["true", '"5"', "null", "", "NaN", "Infinity", "1e999", "[1]", "9" * 5000])
def test_what_is_no_number(value: str) -> None:
    assert number_in(value) is None


def test_how_near_numbers_are() -> None:
    assert within(0.3, 0.4, 0.1) and not within(0.3, 0.401, 0.1)
    assert within(10**400, 10**400 + 1, 1) and not within(10**400, 1.5, 1e300)
    assert not within(1e308, -1e308, 1e307)


values = st.sampled_from([1, 2, 2.5, 10, "x", "y", True, None, [1], {}])
objects = st.dictionaries(st.sampled_from(["a", "b", "n"]), values, max_size=3)


def _response(fields: Mapping[str, Any] | None, score: float, kind: str | None) -> Response:
    return Response(None, score) if fields is None else response(score, kind, **fields)


given_objects = st.lists(st.builds(_response, st.none() | objects, scores, st.none()), max_size=10)
mixed_objects = st.lists(st.builds(_response, st.none() | objects, scores, st.sampled_from(["f", None])), max_size=10)
by_field = st.builds(
    ByField, rules, tolerance=st.dictionaries(st.sampled_from("abn"), st.floats(0, 3)), voted=st.sampled_from(["", "n"])
)


@given(by_field, mixed_objects.filter(bool), mixed_objects)
def test_later_responses_never_change_an_earlier_stop(
    rule: StoppingRule, given: list[Response], later: list[Response]
) -> None:
    check_that_a_stop_stands(rule, given, later)


@given(rules, st.one_of(given_objects, mixed_objects))
def test_one_field_of_text_decides_as_the_answers_do(rule: StoppingRule, given: list[Response]) -> None:
    wrapped = [replace(one, fields=None if one.answer is None else {"all": json.dumps(one.answer)}) for one in given]
    decision, flat = decide(ByField(rule), wrapped), decide(rule, given)
    assert (decision.stop, decision.reason, decision.samples) == (flat.stop, flat.reason, flat.samples)
    assert decision.whole == flat.answer
    assert decision.posterior == flat.posterior


@given(by_field, given_objects)
def test_every_value_of_the_answer_was_said(rule: ByField, given: list[Response]) -> None:
    decision = decide(rule, given)
    seen = [json.loads(one.answer) for one in given if one.answer]
    for name, value in json.loads(decision.answer or "{}").items():
        assert any(name in one and json.dumps(one[name]) == json.dumps(value) for one in seen)
    assert (decision.answer is None) == all(one.answer is None for one in given[: decision.samples])


@given(st.integers(1, 12), rules, objects)
def test_unanimous_objects_stop_as_early_as_flat_ones(count: int, rule: StoppingRule, fields: dict[str, Any]) -> None:
    given = [response(0.5, **fields)] * count
    decision, flat = decide(ByField(rule), given), decide(rule, given)
    assert outcome(decision) == outcome(flat)
    assert decision.whole in (None, flat.answer)
