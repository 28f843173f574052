"""Calibrating a chat model in two lines."""

import asyncio
import csv
import json
import logging
import random
from typing import Any

import pytest
from cli.test_commands import reasc
from langchain_reasc_lab.replay import read_pool

from langchain_reasc import (
    Measure,
    ReASCRunnable,
    acalibrate,
    calibrate,
    calibrate_offline,
    load_calibration,
)
from langchain_reasc.answers import ToolVotes, free_text
from langchain_reasc.data import LabelledQuestion
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError, LogprobsUnavailable, SamplingError
from langchain_reasc.pools import record_pool

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
    calibration = runner.calibrate(model, QUESTIONS, measure=TOP_K, samples=1)
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
    for odd in ({"question": "What is 1 + 1?", "answer": "2"}, ("q", "2", "id"), None, 3):
        with pytest.raises(ConfigurationError, match="each question is a pair"):
            runner.calibrate(saying("1"), [odd])
    with pytest.raises(CalibrationDataError, match="none of the 1 questions gave a response"):
        runner.calibrate(saying(Reply("", error=ValueError("down"))), [("q", "1")])


def test_without_any_right_answer_it_calibrates_by_consensus(runner: Any, tmp_path: Any) -> None:
    texts = [question for question, _ in QUESTIONS]
    expected = runner.calibrate_unlabelled(Scripted(script=script), texts)
    (path := tmp_path / "questions.txt").write_text("\n".join(texts))
    for questions in (texts, [(text, None) for text in texts], path):
        made = runner.calibrate(Scripted(script=script), questions)
        assert made.model_dump(exclude={"created_at"}) == expected.model_dump(exclude={"created_at"})
    with pytest.raises(ConfigurationError, match="1 of 41 questions have no right answer; calibrate_unlabelled"):
        runner.calibrate(saying("1"), [*QUESTIONS, "q40"])
    with pytest.raises(ConfigurationError, match="pool= goes with labelled questions"):
        runner.calibrate(saying("1"), texts, pool=tmp_path / "p.sqlite")


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
    with pytest.raises(ConfigurationError, match=r"free_text:judge\(judge\) compares meanings"):
        record_pool(saying("1"), [question], tmp_path / "p.sqlite", answer=free_text(judge=judging(city)))
    assert not list(tmp_path.iterdir())


def test_four_responses_to_each_question_show_whether_votes_may_be_weighed(runner: Any) -> None:
    def script(question: str, index: int) -> Reply:
        rng = random.Random(f"{question} {index}")
        right = rng.random() < 0.6
        return Reply(f"so it is {1 if right else 2}", -round(rng.gauss(3.0 if right else 1.5, 0.4), 3))

    model = Scripted(script=script)
    made = runner.calibrate(model, QUESTIONS, measure=TOP_K)
    assert len(model.log.calls) == 4 * len(QUESTIONS) and made.n == len(QUESTIONS)
    assert made.within is not None and made.within.low > 0.6
    assert made.unweighed is None and made.p_correct is not None
    account = runner.account(ReASCRunnable(model=model, calibration=made), "q1")
    assert account["p_correct"]["source"] == "labels"
    alone = runner.calibrate(model, QUESTIONS, measure=TOP_K, samples=1)
    assert (alone.within, alone.p_correct) == (None, None)
    assert "--" not in (alone.unweighed or "--")


@pytest.mark.parametrize(
    ("wrong", "n", "gate"), [(0, 30, "open"), (0, 12, "too few"), (2, 30, "wrong"), (40, 40, "none")]
)
def test_a_model_that_is_nearly_always_right_calibrates(runner: Any, wrong: int, n: int, gate: str) -> None:
    """Or always wrong: nothing then tells which score is best, and what can be said is said."""

    def script(question: str, index: int) -> Reply:
        at = int(question[1:])
        return Reply(f"it is {2 if at < wrong else 1}", -2.0 - at / 100 - index % 7 / 1000)

    made = runner.calibrate(Scripted(script=script), QUESTIONS[:n])
    assert made.n == n and made.accuracy == 1 - wrong / n
    if gate == "open":
        assert made.gate.under("default")[0] is not None and made.gate.lower_bound > 0.9
        assert f"all {n} responses are right, so nothing shows whether the score" in str(made.unweighed)
    else:
        assert made.gate.under("default")[0] is None
        assert gate in str(made.gate.under("default")[1])
    assert runner.account(ReASCRunnable(model=Scripted(script=script), calibration=made), "q39")["answer"]


