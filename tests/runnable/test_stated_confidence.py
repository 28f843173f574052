"""``ask_confidence=True``: models are asked what they think of their own answers; sync and async."""

from typing import Any

import numpy as np
import pytest
from langchain_core.messages import HumanMessage, SystemMessage

from langchain_reasc import ReASCRunnable, calibrate
from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.models import instruction

from .fakes import TOP_K, Reply, Scripted, calibration
from .learning import answered, online
from .stating import PING, QUESTIONS, STATED, Says, script, stating


@pytest.fixture(scope="module")
def calibrated() -> Any:
    return calibrate(Scripted(script=script), QUESTIONS, ask_confidence=True)


def test_the_line_is_asked_for_and_is_no_part_of_the_answer(runner: Any) -> None:
    model = stating("the answer is 42\n\n**Confidence:** 85 %")
    result = runner.solve(ReASCRunnable(model=model, ask_confidence=True, max_samples=2), "How many?")
    assert result.answer == "42"
    assert result.message.content == "the answer is 42"
    assert result.message.response_metadata["verbalized_confidence"] == 0.85
    for system, question in model.log.prompts:
        assert (system, question) == (SystemMessage(instruction(tools=False)), HumanMessage("How many?"))
    assert all(response.score is None for response in result.responses), "without a calibration votes are counted"


def test_nothing_changes_where_it_is_not_asked_for(runner: Any) -> None:
    model = stating("the answer is 42\nConfidence: 85%")
    message = runner.invoke(ReASCRunnable(model=model, max_samples=1, answer="text"), "How many?")
    assert message.content == "the answer is 42\nConfidence: 85%"
    assert "verbalized_confidence" not in message.response_metadata
    assert model.log.prompts == [[HumanMessage("How many?")]]


def test_streams_and_batches_ask_too(runner: Any) -> None:
    model = stating("the answer is 42\nConfidence: 85%")
    reasc = ReASCRunnable(model=model, ask_confidence=True, max_samples=1)
    assert [message.content for message in runner.batch(reasc, ["a", "b"])] == ["the answer is 42"] * 2
    assert "".join(str(chunk.content) for chunk in runner.stream(reasc, "c")) == "the answer is 42"
    assert all(prompt[0].type == "system" for prompt in model.log.prompts)


def test_an_empty_response_states_nothing(runner: Any) -> None:
    message = runner.invoke(ReASCRunnable(model=stating(""), ask_confidence=True, max_samples=1), "q")
    assert (message.content, message.response_metadata["verbalized_confidence"]) == ("", None)


# Without statements ---------------------------------------------------------------------------------------------------


def test_a_response_without_a_statement_is_without_confidence(runner: Any, calibrated: Any) -> None:
    model = stating("it is 1.\nConfidence: 30%", "it is 2", "it is 2.\nConfidence: certain", "it is 1")
    options: Any = {"model": model, "calibration": calibrated, "safeguard": "paper", "ask_confidence": True}
    with pytest.raises(LogprobsUnavailable, match=r"no confidence, although it was asked for .*'Confidence: 85%'"):
        runner.invoke(ReASCRunnable(**options), "q")
    result = runner.solve(ReASCRunnable(**options, on_missing_confidence="count", max_samples=4), "q")
    assert [response.score for response in result.responses] == [0.3, None, None, None]
    assert [response.weight for response in result.responses][1:] == [1.0] * 3, "never a zero"
    assert result.message.response_metadata["reasc"]["without_confidence"] == 3
    [notice] = [one for one in result.notices if "carry no confidence" in one]
    assert notice.startswith("3 of 4 responses carry no confidence and count as one vote each: the response states no")


def test_logprobs_are_no_stand_in(runner: Any, calibrated: Any) -> None:
    model = Scripted(script=lambda question, index: Reply("it is 1"))
    with pytest.raises(LogprobsUnavailable, match="no 'verbalized' signal: the response states no confidence"):
        runner.invoke(ReASCRunnable(model=model, calibration=calibrated, safeguard="paper", ask_confidence=True), "q")


