"""Calibrating a chat model in two lines: with labels, without, or mixed; from files; over a checkpoint of rows."""

import csv
import json
import logging
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from langchain_reasc import Online, ReASC, ReASCRunnable, calibrate, calibrate_offline
from langchain_reasc.answers import EXTRACTION_VERSION, free_text
from langchain_reasc.calibration import ObservationStore, RuleBlock
from langchain_reasc.data import read_unlabelled
from langchain_reasc.exceptions import (
    CalibrationDataError,
    CalibrationFileError,
    ConfigurationError,
    FingerprintMismatch,
    LogprobsUnavailable,
)
from langchain_reasc.method.confidence import Measure

from .fakes import TOP_K, Reply, Scripted, failing, saying
from .judges import city, judging, pairs

TEXTS = [f"q{at}" for at in range(40)]
LABELLED = [(text, "1") for text in TEXTS]


def script(question: str, index: int) -> Reply:
    """Right and sure of it, or wrong and unsure; one question in five is split."""
    rng = random.Random(f"{question} {index}" if int(question[1:]) % 5 == 0 else question)
    right = rng.random() < 0.6
    return Reply(
        f"so it is {1 if right else 2}", -round(random.Random(f"{question}-{index}").gauss(3 if right else 1.5, 0.6), 3)
    )


def said(made: Any) -> Any:
    return made.model_dump(exclude={"created_at"})


def test_one_response_to_each_question_is_algorithm_1(runner: Any, caplog: Any) -> None:
    """A question that fails is left out, with a warning."""
    model = failing(script, lambda question, index: question == "q40", ValueError("too long"))
    with caplog.at_level(logging.WARNING, "langchain_reasc"):
        made = runner.calibrate(model, [*LABELLED, ("q40", "1")], measure=TOP_K, max_samples=1)
    assert "too long" in caplog.text
    replies = [script(text, 0) for text in TEXTS]
    expected = calibrate_offline(
        [-float(reply.logprob or 0) for reply in replies],
        [reply.text.endswith("1") for reply in replies],
        measure=TOP_K,
        top_k=2,
    )
    same = {"mean", "std", "n", "gate", "auroc", "accuracy"}
    assert made.model_dump(include=same) == expected.model_dump(include=same)
    assert (made.within, made.p_correct, made.by_agreement) == (None, None, False)
    assert len(model.log.calls) == len(LABELLED) + 1
    assert ReASCRunnable(model=model, calibration=made).invoke("q0").response_metadata["reasc"]["samples"]


@pytest.fixture(scope="module")
def plain() -> Any:
    """What is learned without labels."""
    return calibrate(Scripted(script=script), TEXTS, measure=TOP_K)


@pytest.mark.full
@pytest.mark.sync_only
@pytest.mark.parametrize("labelled", [1, 12, 40])
def test_labels_only_add(runner: Any, plain: Any, labelled: int) -> None:
    """16 of them add P(correct), and everything else stays as it is."""
    questions = [*LABELLED[:labelled], *TEXTS[labelled:]]
    made = runner.calibrate(Scripted(script=script), questions, measure=TOP_K)
    assert made.rule_ == plain.rule_ and made.by_agreement
    assert said(made.model_copy(update={"p_correct": None, "accuracy": None})) == said(plain)
    assert (made.p_correct is not None) == (labelled == 40)
    account = runner.account(ReASCRunnable(model=Scripted(script=script), calibration=made), "q1")
    assert ("p_correct" in account) == (labelled == 40)


def likelier(question: str, index: int) -> Reply:
    """Right responses are the likelier ones, too; all questions are split."""
    reply = script(f"{question}0", index)
    return replace(reply, logprob=min(-0.1, -5.0 - (reply.logprob or 0)))


@pytest.mark.full
@pytest.mark.sync_only
def test_nor_do_they_choose_another_measure(runner: Any) -> None:
    plain, made = (runner.calibrate(Scripted(script=likelier), questions) for questions in (TEXTS, LABELLED))
    assert plain.measure == made.measure == Measure("token_logprob", "mean")
    assert made.p_correct is not None
    assert said(made.model_copy(update={"p_correct": None, "accuracy": None})) == said(plain)


@pytest.mark.full
@pytest.mark.sync_only
def test_but_scores_are_not_read_that_labels_refute(runner: Any) -> None:
    """A response of little probability scores high by these."""
    plain, made = (
        runner.calibrate(Scripted(script=likelier), questions, measure=TOP_K) for questions in (TEXTS, LABELLED)
    )
    assert (plain.measure, plain.untrusted) == (TOP_K, None)
    assert made.measure is None and str(TOP_K) in made.untrusted
    account = runner.account(ReASCRunnable(model=Scripted(script=likelier), calibration=made), "q1")
    assert made.untrusted in account["notices"][0]


