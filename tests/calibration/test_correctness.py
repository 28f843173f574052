"""P(correct): from how strongly a decision is supported to how likely its answer is right."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from langchain_reasc_lab.simulation.pools import simulated_pool
from method.by_hand import responses
from pydantic import ValidationError

from langchain_reasc.calibration import (
    Observation,
    SupportCurve,
    correctness_by_support,
    correctness_curve,
    fit,
    fit_support_curve,
    numbered,
)
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.agreement import Agreement, Prior
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.decision import Decision, Response, support
from langchain_reasc.method.evidence import Standardizer
from langchain_reasc.method.stopping import ASC, ESC, Cap, ReASC, StoppingRule, decide


def simulated(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Decisions whose answer is right with probability support²."""
    rng = np.random.default_rng(seed)
    shares = rng.uniform(0.4, 0.95, n)
    return shares, rng.random(n) < shares**2


@pytest.mark.parametrize(
    ("rule", "given", "expected"),
    [
        (ASC(), responses("1111"), 5 / 6),
        (Cap(16), responses("1" * 16), 17 / 18),
        (Cap(3), responses("1-1"), 0.75),
        (ESC(2), responses("122111"), (4 + 1) / (6 + 2)),  # of the answer, which does not lead
        (Cap(2), responses("--"), None),
        (Cap(1), [Response("1", not_voted=True)], None),
        (Cap(3), [Response("a", kind="search"), Response("b", kind="search"), Response("5")], 0.5),
        (ReASC(Standardizer(0.0, 1e-3)), [Response("1", 1.0)], 1.0),  # it outweighs everything
    ],
    ids=str,
)
def test_support_is_the_answers_share_shrunk_by_how_much_there_is(
    rule: StoppingRule, given: list[Response], expected: float | None
) -> None:
    assert support(decide(rule, given)) == (expected and pytest.approx(expected))


def test_support_in_parts_is_that_of_the_least_supported_one() -> None:
    sure, split = decide(Cap(4), responses("1111")), decide(Cap(4), responses("1122"))
    whole = Decision(True, "x", "evidence", 4, {"x": 1.0}, parts={"kind": sure, "answer": split})
    assert support(whole) == support(split) == 0.5


def test_the_curve_is_calibrated_rises_and_is_constant_outside_of_what_was_seen() -> None:
    fitted = fit_support_curve(*simulated(2000), rule="asc")
    for share in (0.5, 0.7, 0.9):
        assert fitted.probability(share) == pytest.approx(share**2, abs=0.05)
    assert (np.diff([fitted.probability(share) for share in np.linspace(0.01, 0.99, 50)]) >= 0).all()
    assert (fitted.probability(0.01), fitted.probability(0.999)) == (fitted.points[0][1], fitted.points[-1][1])
    assert (fitted.n, fitted.holds_for("asc"), fitted.holds_for("reasc")) == (2000, True, False)


def observation(pairs: Sequence[tuple[Response, bool]]) -> Observation:
    scores = np.array([[np.nan if one.score is None else one.score for one, _ in pairs]])
    return Observation(numbered([one.answer for one, _ in pairs]), scores, right=tuple(right for _, right in pairs))


@pytest.mark.full
@pytest.mark.parametrize(  # kinds of answers that scatter
    "index", [0, *(pytest.param(index, marks=pytest.mark.slow) for index in (1, 2, 8))]
)
def test_what_four_responses_teach_holds_for_decisions_on_up_to_sixteen(index: int) -> None:
    pool = simulated_pool(index, seed=1, questions=2000, measures=1).tested
    given = [list(zip(pool.to_question(one), pool.correct[one].tolist(), strict=True)) for one in range(2000)]
    made = fit([observation(pairs[:4]) for pairs in given[:1000]], [Measure()])
    rule, curve = made.rule(), made.p_correct
    assert curve is not None and SupportCurve.model_validate_json(curve.model_dump_json()) == curve
    said, right = list[float](), list[bool]()
    for pairs in given[1000:]:
        decision = decide(rule | Cap(16), [one for one, _ in pairs])
        if (share := support(decision)) is not None:
            said.append(curve.probability(share))
            right.append(any(is_right for one, is_right in pairs if one.answer == decision.answer))
    assert np.mean(said) == pytest.approx(np.mean(right), abs=0.06)


