"""Other people's rules: by hand, and against their definitions spelled out."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from statistics import fmean

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_reasc_lab.rules import (
    CISC,
    CITE,
    SPRT,
    AheadBy,
    DeepConfFilter,
    DistriVoting,
    LAggregated,
    MajorityCertificate,
)
from method import by_hand
from properties import examples
from scipy.integrate import quad
from scipy.optimize import brentq

from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError, LogprobsUnavailable
from langchain_reasc.method import Cap, PointOdds, Response, StoppingRule, decide

responses = partial(by_hand.responses, score=1.0)


def e_value(won: int, lost: int) -> float:
    """The likelihood ratio, averaged over the Beta(½, ½) prior on winning more than half."""

    def ratio(p: float) -> float:
        return float((2 * p) ** won * (2 * (1 - p)) ** lost / (math.pi * math.sqrt(p * (1 - p))))

    return 2 * quad(ratio, 0.5, 1.0, limit=200)[0]


@pytest.mark.parametrize(
    ("answers", "trials"),
    [
        ("aaaa", ((3, 0), (3, 0))),
        ("abaaaaaaab", ((7, 2), (7, 1))),  # b is all but a, and then the runner-up
        ("aabaaaaacacdaa", ((9, 1), (9, 3))),  # the second c was one, and not the runner-up
        ("-a-aaaaa-", ((5, 0), (5, 0))),
    ],
)
def test_certificate_counts_trials_by_what_led_before(answers: str, trials: tuple[tuple[int, int], ...]) -> None:
    expected = min(e_value(*one) for one in trials)
    certain = MajorityCertificate()(responses(answers)).posterior
    assert certain == pytest.approx(1 - 1 / expected, abs=1e-6)
    assert expected > 1.2


def test_certificate_by_hand() -> None:
    """Unanimous, E passes 20 with the sixth trial, which is the seventh response."""
    decision = decide(MajorityCertificate(), responses("aaaaaaaa"))
    assert (decision.stop, decision.answer, decision.reason, decision.samples) == (True, "a", "evidence", 7)
    assert e_value(5, 0) < 20 <= e_value(6, 0)
    assert not decide(MajorityCertificate(), responses("ab" * 40)).stop
    assert not decide(MajorityCertificate(), responses("-" * 40)).stop


@pytest.mark.full  # computes for long
@pytest.mark.parametrize("rule", [MajorityCertificate(), CITE()])
def test_certificate_is_valid_whenever_one_looks(rule: StoppingRule) -> None:
    """Of 500 questions with two answers as likely, each looked at 30 times, at most 5 % are certified."""
    rng = np.random.default_rng(0)
    drawn = ["".join(row) for row in rng.choice(["a", "b"], (500, 30))]
    certified = sum(decide(rule, responses(answers)).stop for answers in drawn)
    assert certified / len(drawn) <= 0.05


STAKES = [2.0**-k for k in range(1, 8)] + [1 - 2.0**-k for k in range(2, 9)]
HALF_OR_SURE = PointOdds(
    ((0.0, 0.0), (1.0, math.log(9))), average=0.0
)  # a score of 0 is right in 1 of 2, of 1 in 9 of 10


def smallest_wager(answers: str, weights: Sequence[float]) -> float:
    """The smallest of what CITE's wagers on the answer a have won, response by response."""
    voting = [(answer, weight) for answer, weight in zip(answers, weights, strict=True) if answer != "-"]
    unseen = brentq(lambda u: (1 - u) ** len(voting) - u * 0.05 / 3, 0, 1)
    pays = [[(answer == "a") * weight / unseen - 1 for answer, weight in voting]]
    for rival in {answer for answer, _ in voting} - {"a"}:
        pays.append([((answer == "a") - (answer == rival)) * weight for answer, weight in voting])
    return min(fmean(math.prod(1 + stake * pay for pay in row) for stake in STAKES) for row in pays)


@pytest.mark.parametrize("answers", ["aaaaaaa", "abaaaaaaab", "aabaaaaacacdaa", "-a-aaaaaa-", "abcdefaaaaaaaaaaa"])
@pytest.mark.parametrize("scores", [None, (1.0, 0.0), (0.0, 0.0, 1.0)])
def test_cite_is_its_wagers_spelled_out(answers: str, scores: tuple[float, ...] | None) -> None:
    by_score = list(itertools.islice(itertools.cycle(scores or (1.0,)), len(answers)))
    rule = CITE() if scores is None else CITE(confidence=HALF_OR_SURE)
    weights = [1.0 if scores is None else 0.9 if score else 0.5 for score in by_score]
    given = [
        Response(None if answer == "-" else answer, score) for answer, score in zip(answers, by_score, strict=True)
    ]
    expected, decision = smallest_wager(answers, weights), rule(given)
    assert decision.posterior == pytest.approx(max(0.0, 1 - 1 / expected))
    assert (decision.answer, decision.stop) == ("a", expected >= 60)


