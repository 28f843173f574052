"""Observations: what is kept of a question, how many, and what a told outcome says of its responses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli.test_inspect import MEASURE, question

from langchain_reasc.calibration import KEPT, Observation, Observations, ObservationStore, Prediction


def test_a_row_is_the_same_after_it_was_kept(tmp_path: Path) -> None:
    written = ObservationStore.create(tmp_path / "a.sqlite")
    kept = [question(0), replace(question(1), answers=(None, 3, None, 0, 1, 1), scores=np.full((1, 6), np.nan))]
    kept.append(replace(question(2), scores=np.array([[1.5, np.nan, 1e300, -2.0, 0.25, np.nan]]), p_correct=0.75))
    kept.append(replace(question(3), predictions=(Prediction("audits", 0.1 + 0.2, 0.02, 1.0),), counted=False))
    appended = [written.append(one, [MEASURE]) for one in kept]
    for one, (number, as_written), (read_number, read) in zip(kept, appended, written.rows([MEASURE]), strict=True):
        assert number == read_number
        for other in (as_written, read):
            assert replace(one, scores=None) == replace(other, scores=None)
        np.testing.assert_array_equal(read.scores, as_written.scores)
        np.testing.assert_allclose(read.scores, np.where(one.scores < 1e30, one.scores, np.nan), rtol=1e-6)


def test_the_last_512_count(tmp_path: Path) -> None:
    written, known = ObservationStore.create(tmp_path / "a.sqlite"), Observations()
    with written.transaction():
        for at in range(KEPT + 5):
            known.append(replace(question(0), id=str(at)))
            written.append(replace(question(0), id=str(at)), [MEASURE])
    for rows in (known, written.observations()):
        assert [one.id for one in rows] == [str(at) for at in range(5, KEPT + 5)] and rows.seen == KEPT + 5
    assert [one.id for _, one in written.rows([], after=known.last - 2)] == [str(KEPT + 3), str(KEPT + 4)]


def test_how_a_row_was_decided_keeps_it_no_longer() -> None:
    known = Observations()
    for at in range(KEPT + 200):
        known.append(replace(question(0), id=str(at), counted=at < 100))
    assert [one.id for one in known] == [str(at) for at in range(200, KEPT + 200)]


def test_numbers_go_on_after_a_restart_that_several_processes_have_seen(tmp_path: Path) -> None:
    written = ObservationStore.create(tmp_path / "a.sqlite")
    for at in range(3):
        written.append(question(at), [MEASURE])
    for _ in range(2):
        written.restart({3: "agreement"})
    assert written.append(question(3), [MEASURE])[0] == 4
    known = written.observations([MEASURE])
    assert (known.seen, known.restarts, known.last) == (1, {3: "agreement"}, 4)


def test_labels_are_read_as_they_were_written(tmp_path: Path) -> None:
    store = ObservationStore.create(tmp_path / "a.sqlite")
    row = replace(question(0), right=tuple([True, None, False][at % 3] for at in range(len(question(0).answers))))
    store.append(row, [MEASURE])
    [(_, read)] = store.rows([MEASURE])
    assert (read.right, read.answers) == (row.right, row.answers)


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
    question = Observation((0, 1, None, 0), np.empty((0, 4)), answer=answer, correct=correct)
    assert question.known == known
