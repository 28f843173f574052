"""Looking ahead: rules that see the end of the budget, against scipy and every continuation; who is sampled next."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom

from langchain_reasc.method import (
    ASC,
    ByField,
    CannotCatchUp,
    Cap,
    Decision,
    FiniteHorizon,
    ReASC,
    Response,
    Standardizer,
    StoppingRule,
    decide,
    decide_by_kind,
    expected_gain,
    most_gain_first,
    stays_ahead,
)

from .by_hand import outcome, responses


@pytest.mark.parametrize(
    ("first", "second", "left", "expected"),
    [
        (1, 0, 0, 1.0),
        (3, 3, 0, 0.5),
        (1, 0, 1, 5 / 6),  # 2/3 ahead, 1/3 level
        (2, 1, 2, 8 / 10),  # X = 0, 1, 2 with 3/15, 6/15, 6/15: behind, ahead, ahead
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


@pytest.mark.parametrize(
    ("rule", "answers", "expected"),
    [
        (FiniteHorizon(), "aaaa", (True, "a", "agreement", 4)),
        (FiniteHorizon(), "aaa", (False, "a", None, 3)),
        (FiniteHorizon(0.9), "aaa", (True, "a", "agreement", 3)),
        (FiniteHorizon(), "-a-aaa", (True, "a", "agreement", 6)),
        (FiniteHorizon(budget=2) | Cap(2), "aa", (True, "a", "budget", 2)),  # a spent budget is no agreement
        (FiniteHorizon(budget=4) | Cap(4), "aaa", (True, "a", "agreement", 3)),  # the fourth cannot change it
        (FiniteHorizon(budget=4) | Cap(4), "abbc", (True, "b", "budget", 4)),
        (FiniteHorizon(budget=2), "abb", (False, "b", None, 3)),  # beyond its budget
        (CannotCatchUp(), "aaaaaaaa", (True, "a", "agreement", 8)),  # b can draw level, and comes later
        (CannotCatchUp(), "aaaaaaa", (False, "a", None, 7)),
        (CannotCatchUp(4), "abb", (False, "b", None, 3)),  # a can draw level, and was seen first
        (CannotCatchUp(4), "bba", (True, "b", "agreement", 2)),  # what is new can draw level only
        (CannotCatchUp(4), "a--", (True, "a", "agreement", 3)),
        (CannotCatchUp(4), "a-", (False, "a", None, 2)),
        (CannotCatchUp(1), "a", (False, "a", None, 1)),
        (CannotCatchUp(4) | Cap(4), "baab", (True, "b", "budget", 4)),
    ],
    ids=str,
)
def test_rules_by_hand(rule: StoppingRule, answers: str, expected: tuple[object, ...]) -> None:
    assert outcome(decide(rule, responses(answers))) == expected


@pytest.mark.parametrize("rule", [FiniteHorizon(budget=4), CannotCatchUp(4)])
def test_the_posterior_is_that_of_eq_5(rule: StoppingRule) -> None:
    for answers in ("abba", "abbb", "----", "abcbb"):  # the budget is spent
        assert rule(responses(answers)) == replace(ASC(0.999)(responses(answers)), stop=False, reason=None)
    stopped = decide(rule, responses("bbb"))
    assert stopped.stop and stopped.posterior == ASC()(responses("bbb"[: stopped.samples])).posterior


@pytest.mark.parametrize("budget", [1, 2, 3, 16])
def test_whether_one_response_may_be_enough(budget: int) -> None:
    for rule in (FiniteHorizon(0.8, budget), CannotCatchUp(budget)):
        assert (rule.first_wave == 1) == (rule([Response("a")]).stop or budget == 1)
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


@given(st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from("xyz"), st.booleans()), min_size=3, max_size=4))
def test_no_continuation_changes_an_answer_in_parts(given: list[tuple[str, str, bool]]) -> None:
    def by_field(one: str, two: str, *_: bool) -> Response:
        return Response(f'{{"one": "{one}", "two": "{two}"}}', fields={"one": f'"{one}"', "two": f'"{two}"'})

    def by_kind(one: str, two: str, called: bool = True) -> Response:
        return Response(one + two, kind=one if called else None)

    for response, until in ((by_field, ByField(CannotCatchUp(6))), (by_kind, CannotCatchUp(6))):
        seen = [response(*one) for one in given]
        decision = decide(until, seen)
        if decision.stop:
            vocabulary = [*(response(one, two) for one in "pq" for two in "xyz"), Response("z"), Response(None)]
            ends = continuations(seen[: decision.samples], 6, vocabulary[1:])
            whole = ByField(Cap(6)) if isinstance(until, ByField) else Cap(6)
            assert {decide(whole, one).answer for one in itertools.islice(ends, 1000)} == {decision.answer}


def test_responses_of_other_kinds_use_calls() -> None:
    """Of eleven calls eight are for the kind, and five of these for a: there are five left for both votes."""
    given = [Response("a", kind="call")] * 5 + [Response("b", kind="call")] * 3 + [Response("text")] * 3
    decision = decide_by_kind(FiniteHorizon(0.97, 16), given)
    assert stays_ahead(8, 3, 5) >= 0.97 > stays_ahead(5, 3, 5)
    assert decision.parts["kind"].stop and not decision.stop


def after(*answers: str | None) -> Decision:
    return decide(ASC(0.999), [Response(answer) for answer in answers])


def test_the_gain_by_hand() -> None:
    # 1 against 1: the share of each is 1/2; one more vote makes one of them 3/5.
    assert expected_gain(after("1", "2"), 1) == pytest.approx(3 / 5 - 1 / 2)
    # 1 against 0: the share is 2/3. One vote cannot change the leader, so nothing is gained; of two, both go to
    # another answer with probability B(2, 3) / B(2, 1) = 1/6, which then has 3/5 and not the expected 2/5.
    assert expected_gain(after("1"), 1) == 0.0
    assert expected_gain(after("1"), 2) == pytest.approx(1 / 6 * (3 / 5 - 2 / 5) / 2)


@pytest.mark.parametrize(("first", "second", "horizon"), [(3, 1, 13), (2, 2, 12), (0, 0, 16)])
def test_the_gain_equals_its_definition(first: int, second: int, horizon: int) -> None:
    a, b = first + 1, second + 1
    gains = []
    for r in range(1, horizon + 1):
        share = sum(betabinom.pmf(x, r, a, b) * max(a + x, b + r - x) for x in range(r + 1)) / (a + b + r)
        gains.append((share - a / (a + b)) / r)
    assert expected_gain(after(*["1"] * first, *["2"] * second), horizon) == pytest.approx(max(gains))


def test_close_votes_gain_most_and_scattered_ones_less() -> None:
    close, clear, silent = after(*"12"), after(*"111"), after("1", "2", None, None, None, None)
    assert expected_gain(close, 14) > expected_gain(clear, 13) > 0
    assert expected_gain(close, 10) > expected_gain(after(*"123456"), 10) == expected_gain(silent, 10)
    weighed = decide(ReASC(Standardizer(0.0, 1.0)), [Response("1", 1.0), Response("2", 0.0)])
    assert 0 < expected_gain(weighed, 8) < expected_gain(close, 8)
    assert expected_gain(after(*"1111112"), 4) == expected_gain(close, 0) == expected_gain(close, -1) == 0.0
    unanswered = [expected_gain(after(*[None] * n), 8) for n in (0, 1, 4, 8)]
    assert unanswered == sorted(unanswered, reverse=True) and 0 < unanswered[-1] < expected_gain(close, 8) / 10
    whole = decide(ASC(0.99), [Response(answer, kind="search") for answer in "abb"])
    assert expected_gain(whole, 8) == expected_gain(whole.parts["answer"], 8) > 0


@pytest.mark.parametrize(
    ("horizons", "costs", "first"),
    [
        ([13, 14, 14, 12], [1, 1, 1, 1], [1, 2]),
        ([13, 14, 14, 12], [1, 100, 1, 1], [2]),
        ([13, 0, 14, 0], [1] * 4, [2, 0]),
    ],
)
def test_the_most_gain_for_the_cost_comes_first(horizons: list[int], costs: list[float], first: list[int]) -> None:
    decisions = [after(*"111"), after(*"12"), after(*"12"), after(*"1122")]
    assert most_gain_first(decisions, horizons, costs)[: len(first)] == first
    assert len(most_gain_first(decisions, horizons, costs)) == sum(one > 0 for one in horizons)
