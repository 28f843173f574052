"""What is learned from questions as they come: refits, what is kept, and that the state is all of it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from runnable.fakes import TOP_K

from langchain_reasc.calibration import Learner, Observation, Observations, Prediction
from langchain_reasc.method.agreement import Component
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import ASC, Cap, Response, decide

from .drawing import drawn

MEASURES = [TOP_K, Measure("top_k", "bottom_group", 8), Measure("neg_entropy", "mean")]
WRONG = Observation((0, 1, 2), np.zeros((3, 3)), decided=3, answer=0)


def question(at: int, length: int = 3) -> Observation:
    """Every third disagrees; the second measure says what the first does, and the third nothing."""
    scores = np.random.default_rng(at).normal(size=length)
    answers = (0, 1, 0) if at % 3 == 0 else (0, 0, 0)
    return Observation(answers[:length], np.stack([scores, scores, np.full(length, np.nan)]))


def observe(one: Learner, questions: range) -> list[bool]:
    alarms = []
    for at in questions:
        learned = one.calibration is not None
        alarms.append(one.observe(replace(question(at), counted=not learned, decided=3, answer=0)) is not None)
    return alarms


def test_it_refits_as_the_number_grows_and_keeps_the_last(fits: Any) -> None:
    one = Learner(MEASURES)
    assert not any(observe(one, range(540)))
    sizes = [len(questions) for questions, *_ in fits]
    assert sizes[:4] == [16, 20, 25, 32] and sizes[-1] <= 512
    assert len(one.observations.newest) == 512 and one.observations.seen == 540
    assert [[one.counted for one in questions].count(False) for questions, *_ in fits[:2]] == [0, 4]


def again(one: Learner) -> Learner:
    """Return another learner that knows the same rows, as after the process has ended."""
    other, known = Learner([TOP_K], explained=False), Observations(one.observations.restarts.items())
    known.extend(one.observations.rows.items())
    other.observations = known
    other.calibrate()
    return other


def test_rows_are_all_of_it() -> None:
    """What a drift test has come to, and what is kept, follows from the rows alone, in whatever portions they come."""
    rows = [
        replace(question(at), counted=at < 16, predictions=(Prediction("audits", 0.9, 0.02, at % 2),))
        for at in range(40)
    ]
    whole, parts = Observations(), Observations()
    whole.extend(enumerate(rows, start=1))
    for row in rows:
        parts.append(row)
    assert (whole.restarts, [*whole], whole.evidence) == (parts.restarts, [*parts], parts.evidence)
    assert len(whole.restarts) == 1


def test_an_alarm_forgets_all_but_that_there_was_one() -> None:
    one = Learner(MEASURES)
    assert not any(observe(one, range(40)))
    assert one.calibration is not None
    known = one.observations
    assert not any(known.append(one.with_predictions(WRONG)) for _ in range(40)), "counted votes show no drift"
    last = known.last
    while not known.restarts and known.last < last + 20:
        known.append(one.with_predictions(replace(WRONG, counted=False)))
    assert known.drifted == "agreement"
    assert (one.calibration, len(known), known.seen) == (None, 0, 0)
    assert known.restarts == {known.last: "agreement"}
    one.observe(WRONG)
    assert (len(known), known.seen) == (1, 1)


def test_it_calibrates_no_sooner_after_a_failure(fits: Any) -> None:
    one = Learner(MEASURES)
    for at in range(32):
        one.observations.append(question(at))
    assert one.due
    one.postpone_fits()
    assert not one.due and one.calibration is None


def alike_or_not(rng: np.random.Generator) -> list[int]:
    right = rng.random(16) < rng.uniform(0.4, 1.0)
    return np.where(right, 0, rng.integers(1, 5, 16)).tolist()


def of_a_mixture(rng: np.random.Generator) -> list[int]:
    """What the prior can say exactly; the leader of 16 is 0."""
    answers = drawn(Component(0.0, 0.1) if rng.random() < 0.5 else Component(0.3, 3.0), 16, rng)
    leader = Counter(answers).most_common(1)[0][0]
    return [0 if answer == leader else answer + 1 for answer in answers]


def asked(
    one: Learner,
    questions: range,
    tells: float,
    audit: int = 0,
    answers_of: Callable[[np.random.Generator], list[int]] = alike_or_not,
) -> list[int]:
    """Ask questions whose right answers score so much higher. Return those at which it began anew."""
    alarms = []
    for at in questions:
        rng = np.random.default_rng(at)
        answers = answers_of(rng)
        scores = tells * (np.array(answers) == 0) + rng.normal(size=16)
        learned = one.calibration
        rule = learned.rule() if learned else ASC()
        responses = [Response(str(answer), float(score)) for answer, score in zip(answers, scores, strict=True)]
        decision = decide(rule | Cap(16), responses)
        used, answer = decision.samples, int(decision.answer or 0)
        drawn = used + audit if learned else used
        seen = Observation(
            tuple(answers[:drawn]), scores[None, :drawn], counted=learned is None, decided=used, answer=answer
        )
        if one.observe(seen):
            alarms.append(at)
    return alarms


@pytest.mark.full
@pytest.mark.parametrize(
    ("tells", "soon"),
    [
        pytest.param(2.5, None, id="as before", marks=pytest.mark.slow),
        pytest.param(-2.5, 60, id="turned"),
        pytest.param(0.0, 200, id="noise", marks=pytest.mark.slow),
    ],
)
def test_a_measure_that_no_longer_tells_is_noticed(tells: float, soon: int | None) -> None:
    one = Learner([TOP_K], explained=False)
    assert asked(one, range(200), 2.5) == []
    assert one.calibration is not None and one.calibration.measure == TOP_K
    restored = again(one)
    for learner in (one, restored):
        alarms = asked(learner, range(200, 440), tells)
        assert (len(alarms), learner.observations.drifted) == ((0, None) if soon is None else (1, "confidence"))
        assert all(at < 200 + (soon or 0) for at in alarms)
        learned = learner.calibration
        assert learned is not None and learned.rule_ is not None and learned.rule_.scores is not None
        assert learned.rule_.scores.of_answers == pytest.approx(1.5 * np.sign(tells), abs=0.4)


@pytest.mark.full
def test_audits_are_compared_with_what_was_expected_before_they_came() -> None:
    one = Learner([TOP_K], explained=False)
    assert asked(one, range(300), 2.5, audit=1, answers_of=of_a_mixture) == []
    seen, agreed, expected = one.observations.audits
    assert 150 < seen <= 284 and agreed < seen and expected == pytest.approx(agreed, abs=15)
    for learner in (one, again(one)):
        assert asked(learner, range(300, 310), 2.5, audit=1, answers_of=of_a_mixture) == []
        audits = learner.observations.audits
        assert seen < audits.seen <= seen + 10 and audits.agreed > agreed
    asked(one, range(310, 440), -2.5, audit=1, answers_of=of_a_mixture)
    known = one.observations
    assert len(known.restarts) == 1 and known.audits.seen < seen, "those of what was forgotten say nothing"
