"""calibration="online": it counts votes until it has learned, says when it decides, and takes nothing for granted."""

import copy
import json
import logging
import pickle
import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from langchain_reasc import (
    ChatReASC,
    Integration,
    Measure,
    ReASCRunnable,
    load_calibration,
    register_integration,
    save_calibration,
)
from langchain_reasc.calibration import MixtureCalibrator, learner
from langchain_reasc.calibration.consensus import Observed
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError
from langchain_reasc.runnable.consensus_calibrator import ConsensusCalibrator

from . import fakes
from .fakes import TOP_K, Reply, Scripted, calibration

MINIMUM = 32
QUESTIONS = [f"q{i}" for i in range(MINIMUM)]
COUNTING = "counting votes (ASC)"


def drawn(question: str, index: int) -> Reply:
    """Even questions are easy and the model is sure of them; every sample is fixed by its question and index."""
    rng = random.Random(f"{question} {index}")
    sure = int(question.lstrip("qx")) % 2 == 0
    return Reply(f"it is {1 if sure else rng.choice([1, 1, 2, 3])}", -round(rng.gauss(3.0 if sure else 1.0, 0.2), 3))


def without_logprobs(question: str, index: int) -> Reply:
    return Reply(drawn(question, index).text, logprob=None)


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Observed]]:
    """The questions behind each calibration; the rule that is made of them accepts a first response scoring 2."""
    seen: list[Sequence[Observed]] = []

    def made(questions: Sequence[Observed], **options: Any) -> Any:
        seen.append(questions)
        return calibration(n=len(questions), gate=2.0, fingerprint=options["fingerprint"])

    monkeypatch.setattr(learner, "calibrate_consensus", made)
    return seen


def online(script: Any = drawn, **fields: Any) -> ReASCRunnable:
    fields = {"model": Scripted(script=script), "calibration": "online", "audit": 0, "max_samples": 4, **fields}
    return ReASCRunnable(**fields)


def calibrator(reasc: Any) -> ConsensusCalibrator:
    assert isinstance(reasc.calibrator, ConsensusCalibrator)
    return reasc.calibrator


def answered(runner: Any, reasc: Any, questions: Sequence[str] = QUESTIONS) -> list[Any]:
    """The accounts of questions that are asked one by one, each learned from before the next."""
    accounts = []
    for question in questions:
        accounts.append(runner.invoke(reasc, question).response_metadata["reasc"])
        assert calibrator(reasc).wait(10)
    return accounts


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    caplog.set_level(logging.INFO, "langchain_reasc.runnable.consensus_calibrator")
    yield lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


def test_it_counts_until_it_has_learned_and_then_says_so(runner: Any, fits: Any, logged: Any) -> None:
    reasc = online()
    before = answered(runner, reasc)
    assert {account["method"] for account in before} == {"asc"}
    assert before[0]["notices"] == [f"learning without labels (0 of 32 questions seen): {COUNTING}"]
    assert before[31]["notices"] == [f"learning without labels (31 of 32 questions seen): {COUNTING}"]
    assert reasc.learned is not None and reasc.learned.n == MINIMUM
    assert reasc.learned.fingerprint.model == "scripted"
    said = "learned from 32 questions without labels, of answers and top_k/mean"
    assert logged() == [("INFO", f"{said}; from now on that decides")]
    easy, hard = answered(runner, reasc, ["q100", "q101"])
    assert (easy["method"], easy["reason"], easy["launched"], easy["notices"]) == ("reasc", "gate", 1, [said])
    assert hard["samples"] > 1


def test_it_goes_on_learning_as_the_number_of_questions_grows(runner: Any, fits: Any) -> None:
    answered(runner, online(max_samples=2), [f"q{i}" for i in range(63)])
    assert [len(questions) for questions in fits] == [32, 40, 50, 63]


def test_what_is_learned_from_are_answers_as_numbers_and_scores(runner: Any, fits: Any) -> None:
    replies = [Reply("it is 7", -2.0), Reply("no idea", -9.0), Reply("it is 5", logprob=None), Reply("it is 7", -1.0)]
    reasc = online(lambda question, index: replies[index % 4], measure=TOP_K, max_samples=4)
    answered(runner, reasc)
    for observed in fits[0]:
        assert observed.answers == (0, None, 1, 0)
        np.testing.assert_allclose(observed.scores, [[2.0, np.nan, np.nan, 1.0]], rtol=1e-6)
        assert observed.right == ()


