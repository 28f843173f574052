"""The options of a decision model, what is refused, and what goes wrong: it costs no more than it must."""

import copy
import pickle
from typing import Any

import pytest

pytest.importorskip("langchain_core.decisions", reason="langchain-core has decisions from 1.8 on")

from langchain_core import decisions as core
from langchain_core.load import dumps
from langchain_core.runnables import ConfigurableField, RunnableLambda
from runnable.fakes import TOP_K, Reply, Scripted, calibration, saying

from langchain_reasc import ReASCDecisionModel, calibrate
from langchain_reasc.answers import EXTRACTION_VERSION
from langchain_reasc.calibration import learner
from langchain_reasc.exceptions import (
    ConfigurationError,
    FingerprintMismatch,
    NoVote,
    SamplingError,
)

from .decisions import TEAM, URGENT, ask, naming


def test_weights_are_the_evidence_and_the_gate_accepts_one_response(runner: Any) -> None:
    """S(y) of a response is minus its log-probability: z = 3 - 1 gives the weight e^1.4."""
    sure = Reply("Clear. <answer>sales</answer>", logprob=-3.0)
    response = ask(runner, naming(sure), TEAM, calibration=calibration(gate=2.5))
    assert response.reasc["q"]["reason"] == "gate" and response.reasc["q"]["launched"] == 1
    [weight] = response.reasc["q"]["evidence"].values()
    assert weight == pytest.approx(2.71828**1.4, rel=1e-4)
    answer = response.choices["q"]
    assert answer.probabilities["sales"] == pytest.approx((weight + 1) / (weight + 3))
    assert sum(answer.probabilities.values()) == pytest.approx(1)
    assert answer.confidence == pytest.approx(1 - 0.5 ** (weight + 1))


def ticket(asked: str, index: int) -> Reply:
    """Two of three tickets are billing's, of which the model is sure."""
    n = int(asked.partition("ticket ")[2].split()[0])
    named, logprob = ("billing", -3.0) if n % 3 else ("sales", -1.0)
    return Reply(f"<answer>{named}</answer>", logprob=logprob - n / 100)


@pytest.fixture(scope="module")
def learned() -> Any:
    asked = [(ReASCDecisionModel.prompt(f"ticket {n}", TEAM), "Billing") for n in range(60)]
    return calibrate(Scripted(script=ticket), asked, answer=ReASCDecisionModel.answer, measure=TOP_K)


@pytest.mark.full  # computes for long
def test_it_is_calibrated_on_decisions(runner: Any, learned: Any) -> None:
    assert learned.gate.threshold is not None
    assert learned.fingerprint.answer == f"decision, version {EXTRACTION_VERSION}"
    decisions = ReASCDecisionModel(llm=Scripted(script=ticket), calibration=learned)
    response = runner.invoke(decisions, {"state": "ticket 50", "questions": {"q": TEAM}})
    assert response.reasc["q"]["reason"] == "gate" and response.choices["q"].choice == "billing"
    assert decisions.learned is learned


@pytest.mark.parametrize(("part", "other"), [("answer", "auto"), ("prompt_sha256", "0" * 64)])
def test_a_calibration_of_anything_else_is_refused(runner: Any, learned: Any, part: str, other: str) -> None:
    fingerprint = learned.fingerprint.model_copy(update={part: other})
    elsewhere = learned.model_copy(update={"fingerprint": fingerprint})
    model = Scripted(script=ticket)
    with pytest.raises(FingerprintMismatch, match=part):
        decisions = ReASCDecisionModel(llm=model, calibration=elsewhere)
        runner.invoke(decisions, {"state": "ticket 50", "questions": {"q": TEAM}})
    assert model.log.calls == []
    ReASCDecisionModel(llm=model, calibration=elsewhere, allow_fingerprint_mismatch=True)


