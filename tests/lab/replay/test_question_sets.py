"""Which recordings ask the same questions, and means over sets of questions."""

import math

import pytest
from langchain_reasc_lab.replay.question_sets import QuestionNames, mean_over_sets, question_sets


def names(ids: str, inputs: str = "") -> QuestionNames:
    return QuestionNames(frozenset(ids), frozenset(inputs))


def test_recordings_that_share_a_question_are_of_one_set() -> None:
    assert question_sets([names("ab"), names("c"), names("bd"), names("de")]) == [1, 2, 1, 1]


def test_texts_count_more_than_ids() -> None:
    assert question_sets([names("01", "pq"), names("01", "rs"), names("23", "qt")]) == [1, 2, 1]
    assert question_sets([names("01", "pq"), names("12")]) == [1, 1]


def test_a_set_counts_once_however_many_recordings_it_has() -> None:
    mean = mean_over_sets([0.0, 0.0, 0.0, -3.0], [1, 1, 1, 2])
    assert mean.value == pytest.approx(-1.5)
    assert (mean.low, mean.high) == pytest.approx((-1.5 - 12.7062 * 1.5, -1.5 + 12.7062 * 1.5), rel=1e-4)


def test_one_set_has_no_interval() -> None:
    mean = mean_over_sets([1.0, 2.0], [1, 1])
    assert mean.value == pytest.approx(1.5) and math.isnan(mean.low) and math.isnan(mean.high)
