"""Calibrating a chat model in two lines, on labels or without, from files, and over a checkpoint."""

import csv
import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from langchain_reasc import ReASCRunnable, calibrate_offline
from langchain_reasc.answers import free_text
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure

from .fakes import TOP_K, Reply, Scripted, failing, saying
from .judges import asked, city, judging, pairs

QUESTIONS = [(f"q{at}", "1") for at in range(40)]


def script(question: str, index: int) -> Reply:
    """Right and sure of it, or wrong and unsure; a function of the question alone."""
    rng = random.Random(question)
    right = rng.random() < 0.6
    return Reply(f"so it is {1 if right else 2}", -round(rng.gauss(3.0 if right else 1.5, 0.6), 3) or -0.1)


def test_it_is_algorithm_1_on_first_responses(runner: Any, caplog: Any) -> None:
    """A question that fails is left out, with a warning."""
    model = failing(script, lambda question, index: question == "q40", ValueError("too long"))
    with caplog.at_level(logging.WARNING, "langchain_reasc"):
        calibration = runner.calibrate(model, [*QUESTIONS, ("q40", "1")], measure=TOP_K, samples=1)
    assert "too long" in caplog.text
    replies = [script(question, 0) for question, _ in QUESTIONS]
    expected = calibrate_offline(
        [-float(reply.logprob or 0) for reply in replies],
        [reply.text.endswith("1") for reply in replies],
        measure=TOP_K,
        top_k=2,
    )
    same = {"mean", "std", "n", "gate", "auroc", "accuracy"}
    assert calibration.model_dump(include=same) == expected.model_dump(include=same)
    assert len(model.log.calls) == len(QUESTIONS) + 1
    assert ReASCRunnable(model=model, calibration=calibration).invoke("q0").response_metadata["reasc"]["samples"]


@pytest.mark.sync_only
def test_without_any_right_answer_it_calibrates_by_consensus(runner: Any, tmp_path: Any) -> None:
    texts = [question for question, _ in QUESTIONS]
    expected = runner.calibrate_unlabelled(Scripted(script=script), texts, measure=TOP_K)
    (path := tmp_path / "questions.txt").write_text("\n".join(texts))
    for questions in ([(text, None) for text in texts], path):
        made = runner.calibrate(Scripted(script=script), questions, measure=TOP_K)
        assert made.model_dump(exclude={"created_at"}) == expected.model_dump(exclude={"created_at"})
    with pytest.raises(ConfigurationError, match="1 of 41 questions have no right answer; calibrate_unlabelled"):
        runner.calibrate(saying("1"), [*QUESTIONS, "q40"])


LABELLED = [(f"q{at}", "Paris") for at in range(40)]


def compared(runner: Any, judge: Any, *, samples: int = 1, **options: Any) -> Any:
    """Calibrate a model that is sure where it is right, which is in three of four questions."""

    def script(question: str, index: int) -> Reply:
        at = int(question[1:])
        return Reply(f"It is Paris {question}", -3.0) if at % 4 else Reply(f"It is Lyon {question}", -1.0 - at / 100)

    return runner.calibrate(
        Scripted(script=script), LABELLED, answer=free_text(judge=judge), samples=samples, **options
    )


def test_free_text_is_compared_with_the_right_answers(runner: Any, runs: Any, caplog: Any) -> None:
    judge = judging(city)
    made = compared(runner, judge, config={"callbacks": [runs]})
    assert (made.n, made.accuracy, made.fingerprint.answer) == (40, 0.75, "free_text:judge(judge)")
    assert sorted(pairs(judge)) == sorted(("Paris", f"It is {'Paris' if at % 4 else 'Lyon'} q{at}") for at in range(40))
    assert sum("reasc:judge" in run["tags"] for run in runs.of("model").values()) == 40
    assert compared(runner, failing(judging(city).script, lambda prompt, index: asked(prompt)[0] == "q3")).n == 39
    assert [record for record in caplog.records if "could not be compared with the right one" in record.message]
    with pytest.raises(CalibrationDataError, match=r"no response could be compared with the right answer.*down"):
        compared(runner, judging(city, lambda same: Reply("", error=ConnectionError("down"))))


