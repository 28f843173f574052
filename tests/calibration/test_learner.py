"""What is learned from questions as they come: refits, what is kept, and that the state is all of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from runnable.fakes import TOP_K

from langchain_reasc.calibration import KEPT, ConsensusLearner, Observed
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import ASC, Cap, Response, decide

MEASURES = [TOP_K, Measure("top_k", "bottom_group", 8), Measure("neg_entropy", "mean")]
WRONG = Observed((0, 1, 2), np.zeros((3, 3)), decided=3, answer=0)


def question(at: int, length: int = 3) -> Observed:
    """Every third disagrees; the second measure says what the first does, and the third nothing."""
    scores = np.random.default_rng(at).normal(size=length)
    answers = (0, 1, 0) if at % 3 == 0 else (0, 0, 0)
    return Observed(answers[:length], np.stack([scores, scores, np.full(length, np.nan)]))


def observe(one: ConsensusLearner, questions: range) -> list[bool]:
    alarms = []
    for at in questions:
        learned = one.calibration is not None
        alarms.append(one.observe(replace(question(at), counted=not learned, decided=3, answer=0)))
        if one.due:
            one.adopt(one.fit())
    return alarms


def test_it_refits_as_the_number_grows_and_keeps_the_last(fits: Any) -> None:
    one = ConsensusLearner(MEASURES)
    assert not any(observe(one, range(540)))
    sizes = [len(questions) for questions, *_ in fits]
    assert sizes[:4] == [16, 20, 25, 32] and sizes[-1] <= 512
    assert len(one.questions) == 512 and one.seen == 540
    assert [[one.counted for one in questions].count(False) for questions, *_ in fits[:2]] == [0, 4]


def test_a_state_is_all_of_it(fits: Any) -> None:
    one, other = ConsensusLearner(MEASURES), ConsensusLearner(MEASURES)
    observe(one, range(45))
    other.follow(one.state(), one.calibration_of, one.questions, anew=True)
    assert other.state() == one.state()
    assert observe(one, range(45, 70)) == observe(other, range(45, 70))
    after, expected = other.state(), one.state()
    assert [one.answers for one in other.questions] == [one.answers for one in one.questions]
    assert (after.seen, after.fitted) == (expected.seen, expected.fitted)


def test_an_alarm_forgets_all_but_that_there_was_one(fits: Any) -> None:
    one = ConsensusLearner(MEASURES)
    observe(one, range(40))
    assert not any(one.observe(WRONG) for _ in range(40))  # votes were counted, which shows no drift
    alarms = [one.observe(replace(WRONG, counted=False)) for _ in range(40)]
    assert alarms.index(True) < 20
    assert (one.alarms, one.calibration, alarms.count(True)) == (1, None, 1)
    assert one.seen == 39 - alarms.index(True)


def test_it_calibrates_no_sooner_after_a_failure(fits: Any) -> None:
    one = ConsensusLearner(MEASURES)
    for at in range(32):
        one.observe(question(at))
    assert one.due
    one.postpone()
    assert not one.due and one.calibration is None


def test_how_likely_an_answer_is_agreed_with_is_known_after_the_last_counted_question() -> None:
    one = ConsensusLearner([TOP_K])
    for at in range(32):
        one.observe(Observed((0, 0, int(at % 3 == 0), 0), np.zeros((1, 4)), decided=4, answer=0))
    one.adopt(one.fit())
    assert one.calibration is not None
    known = one.calibration.p_agree
    for _ in range(KEPT):
        one.observe(Observed((0, 0), np.zeros((1, 2)), counted=False, decided=2, answer=0))
    assert one.due and not any(question.counted for question in one.questions)
    one.adopt(one.fit())
    assert one.calibration.n == KEPT and one.calibration.p_agree == known is not None


def asked(one: ConsensusLearner, questions: range, tells: float, audit: int = 0) -> list[int]:
    """Ask questions whose right answers score so much higher. Return those at which it began anew."""
    alarms = []
    for at in questions:
        rng = np.random.default_rng(at)
        right = rng.random(16) < rng.uniform(0.4, 1.0)
        answers = np.where(right, 0, rng.integers(1, 5, 16)).tolist()
        scores = tells * right + rng.normal(size=16)
        learned = one.calibration
        rule = learned.rule(on_missing_confidence="count") if learned else ASC()
        responses = [Response(str(answer), float(score)) for answer, score in zip(answers, scores, strict=True)]
        decision = decide(rule | Cap(16), responses)
        used, answer = decision.samples, int(decision.answer or 0)
        drawn = used + audit if learned else used
        seen = Observed(
            tuple(answers[:drawn]), scores[None, :drawn], counted=learned is None, decided=used, answer=answer
        )
        if one.observe(seen):
            alarms.append(at)
        if one.due:
            one.adopt(one.fit())
    return alarms


@pytest.mark.parametrize(("tells", "soon"), [(2.5, None), (-2.5, 60), (0.0, 200)], ids=["as before", "turned", "noise"])
def test_a_measure_that_no_longer_tells_is_noticed(tells: float, soon: int | None) -> None:
    one = ConsensusLearner([TOP_K], explained=False)
    assert asked(one, range(200), 2.5) == []
    assert one.calibration is not None and one.calibration.measure == TOP_K
    restored = ConsensusLearner([TOP_K], explained=False)
    restored.follow(one.state(), one.calibration_of, one.questions, anew=True)
    for learner in (one, restored):
        alarms = asked(learner, range(200, 440), tells)
        assert (len(alarms), learner.drifted) == ((0, None) if soon is None else (1, "confidence"))
        assert all(at < 200 + (soon or 0) for at in alarms)
        assert learner.calibration is not None and (learner.calibration.measure is None) == (tells <= 0)


def test_audits_are_compared_with_what_was_expected_before_they_came() -> None:
    one, other = (ConsensusLearner([TOP_K], explained=False) for _ in range(2))
    assert asked(one, range(300), 2.5, audit=1) == []
    seen, agreed, expected = one.state().audits
    assert 150 < seen <= 284 and agreed < seen and expected == pytest.approx(agreed, abs=15)
    other.follow(one.state(), one.calibration_of, one.questions, anew=True)
    for learner in (one, other):
        assert asked(learner, range(300, 310), 2.5, audit=1) == []
        assert seen < learner.state().audits.seen <= seen + 10 and learner.state().audits.agreed > agreed
    asked(one, range(310, 440), -2.5, audit=1)
    assert one.alarms == 1 and one.state().audits.seen < seen, "those of what was forgotten say nothing"
