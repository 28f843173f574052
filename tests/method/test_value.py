"""The value stop: exact against brute force, and what it does with split and settled votes."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import (
    Agreement,
    BayesianVote,
    Cap,
    Component,
    LogisticOdds,
    Prior,
    Response,
    Standardizer,
    ValueStop,
    decide,
    default_components,
)

MIXED = Prior((Component(0.0, 0.1), Component(0.3, 3.0), Component(0.85, 10.0)), (0.5, 0.3, 0.2))
BINARY = Prior((Component(-1.0, 2.0), Component(-5.0, 10.0)), (0.5, 0.5))  # two answers, or none that ever rises


def responses(text: str) -> list[Response]:
    """One response a letter; ``-`` has no answer."""
    return [Response(None if answer == "-" else answer) for answer in text]


def brute_force(prior: Prior, counts: tuple[int, ...], left: int, price: float) -> bool:
    """Whether it pays to go on, by trying every sequence of answers with the process's own urn."""

    def gain(state: tuple[int, ...]) -> float:
        """The expected share of the leader."""
        return max(expected(state)[:-1])

    def chances(component: Component, state: tuple[int, ...]) -> list[float]:
        discount, concentration = component
        n = sum(state)
        new = max(0.0, concentration + discount * len(state))
        return [(one - discount) / (n + concentration) for one in state] + [new / (n + concentration)]

    @cache
    def likelihood(component: Component, state: tuple[int, ...]) -> float:
        reached, probability = (1,), 1.0
        for at, count in enumerate(state):
            if at:
                probability *= chances(component, reached)[-1]
                reached = (*reached, 1)
            for _ in range(count - 1):
                probability *= chances(component, reached)[at]
                reached = (*reached[:at], reached[at] + 1, *reached[at + 1 :])
        return probability

    def expected(state: tuple[int, ...]) -> list[float]:
        joint = [w * likelihood(one, state) for one, w in zip(prior.components, prior.weights, strict=True)]
        each = [chances(one, state) for one in prior.components]
        return [
            sum(j * row[at] for j, row in zip(joint, each, strict=True)) / sum(joint) for at in range(len(state) + 1)
        ]

    @cache
    def value(state: tuple[int, ...], left: int) -> tuple[float, float]:
        """What it is worth to stop, and to go on."""
        if not left:
            return gain(state), float("-inf")
        on = 0.0
        for at, chance in enumerate(expected(state)):
            if chance > 0:
                after = [*state, 0]
                after[at] += 1
                on += chance * max(value(tuple(one for one in after if one), left - 1))
        return gain(state), on - price

    stop, on = value(counts, left)
    return on > stop


@given(
    prior=st.sampled_from([MIXED, BINARY]),
    text=st.text("abc", min_size=1, max_size=4),
    left=st.integers(1, 4),
    worth=st.sampled_from([0.7, 2.0, 5.0, 10.0, 40.0]),
)
def test_it_stops_where_every_way_on_costs_more_than_it_gains(prior: Prior, text: str, left: int, worth: float) -> None:
    rule = ValueStop(prior, worth, budget=len(text) + left)
    counts = tuple(sorted((text.count(letter) for letter in set(text)), reverse=True))
    if prior is BINARY and len(counts) > 2:
        return  # which that component never gives
    assert rule(responses(text)).stop is not brute_force(prior, counts, left, 0.01 / worth)


EVERY = Prior.uniform()


@pytest.mark.parametrize(
    ("text", "budget", "stops"),
    [
        ("aaa", 16, True),  # settled
        ("ab", 16, False),
        ("aaaabcde", 16, True),  # no other answer will lead
        ("aaaabbbb", 16, False),  # each sample tells more of which is better
        ("a-aaa-bcde", 18, True),
        ("aab-", 4, False),  # the budget is spent, which a cap says
        ("a", 1, False),
        ("-", 16, False),
        ("--------", 16, False),
        ("a" * 10 + "b" * 9, 24, False),
    ],
)
def test_where_it_stops(text: str, budget: int, stops: bool) -> None:
    decision = ValueStop(EVERY, 5.0, budget)(responses(text))
    assert (decision.stop, decision.reason, decision.undecided) == (stops, "worth" if stops else None, stops)
    assert decision.answer == (text.strip("-")[:1] or None)


def test_a_response_that_was_cut_off_is_not_enough() -> None:
    sure = Prior((Component(0.0, 0.001),), (1.0,))
    assert ValueStop(sure, 1.0)([Response("a")]).stop
    assert not ValueStop(sure, 1.0)([Response("a", cut_off=True)]).stop


@given(text=st.text("abcd-", min_size=1, max_size=16), worths=st.lists(st.floats(0.5, 100.0), min_size=2, max_size=2))
def test_the_more_a_point_is_worth_the_longer_it_samples(text: str, worths: list[float]) -> None:
    less, more = (decide(ValueStop(EVERY, worth) | Cap(16), responses(text)).samples for worth in sorted(worths))
    assert less <= more


@pytest.mark.parametrize(("threshold", "reason"), [(0.9, "agreement"), (0.9999, "worth")])
@pytest.mark.parametrize("kind", [None, "search"])
def test_the_stronger_promise_is_named(threshold: float, reason: str, kind: str | None) -> None:
    given = [Response(one, kind=kind) for one in "aaaaaa"]
    assert ValueStop(EVERY, 5.0)(given).stop
    decision = decide(Agreement(EVERY, threshold) | ValueStop(EVERY, 5.0), given)
    assert (decision.reason, decision.undecided) == (reason, reason == "worth")


def test_of_parts_the_one_that_is_undecided_names_the_reason() -> None:
    calls = [Response(answer, kind="search") for answer in "abcadaea"]  # they agree on the tool alone
    decision = decide(Agreement(EVERY) | ValueStop(EVERY, 5.0), calls)
    assert (decision.parts["kind"].reason, decision.reason) == ("agreement", "worth")


@pytest.mark.parametrize(("weak", "strong", "stops"), [(1.0, 1.0, True), (-2.0, 6.0, False)])
def test_counts_say_nothing_of_another_leader(weak: float, strong: float, stops: bool) -> None:
    """Six answers that all differ but for a pair are hopeless by their count, unless the score favours another one."""
    given = [Response(answer, score=strong if answer == "b" else weak) for answer in "aabcde"]
    vote = BayesianVote(LogisticOdds(Standardizer(0.0, 1.0), slope=0.5, intercept=0.0), 0.999)
    counted, weighed = ValueStop(EVERY, 1.0), ValueStop(EVERY, 1.0, vote=vote)
    assert counted(given).stop and not counted.reads_scores
    assert (weighed(given).stop, weighed.reads_scores) == (stops, True)
    assert (vote(given).answer == "a") is stops


@pytest.mark.parametrize(
    ("worth", "message"), [(0, "above 0"), (-1, "-1"), (float("nan"), "nan"), (float("inf"), "inf")]
)
def test_what_is_no_worth(worth: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ValueStop(EVERY, worth)


def test_it_does_not_look_further_ahead_than_it_can() -> None:
    assert not ValueStop(EVERY, 5.0, 24)(responses("ab")).stop
    with pytest.raises(ConfigurationError, match="at most 24 for this rule, got 25"):
        ValueStop(EVERY, 5.0, 25)


def test_every_component_is_looked_ahead_with() -> None:
    for component in default_components():
        assert decide(ValueStop(Prior((component,), (1.0,)), 5.0) | Cap(16), responses("aabacbaaadaaeaaa")).stop