def test_cite_by_hand() -> None:
    """Unanimous, it certifies after eight; where the votes are split over many answers, sooner than the majority."""
    decision = decide(CITE(), responses("aaaaaaaaaa"))
    assert (decision.stop, decision.answer, decision.reason, decision.samples) == (True, "a", "evidence", 8)
    assert smallest_wager("a" * 7, [1.0] * 7) < 60 <= smallest_wager("a" * 8, [1.0] * 8)
    diffuse = "abcadeafgahiajkalma" * 4
    assert decide(CITE(), responses(diffuse)).samples < decide(MajorityCertificate(), responses(diffuse)).samples
    assert not decide(CITE(), responses("-" * 40)).stop
    with pytest.raises(LogprobsUnavailable):
        CITE(confidence=HALF_OR_SURE)([Response("a")])
    uncertain = CITE(confidence=HALF_OR_SURE, on_missing_confidence="count")
    assert uncertain.weights([Response("a"), Response("a", 1.0), Response(None, 1.0)]) == pytest.approx([0.5, 0.9, 0.0])


def test_l_aggregated_by_hand() -> None:
    """p = (.8, .2): of n that agree the first rank leads with odds of 4^n, .9412 after two, .9846 after three."""
    rule = LAggregated(((0.8, 0.2),))
    assert rule(responses("aa")).posterior == pytest.approx(16 / 17)
    decision = decide(rule, responses("aaaa"))
    assert (decision.stop, decision.answer, decision.reason, decision.samples) == (True, "a", "evidence", 3)
    assert not rule.may_accept_first and LAggregated(((0.96, 0.04),)).may_accept_first
    assert rule(responses("-aa-")).posterior == pytest.approx(16 / 17)


