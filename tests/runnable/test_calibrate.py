"""Calibrating a chat model in two lines."""

import logging
import random
from typing import Any

import pytest

from langchain_reasc import Measure, ReASCRunnable, calibrate_offline
from langchain_reasc.answers import free_text
from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError, LogprobsUnavailable
from langchain_reasc.pools.record import record_pool

from .fakes import TOP_K, Reply, Scripted, failing, saying
from .judges import asked, city, judging, pairs

QUESTIONS = [(f"q{at}", "1") for at in range(40)]


def script(question: str, index: int) -> Reply:
    """Right and sure of it, or wrong and unsure; a function of the question alone."""
    rng = random.Random(question)
    right = rng.random() < 0.6
    return Reply(f"so it is {1 if right else 2}", -round(rng.gauss(3.0 if right else 1.5, 0.6), 3) or -0.1)


def test_it_is_algorithm_1_on_first_responses(runner: Any) -> None:
    model = Scripted(script=script)
    calibration = runner.calibrate(model, QUESTIONS, measure=TOP_K)
    replies = [script(question, 0) for question, _ in QUESTIONS]
    expected = calibrate_offline(
        [-float(reply.logprob or 0) for reply in replies],
        [reply.text.endswith("1") for reply in replies],
        measure=TOP_K,
        top_k=2,
    )
    same = {"mean", "std", "n", "gate", "auroc", "accuracy"}
    assert calibration.model_dump(include=same) == expected.model_dump(include=same)
    assert len(model.log.calls) == len(QUESTIONS)
    assert ReASCRunnable(model=model, calibration=calibration).invoke("q0").response_metadata["reasc"]["samples"]


def test_a_measure_is_chosen_on_the_responses_and_progress_is_told(runner: Any) -> None:
    told: list[tuple[int, int]] = []
    options = {"concurrency": 3, "progress": lambda *pair: told.append(pair)}
    calibration = runner.calibrate(Scripted(script=script), QUESTIONS, **options)
    assert isinstance(calibration.measure, Measure)
    assert calibration.rejected
    assert told[-1] == (40, 40)


def test_a_question_that_fails_is_left_out_with_a_warning(runner: Any, caplog: Any) -> None:
    model = failing(script, lambda question, index: question == "q3", ValueError("too long"))
    with caplog.at_level(logging.WARNING, "langchain_reasc"):
        calibration = runner.calibrate(model, QUESTIONS, measure=TOP_K)
    assert calibration.n == len(QUESTIONS) - 1
    assert "too long" in caplog.text


def test_nothing_to_calibrate_on_is_an_error(runner: Any) -> None:
    with pytest.raises(CalibrationDataError, match="no question"):
        runner.calibrate(saying("1"), [])
    with pytest.raises(CalibrationDataError, match="none of the 1 questions gave a response"):
        runner.calibrate(saying(Reply("", error=ValueError("down"))), [("q", "1")])


def test_a_model_known_to_have_none_is_refused_before_anything_is_paid(runner: Any) -> None:
    anthropic = pytest.importorskip("langchain_anthropic")
    with pytest.raises(LogprobsUnavailable, match="ChatAnthropic returns no logprobs"):
        runner.calibrate(anthropic.ChatAnthropic(model="claude", api_key="none"), QUESTIONS)


LABELLED = [(f"q{at}", "Paris") for at in range(40)]


def labelled_model() -> Scripted:
    """Sure where it is right, which is in three of four questions."""

    def script(question: str, index: int) -> Reply:
        at = int(question[1:])
        return Reply(f"It is Paris {question}", -3.0) if at % 4 else Reply(f"It is Lyon {question}", -1.0 - at / 100)

    return Scripted(script=script)


def calibrated(runner: Any, judge: Any, **options: Any) -> Any:
    return runner.calibrate(labelled_model(), LABELLED, answer=free_text(judge=judge), measure="auto", **options)


def test_calibrating_compares_with_the_right_answers(runner: Any, runs: Any) -> None:
    judge = judging(city)
    made = calibrated(runner, judge, config={"callbacks": [runs]})
    assert (made.n, made.accuracy, made.fingerprint.answer) == (40, 0.75, "free_text:judge(judge)")
    assert made.gate.threshold is not None
    assert sorted(pairs(judge)) == sorted(("Paris", f"It is {'Paris' if at % 4 else 'Lyon'} q{at}") for at in range(40))
    assert sum("reasc:judge" in run["tags"] for run in runs.of("model").values()) == 40


def test_a_response_that_cannot_be_compared_is_left_out_of_a_calibration(runner: Any, caplog: Any) -> None:
    judge = failing(judging(city).script, lambda prompt, index: asked(prompt)[0] == "q3")
    assert calibrated(runner, judge).n == 39
    assert [record for record in caplog.records if "could not be compared with the right one" in record.message]
    with pytest.raises(CalibrationDataError, match=r"no response could be compared with the right answer.*down"):
        calibrated(runner, judging(city, lambda same: Reply("", error=ConnectionError("down"))))


def test_a_pool_cannot_hold_free_text(tmp_path: Any) -> None:
    question = LabelledQuestion(id="1", input="q", reference="Paris")
    with pytest.raises(ConfigurationError, match=r"free_text:judge\(judge\) tells what means the same"):
        record_pool(saying("1"), [question], tmp_path / "p.sqlite", answer=free_text(judge=judging(city)))
    assert not list(tmp_path.iterdir())