def test_the_paper_s_method_makes_the_paper_s_rule(runner: Any) -> None:
    made = runner.calibrate(Scripted(script=script), LABELLED, measure=TOP_K, method="paper")
    rule = made.rule()
    assert isinstance(rule, ReASC) and (rule.gate, rule.weight) == (made.gate.threshold, "reasc")
    assert ReASCRunnable(model=Scripted(script=script), calibration=made).invoke("q1").response_metadata["reasc"]


@pytest.mark.parametrize(
    ("questions", "options"),
    [
        (TEXTS, {"method": "paper"}),
        ([*LABELLED[:19], *TEXTS[19:]], {"method": "paper"}),
        (LABELLED, {"method": "Paper"}),
        (LABELLED, {"method": "paper", "escalate_to": saying("1")}),
    ],
    ids=["no labels", "few labels", "another name", "two models"],
)
def test_a_method_that_cannot_be_had_is_refused_before_anything_is_asked(
    runner: Any, questions: Any, options: Any
) -> None:
    model = Scripted(script=script)
    with pytest.raises(ConfigurationError, match="method"):
        runner.calibrate(model, questions, **options)
    assert not model.log.calls


@pytest.mark.full
@pytest.mark.sync_only
@pytest.mark.parametrize(("text", "right"), [("so it is 1", True), ("so it is 2", False)])
def test_where_all_are_right_or_all_wrong(runner: Any, text: str, right: bool) -> None:
    rng = random.Random(0)
    model = Scripted(script=lambda *_: Reply(text, -round(rng.gauss(3, 0.3), 3)))
    made = runner.calibrate(model, LABELLED)
    assert made.by_agreement and made.p_correct is not None and made.p_correct.right == right
    [(low, high)] = {*zip(made.p_correct.low, made.p_correct.high, strict=True)}
    assert (low, high) == pytest.approx((0.912, 1) if right else (0, 0.088), abs=1e-3)
    papers = runner.calibrate(model, LABELLED, method="paper")
    assert (papers.accuracy, papers.by_agreement, papers.gate.threshold is not None) == (right, False, right)


CITIES = [(text, "Paris") for text in TEXTS]


def spelled(question: str, index: int) -> Reply:
    """Two spellings of one city; sure where it is the right one, which is in three of four questions."""
    word, sure = ("Paris", 3.0) if int(question[1:]) % 4 else ("Lyon", 1.0)
    return Reply(f"It is {word} {'!' * (index % 2)}", -sure - index / 100 - int(question[1:]) / 1000)


@pytest.mark.full
def test_free_text_is_compared_by_meaning_with_the_others_and_with_the_right_answer(runner: Any, runs: Any) -> None:
    judge = judging(city)
    made = runner.calibrate(
        Scripted(script=spelled), CITIES, answer=free_text(judge=judge), measure=TOP_K, config={"callbacks": [runs]}
    )
    assert (made.n, made.p_correct.right, made.by_agreement) == (40, 0.75, True)
    assert made.fingerprint.answer == f"free_text:judge(judge), version {EXTRACTION_VERSION}"
    assert sum("Paris" in pair for pair in pairs(judge)) >= 40
    assert sum("reasc:judge" in run["tags"] for run in runs.of("model").values()) == len(judge.log.calls)


@pytest.mark.full
def test_a_question_whose_answers_cannot_be_judged_has_no_label(runner: Any, caplog: Any, tmp_path: Path) -> None:
    """Another call with the same checkpoint asks it again."""
    down = judging(city, lambda same: Reply("", error=ConnectionError("down")))
    path = tmp_path / "rows.sqlite"
    options: dict[str, Any] = {"answer": free_text(judge=down), "measure": TOP_K, "max_samples": 1, "checkpoint": path}
    with caplog.at_level(logging.WARNING, "langchain_reasc"):
        made = runner.calibrate(Scripted(script=spelled), CITIES, **options)
    assert (made.n, made.accuracy) == (40, None)
    assert "down" in caplog.text
    options["answer"] = free_text(judge=judging(city))
    again = Scripted(script=spelled)
    assert runner.calibrate(again, CITIES, **options).accuracy == 0.75
    assert len(again.log.calls) == 40


def silent(question: str, index: int) -> Reply:
    return Reply(script(question, index).text, None)


