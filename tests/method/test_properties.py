"""Properties of every decision, looked for with hypothesis."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_reasc.method import (
    ASC,
    ESC,
    SCORES,
    WEIGHTS,
    Cap,
    ReASC,
    Response,
    Standardizer,
    StoppingRule,
    decide,
    leader,
    posterior,
    response_score,
)

answers = st.sampled_from(["a", "b", "c", "d", None])
scores = st.floats(-5, 5, allow_nan=False)
responses = st.lists(st.builds(Response, answers, scores), max_size=20)
evidences = st.dictionaries(st.sampled_from("abcde"), st.floats(0, 50), max_size=5)
standardizers = st.builds(Standardizer, mean=st.floats(0.1, 2), std=st.floats(0.2, 3), scale=st.floats(0.1, 2))
confidences = st.floats(0.55, 0.99)
reasc = st.builds(
    ReASC, standardizers, gate=st.none() | scores, weight=st.sampled_from(sorted(WEIGHTS)), confidence=confidences
)
simple: st.SearchStrategy[StoppingRule] = st.one_of(
    st.builds(Cap, st.integers(1, 20)), st.builds(ASC, confidences), st.builds(ESC, st.integers(1, 5)), reasc
)
rules = st.one_of(simple, st.builds(lambda a, b: a | b, simple, simple), st.builds(lambda a, b: a & b, simple, simple))


@given(st.permutations("abc"), st.integers(1, 6))
def test_ties_go_to_the_answer_seen_first(order: list[str], votes: int) -> None:
    tied = [Response(answer, 0.0) for answer in order * votes]
    for rule in (Cap(len(tied)), ReASC(Standardizer(0.0, 1.0)) | Cap(len(tied))):
        assert decide(rule, tied).answer == order[0]


@given(responses)
def test_the_answer_has_the_most_evidence_and_the_earliest_of_equals(given: list[Response]) -> None:
    decision = Cap()(given)
    tied = {a for a, weight in decision.evidence.items() if weight == max(decision.evidence.values())}
    assert decision.answer == next((r.answer for r in given if r.answer in tied), None)


@given(evidences, st.floats(0, 50))
def test_a_vote_for_the_leader_never_lowers_the_posterior(evidence: dict[str, float], weight: float) -> None:
    first = leader(evidence) or "a"
    assert posterior({**evidence, first: evidence.get(first, 0.0) + weight}) >= posterior(evidence) - 1e-12


@given(evidences)
def test_the_posterior_is_a_probability_of_leading(evidence: dict[str, float]) -> None:
    assert 0.5 - 1e-12 <= posterior(evidence) <= 1.0


@given(standardizers, st.sampled_from(sorted(WEIGHTS)), scores, scores)
def test_no_weight_falls_with_confidence(by: Standardizer, weight: str, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= WEIGHTS[weight](low, by) <= WEIGHTS[weight](high, by)


@given(responses, confidences)
def test_count_weights_are_asc(given: list[Response], confidence: float) -> None:
    counting = ReASC(Standardizer(0.0, 1.0), weight="count", confidence=confidence)
    assert decide(counting, given) == decide(ASC(confidence), given)


@given(rules, responses, st.floats(-5, 5))
def test_a_response_without_answer_never_votes(rule: StoppingRule, given: list[Response], score: float) -> None:
    before, after = rule(given), rule([*given, Response(None, score)])
    assert after.evidence == before.evidence
    assert after.posterior == before.posterior
    assert None not in after.evidence


@given(rules, responses.filter(bool), st.randoms(use_true_random=False))
def test_the_order_of_completion_is_not_visible(
    rule: StoppingRule, given: list[Response], chance: random.Random
) -> None:
    """Responses arrive in any order; each time, what is there of the launch order without a gap is decided on."""
    arrival = list(range(len(given)))
    chance.shuffle(arrival)
    arrived: dict[int, Response] = {}
    for index in arrival:
        arrived[index] = given[index]
        gapless = next((n for n in range(len(given)) if n not in arrived), len(given))
        decision = decide(rule, [arrived[n] for n in range(gapless)])
        if decision.stop:
            break
    assert decision == decide(rule, given)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60), st.integers(0, 5), st.sampled_from(sorted(SCORES)))
def test_a_window_as_long_as_the_response_is_the_mean(tokens: list[float], beyond: int, score: str) -> None:
    mean = response_score(tokens, score="mean")
    assert response_score(tokens, score=score, window=len(tokens) + beyond) == pytest.approx(mean, rel=1e-12, abs=1e-9)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60), st.integers(1, 60))
def test_scores_are_ordered(tokens: list[float], window: int) -> None:
    lowest, bottom, average = (
        response_score(tokens, score=score, window=window)
        for score in ("lowest_group", "bottom_group", "average_group")
    )
    assert min(tokens) - 1e-9 <= lowest <= bottom + 1e-9 <= average + 2e-9 <= max(tokens) + 3e-9
