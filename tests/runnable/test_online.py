"""calibration="online": it counts votes until it has learned, says when it decides, and takes nothing for granted."""

import copy
import pickle
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from langchain_reasc import ChatReASC, Integration, Measure, ReASCRunnable, register_integration
from langchain_reasc.calibration import ConsensusCalibrator, MixtureCalibrator, Observed, consensus
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError

from . import fakes
from .fakes import TOP_K, Reply, Scripted, calibration
from .learning import MINIMUM, QUESTIONS, answered, calibrator, drawn, online

COUNTING = "counting votes (ASC)"


def without_logprobs(question: str, index: int) -> Reply:
    return Reply(drawn(question, index).text, logprob=None)


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
    assert [len(fit.questions) for fit in fits] == [32, 40, 50, 63]


def test_what_is_learned_from_are_answers_as_numbers_and_scores(runner: Any, fits: Any) -> None:
    replies = [Reply("it is 7", -2.0), Reply("no idea", -9.0), Reply("it is 5", logprob=None), Reply("it is 7", -1.0)]
    reasc = online(lambda question, index: replies[index % 4], measure=TOP_K, max_samples=4)
    answered(runner, reasc)
    for observed in fits[0].questions:
        assert observed.answers == (0, None, 1, 0)
        np.testing.assert_allclose(observed.scores, [[2.0, np.nan, np.nan, 1.0]], rtol=1e-6)
        assert observed.right == ()


def test_a_batch_is_answered_as_it_comes(runner: Any, fits: Any) -> None:
    reasc = online(concurrency=1)
    accounts = runner.accounts(reasc, QUESTIONS, {"max_concurrency": 1})
    firsts = [at for at, (_, index) in enumerate(reasc.model.log.calls) if index == 0]  # type: ignore[attr-defined]
    assert firsts != list(range(MINIMUM))  # not all before any decision
    assert calibrator(reasc).wait(10)
    assert {account["method"] for account in accounts} == {"asc"}
    assert runner.account(reasc, "q100")["method"] == "reasc"


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
    def made(questions: Sequence[Observed], measures: Any, **options: Any) -> Any:
        assert options["made_of"] == {"top_k": {"top_k": 1, "vocabulary_size": None}}
        return calibration(n=len(questions), gate=2.0, top_k=1)

    monkeypatch.setattr(consensus, "calibrate_consensus", made)
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
    assert {observed.scores.shape[0] for observed in fits[0].questions} == {1}
    answered(runner, online(max_samples=1))
    assert fits[1].questions[0].scores.shape[0] > 1


def test_questions_from_which_nothing_can_be_learned_are_counted(runner: Any, monkeypatch: Any) -> None:
    def refuse(questions: Any, measures: Any, **options: Any) -> Any:
        raise CalibrationDataError("all the same")

    monkeypatch.setattr(consensus, "calibrate_consensus", refuse)
    reasc = online()
    account = answered(runner, reasc, [*QUESTIONS, "q100"])[-1]
    assert account["notices"] == [f"nothing could be learned from 32 questions yet: {COUNTING}"]


def test_learning_holds_no_caller_up_and_remembers_a_bounded_number(runner: Any, monkeypatch: Any) -> None:
    go_on = threading.Event()
    monkeypatch.setattr("langchain_reasc.calibration.online.observed", lambda *_, **options: go_on.wait(10))
    reasc = online(max_samples=1)
    for at in range(70):
        runner.invoke(reasc, f"q{at}")
    assert not calibrator(reasc).wait(0)
    assert len(calibrator(reasc)._waiting) == 64
    go_on.set()
    assert calibrator(reasc).wait(10)


def test_a_failure_in_learning_is_logged_and_costs_no_answer(runner: Any, monkeypatch: Any, logged: Any) -> None:
    monkeypatch.setattr(consensus, "calibrate_consensus", lambda *_, **options: 1 / 0)
    reasc = online(max_samples=2)
    assert answered(runner, reasc, [*QUESTIONS, "q100"])[-1]["answer"] is not None
    assert ("ERROR", "a question could not be learned from") in logged()


def test_no_thread_to_learn_in_costs_no_answer(runner: Any, monkeypatch: Any, caplog: Any) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("langchain_reasc.calibration.online.start_daemon", refuse)
    reasc = online()
    assert answered(runner, reasc, ["q0"])[0]["answer"] == "1"
    assert "a question could not be learned from: can't start new thread" in caplog.text


def test_why_no_measure_is_trusted_is_told(runner: Any) -> None:
    account = answered(runner, online(lambda question, index: Reply("it is 1", -1.0)), [*QUESTIONS, "q100"])[-1]
    assert account["method"] == "agreement"
    [said] = account["notices"]
    assert said.startswith("learned from 32 questions without labels, of answers alone (")


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


def test_objects_voted_on_by_field_are_learned_from_as_wholes(runner: Any, fits: Any) -> None:
    texts = ['{"a": 1, "b": 2}', '{"a": 1, "b": 3}', '{"a": 4, "b": 2}', '{"a": 1, "b": 2}']
    reasc = online(lambda question, index: Reply(texts[index % 4], -1.5), answer="json", audit=1, max_samples=8)
    answered(runner, reasc, [*QUESTIONS, "q100"])
    assert {observed.answers[:4] for observed in fits[0].questions} == {(0, 1, 2, 0)}
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


def test_a_question_given_back_as_it_is_teaches_nothing(runner: Any, fits: Any) -> None:
    chat = ChatReASC(model=Scripted(script=drawn), calibration="online")
    runner.invoke(chat, "q0")
    assert calibrator(chat).wait(10)
    assert calibrator(chat).state().seen == 0
