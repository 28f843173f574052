"""The agreement rule on counts, and its prior: likelihoods, and looking ahead to every continuation."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import (
    Agreement,
    Cap,
    Component,
    Prior,
    Response,
    decide,
    default_components,
    likelihoods,
    stays,
    stays_ahead,
)

from .by_hand import outcome, responses

PRIOR = Prior.uniform()
COUNTED = Agreement(PRIOR)


def test_it_stops_when_the_leader_hardly_changes() -> None:
    assert COUNTED.leader_stays({"a": 4}, 12) == PRIOR.leader_stays([4], 16)
    enough = next(n for n in range(1, 17) if PRIOR.leader_stays([n], 16) >= 0.9)
    ended = decide(Agreement(PRIOR, 0.9), responses("a" * 16))
    assert outcome(ended) == (True, "a", "agreement", enough) and ended.evidence == {"a": enough}
    assert outcome(decide(Agreement(PRIOR, 0.6, budget=4) | Cap(4), responses("aaaa")))[3] < 4


@pytest.mark.parametrize(
    ("budget", "answers", "stays"),
    [
        (16, "aa-", PRIOR.leader_stays([2], 15)),  # a response without an answer uses a call
        (5, "--a-", PRIOR.leader_stays([1], 2)),
        (4, "--a-", 1.0),  # nothing can change it, which is no agreement
        (4, "abab", 0.5),
        (3, "abcc-", 1.0),
        (3, "----", 0.0),
        (40, "aaaa", PRIOR.leader_stays([4], 40)),
        (40, "aaaa-", PRIOR.leader_stays([4], 40)),  # beyond 24 answers, one horizon serves them all
        (40, "aaaa" + "-" * 16, PRIOR.leader_stays([4], 24)),
        (40, "a" * 13 + "b" * 11, stays_ahead(13, 11, 16)),  # from the 24th on the two leading answers decide
        (40, "a" * 20 + "b" * 12, stays_ahead(20, 12, 8)),
    ],
)
def test_the_probability_by_hand(budget: int, answers: str, stays: float) -> None:
    rule = Agreement(PRIOR, budget=budget)
    decision = rule(responses(answers))
    assert rule.leader_stays(decision.evidence, budget - len(answers)) == pytest.approx(stays)
    assert decision.posterior == pytest.approx(stays)
    assert decision.stop == (stays >= 0.97 and budget > len(answers))


def test_with_the_budget_spent_a_tie_is_not_decided() -> None:
    rule = Agreement(PRIOR, budget=4)
    assert not rule(responses("abab")).stop
    assert outcome(decide(rule | Cap(4), responses("abab"))) == (True, "a", "budget", 4)
    assert rule(responses("ababb")).answer == "b"  # more than the budget, as when several run at once


def test_a_first_response_decides_where_answers_always_agree_but_not_when_cut_off() -> None:
    always = Agreement(Prior((Component(0.0, 1e-4),), (1.0,)))
    assert always([Response("a")]).stop
    assert not always([Response("a", cut_off=True)]).stop
    assert always([Response("a", cut_off=True), Response("a")]).stop


def test_counts_read_no_scores() -> None:
    assert (COUNTED.reads_scores, COUNTED.first_wave) == (False, None)
    assert COUNTED.weights(responses("ab")) == [1.0, 1.0]
    assert COUNTED(responses("aab", [3.0, -9.0, None])) == COUNTED(responses("aab"))


def agreeing(prior: Prior, answers: str) -> float:
    """P(one further response gives the first answer | these), by the likelihoods with it and without."""
    counts = [answers.count(answer) for answer in dict.fromkeys(answers)]
    after, before = likelihoods([[counts[0] + 1, *counts[1:]], counts], prior.components)
    return float(np.dot(prior.weights, after) / np.dot(prior.weights, before))


@pytest.mark.parametrize("answers", ["a", "aa", "aab", "abc", "a" * 13 + "b" * 12, "a" * 30])
def test_it_tells_how_likely_one_more_response_agrees(answers: str) -> None:
    for budget in (4, 16, 40):
        decision = Agreement(PRIOR, budget=budget)(responses(answers))
        assert decision.answer == "a" and decision.agrees == pytest.approx(agreeing(PRIOR, answers))
    assert Agreement(PRIOR)(responses("--")).agrees is None


PROCESSES = (Component(0.0, 1.0), Component(0.6, 0.3), Component(-1.0, 2.0), Component(-0.2, 0.6))


def predicted(component: Component, counts: Sequence[int], answer: int | None) -> float:
    """P(the next answer is the one of this place; None: a new one | counts), of Pitman and Yor."""
    discount, concentration = component
    whole = sum(counts) + concentration
    if answer is not None:
        return (counts[answer] - discount) / whole
    return max(0.0, concentration + len(counts) * discount) / whole


def continuations(component: Component, counts: list[int], horizon: int) -> Iterator[tuple[float, list[int]]]:
    """Every way in which answers go on to the horizon, with its probability."""
    if sum(counts) == horizon:
        yield 1.0, counts
        return
    for at in [*range(len(counts)), None]:
        after = [*counts, 1] if at is None else [count + (place == at) for place, count in enumerate(counts)]
        for probability, end in continuations(component, after, horizon):
            yield predicted(component, counts, at) * probability, end


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_a_likelihood_is_the_product_of_predictions_in_any_order(history: list[int]) -> None:
    expected = np.ones(len(PROCESSES))
    seen: Counter[int] = Counter()
    for answer in history:
        at = list(seen).index(answer) if answer in seen else None
        expected *= [predicted(one, list(seen.values()), at) if seen else 1.0 for one in PROCESSES]
        seen[answer] += 1
    for counts in (list(seen.values()), list(seen.values())[::-1]):
        assert likelihoods([counts], PROCESSES)[0] == pytest.approx(expected)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(0, 3))
def test_looking_ahead_is_the_sum_over_all_continuations(counts: list[int], more: int) -> None:
    def leads(end: list[int]) -> float:
        return 0.0 if end[0] < max(end) else 1 / end.count(max(end))

    horizon = sum(counts) + more
    expected = [sum(p * leads(end) for p, end in continuations(one, counts, horizon)) for one in PROCESSES]
    assert stays(counts, horizon, PROCESSES) == pytest.approx(np.array(expected))


@pytest.mark.parametrize(
    ("counts", "horizon", "low", "high"),
    [
        ([2, 2, 2], 6, 1 / 3, 1 / 3),
        ([2, 1], 3, 1, 1),
        ([1, 2], 3, 0, 0),
        ([3, 3, 1], 12, 0.35, 0.49),
        ([4], 24, 0.5, 1),
    ],
)
def test_answers_that_are_equal_in_the_end_share_the_lead(
    counts: list[int], horizon: int, low: float, high: float
) -> None:
    assert low - 1e-9 <= PRIOR.leader_stays(counts, horizon) <= high + 1e-9
    others = [counts[0], *counts[:0:-1]]
    assert PRIOR.leader_stays(others, horizon) == PRIOR.leader_stays(counts, horizon)


@pytest.mark.full
@pytest.mark.parametrize("budget", [24, 40, 64, 128])
@pytest.mark.parametrize("evenness", [1.0, 5.0])
def test_the_promise_holds_at_every_budget(budget: int, evenness: float) -> None:
    """Of two answers whose shares are Beta(evenness, evenness), which the prior knows."""
    rule = Agreement(Prior((Component(-evenness, 2 * evenness),), (1.0,)), 0.97, budget)
    rng, kept = np.random.default_rng(budget), list[float]()
    for share in rng.beta(evenness, evenness, 600):
        answers = np.where(rng.random(budget) < share, "a", "b").tolist()
        decision = decide(rule | Cap(budget), responses("".join(answers)))
        if decision.reason == "agreement":
            count = answers.count(decision.answer or "")
            kept.append(0.5 if 2 * count == budget else float(2 * count > budget))
    assert len(kept) > 400 and np.mean(kept) >= 0.965


def test_counts_weigh_the_components_by_how_likely_they_are_under_each() -> None:
    prior = Prior((Component(0.0, 1.0), Component(-1.0, 2.0)), (0.25, 0.75))
    likely = 0.25 * (1 / 2 * 1 / 3) * 2, 0.75 * (1 / 3 * 1 / 2) * 2  # of 2 : 1 answers, up to what is common
    assert prior.posterior([2, 1]) == pytest.approx(np.array(likely) / sum(likely))
    assert prior.posterior([2, 1, 1]).tolist() == [1.0, 0.0]  # two answers are all that the second allows
    two = Prior((Component(-1.0, 2.0), Component(-0.2, 0.4)), (0.25, 0.75))
    assert two.posterior([2, 1, 1]).tolist() == [0.25, 0.75]  # neither allows it, so nothing is learned
    for counts in ([200], [150, 50, 1], [1] * 200):
        assert PRIOR.posterior(counts).sum() == pytest.approx(1.0)


def test_what_is_no_prior_and_no_horizon() -> None:
    for weights in ((1.0,), (0.5, 0.6), (1.5, -0.5)):
        with pytest.raises(ConfigurationError):
            Prior(PROCESSES[:2], weights)
    with pytest.raises(ConfigurationError, match=r"answer.* got 0"):
        PRIOR.leader_stays([4], 0)
    components = default_components()
    assert len(set(components)) == len(components)
    assert all(one.discount < 1 and one.concentration > -one.discount for one in components)
