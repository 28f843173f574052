"""A decision model whose decisions are votes: probabilities, confidence, bill, runs, and what goes wrong."""

import copy
import pickle
from typing import Any

import pytest

pytest.importorskip("langchain_core.decisions", reason="langchain-core has decisions from 1.8 on")

from langchain_core import decisions as core
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.load import dumps
from langchain_core.messages import HumanMessage
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.tracers.base import BaseTracer
from runnable.fakes import PROMPT_TOKENS, TOP_K, Reply, Scripted, calibration, saying
from runnable.test_tracing import Runs

from langchain_reasc import ReASCDecisionModel, ReASCError, calibrate
from langchain_reasc.exceptions import (
    ConfigurationError,
    FingerprintMismatch,
    LogprobsUnavailable,
    NoVote,
    SampleTimeout,
    SamplingError,
)
from langchain_reasc.method.evidence import posterior

Noul, Choice, Score = core.Noul, core.Choice, core.Score
TEAM = Choice(instructions="Which team?", criteria={"billing": "Invoices.", "sales": None, "not sales": {"else": []}})
URGENT = Noul(instructions="Is it urgent?", criteria=core.NoulCriteria(true="It cannot wait."))
ANGER = Score(instructions="How angry?", criteria=["calm", "concerned", {"very": "angry"}])


def naming(*labels: str | Reply) -> Scripted:
    """A model whose sample i names ``labels[i]`` (the last one for all beyond)."""
    said = [one if isinstance(one, Reply) else Reply(f"I think so. <answer>{one}</answer>") for one in labels]
    return saying(*said)


def ask(runner: Any, model: Scripted, question: Any, config: Any = None, **options: Any) -> Any:
    decisions = ReASCDecisionModel(llm=model, **options)
    return runner.invoke(decisions, {"state": "My invoice is wrong.", "questions": {"q": question}}, config)


def test_a_choice_has_a_probability_for_each_label_and_the_confidence_of_eq_5(runner: Any) -> None:
    response = ask(runner, naming("billing", "not sales", "Billing"), TEAM, concurrency=1)
    answer = response.choices["q"]
    votes = response.reasc["q"]["evidence"]
    assert votes == {"billing": 6.0, "not sales": 1.0}
    assert answer.choice == "billing" and answer.confidence == posterior(votes) >= 0.95
    assert answer.probabilities == {"billing": 7 / 10, "sales": 1 / 10, "not sales": 2 / 10}
    assert response.model == "scripted" and response.reasc["q"]["reason"] == "evidence"


@pytest.mark.parametrize(("said", "noul"), [("yes", 5 / 6), ("no", 1 / 6), ("No.", 1 / 6)])
def test_a_yes_or_no_question_has_the_probability_of_yes(runner: Any, said: str, noul: float) -> None:
    assert ask(runner, naming(said), URGENT).nouls["q"].noul == pytest.approx(noul)


def test_a_score_is_the_expected_level(runner: Any) -> None:
    response = ask(runner, naming("2", "1", "2", "2", "2", "2", "2", "2"), ANGER, concurrency=1)
    answer = response.scores["q"]
    assert response.reasc["q"]["evidence"] == {"2": 6.0, "1": 1.0}
    assert answer.probabilities == {0: 1 / 10, 1: 2 / 10, 2: 7 / 10}
    assert answer.score == pytest.approx(0.2 + 1.4)
    assert answer.legend == {0: "calm", 1: "concerned", 2: {"very": "angry"}}
    assert answer.confidence == posterior({"2": 6, "1": 1})


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


def test_an_undecided_choice_says_so_by_its_confidence(runner: Any) -> None:
    response = ask(runner, naming("billing", "sales", "billing", "sales"), TEAM, max_samples=4)
    answer = response.choices["q"]
    assert response.reasc["q"]["reason"] == "budget"
    assert answer.choice == "billing" and answer.confidence == 0.5
    assert answer.probabilities == {"billing": 3 / 7, "sales": 3 / 7, "not sales": 1 / 7}


def test_what_names_no_label_casts_no_vote(runner: Any) -> None:
    model = naming("refunds", Reply("It may be billing or sales"), "billing")
    response = ask(runner, model, TEAM, concurrency=1)
    assert response.reasc["q"]["evidence"] == {"billing": 4.0} and response.reasc["q"]["samples"] == 6
    assert any("2 of 6 responses cast no vote" in notice for notice in response.reasc["q"]["notices"])


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


