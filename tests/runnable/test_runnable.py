"""ReASCRunnable as a step in a chain: every way to call it, and what comes out."""

import copy
import json
import pickle
from typing import Any

import pytest
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError, ReASCError, SamplingError
from langchain_reasc.method.horizon import stays_ahead

from .fakes import TOP_K, Reply, Scripted, calibration, failing, saying

PROMPT = ChatPromptTemplate.from_messages([("system", "Think."), ("human", "{question}")])
INPUTS = {
    "string": "q",
    "messages": [SystemMessage("Think."), HumanMessage("q")],
    "tuples": [("human", "q")],
    "dicts": [{"role": "user", "content": "q"}],
    "prompt value": PROMPT.invoke({"question": "q"}),
}


def echo(question: str, index: int) -> Reply:
    return Reply(f"the answer is {question}")


@pytest.mark.parametrize("value", INPUTS.values(), ids=INPUTS)
def test_it_takes_what_a_chat_model_takes(runner: Any, value: Any) -> None:
    model = saying("42")
    message = runner.invoke(ReASCRunnable(model=model), value)
    assert isinstance(message, AIMessage)
    assert message.text == "the answer is 42"
    assert {asked for asked, _ in model.log.calls} == {"q"}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (3, "got int"),
        (None, "got NoneType"),
        ({"question": "q"}, "got dict"),
        (b"bytes", "got bytes"),
        ([], "no message"),
    ],
    ids=repr,
)
def test_other_input_is_refused(runner: Any, value: Any, says: str) -> None:
    model = saying("42")
    with pytest.raises(ConfigurationError, match=f"input.*{says}"):
        runner.invoke(ReASCRunnable(model=model), value)
    assert model.log.calls == []


def test_the_message_carries_the_account(runner: Any) -> None:
    model = saying("1", "2", "1", "1", "1", "1", "1", "1")
    message = runner.invoke(ReASCRunnable(model=model, concurrency=6), "q")
    account = message.response_metadata["reasc"]
    assert json.loads(json.dumps(account)) == account
    assert account | {"posterior": None} == {
        **{"method": "finite_horizon", "answer": "1", "stage": 2, "reason": "agreement", "posterior": None},
        **{"samples": 6, "launched": 6, "failed": 0, "without_confidence": 0},
        "evidence": {"1": 5.0, "2": 1.0},
        "tokens": {"input": 42, "output": 24, "unused_output": 0, "estimated": False},
        "notices": ["no calibration: counting votes (finite horizon)"],
    }
    assert account["posterior"] == stays_ahead(5, 1, 10)
    assert message.usage_metadata == {"input_tokens": 42, "output_tokens": 24, "total_tokens": 66}
    assert message.response_metadata["model_name"] == "scripted"


def test_the_winner_is_the_most_trusted_response_with_the_winning_answer(runner: Any) -> None:
    replies = [Reply("weak 7", -0.1), Reply("odd 8", -1.5), Reply("strong 7", -2.0), Reply("mild 7", -0.2)]
    reasc = ReASCRunnable(model=saying(*replies), calibration=calibration(), max_samples=4)
    result = runner.solve(reasc, "q")
    assert (result.answer, result.message.text) == ("7", "strong 7")
    assert [response.weight for response in result.responses][:2] == [1.0, pytest.approx(2.718281828**0.35)]


def test_a_batch_answers_each_input_in_its_place_or_names_it(runner: Any) -> None:
    reasc = ReASCRunnable(model=Scripted(script=echo))
    assert [account["answer"] for account in runner.accounts(reasc, ["1", "2", "3"])] == ["1", "2", "3"]
    pairs = runner.batch_as_completed(reasc, ["1", "2", "3"])
    answers = sorted((at, message.response_metadata["reasc"]["answer"]) for at, message in pairs)
    assert answers == [(0, "1"), (1, "2"), (2, "3")]


@pytest.mark.parametrize("calibrated", [None, "mixture"])
def test_a_failing_input_of_a_batch_can_be_returned(runner: Any, calibrated: Any) -> None:
    model = failing(echo, lambda question, index: question == "2", ValueError("bad"))
    reasc = ReASCRunnable(model=model, calibration=calibrated, measure=TOP_K if calibrated else None)
    first, second, third = runner.batch(reasc, ["1", "2", 3], return_exceptions=True)
    assert first.text == "the answer is 1"
    assert isinstance(second, SamplingError)
    assert isinstance(third, ConfigurationError)
    with pytest.raises(SamplingError):
        runner.batch(reasc, ["1", "2"])