def test_answers_that_only_mean_the_same_teach_nothing_of_agreement(runner: Any) -> None:
    """Four spellings of one answer would look like four answers."""
    made = compared(runner, judging(city), samples=4)
    assert (made.n, made.accuracy, made.by_agreement()) == (40, 0.75, False)


@pytest.mark.sync_only
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
    assert runner.account(ReASCRunnable(model=model, calibration=made), "q1")["p_correct"]["source"] == "labels"
    alone = runner.calibrate(model, QUESTIONS, measure=TOP_K, samples=1)
    assert (alone.within, alone.p_correct) == (None, None)
    assert "--" not in (alone.unweighed or "--")


def silent(question: str, index: int) -> Reply:
    return Reply("it is 1", None)


def test_a_model_without_confidence_costs_one_response(runner: Any) -> None:
    model = Scripted(script=silent)
    with pytest.raises(LogprobsUnavailable, match="so no further question was asked: the response"):
        runner.calibrate(model, QUESTIONS)
    assert len(model.log.calls) == 1
    model = Scripted(script=script)
    with pytest.raises(LogprobsUnavailable, match="'self_certainty' cannot be had from this model; its responses have"):
        runner.calibrate(model, QUESTIONS, measure=Measure("self_certainty"))
    assert len(model.log.calls) == 1
    anthropic = pytest.importorskip("langchain_anthropic")
    with pytest.raises(LogprobsUnavailable, match="ChatAnthropic returns no logprobs"):
        runner.calibrate(anthropic.ChatAnthropic(model="claude", api_key="none"), QUESTIONS)


def test_a_model_that_states_none_though_it_was_asked_is_given_up_after_three(runner: Any) -> None:
    model = Scripted(script=silent)
    with pytest.raises(LogprobsUnavailable, match="states no confidence"):
        runner.calibrate(model, QUESTIONS, ask_confidence=True, samples=1, concurrency=1)
    assert len(model.log.calls) <= 4