def test_a_batch_is_answered_as_it_comes(runner: Any, fits: Any) -> None:
    reasc = online(concurrency=1)
    messages = runner.batch(reasc, QUESTIONS, {"max_concurrency": 1})
    firsts = [at for at, (_, index) in enumerate(reasc.model.log.calls) if index == 0]  # type: ignore[attr-defined]
    assert firsts != list(range(MINIMUM))  # not all before any decision
    assert calibrator(reasc).wait(10)
    assert {message.response_metadata["reasc"]["method"] for message in messages} == {"asc"}
    assert runner.invoke(reasc, "q100").response_metadata["reasc"]["method"] == "reasc"


def test_all_that_is_made_of_one_learns_together(runner: Any, fits: Any) -> None:
    reasc = online(max_samples=3)
    copies = [reasc, reasc.model_copy(update={"concurrency": 2}), copy.deepcopy(reasc)]
    reasc.confidence = 0.9
    for at in range(MINIMUM - 4):
        runner.invoke(copies[at % 3], f"q{at}")
    runner.batch(copies[1], ["q90", "q91", "q92", "q93"])
    assert calibrator(reasc).wait(10)
    assert reasc.learned is not None is not copies[2].learned
    assert reasc.model_copy(update={"model": Scripted(script=drawn)}).learned is None
    assert pickle.loads(pickle.dumps(online(None, model=Scripted(script=None, log=None)))).calibration == "online"


def test_it_needs_no_logprobs(runner: Any) -> None:
    reasc = online(without_logprobs, max_samples=6)
    answered(runner, reasc, [f"q{i}" for i in range(MINIMUM)])
    assert reasc.learned is not None and reasc.learned.measure is None
    [account] = answered(runner, reasc, ["q100"])
    assert account["notices"][0].startswith("learned from 32 questions without labels, of answers alone")
    assert (account["answer"], account["without_confidence"]) == ("1", 0)


def test_logprobs_that_stay_away_later_cost_no_answer(runner: Any, fits: Any) -> None:
    def script(question: str, index: int) -> Reply:
        return without_logprobs(question, index) if question.startswith("x") else drawn(question, index)

    reasc = online(script)
    answered(runner, reasc)
    [account] = answered(runner, reasc, ["x100"])
    assert (account["answer"], account["method"], account["without_confidence"]) == ("1", "reasc", account["samples"])
    assert "carry no confidence and count as one vote each" in account["notices"][1]


def test_scores_of_another_make_are_neither_mixed_nor_refused(runner: Any, monkeypatch: Any) -> None:
    def made(questions: Sequence[Observed], **options: Any) -> Any:
        assert options["made_of"] == {"top_k": {"top_k": 1, "vocabulary_size": None}}
        return calibration(n=len(questions), gate=2.0, top_k=1)

    monkeypatch.setattr(learner, "calibrate_consensus", made)
    reasc = online(measure=TOP_K)
    answered(runner, reasc)
    monkeypatch.setattr(fakes, "openai_token", _of_three)
    [account] = answered(runner, reasc, ["q100"])
    assert account["answer"] == "1" and "top_k" in account["notices"][1]
    assert np.isnan(np.array(calibrator(reasc).state().questions[-1].scores, dtype=float)).all()


def _of_three(token: str, logprob: float, k: int = 3) -> dict[str, Any]:
    """A token with three alternatives in place of one."""
    others = [{"token": token + "'" * at, "logprob": logprob - at, "bytes": None} for at in range(k)]
    return {"token": token, "logprob": logprob, "bytes": None, "top_logprobs": others}


def test_a_measure_is_the_only_candidate(runner: Any, fits: Any) -> None:
    chosen = Measure("token_logprob", "mean")
    answered(runner, online(measure=chosen))
    assert {observed.scores.shape[0] for observed in fits[0]} == {1}
    answered(runner, online(max_samples=1))
    assert fits[1][0].scores.shape[0] > 1


def test_questions_from_which_nothing_can_be_learned_are_counted(runner: Any, monkeypatch: Any) -> None:
    def refuse(questions: Any, **options: Any) -> Any:
        raise CalibrationDataError("all the same")

    monkeypatch.setattr(learner, "calibrate_consensus", refuse)
    reasc = online()
    account = answered(runner, reasc, [*QUESTIONS, "q100"])[-1]
    assert account["notices"] == [f"nothing could be learned from 32 questions yet: {COUNTING}"]


def test_learning_holds_no_caller_up_and_remembers_a_bounded_number(runner: Any, monkeypatch: Any) -> None:
    go_on = threading.Event()
    monkeypatch.setattr("langchain_reasc.runnable.consensus_calibrator.observed", lambda *_: go_on.wait(10))
    reasc = online(max_samples=1)
    for at in range(70):
        runner.invoke(reasc, f"q{at}")
    assert not calibrator(reasc).wait(0)
    assert len(calibrator(reasc)._waiting) == 64
    go_on.set()
    assert calibrator(reasc).wait(10)


