"""P(correct): from how strongly a decision is supported to how likely its answer is right."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from langchain_reasc_lab.simulation.pools import simulated_pool
from method.by_hand import responses
from pydantic import ValidationError

from langchain_reasc.calibration import Observation, SupportCurve, agreement_with_rest, fit, fit_support_curve, numbered
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.agreement import Prior
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


@pytest.mark.full  # computes for long
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
        if (share := curve.support(decision)) is not None:
            said.append(curve.probability(share))
            right.append(any(is_right for one, is_right in pairs if one.answer == decision.answer))
    assert np.mean(said) == pytest.approx(np.mean(right), abs=0.06)


def test_a_share_of_more_votes_says_more() -> None:
    prior = Prior.uniform()
    curve = fit_support_curve([0.3, 0.9], [False, True], prior=prior)
    of_four, of_sixteen = (curve.support(decide(Cap(n), responses("abac" * (n // 4)))) for n in (4, 16))
    assert of_four is not None and of_sixteen is not None
    assert of_four < prior.share([8, 4, 4]) == of_sixteen
    weighed = Decision(True, "a", "evidence", 3, {"a": 0.2, "b": -1.0, "c": 0.1})
    assert 0 <= (curve.support(weighed) or 0.0) <= 1


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
    ("given", "expected"),
    [
        ("1111", (0.75, True)),
        ("1122", (0.75, False)),
        ("11121", (pytest.approx(0.8), False)),  # 2 leads, seen first
        *((nothing_to_compare, None) for nothing_to_compare in ("", "1", "1-", "-1")),
    ],
)
def test_one_half_is_compared_with_the_other(given: str, expected: tuple[float, bool] | None) -> None:
    assert agreement_with_rest(ASC(), responses(given)) == expected


@pytest.mark.parametrize("points", [(), ((0.5, 0.6), (0.7, 0.5)), ((0.5, 0.6), (0.5, 0.7)), ((0.5, 1.5),)])
def test_points_that_do_not_rise_are_refused(points: Any) -> None:
    with pytest.raises(ValidationError):
        SupportCurve(points=points, n=4, right=0.5)