def test_of_a_rule_that_tells_it_the_support_is_how_likely_one_more_response_agrees() -> None:
    prior = Prior.uniform()
    rule = Agreement(prior, 0.99)
    of_four, of_sixteen = (support(rule(responses("abac" * (n // 4)))) for n in (4, 16))
    assert (of_four, of_sixteen) == pytest.approx((prior.share([2, 1, 1]), prior.share([8, 4, 4])))
    assert of_four is not None and of_sixteen is not None and of_four < of_sixteen
    parted = decide(rule | Cap(4), [Response(answer, kind="search") for answer in "aabc"])
    assert support(parted) == parted.agrees == pytest.approx(prior.share([2, 1, 1]))
    assert support(Decision(True, "a", "alone", 1, agrees=0.5)) is None
    assert support(Decision(True, None, "budget", 1, agrees=None)) is None


def test_a_weighed_support_is_a_share() -> None:
    weighed = Decision(True, "a", "evidence", 3, {"a": 0.2, "b": -1.0, "c": 0.1})
    assert 0 <= (support(weighed) or 0.0) <= 1


HALF = np.linspace(0.5, 0.9, 40)
PARTED = np.repeat([0.05, 0.95], 20)


@pytest.mark.parametrize(
    ("shares", "right", "first", "last"),
    [
        (HALF[:8], [True] * 8, 0.9, 0.9),  # the rule of succession
        (HALF[:8], [False] * 8, 0.1, 0.1),
        (PARTED, PARTED > 0.5, 1 / 42, 41 / 42),  # no more than their number allows
        (HALF, HALF < 0.7, 0.5, 0.5),  # support says the contrary: their rate
        ([0.5] * 4, [True, False, True, True], 4 / 6, 4 / 6),
    ],
)
def test_what_few_or_odd_decisions_allow(shares: Any, right: Any, first: float, last: float) -> None:
    points = fit_support_curve(shares, right).points
    assert [points[0][1], points[-1][1]] == pytest.approx([first, last])


def test_a_support_of_one_is_no_fault() -> None:
    fitted = fit_support_curve([1.0, *[2 / 3] * 9], [True, *[True, False, False] * 3])
    assert 0.3 < fitted.probability(2 / 3) < fitted.probability(1.0) < 1


@pytest.mark.parametrize(
    ("shares", "right", "message"),
    [
        ([0.5], [True], "at least 2"),
        ([0.5, 0.6], [True], "needs one of each"),
        ([0.5, float("nan")], [True, False], "from 0 to 1, got nan"),
        ([1.5, 0.5], [True, False], "from 0 to 1, got 1.5"),
    ],
)
def test_what_cannot_be_fitted_is_refused(shares: Any, right: Any, message: str) -> None:
    with pytest.raises(CalibrationDataError, match=message):
        fit_support_curve(shares, right)


@pytest.mark.parametrize(
    ("shares", "right"), [(HALF, HALF > 0.7), (HALF, HALF < 0.7), (PARTED, PARTED > 0.5), simulated(60)]
)
def test_an_interval_holds_the_probability(shares: Any, right: Any) -> None:
    curve = fit_support_curve(shares, right)
    assert len(curve.low) == len(curve.high) == len(curve.points)
    for share in np.linspace(0, 1, 41):
        low, high = curve.interval(share)
        assert 0 <= low <= curve.probability(share) <= high <= 1 and low < high
    assert curve.interval(0.0) == (curve.low[0], curve.high[0])
    assert curve.interval(1.0) == (curve.low[-1], curve.high[-1])


def test_more_labels_make_it_narrower_and_of_16_it_is_wide() -> None:
    widths = []
    for n in (16, 64, 256, 1024):
        low, high = fit_support_curve(*simulated(n)).interval(0.8)
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0.3 > widths[1] and widths[-1] < 0.1
    for before, after in pairwise(widths):
        assert before / after == pytest.approx(2, abs=0.8)


@pytest.mark.parametrize(
    ("right", "low", "high"),
    [
        ([True] * 16, 1 - 0.2059, 1.0),  # of Clopper and Pearson
        ([False] * 16, 0.0, 0.2059),
        ([True, False] * 8, 0.2465, 0.7535),
    ],
)
def test_of_one_support_it_is_that_of_a_share(right: list[bool], low: float, high: float) -> None:
    curve = fit_support_curve([0.8] * 16, right)
    assert curve.interval(0.8) == pytest.approx((low, high), abs=1e-4)
    assert low < curve.probability(0.8) < high


@pytest.mark.full
@pytest.mark.parametrize(("slope", "n"), [(1.0, 16), (1.0, 100), (0.5, 64), (0.0, 64)])
def test_95_of_100_intervals_hold_the_truth(slope: float, n: int) -> None:
    """Of decisions whose answer is right with probability logistic(1 + slope · logit(support))."""
    rng, held = np.random.default_rng(0), []
    for _ in range(120):
        shares = rng.beta(4, 1.5, n)
        truth = 1 / (1 + np.exp(-1 - slope * np.log(shares / (1 - shares))))
        curve = fit_support_curve(shares, rng.random(n) < truth)
        at = np.argsort(shares)[[n // 10, n // 2, 9 * n // 10]]
        held += [low <= p <= high for p, (low, high) in zip(truth[at], map(curve.interval, shares[at]), strict=True)]
    assert 0.92 <= np.mean(held) <= 0.995


def known(answers: str, right: str, **fields: Any) -> Observation:
    """Responses with these answers, of which this one is right."""
    told = {"right": tuple(letter == right for letter in answers)} if right else {}
    return Observation(numbered(answers), np.empty((0, len(answers))), **told, **fields)


def test_decisions_whose_answer_is_known_to_be_right_or_wrong_teach_it() -> None:
    rule = Agreement(Prior.uniform(), 0.95)
    given = [known("aaab", "a"), known("abb", "a"), known("ab", ""), known("a", "a")]
    given.append(known("aab", "", answer=0, correct=False))
    given.append(known("abb", "", answer=0, correct=False))  # whether b is right is not known
    expected = [(support(decide(rule, one.responses(None))), right) for one, right in zip(given, "10--0-", strict=True)]
    assert correctness_by_support(rule, given, None) == [
        (share, right == "1") for share, right in expected if right != "-"
    ]


@pytest.mark.parametrize(
    ("labelled", "told_right", "told_wrong", "enough"),
    [(16, 0, 0, True), (15, 0, 0, False), (0, 10, 10, True), (0, 200, 9, False), (0, 9, 200, False), (15, 5, 0, False)],
)
def test_how_many_labels_or_outcomes_it_takes(labelled: int, told_right: int, told_wrong: int, enough: bool) -> None:
    given = [known("aaab", "a")] * labelled
    given += [known("aaab", "", answer=0, correct=True)] * told_right
    given += [known("aaab", "", answer=0, correct=False)] * told_wrong
    curve = correctness_curve(Agreement(Prior.uniform(), 0.999), given, None)
    assert (curve is not None) == enough
    if curve is not None:
        assert (curve.n, curve.rule) == (len(given), "agreement")


@pytest.mark.parametrize("points", [(), ((0.5, 0.6), (0.7, 0.5)), ((0.5, 0.6), (0.5, 0.7)), ((0.5, 1.5),)])
def test_points_that_do_not_rise_are_refused(points: Any) -> None:
    with pytest.raises(ValidationError):
        SupportCurve(points=points, low=(0.1,) * len(points), high=(0.9,) * len(points), n=4, right=0.5)


@pytest.mark.parametrize(("low", "high"), [((0.1,), (0.9, 0.9)), ((0.1, 0.1), ()), ((0.1, -0.1), (0.9, 0.9))])
def test_each_point_has_an_interval(low: Any, high: Any) -> None:
    with pytest.raises(ValidationError):
        SupportCurve(points=((0.5, 0.5), (0.6, 0.6)), low=low, high=high, n=4, right=0.5)