@pytest.mark.full  # computes for long
def test_online_learns_from_every_question_and_then_decides(runner: Any, monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setattr(learner, "fit", lambda questions, measures, **_: calibration(n=len(questions), gate=0.5))
    path = tmp_path / "state.json"
    options: Any = {"calibration": "online", "online_state": path, "audit": 0}
    decisions = ReASCDecisionModel(llm=naming(Reply("<answer>yes</answer>", -1.0)), **options)
    questions = {str(n): core.Noul(instructions=f"Is it number {n}?") for n in range(32)}
    runner.invoke(decisions, {"state": "s", "questions": questions})
    assert decisions.calibrator.wait(10)
    response = runner.invoke(decisions, {"state": "s", "questions": {"q": questions["0"]}})
    assert (response.reasc["q"]["reason"], response.reasc["q"]["launched"]) == ("gate", 1)
    assert decisions.model_copy(update={"max_samples": 8}).calibrator is decisions.calibrator
    assert decisions.model_copy(update={"llm": naming("no")}).calibrator is not decisions.calibrator
    assert path.exists() and not [file for file in tmp_path.iterdir() if b"Is it" in file.read_bytes()]
    with pytest.raises(ConfigurationError, match="goes with calibration='online'"):
        ReASCDecisionModel(llm=naming("yes"), online_state=path)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": saying("1")}, "its llm="),
        ({}, "llm is missing"),
        ({"llm": saying("1"), "answer": "number"}, "answer"),
        ({"llm": saying("1"), "measure": TOP_K}, "measure"),
        ({"llm": saying("1"), "on_undecided": "abstain"}, "no empty answer to abstain with"),
    ],
)
def test_wrong_options_are_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ReASCDecisionModel(**fields)


def test_options_are_kept_by_copies_pickles_and_configurable_fields(runner: Any) -> None:
    decisions = ReASCDecisionModel(llm=RunnableLambda(print), model="router", max_samples=3, name="mine")
    for other in (copy.copy(decisions), copy.deepcopy(decisions), decisions.model_copy()):
        assert (other.model, other.max_samples, other.name, other.llm) == ("router", 3, "mine", decisions.llm)
    again = pickle.loads(pickle.dumps(decisions.model_copy(update={"llm": RunnableLambda(print)})))
    assert (again.model, again.max_samples) == ("router", 3)
    decisions.max_samples = 4
    assert decisions.model_copy().max_samples == 4
    with pytest.raises(ConfigurationError, match="max_samples"):
        decisions.max_samples = 0
    assert "not_implemented" in dumps(decisions)
    model = naming("sales", "billing")
    fewer = ReASCDecisionModel(llm=model).configurable_fields(max_samples=ConfigurableField(id="n"))
    request = {"state": "s", "questions": {"q": TEAM}}
    response = runner.invoke(fewer, request, {"configurable": {"n": 2}})
    assert response.reasc["q"]["samples"] == 2


def test_no_vote_at_all_is_an_error_that_keeps_what_was_paid_for(runner: Any) -> None:
    with pytest.raises(
        NoVote, match=r"no response to the question 'q' names one of its 3 labels .*4 of 4[^;]*; if they"
    ) as error:
        ask(runner, naming("refunds"), TEAM, max_samples=5)
    assert len(error.value.responses) == 4 and "refunds" in error.value.responses[0].text
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


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        ({"where": core.Box(instructions="Where is it?")}, "'where' is of the kind 'box'.*Choice, Noul and Score"),
        ({"q": {"type": "choice", "instructions": "Which?", "criteria": {}}}, "the question 'q': .*criteria"),
        ({"q": core.Choice(instructions="Which?", criteria={"a": None, " ": None})}, "label ' '"),
        ({}, "without a question"),
        ([TEAM], "'questions', a mapping"),
    ],
)
def test_a_request_that_cannot_be_answered_costs_nothing(runner: Any, questions: Any, said: str) -> None:
    model = naming("sales")
    with pytest.raises(ConfigurationError, match=said):
        runner.invoke(ReASCDecisionModel(llm=model), {"state": "s", "questions": questions})
    with pytest.raises(ConfigurationError, match="holds a 'state'"):
        runner.invoke(ReASCDecisionModel(llm=model), {"questions": {"q": TEAM}})
    assert model.log.calls == []