def test_a_failure_in_learning_is_logged_and_costs_no_answer(runner: Any, monkeypatch: Any, logged: Any) -> None:
    def broken(questions: Any, **options: Any) -> Any:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(learner, "calibrate_consensus", broken)
    reasc = online(max_samples=2)
    assert answered(runner, reasc, [*QUESTIONS, "q100"])[-1]["answer"] is not None
    assert ("ERROR", "a question could not be learned from") in logged()


def test_no_thread_to_learn_in_costs_no_answer(runner: Any, monkeypatch: Any, caplog: Any) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("langchain_reasc.runnable.consensus_calibrator.start_daemon", refuse)
    reasc = online()
    assert answered(runner, reasc, ["q0"])[0]["answer"] == "1"
    assert "a question could not be learned from: can't start new thread" in caplog.text


def test_why_no_measure_is_trusted_is_told(runner: Any) -> None:
    account = answered(runner, online(lambda question, index: Reply("it is 1", -1.0)), [*QUESTIONS, "q100"])[-1]
    assert account["method"] == "agreement"
    [said] = account["notices"]
    assert said.startswith("learned from 32 questions without labels, of answers alone (")


@pytest.mark.parametrize("audit", [0.0, 1.0])
def test_an_audit_is_paid_for_named_and_decides_nothing(runner: Any, fits: Any, audit: float) -> None:
    reasc = online(audit=audit)
    answered(runner, reasc)
    result = runner.solve(reasc, "q100")
    account = result.message.response_metadata["reasc"]
    assert (account["samples"], account["launched"], result.decision.samples) == (1, 1 + audit, 1)
    assert [response.used for response in result.responses] == [True, False][: 1 + int(audit)]
    assert result.usage.bill["output_tokens"] == sum(one.output_tokens for one in result.responses)
    assert result.notices[1:] == (
        ("one more response was paid for to audit this answer: it agrees with it",) if audit else ()
    )
    assert calibrator(reasc).wait(10)
    assert calibrator(reasc).state().questions[-1].answers == ((0, 0) if audit else (0,))


def test_an_audit_that_comes_to_nothing_costs_no_answer(runner: Any, fits: Any) -> None:
    def script(question: str, index: int) -> Reply:
        failing = question == "q100" and index == 1
        return Reply("", error=ConnectionError("down")) if failing else drawn(question, index)

    reasc = online(script, audit=1)
    answered(runner, reasc)
    result = runner.solve(reasc, "q100")
    assert (result.answer, len(result.failures)) == ("1", 1)
    assert "one more response was paid for to audit this answer, and came to nothing" in result.notices


def test_an_audit_that_disagrees_says_so_and_does_not_confuse_what_is_told_of_votes(runner: Any, fits: Any) -> None:
    def script(question: str, index: int) -> Reply:
        return Reply("no idea") if question == "q100" and index == 1 else drawn(question, index)

    reasc = online(script, audit=1)
    answered(runner, reasc)
    notices = runner.solve(reasc, "q100").notices
    assert notices[1:] == ("one more response was paid for to audit this answer: it does not agree with it",)


@pytest.mark.parametrize("limit", [{"max_samples": 1}, {"token_budget": 1}])
def test_an_audit_keeps_to_the_limits_of_a_question(runner: Any, fits: Any, limit: dict[str, Any]) -> None:
    reasc = online(audit=1, **limit)
    answered(runner, reasc)
    assert runner.solve(reasc, "q100").message.response_metadata["reasc"]["launched"] == 1


def test_which_questions_are_audited_is_settled_by_their_number_and_the_seed() -> None:
    def audited(seed: int) -> list[bool]:
        one = ConsensusCalibrator(seed=seed)
        return [one.audits(0.05) for _ in range(2000)]

    assert audited(1) == audited(1) != audited(2)
    assert 60 < sum(audited(1)) < 140