@pytest.mark.parametrize("calibrated", [None, "mixture"])
def test_an_empty_batch_is_empty(runner: Any, calibrated: Any) -> None:
    reasc = ReASCRunnable(model=saying("1"), calibration=calibrated)
    assert runner.batch(reasc, []) == []
    assert runner.batch_as_completed(reasc, []) == []


def test_in_a_chain_with_prompt_and_parser(runner: Any) -> None:
    chain = PROMPT | ReASCRunnable(model=saying("42")) | StrOutputParser()
    assert runner.invoke(chain, {"question": "q"}) == "the answer is 42"
    assert "".join(runner.stream(chain, {"question": "q"})) == "the answer is 42"
    assert runner.batch(chain, [{"question": "q"}] * 2) == ["the answer is 42"] * 2


def test_streaming_gives_the_winner_once(runner: Any) -> None:
    [message] = runner.stream(ReASCRunnable(model=saying("42")), "q")
    assert message.response_metadata["reasc"]["answer"] == "42"


@pytest.mark.parametrize("text", ["nothing to see", "-", "\\boxed{}"])
def test_without_any_answer_the_budget_is_spent_and_the_answer_is_none(runner: Any, text: str) -> None:
    result = runner.solve(ReASCRunnable(model=saying(Reply(text)), max_samples=5), "q")
    assert (result.answer, result.decision.reason, result.decision.samples) == (None, "budget", 5)
    assert (result.decision.evidence, result.decision.posterior) == ({}, 0.5)
    assert result.message.text == text
    assert {response.weight for response in result.responses} == {0.0}


def test_an_empty_completion_casts_no_vote(runner: Any) -> None:
    result = runner.solve(ReASCRunnable(model=saying(Reply("", logprob=None), "1"), calibration=calibration()), "q")
    assert result.responses[0].answer is None
    assert result.answer == "1"
    assert result.decision.evidence.keys() == {"1"}
    assert not any("counted as one vote" in notice for notice in result.notices)


def test_an_extractor_that_raises_on_one_response_loses_nothing(runner: Any) -> None:
    def fussy(text: str) -> str:
        return {"the answer is 1": "1"}[text]

    result = runner.solve(ReASCRunnable(model=saying("1", "odd", "1", "1", "1"), answer=fussy), "q")
    assert (result.answer, result.decision.evidence) == ("1", {"1": 4.0})
    assert "the answer extractor failed on a response: KeyError('the answer is odd')" in result.notices


def test_listeners_hear_each_response_with_the_decision_after_it(runner: Any) -> None:
    heard: list[tuple[str | None, bool, int]] = []
    reasc = ReASCRunnable(model=saying("1", "2", "1"), max_samples=3)
    runner.solve(reasc, "q", on_response=lambda r, d: heard.append((r.answer, d.stop, d.samples)))
    assert heard == [("1", False, 1), ("2", False, 2), ("1", True, 3)]


WRONG = [
    *({"max_samples": 0}, {"concurrency": 0}, {"confidence": 0.5}, {"answer": "nope"}, {"model": 3}, {"timeout": 0}),
    *({"sample_timeout": 0}, {"time_budget": 0}, {"token_budget": 0}, {"on_undecided": "ask"}),
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_wrong_option_is_refused_by_name_and_value(wrong: dict[str, Any]) -> None:
    [(name, value)] = wrong.items()
    with pytest.raises(ConfigurationError, match=f"(?s){name}.*{value}") as caught:
        ReASCRunnable(**{"model": saying("1"), **wrong})
    assert isinstance(caught.value, ReASCError)


def test_an_unknown_option_is_refused_with_the_one_that_is_meant() -> None:
    with pytest.raises(ConfigurationError, match="unknown option 'samples'; did you mean 'max_samples'"):
        ReASCRunnable(**{"model": saying("1"), "samples": 3})


@pytest.mark.parametrize("how", [lambda r: pickle.loads(pickle.dumps(r)), copy.deepcopy, copy.copy])
@pytest.mark.parametrize("calibrated", [None, "mixture", calibration(fingerprint={})])
def test_copies_work(how: Any, calibrated: Any) -> None:
    model = Scripted(script=echo, log=None)
    again = how(ReASCRunnable(model=model.bind(stop=["x"]), calibration=calibrated, max_samples=3))
    assert again.max_samples == 3
    assert again.learned == (None if calibrated == "mixture" else calibrated)


def test_dumping_and_describing_do_not_crash() -> None:
    reasc = ReASCRunnable(model=saying("1"), calibration=calibration())
    assert "langchain_reasc" in dumps(reasc) and '"not_implemented"' in dumps(reasc)
    assert reasc.get_graph().nodes
    assert reasc.get_input_jsonschema() and reasc.get_output_jsonschema()
    assert reasc.get_name() == "ReASCRunnable"