@pytest.mark.parametrize("priors", [(), ((),), ((0.2, 0.8),), ((0.5, 0.4),), ((1.2, -0.2),), ((math.nan,),)])
def test_l_aggregated_needs_distributions(priors: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(ConfigurationError, match="from the largest to the smallest"):
        LAggregated(priors)


def test_l_aggregated_learns_from_counts() -> None:
    rule = LAggregated.of_counts([(1, 3), (0, 0), (2,)], threshold=0.9)
    assert (rule.priors, rule.threshold) == (((0.75, 0.25), (1.0,)), 0.9)
    with pytest.raises(CalibrationDataError, match="no question has an answer"):
        LAggregated.of_counts([(), (0,)])


@pytest.mark.parametrize(
    ("k", "answers", "samples"),
    [(1, "ab", 1), (2, "abaa", 4), (2, "abc-aa", 6), (3, "aaa", 3), (3, "ababab", None), (3, "-----", None)],
)
def test_ahead_by_k_by_hand(k: int, answers: str, samples: int | None) -> None:
    decision = decide(AheadBy(k), responses(answers))
    stopped = (True, "a", "evidence", samples) if samples else (False, decision.answer, None, len(answers))
    assert (decision.stop, decision.answer, decision.reason, decision.samples) == stopped
    assert (AheadBy(k).earliest, AheadBy(k).may_accept_first) == (k, k == 1)


@examples(50)
@given(st.text("abc-", max_size=40))
def test_consols_sprt_is_ahead_by_three(answers: str) -> None:
    assert decide(SPRT(), responses(answers)) == decide(AheadBy(3), responses(answers))


def test_cisc_by_hand() -> None:
    """Weights e^0, e^0 and e^1 of the scores 1, 1 and 2, over their sum."""
    decision = CISC()(responses("aab", [1.0, 1.0, 2.0]))
    assert decision.answer == "b"
    assert decision.evidence == {"a": pytest.approx(2 / (2 + math.e)), "b": pytest.approx(math.e / (2 + math.e))}
    assert decision.posterior == pytest.approx(math.e / (2 + math.e))
    assert CISC(temperature=100.0)(responses("aab", [1.0, 1.0, 2.0])).answer == "a"
    assert CISC(temperature=1e-9)(responses("aab", [-1e9, 0.0, 1e9])).answer == "b"


def test_deepconf_by_hand() -> None:
    """Of 1, 2, 3, 4 and 5 the median is 3; of the three kept, 5 outweighs 4, and 3 + 4 outweigh 5."""
    given = responses("aabcd", [1.0, 2.0, 3.0, 4.0, 5.0])
    assert DeepConfFilter(keep=0.5).weights(given) == [0.0, 0.0, 3.0, 4.0, 5.0]
    assert DeepConfFilter(keep=0.5)(given).answer == "d"
    assert DeepConfFilter(keep=0.5)(responses("aabbd", [1.0, 2.0, 3.0, 4.0, 5.0])).answer == "b"
    assert DeepConfFilter(keep=1.0).weights(given) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert DeepConfFilter(keep=0.1).weights(given) == [0.0, 0.0, 0.0, 0.0, 5.0]
    assert DeepConfFilter(keep=0.1).weights(responses("a-b", [2.0, 9.0, 1.0])) == [2.0, 0.0, 0.0]


def test_distrivoting_leaves_out_what_the_low_scores_say() -> None:
    """The low scores all say x, the high ones d. Without x the upper ones are those of e."""
    low, high = [1.0, 1.1, 1.2, 1.3], [9.0, 9.01, 9.02, 9.5, 9.51]
    given = responses("xxxx" + "dddee", [*low, *high])
    assert Cap(9)(given).answer == "x"
    assert DistriVoting(intervals=1)(given).answer == "e"


@pytest.mark.parametrize("rule", [CISC(), DeepConfFilter(), DistriVoting()], ids=lambda rule: rule.name)
class TestWeighedTogether:
    """What all rules have in common that weigh all responses so far."""

    def test_it_never_stops_by_itself(self, rule: StoppingRule) -> None:
        given = responses("a" * 12)
        assert not decide(rule, given).stop
        decision = decide(rule | Cap(4), given)
        assert (decision.stop, decision.answer, decision.reason, decision.samples) == (True, "a", "budget", 4)
        assert decision.posterior == pytest.approx(1.0)
        assert rule.reads_scores and not rule.may_accept_first

    def test_few_responses(self, rule: StoppingRule) -> None:
        for answers, expected in (("", None), ("--", None), ("a", "a"), ("-a", "a"), ("ab", "a")):
            decision = rule(responses(answers))
            assert (decision.answer, decision.samples) == (expected, len(answers))
        assert rule(responses("--")).posterior == 0.0
        assert rule(responses("ab", [1.0, 2.0])).answer == "b"

    def test_a_missing_score_is_an_error_or_the_mean(self, rule: StoppingRule) -> None:
        given = responses("aab", [1.0, 3.0, None])
        with pytest.raises(LogprobsUnavailable, match="on_missing_confidence='count'"):
            rule(given)
        counting = type(rule)(on_missing_confidence="count")  # type: ignore[call-arg]
        assert counting(given).evidence == counting(responses("aab", [1.0, 3.0, 2.0])).evidence
        assert counting(responses("abb", [None] * 3)).answer == "b"

    def test_what_is_alone_has_no_vote(self, rule: StoppingRule) -> None:
        assert rule.weights([Response("a", not_voted=True), Response("b", 1.0)])[0] == 0.0
        later = decide(rule | Cap(2), [Response("b", 1.0), Response("a", not_voted=True)])
        assert later.evidence.keys() == {"b"}


@pytest.mark.parametrize("rule", [DeepConfFilter(), DistriVoting()], ids=lambda rule: rule.name)
def test_a_negative_score_is_no_weight(rule: StoppingRule) -> None:
    with pytest.raises(ConfigurationError, match=f"{rule.name} weighs by the score, and one is -1"):
        rule(responses("ab", [-1.0, 2.0]))


@examples(25)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 10)), min_size=1, max_size=12))
@example([("a", 0.0), ("b", 5e-324)])
@example([("a", 1e300), ("b", 1.0), ("b", 2.0)])
def test_distrivoting_answers_with_an_answer(given: list[tuple[str, float]]) -> None:
    decision = DistriVoting()([Response(answer, score) for answer, score in given])
    assert decision.answer in Counter(answer for answer, _ in given)
    assert decision == DistriVoting()([Response(answer, score) for answer, score in given])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MajorityCertificate(error=0.5), "error is a probability above 0 and below 0.5, got 0.5"),
        (lambda: MajorityCertificate(contenders=1), "at least 2 contenders, got 1"),
        (lambda: CITE(error=0.0), "error is a probability above 0 and below 0.5, got 0.0"),
        (lambda: AheadBy(0), "at least 1 vote, got k=0"),
        (lambda: SPRT(alternative=0.5), "alternative must be a probability above 0.5 and below 1, got 0.5"),
        (lambda: SPRT(alpha=0.0), "alpha is a probability above 0 and below 0.5, got 0.0"),
        (lambda: SPRT(beta=0.95), "beta is a probability above 0 and below 1 - alpha, got 0.95"),
        (lambda: CISC(temperature=0.0), "temperature is a finite number above 0, got 0.0"),
        (lambda: DeepConfFilter(keep=0.0), "keep is a share above 0 and at most 1, got 0.0"),
        (lambda: DistriVoting(intervals=0), "at least 1 interval, got 0"),
        (lambda: CISC(on_missing_confidence="skip"), "'error' or 'count', got 'skip'"),
    ],
)
def test_refused(make: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()  # type: ignore[operator]