def test_several_questions_have_samples_a_bill_and_an_account_each(runner: Any) -> None:
    def script(asked: str, index: int) -> Reply:
        return Reply("<answer>no</answer>" if "urgent" in asked else "<answer>1</answer>")

    usage = UsageMetadataCallbackHandler()
    model = Scripted(script=script)
    request = {"state": [HumanMessage("hello")], "questions": {"urgent": URGENT, "anger": ANGER}}
    response = runner.invoke(ReASCDecisionModel(llm=model), request, {"callbacks": [usage]})
    assert list(response.answers) == ["urgent", "anger"] == list(response.reasc)
    assert response.nouls["urgent"].noul == 1 / 6 and response.scores["anger"].score == pytest.approx(1)
    assert len(model.log.calls) == 8 and response.usage["input_tokens"] == 8 * PROMPT_TOKENS
    [counted] = usage.usage_metadata.values()
    assert {**counted} == {**response.usage} | {key: value for key, value in counted.items() if "details" in key}


def test_samples_are_runs_below_the_decision_and_usage_is_theirs(runner: Any) -> None:
    class Kept(BaseTracer):
        kept: Any = None

        def _persist_run(self, run: Any) -> None:
            self.kept = run

    tracer, runs = Kept(), Runs()
    response = ask(runner, naming("sales"), TEAM, {"callbacks": [tracer, runs], "run_name": "route", "tags": ["mine"]})
    root = tracer.kept
    assert (root.name, root.run_type, root.outputs["output"]) == ("route", "chain", response)
    assert "usage_metadata" not in root.extra.get("metadata", {})  # a tracer would add it to that of the samples
    assert [below.run_type for below in root.child_runs] == ["llm"] * 4
    for below in root.child_runs:
        assert below.extra["metadata"]["reasc_question"] == "q" and {"mine", "nostream"} <= {*below.tags}
    told = [below.outputs["generations"][0][0]["message"]["kwargs"]["usage_metadata"] for below in root.child_runs]
    assert sum(one["total_tokens"] for one in told) == response.usage["total_tokens"]
    assert runs.runs.keys() == runs.ended.keys()


def test_a_failing_decision_ends_its_runs(runner: Any) -> None:
    runs = Runs()
    with pytest.raises(NoVote):
        ask(runner, naming("refunds"), TEAM, {"callbacks": [runs]}, max_samples=2)
    assert sorted(runs.ended.values()) == ["end", "end", "error"] and runs.runs.keys() == runs.ended.keys()


def test_max_concurrency_and_arguments_reach_the_samples(runner: Any) -> None:
    model = naming("sales")
    decisions = ReASCDecisionModel(llm=model).bind(stop=["</answer>"])
    runner.invoke(decisions, {"state": "s", "questions": {"q": TEAM}}, {"max_concurrency": 1})
    assert model.log.most_live == 1 and {tuple(kwargs["stop"]) for kwargs in model.log.kwargs} == {("</answer>",)}


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        ({"where": core.Box(instructions="Where is it?")}, "'where' is of the kind 'box'.*Choice, Noul and Score"),
        ({"q": TEAM, "where": {"type": "box", "instructions": "Where?"}}, "'where' is of the kind 'box'"),
        ({"q": "Which?"}, "'q' is of the kind 'str'"),
        ({"q": {"type": "choice", "instructions": "Which?", "criteria": {}}}, "the question 'q': .*criteria"),
        ({"q": Choice(instructions="Which?", criteria={"a": None, " ": None})}, "label ' '"),
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


def test_questions_may_be_dictionaries(runner: Any) -> None:
    assert ask(runner, naming("yes"), {"type": "noul", "instructions": "?"}).nouls["q"].noul == pytest.approx(5 / 6)


def test_hundreds_of_labels(runner: Any) -> None:
    labels = {f"shelf {n}": f"books on {n}" for n in range(300)}
    response = ask(runner, naming("Shelf 17"), Choice(instructions="Where?", criteria=labels))
    answer = response.choices["q"]
    assert answer.choice == "shelf 17" and list(answer.probabilities) == list(labels)
    assert answer.probabilities["shelf 17"] == 5 / 304


