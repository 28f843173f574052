"""What is learned from questions as they come: refits, what is kept, and that the state is all of it."""

from typing import Any

import numpy as np
from runnable.fakes import TOP_K

from langchain_reasc.calibration import ConsensusLearner, Observed, OnlineState, Taken, calibrate_observed
from langchain_reasc.method.confidence import Measure

MEASURES = [TOP_K, Measure("top_k", "bottom_group", 8), Measure("neg_entropy", "mean")]


def question(at: int, length: int = 3) -> Observed:
    """Every third disagrees; the second measure says what the first does, and the third nothing."""
    rng = np.random.default_rng(at)
    scores = rng.normal(size=length)
    answers = (0, 1, 0) if at % 3 == 0 else (0, 0, 0)
    return Observed(answers[:length], np.stack([scores, scores, np.full(length, np.nan)]))


def observe(one: ConsensusLearner, questions: range) -> list[bool]:
    alarms = []
    for at in questions:
        learned = one.calibration is not None
        alarms.append(one.observe(Taken(question(at), 3, 0, learned)))
        if one.due:
            one.adopt(one.fit())
    return alarms


def test_it_refits_as_the_number_grows_and_keeps_the_last(fits: Any) -> None:
    one = ConsensusLearner(MEASURES)
    assert not any(observe(one, range(700)))
    sizes = [len(questions) for questions, _ in fits]
    assert sizes[:4] == [32, 40, 50, 63] and sizes[-1] == 512
    assert len(one.state().questions) == 512 and one.seen == 700


def test_measures_that_say_nothing_new_are_no_candidates(fits: Any) -> None:
    observe(ConsensusLearner(MEASURES), range(32))
    [(questions, options)] = fits
    assert options["measures"] == [TOP_K]
    assert all(one.scores.shape == (1, 3) for one in questions)


def test_without_any_score_there_is_no_candidate(fits: Any) -> None:
    calibrate_observed([Observed((0, 0), np.full((3, 2), np.nan))] * 2, MEASURES)
    calibrate_observed([Observed((0, None), np.zeros((0, 2)))] * 2, [])
    assert [options["measures"] for _, options in fits] == [[], []]


def test_a_state_is_all_of_it(fits: Any) -> None:
    one, other = ConsensusLearner(MEASURES), ConsensusLearner(MEASURES)
    observe(one, range(45))
    other.restore(OnlineState.model_validate_json(one.state().model_dump_json()))
    assert other.state() == one.state()
    assert observe(one, range(45, 70)) == observe(other, range(45, 70))
    after, expected = other.state(), one.state()
    assert (after.questions, after.seen, after.fitted) == (expected.questions, expected.seen, expected.fitted)


def test_an_alarm_forgets_all_but_that_there_was_one(fits: Any) -> None:
    one = ConsensusLearner(MEASURES)
    observe(one, range(40))
    wrong = Observed((0, 1, 2), np.zeros((3, 3)))
    told = [one.observe(Taken(wrong, 3, 0, True)) for _ in range(40)]
    assert told.index(True) < 20
    assert (one.alarms, one.calibration, told.count(True)) == (1, None, 1)
    assert one.seen == 39 - told.index(True)


def test_it_is_told_apart_which_questions_were_counted(fits: Any) -> None:
    observe(ConsensusLearner(MEASURES), range(40))
    assert [[one.counted for one in questions].count(False) for questions, _ in fits] == [0, 8]


def test_questions_that_were_counted_raise_no_alarm(fits: Any) -> None:
    one = ConsensusLearner(MEASURES)
    observe(one, range(40))
    wrong = Observed((0, 1, 2), np.zeros((3, 3)))
    assert not any(one.observe(Taken(wrong, 3, 0, False)) for _ in range(40))


def test_it_calibrates_no_sooner_after_a_failure(fits: Any) -> None:
    one = ConsensusLearner(MEASURES)
    for at in range(32):
        one.observe(Taken(question(at), 3, 0, False))
    assert one.due
    one.postpone()
    assert not one.due and one.calibration is None