@pytest.mark.full
@pytest.mark.parametrize("questions", [TEXTS, LABELLED], ids=["unlabelled", "labelled"])
def test_without_logprobs_answers_are_learned_from(runner: Any, questions: Any) -> None:
    made = runner.calibrate(Scripted(script=silent), questions)
    assert (made.measure, made.by_agreement, made.p_correct is not None) == (None, True, questions is LABELLED)
    assert "scores" in (made.untrusted or "")


def test_a_measure_that_the_responses_do_not_carry_is_refused_at_once(runner: Any) -> None:
    model = Scripted(script=silent)
    with pytest.raises((LogprobsUnavailable, ExceptionGroup)):
        runner.calibrate(model, LABELLED, measure=TOP_K, concurrency=1)
    assert {question for question, _ in model.log.calls} <= {"q0", "q1"}
    with pytest.raises(ConfigurationError, match="ask_confidence=True"):
        runner.calibrate(model, LABELLED, measure=Measure("verbalized", "mean"))


@pytest.mark.sync_only
@pytest.mark.parametrize(
    ("model", "named", "signals"),
    [
        (Scripted(script=silent), TOP_K, "no signals"),
        (
            Scripted(script=script),
            Measure("self_certainty"),
            "token_logprob, top_k",
        ),
    ],
)
def test_a_refused_measure_names_the_signals_that_there_are(runner: Any, model: Any, named: Any, signals: str) -> None:
    with pytest.raises((LogprobsUnavailable, ExceptionGroup)) as refused:
        runner.calibrate(model, LABELLED, measure=named, concurrency=1)
    group = refused.value
    error = group.exceptions[0] if isinstance(group, ExceptionGroup) else group
    assert signals in str(error)


@pytest.mark.full
@pytest.mark.parametrize("written", ["true", '"True"'], ids=["JSON", "a table's text"])
def test_a_truth_value_is_right_as_yes_and_as_true(runner: Any, tmp_path: Path, written: str) -> None:
    """In a file and in a pair; and a no is wrong."""
    path = tmp_path / "strategy.json"
    path.write_text(json.dumps([{"question": text, "answer": json.loads(written)} for text in TEXTS]))
    said = {0: "Yes", 1: "true", 2: "no", 3: "False"}
    model = Scripted(script=lambda question, _: Reply(f"The answer is \\boxed{{{said[int(question[1:]) % 4]}}}"))
    pairs = [(text, json.loads(written)) for text in TEXTS]
    for questions in (path, pairs):
        made = runner.calibrate(model, questions, measure=TOP_K)
        assert made.p_correct is not None and made.p_correct.right == 0.5


@pytest.mark.full
def test_a_first_response_without_an_answer_counts_as_wrong(runner: Any) -> None:
    """As on recorded responses: it is evidence against trusting a confident first response alone."""

    def unanswered(question: str, index: int) -> Reply:
        reply = script(question, index)
        return replace(reply, text="I cannot tell.") if int(question[1:]) % 4 == 1 and index == 0 else reply

    made = runner.calibrate(Scripted(script=unanswered), LABELLED, measure=TOP_K, max_samples=4, method="paper")
    first = [unanswered(text, 0) for text in TEXTS]
    right = [one.text.endswith("1") for one in first]
    expected = calibrate_offline([-float(one.logprob or 0) for one in first], right, measure=TOP_K, top_k=2)
    assert (made.n, made.accuracy, made.gate) == (40, expected.accuracy, expected.gate.as_in_paper())


@pytest.mark.full
def test_responses_that_were_cut_off_are_told_from_those_without_an_answer(runner: Any) -> None:
    for metadata, says in (({"finish_reason": "length"}, "of the responses were cut off"), ({}, "no answer was")):
        silent = Reply("I cannot tell.", metadata=metadata)
        made = runner.calibrate(saying("the answer is 1", silent), [f"q{at}" for at in range(20)])
        assert says in made.summary() and made.expected.unanswered > 0.5