def test_confidence_that_is_missing_is_an_error_or_counted(runner: Any) -> None:
    silent = naming(Reply("<answer>sales</answer>", logprob=None))
    with pytest.raises(LogprobsUnavailable):
        ask(runner, silent, TEAM, calibration=calibration())
    response = ask(runner, silent, TEAM, calibration=calibration(), on_missing_confidence="count")
    assert response.choices["q"].choice == "sales" and response.reasc["q"]["without_confidence"] == 4


def test_it_is_calibrated_on_decisions_and_refuses_a_calibration_of_anything_else(runner: Any) -> None:
    def script(asked: str, index: int) -> Reply:
        n = int(asked.partition("ticket ")[2].split("<")[0])
        named = "billing" if n % 3 else "sales"
        return Reply(f"<answer>{named}</answer>", logprob=-3.0 - n / 100 if named == "billing" else -1.0 - n / 100)

    model = Scripted(script=script)
    asked = [(ReASCDecisionModel.prompt(f"ticket {n}", TEAM), "Billing") for n in range(60)]
    learned = calibrate(model, asked, answer=ReASCDecisionModel.answer, measure=TOP_K)
    assert learned.gate.threshold is not None and learned.fingerprint.answer == "decision"
    decisions = ReASCDecisionModel(llm=model, calibration=learned)
    response = runner.invoke(decisions, {"state": "ticket 50", "questions": {"q": TEAM}})
    assert response.reasc["q"]["reason"] == "gate" and response.choices["q"].choice == "billing"
    arithmetic = learned.model_copy(update={"fingerprint": learned.fingerprint.model_copy(update={"answer": "auto"})})
    with pytest.raises(FingerprintMismatch, match="answer"):
        ReASCDecisionModel(llm=model, calibration=arithmetic)


def test_online_learns_from_the_first_response_to_every_question(runner: Any) -> None:
    def script(asked: str, index: int) -> Reply:
        n = int(asked.partition("number ")[2].partition("?")[0])
        return Reply("<answer>yes</answer>", logprob=-1.0 - n % 8 / 100 - n % 2)

    decisions = ReASCDecisionModel(llm=Scripted(script=script), calibration="online", measure=TOP_K)
    copied = decisions.model_copy(update={"max_samples": 8})
    questions = {str(n): Noul(instructions=f"Is it number {n}?") for n in range(64)}
    response = runner.invoke(decisions, {"state": "s", "questions": questions})
    assert {one.noul for one in response.nouls.values()} == {5 / 6}  # four votes for yes
    assert decisions.learned.n == 64 and decisions.learned.fingerprint.answer == "decision"
    assert copied.learned is decisions.learned and copied.calibrator is decisions.calibrator
    other = decisions.model_copy(update={"llm": naming("no")})
    assert other.learned is None and other.calibrator is not decisions.calibrator


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": saying("1")}, "its llm="),
        ({}, "llm: Field required"),
        ({"llm": saying("1"), "max_samples": 0}, "max_samples"),
        ({"llm": saying("1"), "answer": "number"}, "answer"),
        ({"llm": saying("1"), "measure": TOP_K}, "measure"),
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
    with pytest.raises(ValueError, match="frozen"):
        decisions.max_samples = 4
    assert "not_implemented" in dumps(decisions)
    model = naming("sales", "billing")
    fewer = ReASCDecisionModel(llm=model).configurable_fields(max_samples=ConfigurableField(id="n"))
    request = {"state": "s", "questions": {"q": TEAM}}
    response = runner.invoke(fewer, request, {"configurable": {"n": 2}})
    assert response.reasc["q"]["samples"] == 2


def test_batches_and_streams_are_those_of_any_runnable(runner: Any) -> None:
    decisions = ReASCDecisionModel(llm=naming("no"))
    request = {"state": "s", "questions": {"q": URGENT}}
    both = runner.batch(decisions, [request, {**request, "questions": {}}], return_exceptions=True)
    assert both[0].nouls["q"].noul == 1 / 6 and isinstance(both[1], ReASCError)
    [streamed] = runner.stream(decisions, request)
    assert streamed.answers == both[0].answers


def test_the_classifying_methods_are_those_that_langchain_has_a_provider_write(runner: Any) -> None:
    import asyncio

    decisions = ReASCDecisionModel(llm=naming("no"))
    questions = {"q": URGENT}
    asked = (
        asyncio.run(decisions._aclassify("s", questions)) if runner.is_async else decisions._classify("s", questions)
    )
    assert asked.nouls["q"].noul == 1 / 6 and decisions._provider == "reasc"