def test_a_measure_of_tokens_says_what_it_misses(runner: Any) -> None:
    model = stating("it is 1.\nConfidence: 30%")
    made = calibration(fingerprint=ReASCRunnable(model=model, ask_confidence=True)._setup.fingerprint)
    with pytest.raises(LogprobsUnavailable, match="no 'top_k' signal: the response carries no token logprobs"):
        runner.invoke(ReASCRunnable(model=model, calibration=made, ask_confidence=True), "q")


def test_models_without_logprobs_can_be_calibrated(calibrated: Any) -> None:
    anthropic = pytest.importorskip("langchain_anthropic")
    model = anthropic.ChatAnthropic(model="claude-sonnet-4-5", api_key="sk-nothing")
    options = {"model": model, "allow_fingerprint_mismatch": True}
    ReASCRunnable(**options, calibration=calibrated, ask_confidence=True)
    assert ReASCRunnable(model=model, calibration="mixture", ask_confidence=True)._setup.calibrator.measure == STATED
    for refused in ({"calibration": calibration()}, {"calibration": calibration(), "ask_confidence": True}):
        with pytest.raises(LogprobsUnavailable, match="ChatAnthropic returns no logprobs"):
            ReASCRunnable(**options, **refused)
    with pytest.raises(LogprobsUnavailable, match="ChatAnthropic returns no logprobs"):
        calibrate(model, QUESTIONS, ask_confidence=True, measure=TOP_K)


def test_online_it_is_the_default_where_there_is_nothing_else(runner: Any) -> None:
    reasc = ReASCRunnable(model=Scripted(script=script), calibration="mixture", ask_confidence=True, max_samples=2)
    accounts = runner.accounts(reasc, [question for question, _ in QUESTIONS])
    assert {account["method"] for account in accounts} == {"reasc"}
    assert not [notice for account in accounts for notice in account["notices"] if "window" in notice]
    for at in range(64):
        runner.invoke(reasc, f"one by one {at}")
    assert reasc.learned is not None and reasc.learned.measure == STATED
    same = reasc.model_copy(update={"max_samples": 3})
    assert same.learned is reasc.learned
    assert reasc.model_copy(update={"ask_confidence": False, "on_missing_confidence": "count"}).learned is None


def test_online_it_is_a_candidate(runner: Any, fits: Any) -> None:
    def stated(question: str, index: int) -> Reply:
        return Reply(f"it is {index % 2}\nConfidence: {90 - index}%", logprob=None)

    answered(runner, online(stated, ask_confidence=True))
    for observed in fits[0].questions:
        distinct = {tuple(row) for row in observed.scores if np.isfinite(row).any()}
        assert len(distinct) == 1, "no other measure has a score"
        assert distinct.pop()[0] == pytest.approx(0.9)


# Beside tool calls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stated", "left"),
    [("I ask.\nConfidence: 80%", 0.8, "I ask."), ("Confidence: 80%", 0.8, ""), ("", None, "")],
)
def test_the_line_may_stand_beside_a_call(runner: Any, text: str, stated: float | None, left: str) -> None:
    model = Scripted(script=lambda question, index: Says(text, calls=(("ping", {"times": 3}),)))
    options: Any = {"calibration": "mixture", "ask_confidence": True, "on_missing_confidence": "count"}
    result = runner.solve(ReASCRunnable(model=model.bind(tools=[PING]), **options), "q")
    assert result.message.tool_calls[0]["args"] == {"times": 3}
    assert result.message.content == left
    assert result.responses[0].score == stated
    assert model.log.prompts[0][0].content == instruction(tools=True)


def test_a_model_in_this_process_is_asked_in_its_template(runner: Any) -> None:
    backend = pytest.importorskip("langchain_reasc_llama_cpp")
    with backend.ChatLlamaCpp(seed=1, max_tokens=30) as model:
        reasc = ReASCRunnable(model=model, ask_confidence=True, max_samples=2)
        result = runner.solve(reasc, "How much is 2 + 3?")
        asked = model.get_num_tokens_from_messages(
            [SystemMessage(instruction(tools=False)), HumanMessage("How much is 2 + 3?")]
        )
        assert result.usage.input_tokens == 2 * asked
        assert all("verbalized_confidence" in response.message.response_metadata for response in result.responses)