def test_responses_that_agree_otherwise_than_was_learned_begin_it_anew(runner: Any, fits: Any, logged: Any) -> None:
    def script(question: str, index: int) -> Reply:
        answer = index if question.startswith("x") else 1
        return Reply(f"it is {answer}", -1.5)  # below the gate, so that sampling goes on

    reasc = online(script, max_samples=4)
    answered(runner, reasc)
    after = answered(runner, reasc, [f"x{i}" for i in range(20)])
    methods = [account["method"] for account in after]
    switched = methods.index("asc")
    assert 3 <= switched <= 12 and set(methods[switched:]) == {"asc"}
    forgotten = "responses agree with one another otherwise than was learned, so that was forgotten: counting votes"
    assert after[switched]["notices"][0] == f"{forgotten} (ASC) and learning again (0 of 32 questions seen)"
    assert ("WARNING", after[switched]["notices"][0]) in logged()
    answered(runner, reasc, [f"x{i}" for i in range(32)])
    assert reasc.learned is not None and [len(fit) for fit in fits[-2:]] == [32, 40]
    assert calibrator(reasc).state().alarms == 1


def test_audits_alone_tell_where_first_responses_are_accepted(runner: Any, fits: Any) -> None:
    def script(question: str, index: int) -> Reply:
        return Reply(f"it is {index if question.startswith('x') else 1}", -3.0)

    reasc = online(script, audit=1, max_samples=8)
    answered(runner, reasc)
    assert "asc" in {account["method"] for account in answered(runner, reasc, [f"x{i}" for i in range(20)])}


def test_what_was_learned_can_be_saved(runner: Any, fits: Any, tmp_path: Any) -> None:
    reasc = online()
    answered(runner, reasc)
    saved = load_calibration(save_calibration(reasc.learned, tmp_path / "calibration.json"))
    assert saved == reasc.learned


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"calibration": None, "online_state": "state.json"}, "online_state='state.json' goes with"),
        ({"calibration": "mixture", "online_state": "state.json"}, "online_state='state.json' goes with"),
        ({"calibrator": MixtureCalibrator(measure=TOP_K)}, "goes with calibration='mixture'"),
        ({"calibration": "mixture", "calibrator": ConsensusCalibrator()}, "goes with calibration='online'"),
        ({"audit": 1.5}, "audit"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        online(**options)


class Mute(Scripted):
    """Of a class that is known to return no logprobs."""


def test_a_model_known_to_give_no_logprobs_is_not_refused(runner: Any) -> None:
    register_integration(f"{Mute.__module__}.Mute")(lambda model: Integration(no_logprobs="its maker says so"))
    reasc = ReASCRunnable(model=Mute(script=without_logprobs), calibration="online")
    [account] = answered(runner, reasc, ["q2"])
    assert account["answer"] == "1" and "Mute: no confidence: its maker says so" in account["notices"]


def test_the_account_is_json(runner: Any, fits: Any) -> None:
    [account] = answered(runner, online(), ["q1"])
    assert json.loads(json.dumps(account)) == account


def test_objects_voted_on_by_field_are_learned_from_as_wholes(runner: Any, fits: Any) -> None:
    texts = ['{"a": 1, "b": 2}', '{"a": 1, "b": 3}', '{"a": 4, "b": 2}', '{"a": 1, "b": 2}']
    reasc = online(lambda question, index: Reply(texts[index % 4], -1.5), answer="json", audit=1, max_samples=8)
    answered(runner, reasc, [*QUESTIONS, "q100"])
    assert {observed.answers[:4] for observed in fits[0]} == {(0, 1, 2, 0)}
    assert calibrator(reasc).state().alarms == 0


@pytest.mark.parametrize("text", ["no idea", ""])
def test_responses_without_an_answer_are_no_trouble(runner: Any, text: str) -> None:
    reasc = online(lambda question, index: Reply(text, -1.5), max_samples=3)
    accounts = answered(runner, reasc, [*QUESTIONS, "q100"])
    assert {account["answer"] for account in accounts} == {None}
    assert all(set(one.answers) == {None} for one in calibrator(reasc).state().questions)


def test_one_response_to_each_question_is_no_trouble(runner: Any) -> None:
    reasc = online(max_samples=1)
    assert {account["samples"] for account in answered(runner, reasc, [*QUESTIONS, "q100"])} == {1}


def test_stated_confidence_is_a_candidate(runner: Any, fits: Any) -> None:
    def script(question: str, index: int) -> Reply:
        return Reply(f"it is {index % 2}\nConfidence: {90 - index}%", logprob=None)

    answered(runner, online(script, ask_confidence=True))
    assert {observed.scores.shape[0] for observed in fits[0]} == {1}
    assert fits[0][0].scores[0, 0] == pytest.approx(0.9)


def test_a_question_given_back_as_it_is_teaches_nothing(runner: Any, fits: Any) -> None:
    chat = ChatReASC(model=Scripted(script=drawn), calibration="online")
    runner.invoke(chat, "q0")
    assert calibrator(chat).wait(10)
    assert calibrator(chat).state().seen == 0
