"""The store of online learning: what is kept of a question, how many, and what a told outcome says of its responses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli.test_inspect import MEASURE, question

from langchain_reasc.calibration import KEPT, Observed, OnlineStore


def test_a_question_is_the_same_after_it_was_kept(tmp_path: Path) -> None:
    written = OnlineStore.create(tmp_path / "a.sqlite")
    kept = [question(0), replace(question(1), answers=(None, 3, None, 0, 1, 1), scores=np.full((1, 6), np.nan))]
    kept.append(replace(question(2), scores=np.array([[1.5, np.nan, 1e300, -2.0, 0.25, np.nan]]), p_correct=0.75))
    for one in kept:
        written.add(one, [MEASURE])
    for one, read in zip(kept, written.questions([MEASURE]), strict=True):
        assert (one.answers, one.decided, one.answer, one.id) == (read.answers, read.decided, read.answer, read.id)
        assert (one.correct, one.counted, one.p_correct) == (read.correct, read.counted, read.p_correct)
        np.testing.assert_allclose(read.scores, np.where(one.scores < 1e30, one.scores, np.nan), rtol=1e-6)


def test_it_keeps_the_last_512(tmp_path: Path) -> None:
    written = OnlineStore.create(tmp_path / "a.sqlite")
    with written.transaction():
        for at in range(KEPT + 5):
            written.add(replace(question(0), id=str(at)), [MEASURE])
    assert [one.id for one in written.questions([])] == [str(at) for at in range(5, KEPT + 5)]
    assert [one.id for one in written.questions([], after=written.last - 2)] == [str(KEPT + 3), str(KEPT + 4)]


@pytest.mark.parametrize(
    ("answer", "correct", "known"),
    [
        (0, True, [True, False, None, True]),
        (0, False, [False, None, None, False]),
        (1, True, [False, True, None, False]),
        (None, True, [None] * 4),
        (0, None, [None] * 4),
    ],
)
def test_an_outcome_says_which_responses_are_right(
    answer: int | None, correct: bool | None, known: list[bool | None]
) -> None:
    """Where one answer is right the others are wrong; where it is wrong, nothing is known of them."""
    question = Observed((0, 1, None, 0), np.empty((0, 4)), answer=answer, correct=correct)
    assert question.known == known and question.labelled == [None] * 4
