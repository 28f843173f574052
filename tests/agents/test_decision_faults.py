"""What goes wrong with a decision costs no more than it must, and says what it was."""

import pickle
from typing import Any

import pytest

pytest.importorskip("langchain_core.decisions", reason="langchain-core has decisions from 1.8 on")

from langchain_core import decisions as core
from runnable.fakes import Reply, Scripted, calibration
from sampling.test_tracing import Runs

from langchain_reasc import ReASCDecisionModel
from langchain_reasc.exceptions import (
    ConfigurationError,
    LogprobsUnavailable,
    NoVote,
    SampleTimeout,
    SamplingError,
)

from .decisions import TEAM, URGENT, ask, naming


def test_no_vote_at_all_is_an_error_that_keeps_what_was_paid_for(runner: Any) -> None:
    with pytest.raises(NoVote, match=r"no response to the question 'q' names one of its 3 labels .*5 of 5") as error:
        ask(runner, naming("refunds"), TEAM, max_samples=5)
    assert len(error.value.responses) == 5 and "refunds" in error.value.responses[0].text
    assert error.value.is_retryable is False
    again = pickle.loads(pickle.dumps(error.value))
    assert [message.text for message in again.responses] == [message.text for message in error.value.responses]


def test_failed_samples_cost_themselves_and_nothing_but_failures_is_an_error(runner: Any) -> None:
    failed = Reply("", error=ConnectionError("down"))
    assert ask(runner, naming(failed, "sales"), TEAM).reasc["q"]["failed"] == 1
    with pytest.raises(SamplingError, match="all 4 samples failed") as error:
        ask(runner, naming(failed), TEAM)
    assert "in answering the question 'q'" in error.value.__notes__


def test_answers_that_were_paid_for_are_told_when_a_later_question_fails(runner: Any) -> None:
    def script(asked: str, index: int) -> Reply:
        return Reply("<answer>yes</answer>" if "urgent" in asked else "who knows")

    decisions = ReASCDecisionModel(llm=Scripted(script=script), max_samples=4)
    with pytest.raises(NoVote) as error:
        runner.invoke(decisions, {"state": "s", "questions": {"first": URGENT, "second": TEAM}})
    assert "'first' had been answered: NoulAnswer" in "\n".join(error.value.__notes__)


def test_time_that_runs_out_leaves_the_votes_there_are(runner: Any) -> None:
    never = Reply("a b", endless=True)
    response = ask(runner, naming("sales", never), TEAM, timeout=0.3, concurrency=2)
    assert response.reasc["q"]["reason"] == "timeout" and response.choices["q"].probabilities["sales"] == 2 / 4
    with pytest.raises(SampleTimeout):
        ask(runner, naming(never), TEAM, timeout=0.1)


def test_a_failing_decision_ends_its_runs(runner: Any) -> None:
    runs = Runs()
    with pytest.raises(NoVote):
        ask(runner, naming("refunds"), TEAM, {"callbacks": [runs]}, max_samples=2)
    assert sorted(runs.ended.values()) == ["end", "end", "error"] and runs.runs.keys() == runs.ended.keys()


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        ({"where": core.Box(instructions="Where is it?")}, "'where' is of the kind 'box'.*Choice, Noul and Score"),
        ({"q": TEAM, "where": {"type": "box", "instructions": "Where?"}}, "'where' is of the kind 'box'"),
        ({"q": "Which?"}, "'q' is of the kind 'str'"),
        ({"q": {"type": "choice", "instructions": "Which?", "criteria": {}}}, "the question 'q': .*criteria"),
        ({"q": core.Choice(instructions="Which?", criteria={"a": None, " ": None})}, "label ' '"),
        ({}, "without a question"),
        (None, "'questions', a mapping"),
        ([TEAM], "'questions', a mapping"),
    ],
)
def test_a_request_that_cannot_be_answered_costs_nothing(runner: Any, questions: Any, said: str) -> None:
    model = naming("sales")
    with pytest.raises(ConfigurationError, match=said):
        runner.invoke(ReASCDecisionModel(llm=model), {"state": "s", "questions": questions})
    assert model.log.calls == []


@pytest.mark.parametrize("request_", [{"questions": {"q": TEAM}}, "Which?", None])
def test_a_request_without_state_says_what_it_lacks(runner: Any, request_: Any) -> None:
    with pytest.raises(ConfigurationError, match="holds a 'state'"):
        runner.invoke(ReASCDecisionModel(llm=naming("sales")), request_)


def test_confidence_that_is_missing_is_an_error_or_counted(runner: Any) -> None:
    silent = naming(Reply("<answer>sales</answer>", logprob=None))
    with pytest.raises(LogprobsUnavailable):
        ask(runner, silent, TEAM, calibration=calibration())
    response = ask(runner, silent, TEAM, calibration=calibration(), on_missing_confidence="count")
    assert response.choices["q"].choice == "sales" and response.reasc["q"]["without_confidence"] == 4