@pytest.mark.full
@pytest.mark.sync_only
def test_a_file_is_asked_as_its_questions_are(runner: Any, tmp_path: Any) -> None:
    rows = [(f"What is {at} +\n1, or so?", str(at + 1)) for at in range(12)]
    with (path := tmp_path / "questions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("question", "answer"), *rows])

    def script(question: str, index: int) -> Reply:
        at = int(question.split()[2])
        return Reply(f"it is {at + 1 if at % 4 else 0}", -3.0 + at / 10 if at % 4 else -1.0 - at / 50)

    made = []
    for questions in (str(path), path, [(question, ["nothing", right]) for question, right in rows]):
        made.append(runner.calibrate(Scripted(script=script), questions, measure=TOP_K, method="paper"))
        assert (made[-1].n, made[-1].accuracy) == (12, 0.75)
        assert said(made[-1]) == said(made[0])
    (tmp_path / "odd.csv").write_text("text,gold\nWhat?,1\n")
    with pytest.raises(ConfigurationError, match=r"read_questions\(..., question_field=...\)"):
        runner.calibrate(saying("1"), tmp_path / "odd.csv")
    texts = [f"What is {at} + 1?" for at in range(8)]
    (tmp_path / "q.txt").write_text("\n".join(texts))
    (tmp_path / "q.csv").write_text("\n".join(["question,note", *(f"{one},x" for one in texts)]))
    for questions in (tmp_path / "q.txt", read_unlabelled(tmp_path / "q.csv")):
        model = saying("1")
        assert runner.calibrate(model, questions, max_samples=4).n == 8
        assert {question for question, _ in model.log.calls} == set(texts)


def two_of_three(question: str, index: int) -> Reply:
    return Reply(f"it is {'112'[index % 3]}", -1.0 - index)


def test_each_question_is_asked_until_the_votes_are_clear(runner: Any, fits: Any) -> None:
    model = Scripted(script=lambda q, i: two_of_three(q, i) if q == "q0" else Reply("it is 1", -1.0 - i))
    runner.calibrate(model, TEXTS[:6], measure=TOP_K, max_samples=6, concurrency=1)
    assert model.log.most_live <= 4, "of one question at a time"
    answers = [question.answers for question in fits[0].questions]
    assert answers == [(0, 0, 1, 0, 0), *[(0, 0, 0)] * 5], "until the rest can hardly change the answer"
    np.testing.assert_allclose(fits[0].questions[0].scores, [[1, 2, 3, 4, 5]], rtol=1e-6)
    given = fits[0].options
    assert (fits[0].measures, given["budget"], given["threshold"]) == ([TOP_K], 6, None)
    assert given["provenance"] == {"top_k": {"top_k": 1, "vocabulary_size": None}}
    assert given["fingerprint"].model == "scripted"
    assert given["fingerprint"].answer == f"auto, version {EXTRACTION_VERSION}"
    assert all(question.right == () for question in fits[0].questions)


@pytest.mark.full
@pytest.mark.sync_only
def test_what_was_learned_of_the_model_online_does_not_decide_how_it_is_calibrated(runner: Any, fits: Any) -> None:
    model = Scripted(script=lambda question, index: Reply("so it is 1", -3.0))
    reasc = ReASCRunnable(model=model, calibration=Online(audit=0), max_samples=16)
    for at in range(20):
        runner.invoke(reasc, f"q{at}")
    assert reasc.calibrator is not None and reasc.calibrator.wait(10)  # type: ignore[union-attr]
    launched = runner.account(reasc, "another")["launched"]
    before = len(model.log.calls)
    runner.calibrate(model, [f"p{at}" for at in range(8)])
    assert launched < 4 == (len(model.log.calls) - before) / 8


def test_known_answers_are_graded(runner: Any, fits: Any) -> None:
    script = [Reply("it is 1"), Reply("I cannot tell."), Reply("it is 2"), Reply("it is 1"), Reply("it is 1")]
    model = Scripted(script=lambda question, index: script[index % 5])
    runner.calibrate(model, [("q0", "1"), "q1", ("q2", ["2", "3"]), ("q3", None)], max_samples=5)
    rights = [question.right for question in fits[0].questions]
    assert rights == [(True, False, False, True, True), (), (False, False, True, False, False), ()]
    same = free_text(same=lambda one, other: one.lower().strip("!.") == other.lower().strip("!."))
    model = saying("Paris", "paris!", "Rome", "Paris", "Paris")
    runner.calibrate(model, [("q", "the answer is paris")], answer=same, max_samples=5)
    [question] = fits[1].questions
    assert set(zip(question.answers, question.right, strict=True)) == {(0, True), (1, False)}


def test_what_cannot_be_asked(runner: Any, fits: Any, caplog: Any) -> None:
    model = failing(lambda question, index: Reply("it is 1"), lambda question, index: question == "q3")
    progress: list[tuple[int, int]] = []
    runner.calibrate(model, TEXTS[:6], progress=lambda *one: progress.append(one))
    assert len(fits[0].questions) == 5
    assert "SamplingError" in caplog.text
    assert progress[-1] == (6, 6)
    with pytest.raises(CalibrationDataError, match=r"6 questions.*SamplingError"):
        runner.calibrate(failing(script, lambda question, index: True), TEXTS[:6])
    asked = len(model.log.calls)
    for wrong in ({"concurrency": 0}, {"threshold": 0.4}, {"p_target": 1.0}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            runner.calibrate(model, TEXTS[:6], **wrong)
    assert len(model.log.calls) == asked, "nothing is paid for"


def nearly(value: Any) -> Any:
    """A rule, equal to one that was learned from the same scores in 32 bits, as a file keeps them."""
    if isinstance(value, RuleBlock):
        return nearly(value.model_dump())
    if isinstance(value, dict):
        return {key: nearly(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(map(nearly, value))
    return pytest.approx(value, rel=1e-5) if isinstance(value, float) else value


@pytest.mark.full
def test_a_call_that_was_interrupted_goes_on_from_its_checkpoint(runner: Any, tmp_path: Path) -> None:
    """What was paid for is not asked again, in whatever order, but a question whose label was corrected is."""

    def stop(done: int, total: int) -> None:
        if done == 10:
            raise InterruptedError

    path = tmp_path / "rows.sqlite"
    options: dict[str, Any] = {"measure": TOP_K, "concurrency": 1, "checkpoint": path}
    questions = [*LABELLED[:18], *TEXTS[18:24]]
    with pytest.raises((InterruptedError, ExceptionGroup)):
        runner.calibrate(Scripted(script=script), questions[::-1], progress=stop, **options)
    held = len([*ObservationStore.open(path).rows([TOP_K])])
    going_on = Scripted(script=script)
    made = runner.calibrate(going_on, questions, **options)
    assert held >= 10 and len({question for question, _ in going_on.log.calls}) == 24 - held
    again = Scripted(script=script)
    assert said(runner.calibrate(again, questions, **options)) == said(made) and not again.log.calls
    straight = runner.calibrate(Scripted(script=script), questions, measure=TOP_K)
    assert nearly(straight.rule_) == made.rule_.model_dump()
    np.testing.assert_allclose([straight.mean, straight.std], [made.mean, made.std], rtol=1e-6)
    runner.calibrate(again, [*questions[:3], ("q3", "2"), *questions[4:]], **options)
    assert {question for question, _ in again.log.calls} == {"q3"}
    text = path.read_bytes()
    assert b"q7" not in text and b"so it is" not in text


@pytest.mark.full
def test_a_checkpoint_goes_on_as_what_is_learned_online(runner: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.sqlite"
    made = runner.calibrate(Scripted(script=script), TEXTS, measure=TOP_K, checkpoint=path)
    reasc = ReASCRunnable(model=Scripted(script=script), calibration=Online(state=path), confidence=TOP_K)
    assert reasc.learned is not None
    assert (reasc.learned.n, reasc.learned.rule_.model_dump()) == (40, nearly(made.rule_))


@pytest.mark.full
@pytest.mark.sync_only
def test_a_checkpoint_that_cannot_be_used(runner: Any, tmp_path: Path) -> None:
    (path := tmp_path / "rows.sqlite").write_text("something else")
    model = Scripted(script=script)
    with pytest.raises(CalibrationFileError, match=r"rows\.sqlite"):
        runner.calibrate(model, TEXTS, checkpoint=path)
    with pytest.raises(CalibrationFileError, match="no folder"):
        runner.calibrate(model, TEXTS, checkpoint=tmp_path / "no" / "rows.sqlite")
    assert not model.log.calls
    runner.calibrate(model, TEXTS, checkpoint=tmp_path / "own.sqlite")
    with pytest.raises(FingerprintMismatch, match=r"own\.sqlite.*temperature"):
        runner.calibrate(Scripted(script=script, temperature=0.1), TEXTS, checkpoint=tmp_path / "own.sqlite")


KILLED = """
import sys
from langchain_reasc import calibrate
from runnable.fakes import Scripted
from runnable.test_calibrate import TEXTS, script
calibrate(Scripted(script=script, delay=0.02), TEXTS, checkpoint=sys.argv[1], concurrency=1)
"""


@pytest.mark.full
@pytest.mark.sync_only
def test_a_kill_loses_no_question_that_was_answered(tmp_path: Path) -> None:
    path = tmp_path / "rows.sqlite"
    folders = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    process = subprocess.Popen([sys.executable, "-c", KILLED, path], env={**os.environ, "PYTHONPATH": folders})
    try:
        until = time.monotonic() + 600
        while time.monotonic() < until and not (path.exists() and path.stat().st_size and _rows(path) >= 3):
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    held = _rows(path)
    model = Scripted(script=script)
    assert calibrate(model, TEXTS, checkpoint=path).n == 40
    assert 3 <= held == 40 - len({question for question, _ in model.log.calls})


def _rows(path: Path) -> int:
    try:
        return len(ObservationStore.open(path).rows([]))
    except CalibrationFileError:  # it is being made
        return 0
