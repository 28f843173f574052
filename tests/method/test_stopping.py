"""Stopping rules by hand: when each stops, with which answer, and why; how they compose; what they refuse."""

import math
from collections.abc import Callable

import pytest
from langchain_reasc_lab.rules import CGES

from langchain_reasc.exceptions import ConfidenceError, ConfigurationError, LogprobsUnavailable
from langchain_reasc.method import (
    ASC,
    ESC,
    Agreement,
    BayesianVote,
    ByField,
    CannotCatchUp,
    Cap,
    FiniteHorizon,
    FixedBudget,
    LogisticOdds,
    PointOdds,
    Prior,
    ReASC,
    Response,
    Standardizer,
    StoppingRule,
    decide,
)

from .by_hand import outcome, responses

UNIT = Standardizer(mean=0.0, std=1.0)
EVEN, PRIOR = LogisticOdds(UNIT, slope=1.0, intercept=0.0), Prior.uniform()
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
        (ASC(), "-----", (False, None, None, 5)),
        (ASC(confidence=0.9), "aaa", (True, "a", "evidence", 3)),
        (ESC(4), "aaaa", (True, "a", "window", 4)),
        (ESC(4), "baaaa", (False, "a", None, 5)),
        (ESC(4), "abbbbbbb", (True, "b", "window", 8)),
        (ESC(2), "abcabb", (True, "b", "window", 6)),
        (ESC(3), "---aaa", (True, "a", "window", 6)),
        (ESC(3), "aa-", (False, "a", None, 3)),
        (ESC(1), "-a", (True, "a", "window", 2)),
        (ESC(4) | Cap(6), "abcaab", (True, "a", "budget", 6)),
        (ASC() | Cap(3), "aaaa", (True, "a", "budget", 3)),
        (ASC() | Cap(4), "aaaa", (True, "a", "evidence", 4)),
        (ASC() & Cap(6), "aaaaaa", (True, "a", "evidence", 6)),
        (ASC() & Cap(6), "aaaa", (False, "a", None, 4)),
        (ASC() & Cap(2), "aab", (False, "a", None, 3)),
        (ASC() & Cap(6) | Cap(5), "aaaaaa", (True, "a", "budget", 5)),
        ((ESC(2) | Cap(9)) & Cap(4), "aabb", (True, "a", "window", 4)),
    ],
    ids=str,
)
def test_rules_by_hand(rule: StoppingRule, answers: str, expected: tuple[bool, str | None, str | None, int]) -> None:
    assert outcome(decide(rule, responses(answers))) == expected


def test_esc_answers_with_its_window_not_the_majority() -> None:
    """Windows ab, ac, ca, bb: the last is unanimous on b, while a and b have three votes each and a came first."""
    decision = decide(ESC(2), responses("abaccabb"))
    assert outcome(decision) == (True, "b", "window", 8)
    assert decision.evidence == {"a": 3.0, "b": 3.0, "c": 2.0}
    assert decide(Cap(8), responses("abaccabb")).answer == "a"


@pytest.mark.parametrize(
    ("gate", "scores", "expected"),
    [
        (1.0, [1.0], (True, "a", "gate", 1)),
        (1.0, [0.999], (False, "a", None, 1)),
        (1.0, [0.0, 1.1], (False, "a", None, 2)),
        (None, [1.7], (False, "a", None, 1)),
        (None, [HEAVY], (True, "a", "evidence", 1)),
        (1.0, [-5.0, -5.0, -5.0, -5.0], (True, "a", "evidence", 4)),
    ],
    ids=["accepted at τ", "just below τ", "gate reads only the first", "closed", "heavy vote alone", "four low votes"],
)
def test_stage_one_reads_only_the_first(gate: float | None, scores: list[float], expected: tuple[object, ...]) -> None:
    assert outcome(decide(ReASC(UNIT, gate=gate), responses("a" * len(scores), scores))) == expected


def test_stage_of_a_decision() -> None:
    rule = ReASC(UNIT, gate=1.0)
    assert decide(rule, responses("a", [1.0])).stage == 1
    assert decide(rule, responses("a", [HEAVY])).stage == 1
    assert decide(rule, responses("aa", [0.0, HEAVY])).stage == 2


def test_the_gate_does_not_accept_a_response_without_answer() -> None:
    assert not decide(ReASC(UNIT, gate=1.0), responses("-", [5.0])).stop


def test_the_rejected_first_response_is_the_first_vote_of_stage_two() -> None:
    scores = [0.9, 0.8]
    decision = decide(ReASC(UNIT, gate=1.0), responses("aa", scores))
    assert decision.evidence == {"a": pytest.approx(sum(math.exp(0.7 * z) for z in scores))}
    assert decision.posterior == pytest.approx(1 - 0.5 ** (decision.evidence["a"] + 1))


def test_confidence_outvotes_the_majority() -> None:
    """Weights a: 1 + 1, b: e^(0.7·2.5) = 5.75; counting says a, the evidence says b."""
    given = responses("aab", [-1.0, 0.0, 2.5])
    assert decide(ReASC(UNIT) | Cap(3), given).answer == "b"
    assert decide(ReASC(UNIT, weight="count") | Cap(3), given).answer == "a"


