"""A decision model whose decisions are votes: probabilities, confidence, bill and runs."""

from typing import Any
from unittest.mock import MagicMock
from uuid import UUID

import pytest

pytest.importorskip("langchain_core.decisions", reason="langchain-core has decisions from 1.8 on")

from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import HumanMessage
from langchain_core.tracers import LangChainTracer
from runnable.fakes import PROMPT_TOKENS, Reply, Scripted

from langchain_reasc import ReASCDecisionModel, ReASCError
from langchain_reasc.exceptions import Undecided
from langchain_reasc.method import posterior

from .decisions import ANGER, TEAM, URGENT, ask, naming


def test_a_choice_has_a_probability_for_each_label_and_the_confidence_of_eq_5(runner: Any) -> None:
    response = ask(runner, naming("billing", "not sales", "Billing"), TEAM, concurrency=1)
    answer = response.choices["q"]
    votes = response.reasc["q"]["evidence"]
    assert votes == {"billing": 5.0, "not sales": 1.0}
    assert answer.choice == "billing" and answer.confidence == posterior(votes) == 0.9375
    assert answer.probabilities == {"billing": 6 / 9, "sales": 1 / 9, "not sales": 2 / 9}
    assert response.model == "scripted" and response.reasc["q"]["reason"] == "agreement"


@pytest.mark.parametrize(("said", "noul"), [("yes", 5 / 6), ("No.", 1 / 6)])
def test_a_yes_or_no_question_has_the_probability_of_yes(runner: Any, said: str, noul: float) -> None:
    assert ask(runner, naming(said), URGENT).nouls["q"].noul == pytest.approx(noul)


def test_a_score_is_the_expected_level(runner: Any) -> None:
    response = ask(runner, naming("2", "1", "2", "2", "2", "2", "2", "2"), ANGER, concurrency=1)
    answer = response.scores["q"]
    assert response.reasc["q"]["evidence"] == {"2": 5.0, "1": 1.0}
    assert answer.probabilities == {0: 1 / 9, 1: 2 / 9, 2: 6 / 9}
    assert answer.score == pytest.approx(14 / 9)
    assert answer.legend == {0: "calm", 1: "concerned", 2: {"very": "angry"}}
    assert answer.confidence == posterior({"2": 5, "1": 1})


def test_what_names_no_label_casts_no_vote(runner: Any) -> None:
    model = naming("refunds", Reply("It may be billing or sales"), "billing")
    response = ask(runner, model, TEAM, concurrency=1)
    assert response.reasc["q"]["evidence"] == {"billing": 6.0} and response.reasc["q"]["samples"] == 8
    assert any("2 of 8 responses cast no vote" in notice for notice in response.reasc["q"]["notices"])


def test_a_label_that_a_few_name_is_the_choice_and_undecided(runner: Any) -> None:
    model = naming("billing", Reply("It may be billing or sales"))
    response = ask(runner, model, TEAM, concurrency=1)
    answer, account = response.choices["q"], response.reasc["q"]
    assert (answer.choice, account["reason"], account["samples"]) == ("billing", "budget", 16)
    assert account["evidence"] == {"billing": 1.0} and answer.probabilities["billing"] == 2 / 4
    assert answer.confidence == account["posterior"] < 0.001, "15 of 16 responses name no label"
    with pytest.raises(Undecided):
        ask(runner, model, TEAM, on_undecided="raise")


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


class Books(LangChainTracer):
    """What LangSmith is sent: runs, each with the usage that it adds up over a trace."""

    def __init__(self, **fields: Any) -> None:  # which LangChain copies
        super().__init__(**{"client": MagicMock(sent={}), **fields})
        self.runs: dict[UUID, Any] = self.client.sent

    def _persist_run_single(self, run: Any) -> None:
        self.runs[run.id] = run

    def _update_run_single(self, run: Any) -> None:
        self.runs[run.id] = run


def test_samples_are_runs_below_the_decision_and_usage_is_theirs(runner: Any) -> None:
    books = Books()
    response = ask(runner, naming("sales"), TEAM, {"callbacks": [books], "run_name": "route", "tags": ["mine"]})
    [root] = [run for run in books.runs.values() if run.parent_run_id is None]
    assert (root.name, root.run_type, root.outputs["output"]) == ("route", "chain", response)
    samples = [run for run in books.runs.values() if run is not root]
    assert [(run.run_type, run.parent_run_id) for run in samples] == [("llm", root.id)] * 4
    for run in samples:
        assert run.extra["metadata"]["reasc_question"] == "q" and {"mine", "nostream"} <= {*run.tags}
    told = [run.extra.get("metadata", {}).get("usage_metadata") for run in (root, *samples)]
    assert told[0] is None and sum(one["total_tokens"] for one in told[1:]) == response.usage["total_tokens"]
    assert all(run.end_time for run in books.runs.values())


def test_max_concurrency_and_arguments_reach_the_samples(runner: Any) -> None:
    model = naming("sales")
    decisions = ReASCDecisionModel(llm=model).bind(stop=["</answer>"])
    runner.invoke(decisions, {"state": "s", "questions": {"q": TEAM}}, {"max_concurrency": 1})
    assert model.log.most_live == 1 and {tuple(kwargs["stop"]) for kwargs in model.log.kwargs} == {("</answer>",)}


def test_batches_and_streams_are_those_of_any_runnable(runner: Any) -> None:
    decisions = ReASCDecisionModel(llm=naming("no"))
    request = {"state": "s", "questions": {"q": URGENT}}
    noul = {"type": "noul", "instructions": "Is it urgent?"}  # a question may be a dictionary
    both = runner.batch(decisions, [{**request, "questions": {"q": noul}}, {"state": "s"}], return_exceptions=True)
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
