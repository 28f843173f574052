"""Calibrating a chat model in two lines."""

import asyncio
import logging
import random
from typing import Any

import pytest

from langchain_reasc import Measure, ReASCRunnable, acalibrate, calibrate, calibrate_offline
from langchain_reasc.exceptions import CalibrationDataError, LogprobsUnavailable

from .fakes import TOP_K, Reply, Scripted, saying

QUESTIONS = [(f"q{at}", "1") for at in range(40)]


def script(question: str, index: int) -> Reply:
    """Right and sure of it, or wrong and unsure; a function of the question alone."""
    rng = random.Random(question)
    right = rng.random() < 0.6
    return Reply(f"so it is {1 if right else 2}", -round(rng.gauss(3.0 if right else 1.5, 0.6), 3) or -0.1)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return asyncio.run(acalibrate(*args, **kwargs)) if request.param else calibrate(*args, **kwargs)

    return call


def test_it_is_algorithm_1_on_first_responses(run: Any) -> None:
    model = Scripted(script=script)
    calibration = run(model, QUESTIONS, measure=TOP_K)
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


def test_a_measure_is_chosen_on_the_responses(run: Any) -> None:
    calibration = run(Scripted(script=script), QUESTIONS, concurrency=3)
    assert isinstance(calibration.measure, Measure)
    assert calibration.rejected


def test_a_question_that_fails_is_left_out_with_a_warning(run: Any, caplog: Any) -> None:
    def failing(question: str, index: int) -> Reply:
        return Reply("", error=ValueError("too long")) if question == "q3" else script(question, index)

    with caplog.at_level(logging.WARNING, "langchain_reasc"):
        calibration = run(Scripted(script=failing), QUESTIONS, measure=TOP_K)
    assert calibration.n == len(QUESTIONS) - 1
    assert "too long" in caplog.text


def test_progress_is_told(run: Any) -> None:
    told: list[tuple[int, int]] = []
    run(Scripted(script=script), QUESTIONS, measure=TOP_K, progress=lambda *pair: told.append(pair))
    assert told[-1] == (40, 40)


def test_nothing_to_calibrate_on_is_an_error(run: Any) -> None:
    with pytest.raises(CalibrationDataError, match="no question"):
        run(saying("1"), [])
    with pytest.raises(CalibrationDataError, match="none of the 1 questions gave a response"):
        run(saying(Reply("", error=ValueError("down"))), [("q", "1")])


def test_a_model_known_to_have_none_is_refused_before_anything_is_paid(run: Any) -> None:
    anthropic = pytest.importorskip("langchain_anthropic")
    with pytest.raises(LogprobsUnavailable, match="ChatAnthropic returns no logprobs"):
        run(anthropic.ChatAnthropic(model="claude", api_key="none"), QUESTIONS)