@pytest.mark.sync_only
def test_a_file_is_asked_as_its_questions_are(runner: Any, tmp_path: Any) -> None:
    rows = [(f"What is {at} +\n1, or so?", str(at + 1)) for at in range(12)]
    with (path := tmp_path / "questions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("question", "answer"), *rows])

    def script(question: str, index: int) -> Reply:
        at = int(question.split()[2])
        return Reply(f"it is {at + 1 if at % 4 else 0}", -3.0 + at / 10 if at % 4 else -1.0 - at / 50)

    same, made = {"mean", "std", "n", "gate", "accuracy"}, []
    for questions in (str(path), path, [(question, ["nothing", right]) for question, right in rows]):
        made.append(runner.calibrate(Scripted(script=script), questions, measure=TOP_K, samples=1))
        assert (made[-1].n, made[-1].accuracy) == (12, 0.75)
        assert made[-1].model_dump(include=same) == made[0].model_dump(include=same)
    (tmp_path / "odd.csv").write_text("text,gold\nWhat?,1\n")
    with pytest.raises(ConfigurationError, match=r"read_questions\(..., question_field=...\)"):
        runner.calibrate(saying("1"), tmp_path / "odd.csv")


@pytest.mark.sync_only
@pytest.mark.parametrize("name", ["q.txt", "pairs.csv"])
def test_files_of_questions_without_answers(runner: Any, tmp_path: Any, name: str) -> None:
    texts = [f"What is {at} + 1?" for at in range(8)]
    (path := tmp_path / name).write_text(
        "\n".join(texts) if name == "q.txt" else "\n".join(f"{one},1" for one in texts)
    )
    model = saying("1")
    assert runner.calibrate_unlabelled(model, path, max_samples=4).n == 8
    assert {question for question, _ in model.log.calls} == set(texts)


UNLABELLED = [f"q{i}" for i in range(6)]


def two_of_three(question: str, index: int) -> Reply:
    return Reply(f"it is {'112'[index % 3]}", -1.0 - index)


def test_each_question_is_asked_until_the_votes_are_clear(runner: Any, fits: Any) -> None:
    model = Scripted(script=lambda q, i: two_of_three(q, i) if q == "q0" else Reply("it is 1", -1.0 - i))
    runner.calibrate_unlabelled(model, UNLABELLED, measure=TOP_K, max_samples=6, concurrency=1)
    assert model.log.most_live <= 4, "of one question at a time"
    answers = [question.answers for question in fits[0].questions]
    assert answers == [(0, 0, 1, 0, 0, 1), *[(0, 0, 0, 0)] * 5]
    np.testing.assert_allclose(fits[0].questions[0].scores, [[1, 2, 3, 4, 5, 6]], rtol=1e-6)
    given = fits[0].options
    assert (fits[0].measures, given["budget"], given["threshold"]) == ([TOP_K], 6, 0.975)
    assert given["made_of"] == {"top_k": {"top_k": 1, "vocabulary_size": None}}
    assert given["fingerprint"].model == "scripted" and given["fingerprint"].answer == "auto"
    assert all(question.right == () for question in fits[0].questions)


@pytest.mark.sync_only
@pytest.mark.sync_only
def test_what_was_learned_of_the_model_online_does_not_decide_how_it_is_calibrated(runner: Any, fits: Any) -> None:
    model = Scripted(script=lambda question, index: Reply("so it is 1", -3.0))
    reasc = ReASCRunnable(model=model, calibration="online", max_samples=16, audit=0)
    for at in range(20):
        runner.invoke(reasc, f"q{at}")
    assert reasc.calibrator is not None and reasc.calibrator.wait(10)  # type: ignore[union-attr]
    launched = runner.account(reasc, "another")["launched"]
    before = len(model.log.calls)
    runner.calibrate_unlabelled(model, [f"p{at}" for at in range(8)])
    assert launched < 4 == (len(model.log.calls) - before) / 8


def test_known_answers_are_graded(runner: Any, fits: Any) -> None:
    script = [Reply("it is 1"), Reply("no idea"), Reply("it is 2"), Reply("it is 1"), Reply("it is 1")]
    model = Scripted(script=lambda question, index: script[index % 5])
    runner.calibrate_unlabelled(model, [("q0", "1"), "q1", ("q2", "2"), ("q3", None)], max_samples=5)
    rights = [question.right for question in fits[0].questions]
    assert rights == [(True, False, False, True, True), (), (False, False, True, False, False), ()]
    same = free_text(same=lambda one, other: one.lower().strip("!.") == other.lower().strip("!."))
    model = saying("Paris", "paris!", "Rome", "Paris", "Paris")
    runner.calibrate_unlabelled(model, [("q", "the answer is paris")], answer=same, max_samples=5)
    [question] = fits[1].questions
    assert set(zip(question.answers, question.right, strict=True)) <= {(0, True), (1, False)}


def test_an_unlabelled_question_that_fails_is_left_out(runner: Any, fits: Any, caplog: Any) -> None:
    model = failing(lambda question, index: Reply("it is 1"), lambda question, index: question == "q3")
    progress: list[tuple[int, int]] = []
    with caplog.at_level(logging.WARNING):
        runner.calibrate_unlabelled(model, UNLABELLED, progress=lambda *one: progress.append(one))
    assert len(fits[0].questions) == 5
    assert "a question is left out of the calibration: SamplingError" in caplog.text
    assert progress[-1] == (6, 6)
    with pytest.raises(CalibrationDataError, match="none of the 6 questions gave a response; the first: SamplingError"):
        runner.calibrate_unlabelled(failing(script, lambda question, index: True), UNLABELLED)
    for options in ({"concurrency": 0}, {"max_samples": 1}):
        with pytest.raises(ConfigurationError, match=rf"{next(iter(options))} must be \d or more"):
            runner.calibrate_unlabelled(model, UNLABELLED, **options)


@pytest.mark.parametrize("changed", [{}, {"answer": "text"}], ids=["the same", "answer"])
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
    assert {question for question, _ in model.log.calls} == {"q3", "q4", "q5"}  # known answers are graded anew
    assert not options["checkpoint"].exists()
    assert len(fits) == 1
    runner.calibrate_unlabelled(
        model, ["q0", "q1", "q2", *known, "q3", "q4"], **{**options, **changed, "checkpoint": None}
    )
    learned, anew = (sorted(repr((q.answers, q.scores, q.right)) for q in one.questions) for one in fits)
    assert learned == anew
    assert fits[0].options["made_of"] == fits[1].options["made_of"]
