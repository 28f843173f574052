"""Calibrating where right is what means the same as the right answer."""

import asyncio
from typing import Any

import pytest
from sampling.test_tracing import Runs

from langchain_reasc import acalibrate, calibrate
from langchain_reasc.answers import free_text
from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError
from langchain_reasc.pools.record import record_pool

from .fakes import Reply, Scripted, saying
from .judges import asked, city, judging, pairs

LABELLED = [(f"q{at}", "Paris") for at in range(40)]


def labelled_model() -> Scripted:
    """Sure where it is right, which is in three of four questions."""

    def script(question: str, index: int) -> Reply:
        right = int(question[1:]) % 4 > 0
        return Reply(
            f"It is {'Paris' if right else 'Lyon'} {question}", -3.0 if right else -1.0 - int(question[1:]) / 100
        )

    return Scripted(script=script)


def calibrated(runner: Any, judge: Any, **options: Any) -> Any:
    arguments = {"answer": free_text(judge=judge), "measure": "auto", **options}
    if runner.is_async:
        return asyncio.run(acalibrate(labelled_model(), LABELLED, **arguments))
    return calibrate(labelled_model(), LABELLED, **arguments)


def test_calibrating_compares_with_the_right_answers(runner: Any) -> None:
    judge, runs = judging(city), Runs()
    made = calibrated(runner, judge, config={"callbacks": [runs]})
    assert (made.n, made.accuracy, made.fingerprint.answer) == (40, 0.75, "free_text:judge(judge)")
    assert made.gate.threshold is not None
    assert sorted(pairs(judge)) == sorted(("Paris", f"It is {'Paris' if at % 4 else 'Lyon'} q{at}") for at in range(40))
    assert sum("reasc:judge" in run["tags"] for run in runs.of("model").values()) == 40


def test_a_response_that_cannot_be_compared_is_left_out_of_a_calibration(runner: Any, caplog: Any) -> None:
    def script(prompt: str, index: int) -> Reply:
        question, first, second = asked(prompt)
        return Reply(
            "yes" if city(first, second) else "no", error=ConnectionError("down") if question == "q3" else None
        )

    assert calibrated(runner, Scripted(script=script)).n == 39
    assert [record for record in caplog.records if "could not be compared with the right one" in record.message]
    with pytest.raises(CalibrationDataError, match=r"no response could be compared with the right answer.*down"):
        calibrated(runner, judging(city, lambda same: Reply("", error=ConnectionError("down"))))


def test_a_pool_cannot_hold_free_text(tmp_path: Any) -> None:
    question = LabelledQuestion(id="1", input="q", reference="Paris")
    with pytest.raises(ConfigurationError, match=r"free_text:judge\(judge\) tells what means the same"):
        record_pool(saying("1"), [question], tmp_path / "p.sqlite", answer=free_text(judge=judging(city)))
    assert not list(tmp_path.iterdir())