def silent(question: str, index: int) -> Reply:
    return Reply("it is 1", None)


def told(made: Any) -> Any:
    """What a calibration says, to the six digits that a pool keeps of a signal."""
    names = ("signal", "score", "window", "n", "accuracy", "mean", "std", "unweighed")
    found = [getattr(made, name) for name in names] + [
        made.gate.threshold,
        made.gate.safe_threshold,
        made.gate.accepted,
    ]
    found += [made.within and made.within.value, made.p_correct and made.p_correct.points, made.auroc.value]
    return json.loads(json.dumps(found), parse_float=lambda text: f"{float(text):.6g}")


@pytest.mark.parametrize("pool", [False, True])
def test_a_model_without_confidence_costs_one_response(runner: Any, tmp_path: Any, pool: bool) -> None:
    model = Scripted(script=silent)
    options: dict[str, Any] = {"pool": tmp_path / "p.sqlite", "samples": 1} if pool else {}
    for calls in (1, 2):
        with pytest.raises(LogprobsUnavailable, match="so no further question was asked: the response"):
            runner.calibrate(model, QUESTIONS, **options)
        assert len(model.log.calls) == calls


def test_a_model_that_states_none_though_it_was_asked_is_given_up_after_three(runner: Any) -> None:
    model = Scripted(script=silent)
    with pytest.raises(LogprobsUnavailable, match="states no confidence"):
        runner.calibrate(model, QUESTIONS, ask_confidence=True, samples=1, concurrency=1)
    assert len(model.log.calls) <= 4


@pytest.mark.parametrize("stop", [ValueError("too long"), KeyboardInterrupt()])
def test_with_a_pool_nothing_that_was_paid_for_is_lost(tmp_path: Any, stop: BaseException) -> None:
    path, model = tmp_path / "calibration-pool.sqlite", Scripted(script=script)
    options: dict[str, Any] = {"pool": path, "samples": 2, "concurrency": 1}

    def interrupt(done: int, total: int) -> None:
        if done == 10 and isinstance(stop, KeyboardInterrupt):
            raise stop

    broken = failing(script, lambda question, index: question == "q10", stop) if isinstance(stop, Exception) else model
    with pytest.raises((SamplingError, KeyboardInterrupt)):
        calibrate(broken, QUESTIONS, progress=interrupt, **options)
    held = len(read_pool(path).questions)
    assert held >= 10
    going_on = Scripted(script=script)
    made = calibrate(going_on, QUESTIONS, **options)
    assert len(going_on.log.calls) == 2 * (len(QUESTIONS) - held)
    again = Scripted(script=script)
    assert calibrate(again, QUESTIONS, **options).gate == made.gate and not again.log.calls
    assert asyncio.run(acalibrate(again, QUESTIONS, **options)).gate == made.gate and not again.log.calls
    whole = calibrate(Scripted(script=script), QUESTIONS, samples=2)
    assert told(made) == told(whole)
    by_command = tmp_path / "c.json"
    reasc("calibrate", "--pool", path, "--out", by_command)
    assert told(load_calibration(by_command)) == told(made)


def test_the_order_in_which_a_pool_was_filled_does_not_matter(tmp_path: Any) -> None:
    made = []
    for name, first in (("forward", QUESTIONS), ("backward", QUESTIONS[::-1])):
        options: dict[str, Any] = {"pool": tmp_path / f"{name}.sqlite", "samples": 2, "concurrency": 1}
        calibrate(Scripted(script=script), first, **options)
        made.append(calibrate(Scripted(script=script), QUESTIONS, **options).model_dump(exclude={"created_at"}))
    assert (
        read_pool(tmp_path / "forward.sqlite").questions[0].id
        != read_pool(tmp_path / "backward.sqlite").questions[0].id
    )
    assert made[0] == made[1]