def test_composition_keeps_the_evidence_of_the_left() -> None:
    given = responses("aab", [0.0, 0.0, 2.0])
    weighed = {"a": 2.0, "b": pytest.approx(math.exp(1.4))}
    for rule in (ReASC(UNIT) | Cap(3), (ReASC(UNIT) | Cap(9)) | Cap(3)):
        assert decide(rule, given).evidence == weighed
        assert rule.weights(given) == [1.0, 1.0, pytest.approx(math.exp(1.4))]
    assert decide(Cap(3) | ReASC(UNIT), given).evidence == {"a": 2.0, "b": 1.0}
    assert (ReASC(UNIT) & Cap(3)).weights(given) == ReASC(UNIT).weights(given)


def test_a_missing_score_is_an_error_or_an_announced_count() -> None:
    given = responses("aa", [0.5, None])
    with pytest.raises(LogprobsUnavailable, match="on_missing_confidence='count'"):
        decide(ReASC(UNIT), given)
    counted = decide(ReASC(UNIT, on_missing_confidence="count"), given)
    assert counted.evidence == {"a": pytest.approx(math.exp(0.35) + 1)}
    assert decide(ReASC(UNIT, weight="count"), given).evidence == {"a": 2.0}


def test_a_missing_score_is_an_error_only_where_sampling_gets_there() -> None:
    rule = ReASC(UNIT, gate=1.0) | Cap(4)
    assert decide(rule, responses("aa", [2.0, None])).reason == "gate"
    with pytest.raises(LogprobsUnavailable):
        decide(rule, responses("aa", [0.0, None]))


@pytest.mark.parametrize("confidence", [0.51, 0.75, 0.76, 0.9375, 0.95, 0.999])
def test_the_earliest_stop_is_that_of_answers_that_are_all_alike(confidence: float) -> None:
    for rule in (ASC(confidence), FiniteHorizon(confidence), FiniteHorizon(confidence, budget=5)):
        decision = decide(rule, responses("a" * 16))
        assert decision.samples == rule.earliest if decision.stop else rule.earliest == 5


def test_a_missing_score_never_passes_the_gate() -> None:
    rule = ReASC(UNIT, gate=-9.0, on_missing_confidence="count")
    assert not decide(rule, responses("a", [None])).stop
    with pytest.raises(LogprobsUnavailable):
        decide(ReASC(UNIT, gate=-9.0), responses("a", [None]))


def test_no_answer_needs_no_score() -> None:
    decision = decide(ReASC(UNIT), responses("-a", [None, 0.0]))
    assert (decision.answer, decision.evidence) == ("a", {"a": 1.0})


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_is_a_finite_number(score: float) -> None:
    with pytest.raises(ConfidenceError, match=str(score)):
        Response("a", score)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cap(0), "at least 1 sample, got 0"),
        (lambda: FixedBudget(-3), "got -3"),
        (lambda: ESC(0), "at least 1 response, got 0"),
        (lambda: ASC(confidence=1.0), "confidence .* got 1.0"),
        (lambda: ASC(confidence=0.5), "got 0.5"),  # what no votes at all reach
        (lambda: ASC(confidence=math.nan), "got nan"),
        (lambda: ReASC(UNIT, confidence=95), "got 95"),
        (lambda: ReASC(UNIT, weight="heavy"), "'heavy'.*reasc, exponential"),
        (lambda: ReASC(UNIT, on_missing_confidence="ignore"), "'error' or 'count', got 'ignore'"),
        (lambda: ReASC(Standardizer(0.0, 0.0)), "σ must be above zero, got 0.0"),
        (lambda: ReASC(Standardizer(0.0, math.nan)), "got nan"),
        (lambda: FiniteHorizon(0.5), r"phi is a probability above 0\.5"),
        (lambda: FiniteHorizon(math.nan), r"phi is a probability above 0\.5"),
        (lambda: FiniteHorizon(budget=2.5), "a whole number of at least 1 sample"),  # type: ignore[arg-type]
        (lambda: CannotCatchUp(0), "a whole number of at least 1 sample"),
        (lambda: Agreement(PRIOR, threshold=1.0), "threshold is a probability"),
        (lambda: Agreement(PRIOR, threshold=math.nan), "threshold is a probability"),
        (lambda: Agreement(PRIOR, budget=0), "at least 1 sample, got 0"),
        (lambda: BayesianVote(EVEN, threshold=0.5), "threshold is a probability above 0.5"),
        (lambda: BayesianVote(EVEN, alternatives=0.5), "alternatives is a finite number of at least 1"),
        (lambda: BayesianVote(EVEN, floor=-0.1), "floor is a finite number of at least 0"),
        (lambda: BayesianVote(EVEN, on_missing_confidence="guess"), "'error' or 'count', got 'guess'"),  # type: ignore[arg-type]
        (lambda: CGES(EVEN, answers=1), "at least 2 possible answers, got answers=1"),
        (lambda: LogisticOdds(UNIT, math.inf, 0.0), "slope and intercept are finite"),
        (lambda: PointOdds((), average=0.0), "ascend strictly"),
        (lambda: PointOdds(((1.0, 0.0), (1.0, 2.0)), average=0.0), "ascend strictly"),
        (lambda: PointOdds(((1.0, 0.0), (0.0, 2.0)), average=0.0), "ascend strictly"),
        (lambda: PointOdds(((0.0, 1.0), (math.nan, 2.0)), average=0.0), "ascend strictly"),
        (lambda: ByField(ASC(), tolerance={"n": -1}), "a tolerance is a finite number"),
        (lambda: ByField(ASC(), tolerance={"n": math.nan}), "a tolerance is a finite number"),
    ],
)
def test_wrong_parameters_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()
