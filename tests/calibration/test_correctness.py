"""P(correct): from how strongly a decision is supported to how likely its answer is right; and odds by score."""

from typing import Any

import numpy as np
import pytest
from method.by_hand import responses
from pydantic import ValidationError

from langchain_reasc.calibration import (
    Calibration,
    SupportCurve,
    agreement_with_rest,
    fit_support_curve,
    load_calibration,
    save_calibration,
)
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.decision import Decision, Response, support
from langchain_reasc.method.evidence import Standardizer
from langchain_reasc.method.stopping import ASC, ESC, Cap, ReASC, decide


def simulated(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Decisions whose answer is right with probability support²."""
    rng = np.random.default_rng(seed)
    shares = rng.uniform(0.4, 0.95, n)
    return shares, rng.random(n) < shares**2


def test_support_is_the_winners_share_shrunk_by_how_much_there_is() -> None:
    assert support(decide(ASC(), responses("1111"))) == pytest.approx(5 / 6)
    assert support(decide(Cap(16), responses("1" * 16))) == pytest.approx(17 / 18)
    assert support(decide(Cap(2), responses("12"))) == 0.5
    assert support(decide(Cap(3), responses("1-1"))) == 0.75


def test_support_of_nothing_voted_on_is_unknown() -> None:
    assert support(decide(Cap(2), responses("--"))) is None
    assert support(decide(Cap(1), [])) is None
    assert support(decide(Cap(1), [Response("1", alone=True)])) is None


def test_support_is_that_of_the_answer_and_not_of_the_leader() -> None:
    windowed = decide(ESC(2), responses("122111"))
    assert (windowed.answer, support(windowed)) == ("1", (4 + 1) / (6 + 2))


def test_support_in_parts_is_that_of_the_least_supported_one() -> None:
    sure, split = decide(Cap(4), responses("1111")), decide(Cap(4), responses("1122"))
    whole = Decision(True, "x", "evidence", 4, {"x": 1.0}, parts={"kind": sure, "answer": split})
    assert support(whole) == support(split) == 0.5
    by_kind = decide(Cap(3), [Response("a", kind="search"), Response("b", kind="search"), Response("5")])
    assert support(by_kind) == 0.5  # the kind has two votes of three, its answers one each


def test_the_curve_is_calibrated_on_decisions_it_has_not_seen() -> None:
    fitted = fit_support_curve(*simulated(2000))
    for share in (0.5, 0.7, 0.9):
        assert fitted.probability(share) == pytest.approx(share**2, abs=0.05)
    assert (fitted.n, fitted.statistic, fitted.rule) == (2000, "support", None)


def test_it_rises_and_is_constant_outside_of_what_was_seen() -> None:
    fitted = fit_support_curve(*simulated(64), rule="asc")
    curve = [fitted.probability(share) for share in np.linspace(0.01, 0.99, 50)]
    assert (np.diff(curve) >= 0).all()
    assert fitted.probability(0.01) == fitted.points[0][1]
    assert fitted.probability(0.999) == fitted.points[-1][1]
    assert (fitted.holds_for("asc"), fitted.holds_for("reasc")) == (True, False)


@pytest.mark.parametrize(("right", "expected"), [(True, 0.9), (False, 0.1)])
def test_where_all_are_right_or_wrong_the_rule_of_succession_speaks(right: bool, expected: float) -> None:
    fitted = fit_support_curve(np.linspace(0.5, 0.9, 8), [right] * 8)
    assert {p for _, p in fitted.points} == {expected}


def test_separated_decisions_promise_no_more_than_their_number_allows() -> None:
    shares = np.repeat([0.05, 0.95], 20)
    fitted = fit_support_curve(shares, shares > 0.5)
    assert [fitted.points[0][1], fitted.points[-1][1]] == pytest.approx([1 / 42, 41 / 42])


def test_a_response_that_outweighs_everything_is_no_fault() -> None:
    rule = ReASC(Standardizer(0.0, 1e-3))
    decided = [decide(rule, [Response("1", 1.0)]), *[decide(rule, [Response("1", 0.0)])] * 9]
    assert support(decided[0]) == 1.0
    fitted = fit_support_curve([support(one) for one in decided], [True, *[True, False, False] * 3])
    assert 0.3 < fitted.probability(2 / 3) < fitted.probability(1.0) < 1


def test_where_support_says_nothing_or_the_contrary_the_rate_is_told() -> None:
    shares = np.linspace(0.5, 0.9, 40)
    contrary = fit_support_curve(shares, shares < 0.7)
    assert {p for _, p in contrary.points} == {0.5}
    alike = fit_support_curve([0.5] * 4, [True, False, True, True])
    assert alike.points == ((0.5, pytest.approx(4 / 6)),)


@pytest.mark.parametrize(
    ("shares", "right", "said"),
    [
        ([0.5], [True], "at least 2"),
        ([], [], "at least 2"),
        ([0.5, 0.6], [True], "needs one of each"),
        ([0.5, float("nan")], [True, False], "from 0 to 1, got nan"),
        ([1.5, 0.5], [True, False], "from 0 to 1, got 1.5"),
        ([-0.1, 0.5], [True, False], "a share from 0 to 1"),
    ],
)
def test_what_cannot_be_fitted_is_refused(shares: Any, right: Any, said: str) -> None:
    with pytest.raises(CalibrationDataError, match=said):
        fit_support_curve(shares, right)


def test_one_half_is_compared_with_the_other() -> None:
    assert agreement_with_rest(ASC(), responses("1111")) == (0.75, True)
    assert agreement_with_rest(ASC(), responses("1122")) == (0.75, False)
    assert agreement_with_rest(ASC(), responses("11121")) == (pytest.approx(0.8), False)  # 2 leads, seen first
    for nothing_to_compare in ("", "1", "1-", "-1", "--"):
        assert agreement_with_rest(ASC(), responses(nothing_to_compare)) is None


def test_it_is_kept_with_the_calibration(offline: Calibration, tmp_path: Any) -> None:
    assert offline.p_correct is None
    known = offline.model_copy(update={"p_correct": fit_support_curve(*simulated(40), rule="reasc")})
    again = load_calibration(save_calibration(known, tmp_path / "c.json"))
    assert again == known
    assert '"p_correct": {' in (tmp_path / "c.json").read_text()


@pytest.mark.parametrize("points", [(), ((0.5, 0.6), (0.7, 0.5)), ((0.5, 0.6), (0.5, 0.7)), ((0.5, 1.5),)])
def test_points_that_do_not_rise_are_refused(points: Any) -> None:
    with pytest.raises(ValidationError):
        SupportCurve(points=points, n=4, right=0.5)