def test_a_pool_asynchronously_that_is_cancelled(tmp_path: Any) -> None:
    path, model = tmp_path / "p.sqlite", Scripted(script=script, delay=0.02)

    async def cancelled() -> None:
        task = asyncio.create_task(acalibrate(model, QUESTIONS, pool=path, samples=1, concurrency=1))
        while len(model.log.calls) < 5:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert 3 <= len(read_pool(path).questions) <= len(model.log.calls) < len(QUESTIONS)


def test_what_a_pool_does_not_keep_is_refused(runner: Any, tmp_path: Any) -> None:
    for options in ({"ask_confidence": True}, {"tool_votes": ToolVotes(exclude_args=["note"])}):
        with pytest.raises(ConfigurationError, match="pool= goes without"):
            runner.calibrate(saying("1"), QUESTIONS, pool=tmp_path / "p.sqlite", **options)
    with pytest.raises(ConfigurationError, match="each question once, and 'q0' is there again"):
        runner.calibrate(saying("1"), QUESTIONS * 2, pool=tmp_path / "p.sqlite")
    with pytest.raises(ConfigurationError, match="samples must be 1 or more, got 0"):
        runner.calibrate(saying("1"), QUESTIONS, samples=0)


def test_prompts_of_several_messages_go_into_a_pool(runner: Any, tmp_path: Any) -> None:
    prompts = [([("system", "be brief"), ("user", question)], right) for question, right in QUESTIONS]
    path = tmp_path / "p.sqlite"
    made = runner.calibrate(Scripted(script=script), prompts, pool=path, samples=1, fixed_prompt=1)
    again = Scripted(script=script)
    assert runner.calibrate(again, prompts, pool=path, samples=1, fixed_prompt=1).gate == made.gate
    assert not again.log.calls
    straight = runner.calibrate(Scripted(script=script), prompts, samples=1, fixed_prompt=1)
    assert straight.fingerprint == made.fingerprint
    assert told(straight) == told(made)


def test_a_file_is_asked_as_its_questions_are(runner: Any, tmp_path: Any) -> None:
    rows = [(f"What is {at} +\n1, or so?", str(at + 1)) for at in range(12)]
    with (path := tmp_path / "questions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("question", "answer"), *rows])

    def script(question: str, index: int) -> Reply:
        at = int(question.split()[2])
        return Reply(f"it is {at + 1 if at % 4 else 0}", -3.0 + at / 10 if at % 4 else -1.0 - at / 50)

    same, made = {"mean", "std", "n", "gate", "accuracy"}, []
    for questions in (str(path), path, rows, [(question, ["nothing", right]) for question, right in rows]):
        made.append(runner.calibrate(Scripted(script=script), questions, measure=TOP_K, samples=1))
        assert (made[-1].n, made[-1].accuracy) == (12, 0.75)
        assert made[-1].model_dump(include=same) == made[0].model_dump(include=same)


@pytest.mark.parametrize("name", ["q.txt", "pairs.csv"])
def test_files_of_questions_without_answers(runner: Any, tmp_path: Any, name: str) -> None:
    texts = [f"What is {at} + 1?" for at in range(8)]
    (path := tmp_path / name).write_text(
        "\n".join(texts) if name == "q.txt" else "\n".join(f"{one},1" for one in texts)
    )
    model = saying("1")
    assert runner.calibrate_unlabelled(model, path, max_samples=4).n == 8
    assert {question for question, _ in model.log.calls} == set(texts)


def test_a_file_that_cannot_be_read_is_told_before_anything_is_paid_for(runner: Any, tmp_path: Any) -> None:
    (tmp_path / "odd.csv").write_text("text,gold\nWhat?,1\n")
    for name, why in (("none.csv", "there is no such file"), ("odd.csv", r"read_questions\(..., question_field=...\)")):
        with pytest.raises(ConfigurationError, match=why) as raised:
            runner.calibrate(saying("1"), tmp_path / name)
        assert "--" not in str(raised.value)
