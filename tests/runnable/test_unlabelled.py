"""calibrate_unlabelled: what it draws, what it learns from, and what it leaves out."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from langchain_reasc.answers import free_text
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError

from .fakes import TOP_K, Reply, Scripted, failing, saying

QUESTIONS = [f"q{i}" for i in range(6)]


def two_of_three(question: str, index: int) -> Reply:
    return Reply(f"it is {'112'[index % 3]}", -1.0 - index)


def test_each_question_is_asked_until_the_votes_are_clear(runner: Any, fits: Any) -> None:
    model = Scripted(script=lambda q, i: two_of_three(q, i) if q == "q0" else Reply("it is 1", -1.0 - i))
    runner.calibrate_unlabelled(model, QUESTIONS, measure=TOP_K, max_samples=6)
    answers = [question.answers for question in fits[0].questions]
    assert answers == [(0, 0, 1, 0, 0, 1), *[(0, 0, 0, 0)] * 5]
    np.testing.assert_allclose(fits[0].questions[0].scores, [[1, 2, 3, 4, 5, 6]], rtol=1e-6)
    told = fits[0].options
    assert (fits[0].measures, told["budget"], told["threshold"]) == ([TOP_K], 6, 0.975)
    assert told["made_of"] == {"top_k": {"top_k": 1, "vocabulary_size": None}}
    assert told["fingerprint"].model == "scripted" and told["fingerprint"].answer == "auto"
    assert all(question.right == () for question in fits[0].questions)


def test_known_answers_are_graded(runner: Any, fits: Any) -> None:
    script = [Reply("it is 1"), Reply("no idea"), Reply("it is 2"), Reply("it is 1"), Reply("it is 1")]
    model = Scripted(script=lambda question, index: script[index % 5])
    runner.calibrate_unlabelled(model, [("q0", "1"), "q1", ("q2", "2"), ("q3", None)], max_samples=5)
    rights = [question.right for question in fits[0].questions]
    assert rights == [(True, False, False, True, True), (), (False, False, True, False, False), ()]


def test_answers_that_mean_the_same_are_right_together(runner: Any, fits: Any) -> None:
    model = saying("Paris", "paris!", "Rome", "Paris", "Paris")
    same = free_text(same=lambda one, other: one.lower().strip("!.") == other.lower().strip("!."))
    runner.calibrate_unlabelled(model, [("q", "the answer is paris")], answer=same, max_samples=5)
    [question] = fits[0].questions
    assert set(zip(question.answers, question.right, strict=True)) <= {(0, True), (1, False)}


def test_it_needs_no_logprobs(runner: Any, fits: Any) -> None:
    model = Scripted(script=lambda question, index: Reply(f"it is {index % 2}", logprob=None))
    assert runner.calibrate_unlabelled(model, QUESTIONS, max_samples=4).n == len(QUESTIONS)
    assert np.isnan(fits[0].questions[0].scores).all()


def test_a_question_that_fails_is_left_out(runner: Any, fits: Any, caplog: Any) -> None:
    model = failing(lambda question, index: Reply("it is 1"), lambda question, index: question == "q3")
    told: list[tuple[int, int]] = []
    with caplog.at_level(logging.WARNING):
        runner.calibrate_unlabelled(model, QUESTIONS, progress=lambda *one: told.append(one))
    assert len(fits[0].questions) == 5
    assert "a question is left out of the calibration: SamplingError" in caplog.text
    assert told[-1] == (6, 6)


def test_what_cannot_be_is_said_before_anything_is_paid_for(runner: Any) -> None:
    model = saying("1")
    with pytest.raises(CalibrationDataError, match="no question to calibrate on"):
        runner.calibrate_unlabelled(model, [])
    with pytest.raises(ConfigurationError, match="concurrency must be 1 or more, got 0"):
        runner.calibrate_unlabelled(model, QUESTIONS, concurrency=0)
    with pytest.raises(ConfigurationError, match="max_samples must be 2 or more, got 1"):
        runner.calibrate_unlabelled(model, QUESTIONS, max_samples=1)
    assert model.log.calls == []


@pytest.mark.parametrize("changed", [{}, {"max_samples": 5}, {"answer": "text"}], ids=["the same", "budget", "answer"])
def test_a_call_that_was_interrupted_goes_on_from_its_checkpoint(
    runner: Any, fits: Any, tmp_path: Path, changed: dict[str, Any]
) -> None:
    def stop(done: int, total: int) -> None:
        if done == total:
            raise InterruptedError

    options = {"measure": TOP_K, "max_samples": 6, "concurrency": 1, "checkpoint": tmp_path / "unfinished"}
    known, asked_first = [("q5", "1")], Scripted(script=two_of_three)
    with pytest.raises((InterruptedError, ExceptionGroup)):
        runner.calibrate_unlabelled(asked_first, ["q0", "q1", *known], progress=stop, **options)
    with options["checkpoint"].open("a", encoding="utf-8") as file:
        file.write('{"key": "cut in ha')  # as a crash leaves it
    with pytest.raises((InterruptedError, ExceptionGroup)):
        runner.calibrate_unlabelled(asked_first, ["q0", "q1", "q2", *known], progress=stop, **{**options, **changed})
    model = Scripted(script=two_of_three)
    runner.calibrate_unlabelled(model, ["q0", "q1", "q2", *known, "q3", "q4"], **{**options, **changed})
    asked = {question for question, _ in model.log.calls}
    assert asked == {"q3", "q4", "q5"}  # known answers are graded anew
    assert not options["checkpoint"].exists()
    assert len(fits) == 1
    runner.calibrate_unlabelled(
        model, ["q0", "q1", "q2", *known, "q3", "q4"], **{**options, **changed, "checkpoint": None}
    )
    learned, anew = (sorted(repr((q.answers, q.scores, q.right)) for q in one.questions) for one in fits)
    assert learned == anew
    assert fits[0].options["made_of"] == fits[1].options["made_of"]


def test_nothing_but_failures(runner: Any) -> None:
    model = Scripted(script=lambda question, index: Reply("", error=ConnectionError("down")))
    with pytest.raises(CalibrationDataError, match="none of the 6 questions gave a response; the first: SamplingError"):
        runner.calibrate_unlabelled(model, QUESTIONS)


def test_no_more_questions_are_in_flight_than_may_be(runner: Any, fits: Any) -> None:
    model = saying("1")
    runner.calibrate_unlabelled(model, QUESTIONS, concurrency=1)
    assert model.log.most_live <= 4


def test_it_is_what_it_was_measured_on(runner: Any) -> None:
    model = Scripted(script=lambda q, i: Reply(f"it is {1 if (int(q[1:]) * 7 + i) % 3 else i}", -1.0 - i % 3))
    made = runner.calibrate_unlabelled(model, [f"q{i}" for i in range(40)], max_samples=8)
    assert (made.method, made.n, made.fingerprint.model) == ("consensus", 40, "scripted")
