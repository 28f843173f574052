"""Scores to log-odds: a line on standardized scores, and straight lines between known points."""

import math

import pytest

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.evidence import Standardizer
from langchain_reasc.method.odds import LogisticOdds, PointOdds

POINTS = PointOdds(((-2.0, -1.0), (0.0, 1.0), (1.0, 4.0)), average=0.5)


@pytest.mark.parametrize(
    ("score", "expected"), [(-9.0, -1.0), (-2.0, -1.0), (-1.0, 0.0), (0.0, 1.0), (0.5, 2.5), (1.0, 4.0), (9.0, 4.0)]
)
def test_between_points_are_straight_lines_and_beyond_them_nothing_changes(score: float, expected: float) -> None:
    assert POINTS(score) == expected


def test_one_point_is_the_same_for_every_score() -> None:
    assert [PointOdds(((3.0, 0.7),), average=0.0)(score) for score in (-1.0, 3.0, 8.0)] == [0.7] * 3


def test_an_unknown_score_has_average_odds() -> None:
    assert POINTS.average == 0.5
    assert LogisticOdds(Standardizer(2.0, 4.0), slope=1.5, intercept=-0.25).average == -0.25


def test_a_line_on_standardized_scores_is_cut_where_it_decides_anyway() -> None:
    line = LogisticOdds(Standardizer(2.0, 4.0), slope=1.5, intercept=-0.25)
    assert line(6.0) == pytest.approx(1.25)
    assert (line(1e9), line(-1e9)) == (50.0, -50.0)


@pytest.mark.parametrize(
    "points", [(), ((1.0, 0.0), (1.0, 2.0)), ((1.0, 0.0), (0.0, 2.0)), ((0.0, 1.0), (math.nan, 2.0))]
)
def test_points_out_of_order_are_refused(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ConfigurationError, match="ascend strictly"):
        PointOdds(points, average=0.0)


@pytest.mark.parametrize(("std", "slope"), [(1.0, math.inf), (1.0, math.nan)])
def test_a_line_that_is_none_is_refused(std: float, slope: float) -> None:
    with pytest.raises(ConfigurationError):
        LogisticOdds(Standardizer(0.0, std), slope=slope, intercept=0.0)
