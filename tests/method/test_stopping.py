"""Stopping rules by hand: when each stops, with which answer, and why; how they compose; what they refuse."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from langchain_reasc.exceptions import ConfidenceError, ConfigurationError, LogprobsUnavailable
from langchain_reasc.method import (
    ASC,
    ESC,
    Agreement,
    ByField,
    Cap,
    FiniteHorizon,
    FixedBudget,
    Lead,
    Prior,
    ReASC,
    Response,
    Standardizer,
    StoppingRule,
    decide,
    fewest_further,
)

from .by_hand import SCORES, outcome, responses

UNIT = Standardizer(mean=0.0, std=1.0)
SCORED = Agreement(Prior.uniform(), 0.9, scores=SCORES)
HEAVY = math.log(3.5) / 0.7  # z of a weight of 3.5: enough to stop alone


@pytest.mark.parametrize(
    ("rule", "answers", "expected"),
    [
        (FixedBudget(1), "ab", (True, "a", "budget", 1)),
        (Cap(4), "abbc", (True, "b", "budget", 4)),
        (Cap(4), "abb", (False, "b", None, 3)),
        (Cap(2), "--", (True, None, "budget", 2)),
        (ASC(), "aaaab", (True, "a", "evidence", 4)),
        (ASC(), "a-aa-a", (True, "a", "evidence", 6)),
        (ASC(confidence=0.9), "aaa", (True, "a", "evidence", 3)),
        (ESC(4), "aaaa", (True, "a", "window", 4)),
        (ESC(4), "baaaa", (False, "a", None, 5)),
        (ESC(4), "abbbbbbb", (True, "b", "window", 8)),
        (ESC(3), "---aaa", (True, "a", "window", 6)),
        (ESC(3), "aa-", (False, "a", None, 3)),
        (Lead(1), "ab", (True, "a", "evidence", 1)),
        (Lead(2), "abaa", (True, "a", "evidence", 4)),
        (Lead(2), "abc-aa", (True, "a", "evidence", 6)),
        (Lead(3), "aaa", (True, "a", "evidence", 3)),
        (Lead(3), "ababab", (False, "a", None, 6)),
        (Lead(3), "-----", (False, None, None, 5)),
        (Lead() | Cap(4), "abab", (True, "a", "budget", 4)),
        (ESC(4) | Cap(6), "abcaab", (True, "a", "budget", 6)),
        (ASC() | Cap(3), "aaaa", (True, "a", "budget", 3)),
        (ASC() & Cap(6), "aaaaaa", (True, "a", "evidence", 6)),
        (ASC() & Cap(6), "aaaa", (False, "a", None, 4)),
        (ASC() & Cap(2), "aab", (False, "a", None, 3)),
        (ASC() & Cap(6) | Cap(5), "aaaaaa", (True, "a", "budget", 5)),
    ],
    ids=str,
)
def test_rules_by_hand(rule: StoppingRule, answers: str, expected: tuple[bool, str | None, str | None, int]) -> None:
    assert outcome(decide(rule, responses(answers))) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(4, 0, 0.96875), (6, 1, 0.96484375), (8, 2, 0.96728515625), (9, 3, 0.953857421875)],
)
def test_asc_stops_where_the_peers_code_does(first: int, second: int, expected: float) -> None:
    given = responses("b" * second + "a" * first)
    decision = decide(ASC(), given)
    assert outcome(decision) == (True, "a", "evidence", len(given))
    assert decision.posterior == pytest.approx(expected, abs=1e-12)
    assert not decide(ASC(), given[:-1]).stop, "one vote fewer must go on"


def test_esc_answers_with_its_window_not_the_majority() -> None:
    """Windows ab, ac, ca, bb: the last is unanimous on b, while a and b have three votes each and a came first."""
    decision = decide(ESC(2), responses("abaccabb"))
    assert outcome(decision) == (True, "b", "window", 8)
    assert decision.evidence == {"a": 3.0, "b": 3.0, "c": 2.0}


@pytest.mark.parametrize(
    ("gate", "answers", "scores", "expected", "stage"),
    [
        (1.0, "a", [1.0], (True, "a", "gate", 1), 1),
        (1.0, "a", [0.999], (False, "a", None, 1), 2),
        (1.0, "a", [HEAVY], (True, "a", "gate", 1), 1),
        (1.0, "aa", [0.0, HEAVY], (True, "a", "evidence", 2), 2),  # the gate reads only the first
        (1.0, "-", [5.0], (False, None, None, 1), 2),
        (None, "a", [1.7], (False, "a", None, 1), 2),
        (None, "a", [HEAVY], (True, "a", "evidence", 1), 2),
        (1.0, "aaaa", [-5.0] * 4, (True, "a", "evidence", 4), 2),
    ],
)
def test_the_gate_accepts_a_first_response(
    gate: float | None, answers: str, scores: list[float], expected: tuple[object, ...], stage: int
) -> None:
    decision = decide(ReASC(UNIT, gate=gate), responses(answers, scores))
    assert (outcome(decision), decision.stage) == (expected, stage)


def test_a_cut_off_response_is_never_accepted_alone() -> None:
    for rule, score in ((ReASC(UNIT, gate=1.0), 1.5), (SCORED, 9.0)):
        assert rule.first_wave == 1 and rule.reads_scores
        assert rule([Response("a", score)]).stop
        assert not rule([Response("a", score, cut_off=True)]).stop
        assert rule([Response("a", score, cut_off=True), Response("a", score)]).stop


def test_the_rejected_first_response_is_the_first_vote_of_stage_two() -> None:
    scores = [0.9, 0.8]
    decision = decide(ReASC(UNIT, gate=1.0), responses("aa", scores))
    assert decision.evidence == {"a": pytest.approx(sum(math.exp(0.7 * z) for z in scores))}
    assert decision.posterior == pytest.approx(1 - 0.5 ** (decision.evidence["a"] + 1))


def test_confidence_outvotes_the_majority_and_a_composed_rule_weighs_as_its_left() -> None:
    """Weights a: 1 + 1, b: e^(0.7·2.5) = 5.75; counting says a, the evidence says b."""
    given = responses("aab", [-1.0, 0.0, 2.5])
    weights = [1.0, 1.0, pytest.approx(math.exp(1.75))]
    for rule in (ReASC(UNIT) | Cap(3), (ReASC(UNIT) | Cap(9)) | Cap(3), ReASC(UNIT, confidence=0.51) & Cap(3)):
        decision = decide(rule, given)
        assert (decision.answer, decision.evidence, rule.weights(given)) == ("b", {"a": 2.0, "b": weights[2]}, weights)
    assert decide(ReASC(UNIT, weight="count") | Cap(3), given).answer == "a"
    assert decide(Cap(3) | ReASC(UNIT), given).evidence == {"a": 2.0, "b": 1.0}


def test_a_missing_score_is_an_error_where_sampling_gets_there_or_counts_as_a_vote() -> None:
    for rule, scores in (
        (ReASC(UNIT), [0.5, None]),
        (ReASC(UNIT, gate=1.0), [0.0, None]),
        (ReASC(UNIT, gate=-9), [None]),
    ):
        with pytest.raises(LogprobsUnavailable, match="on_missing_confidence='count'"):
            decide(rule, responses("a" * len(scores), scores))
    assert decide(ReASC(UNIT, gate=1.0), responses("aa", [2.0, None])).reason == "gate"
    lenient = ReASC(UNIT, gate=-9.0, on_missing_confidence="count")
    assert not decide(lenient, responses("a", [None])).stop  # it never passes the gate
    assert lenient(responses("aa", [0.5, None])).evidence == {"a": pytest.approx(math.exp(0.35) + 1)}
    assert decide(ReASC(UNIT, weight="count"), responses("aa", [0.5, None])).evidence == {"a": 2.0}
    assert decide(ReASC(UNIT), responses("-a", [None, 0.0])).evidence == {"a": 1.0}  # no vote needs no score


@pytest.mark.parametrize("confidence", [0.51, 0.75, 0.76, 0.95, 0.999])
def test_the_earliest_stop_is_that_of_answers_that_are_all_alike(confidence: float) -> None:
    for rule in (ASC(confidence), FiniteHorizon(confidence), FiniteHorizon(confidence, budget=5)):
        decision = decide(rule, responses("a" * 16))
        assert decision.samples == rule.first_wave if decision.stop else rule.first_wave == 5
    for k in (1, 2, 3):
        assert decide(Lead(k), responses("a" * 16)).samples == Lead(k).first_wave == k


def test_a_score_is_a_finite_number() -> None:
    for score in (math.nan, -math.inf):
        with pytest.raises(ConfidenceError, match=str(score)):
            Response("a", score)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cap(0), ">= 1, got 0"),
        (lambda: ESC(0), "got 0"),
        (lambda: Lead(0), "lead .*got 0"),
        (lambda: Lead(2.5), "lead .*got 2.5"),  # type: ignore[arg-type]
        (lambda: ASC(confidence=1.0), "confidence .* got 1.0"),
        (lambda: ASC(confidence=0.5), "got 0.5"),  # what no votes at all reach
        (lambda: ASC(confidence=math.nan), "got nan"),
        (lambda: ReASC(UNIT, confidence=95), "got 95"),
        (lambda: ReASC(UNIT, weight="heavy"), "'heavy'.*reasc, count"),
        (lambda: ReASC(UNIT, on_missing_confidence="ignore"), "'ignore'"),  # type: ignore[arg-type]
        (lambda: ReASC(Standardizer(0.0, math.nan)), "σ .*got nan"),
        (lambda: FiniteHorizon(0.5), "phi"),
        (lambda: FiniteHorizon(budget=2.5), "an integer >= 1"),  # type: ignore[arg-type]
        (lambda: Agreement(Prior.uniform(), threshold=1.0), "threshold"),
        (lambda: Agreement(Prior.uniform(), budget=0), ">= 1, got 0"),
        (lambda: FiniteHorizon(budget=10**9), "10,000 .*got 1000000000"),  # would look ahead for ever
        (lambda: Cap(10_001), "10,000 .*got 10001"),
        (lambda: replace(SCORES, knots=()), "two or more knots"),
        (lambda: replace(SCORES, knots=((1.0, 0.0),)), "two or more knots"),
        (lambda: replace(SCORES, knots=((1.0, 0.0), (1.0, 2.0))), "strictly ascending"),
        (lambda: replace(SCORES, knots=((0.0, 1.0), (math.nan, 2.0))), "strictly ascending"),
        (lambda: replace(SCORES, question_variance=0.0), "variances .*above 0"),
        (lambda: replace(SCORES, answer_variance=-0.1), "variances .*above 0"),
        (lambda: replace(SCORES, response_variance=0.0), "variances .*above 0"),
        (lambda: ByField(ASC(), tolerance={"n": -1}), "tolerance"),
        (lambda: ByField(ASC(), tolerance={"n": math.nan}), "tolerance"),
    ],
)
def test_wrong_parameters_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


@pytest.mark.parametrize(
    ("rule", "answers", "expected"),
    [
        (ASC(), "", 4),
        (ASC(), "a", 3),
        (ASC(), "aaa", 1),
        (ASC(), "aab", 4),
        (ASC(), "---", 4),
        (ASC(0.85), "", 2),
        (ASC(0.85), "a", 1),
        (FiniteHorizon(), "a", 3),
        (Cap(16), "a", 15),
        (ASC() | Cap(3), "ab", 1),
        (ASC() & Cap(6), "aaaa", 2),
        (ESC(4), "a", 3),
        (ESC(4), "aabcd", 3),  # the last answer fills its window first
        (Agreement(Prior.uniform()), "a", 2),
        (ReASC(UNIT), "", 16),  # whose scores nobody knows
        (ReASC(UNIT), "a", 3),
        (ByField(ASC()), "aa", 2),
    ],
    ids=str,
)
def test_no_fewer_further_responses_can_decide_than_are_foreseen(
    rule: StoppingRule, answers: str, expected: int
) -> None:
    given = responses(answers, score=0.0)
    assert fewest_further(rule, given, 16) == expected
    fewer = [given + responses(letter * (expected - 1), score=0.0) for letter in "abcdefz"]
    assert rule.reads_scores or not any(decide(rule, one).stop for one in fewer)
    if expected < 16:
        assert any(decide(rule, [*given, *responses(letter * expected, score=0.0)]).stop for letter in "abcdefz")


def test_the_heaviest_response_with_an_answer_tells_how_many_more_could_decide() -> None:
    assert fewest_further(ReASC(UNIT), responses("aab", [-1.0, 1.0, 0.0]), 8) == 2
    assert fewest_further(ASC(), [*responses("ab", kind="call"), *responses("c")], 8) == 5


@pytest.mark.parametrize("confidence", [0.501, 0.75, 0.85, 0.9375, 0.95, 0.96875, 0.99, 0.998046875, 0.9999])
def test_asc_stops_at_the_earliest_where_all_agree(confidence: float) -> None:
    rule = ASC(confidence)
    assert decide(rule, responses("a" * 20)).samples == rule.first_wave
    assert not rule(responses("a" * (rule.first_wave - 1))).stop
