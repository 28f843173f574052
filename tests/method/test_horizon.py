"""Rules that look ahead to the end of the budget: against scipy, by simulation, and over every continuation."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom

from langchain_reasc import CannotCatchUp, FiniteHorizon
from langchain_reasc.method import (
    ASC,
    Agreement,
    ByField,
    Cap,
    Component,
    Prior,
    Response,
    StoppingRule,
    decide,
    decide_by_kind,
    stays_ahead,
)

from .by_hand import outcome, responses

PRIOR = Prior((Component(0.3, 1.0),), (1.0,))


@pytest.mark.parametrize(
    ("first", "second", "left", "expected"),
    [
        (0, 0, 0, 0.5),
        (1, 0, 0, 1.0),
        (3, 3, 0, 0.5),
        (1, 0, 1, 5 / 6),  # 2/3 ahead, 1/3 level
        (0, 0, 1, 0.5),
        (2, 1, 2, 8 / 10),  # X = 0, 1, 2 with 3/15, 6/15, 6/15: behind, ahead, ahead
        (2, 0, 1, 1.0),
        (1, 0, 15, 104 / 136),  # X ≥ 8 wins and X = 7 is level, with (X + 1)/136 each
    ],
)
def test_probability_by_hand(first: int, second: int, left: int, expected: float) -> None:
    assert stays_ahead(first, second, left) == pytest.approx(expected, abs=1e-15)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 60))
def test_probability_equals_scipy(first: int, second: int, left: int) -> None:
    wins = np.arange(left + 1)
    margin = (first + wins) - (second + left - wins)
    pmf = betabinom(left, first + 1, second + 1).pmf(wins)
    assert stays_ahead(first, second, left) == pytest.approx(pmf[margin > 0].sum() + pmf[margin == 0].sum() / 2)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_probability_of_either_is_one(first: int, second: int, left: int) -> None:
    assert stays_ahead(first, second, left) + stays_ahead(second, first, left) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("rule", "answers", "expected"),
    [
        (FiniteHorizon(), "aaaa", (True, "a", "agreement", 4)),
        (FiniteHorizon(), "aaa", (False, "a", None, 3)),
        (FiniteHorizon(0.9), "aaa", (True, "a", "agreement", 3)),
        (FiniteHorizon(), "-a-aaa", (True, "a", "agreement", 6)),
        (FiniteHorizon(budget=1), "a", (False, "a", None, 1)),  # a spent budget is no agreement
        (FiniteHorizon(budget=2) | Cap(2), "aa", (True, "a", "budget", 2)),
        (FiniteHorizon(budget=4) | Cap(4), "aaa", (True, "a", "agreement", 3)),  # the fourth cannot change it
        (FiniteHorizon(budget=1), "-", (False, None, None, 1)),
        (FiniteHorizon(budget=4), "abba", (False, "a", None, 4)),
        (FiniteHorizon(budget=4) | Cap(4), "abba", (True, "a", "budget", 4)),
        (FiniteHorizon(budget=4) | Cap(4), "abbc", (True, "b", "budget", 4)),
        (FiniteHorizon(budget=2), "abb", (False, "b", None, 3)),  # beyond its budget
        (FiniteHorizon() | Cap(16), "-" * 16, (True, None, "budget", 16)),
        (FiniteHorizon() & Cap(6), "aaaaaa", (True, "a", "agreement", 6)),
        (CannotCatchUp(), "aaaaaaaa", (True, "a", "agreement", 8)),  # b can draw level, and comes later
        (CannotCatchUp(), "aaaaaaa", (False, "a", None, 7)),
        (CannotCatchUp(4), "abb", (False, "b", None, 3)),  # a can draw level, and was seen first
        (CannotCatchUp(4), "baab", (False, "b", None, 4)),
        (CannotCatchUp(4), "bba", (True, "b", "agreement", 2)),  # what is new can draw level only
        (CannotCatchUp(4), "a--", (True, "a", "agreement", 3)),
        (CannotCatchUp(4), "a-", (False, "a", None, 2)),
        (CannotCatchUp(2), "--", (False, None, None, 2)),
        (CannotCatchUp(2), "a", (True, "a", "agreement", 1)),
        (CannotCatchUp(1), "a", (False, "a", None, 1)),
        (CannotCatchUp(4) | Cap(4), "baab", (True, "b", "budget", 4)),
    ],
    ids=str,
)
def test_rules_by_hand(rule: StoppingRule, answers: str, expected: tuple[object, ...]) -> None:
    assert outcome(decide(rule, responses(answers))) == expected


def test_the_posterior_is_what_is_compared() -> None:
    decision = decide(FiniteHorizon(), responses("aab"))
    assert decision.posterior == stays_ahead(2, 1, 13)
    assert decision.evidence == {"a": 2.0, "b": 1.0}
    assert decide(CannotCatchUp(4), responses("ab")).posterior == stays_ahead(1, 1, 2)
    assert decide(CannotCatchUp(4), responses("bba")).posterior == 1.0


@pytest.mark.parametrize("rule", [FiniteHorizon(budget=4), CannotCatchUp(4), Agreement(PRIOR, budget=4)], ids=str)
def test_with_the_budget_spent_the_posterior_is_that_of_eq_5(rule: StoppingRule) -> None:
    for answers in ("abba", "abbb", "----", "abcbb"):
        assert rule(responses(answers)) == replace(ASC(0.999)(responses(answers)), stop=False, reason=None)


def test_the_agreement_rule_stops_with_calls_left_only() -> None:
    rule = Agreement(PRIOR, budget=4)
    assert outcome(decide(rule | Cap(4), responses("aaaa"))) == (True, "a", "agreement", 3)
    assert outcome(decide(rule | Cap(4), responses("abaa"))) == (True, "a", "budget", 4)
    assert not decide(Agreement(PRIOR, budget=40), responses("ab" * 13)).stop  # nothing is looked ahead to beyond 24


def test_it_stops_where_asc_goes_on() -> None:
    """At 9:5 the two calls that are left change nothing; without end they might."""
    given = responses("aaaaaabbbbbaaa")
    assert not ASC()(given).stop
    assert not FiniteHorizon(budget=30)(given).stop
    assert FiniteHorizon(budget=16)(given).posterior == 1.0
    assert CannotCatchUp(budget=16)(given).stop


@pytest.mark.parametrize("budget", [1, 2, 3, 16])
def test_whether_one_response_may_be_enough(budget: int) -> None:
    for rule in (FiniteHorizon(0.8, budget), CannotCatchUp(budget)):
        assert rule.may_accept_first == rule([Response("a")]).stop
        assert not rule.reads_scores


def continuations(given: Sequence[Response], budget: int, vocabulary: Sequence[Response]) -> Iterator[list[Response]]:
    for later in itertools.product(vocabulary, repeat=budget - len(given)):
        yield [*given, *later]


@given(st.lists(st.sampled_from("abc-"), min_size=1, max_size=6), st.integers(1, 4))
def test_it_stops_exactly_where_no_continuation_changes_the_answer(answers: list[str], left: int) -> None:
    seen, budget = responses("".join(answers)), len(answers) + left
    decision = CannotCatchUp(budget)(seen)
    ends = {Cap(budget)(whole).answer for whole in continuations(seen, budget, responses("abcz-"))}
    assert decision.stop == (ends == {decision.answer} and decision.answer is not None)


@given(st.text("aabbc-", min_size=16, max_size=16))
def test_beside_asc_it_saves_calls_and_changes_no_answer(answers: str) -> None:
    whole, less = (decide(ASC() | rule, responses(answers)) for rule in (Cap(16), CannotCatchUp(16) | Cap(16)))
    assert less.answer == whole.answer
    assert less.samples <= whole.samples


@given(st.lists(st.sampled_from([("a", None), ("b", None), ("c", "book"), ("d", "book"), (None, "book")]), max_size=5))
def test_no_continuation_changes_an_answer_by_kind(given: list[tuple[str | None, str | None]]) -> None:
    seen = [Response(answer, kind=kind) for answer, kind in given]
    vocabulary = [*seen[:2], Response("d", kind="book"), Response("e"), Response("f", kind="third"), Response(None)]
    decision = decide(CannotCatchUp(7), seen)
    if decision.stop:
        whole = continuations(seen[: decision.samples], 7, vocabulary)
        assert {decide(Cap(7), one).answer for one in itertools.islice(whole, 3000)} == {decision.answer}


@given(st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from("xyz")), min_size=3, max_size=4))
def test_no_continuation_changes_an_answer_by_field(given: list[tuple[str, str]]) -> None:
    def response(one: str, two: str) -> Response:
        return Response(f'{{"one": "{one}", "two": "{two}"}}', fields={"one": f'"{one}"', "two": f'"{two}"'})

    seen = [response(*pair) for pair in given]
    decision = ByField(CannotCatchUp(6))(seen)
    if decision.stop:
        vocabulary = [*(response(one, two) for one in "pq" for two in "xyz"), Response(None)]
        assert {ByField(Cap(6))(one).answer for one in continuations(seen, 6, vocabulary)} == {decision.answer}


def test_responses_of_other_kinds_use_calls() -> None:
    """Of eleven calls eight are for the kind, and five of these for a: there are five left for both votes."""
    given = [Response("a", kind="call")] * 5 + [Response("b", kind="call")] * 3 + [Response("text")] * 3
    decision = decide_by_kind(FiniteHorizon(0.97, 16), given)
    assert decision.parts["kind"].posterior == stays_ahead(8, 3, 5)
    assert decision.posterior == decision.parts["answer"].posterior == stays_ahead(5, 3, 5)
    assert decision.parts["kind"].stop and not decision.stop
