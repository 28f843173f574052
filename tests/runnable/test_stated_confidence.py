"""``confidence="stated"``: models are asked what they think of their own answers, and calibrated on it."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from calibration.choosing import select_measure
from langchain_core.messages import HumanMessage, SystemMessage

from langchain_reasc import Measure, ReASCRunnable, calibrate, load_calibration, save_calibration
from langchain_reasc.exceptions import ConfigurationError, FingerprintMismatch, LogprobsUnavailable
from langchain_reasc.models import instruction

from .fakes import TOP_K, Reply, Scripted, calibration, saying
from .learning import answered, online

STATED = Measure("verbalized", "mean")
PING = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}
QUESTIONS = [(f"q{at}", "1") for at in range(40)]


@dataclass
class Says(Reply):
    """Keeps its line breaks, and has no logprobs."""

    logprob: float | None = None

    def tokens(self) -> Iterator[str]:
        yield from re.findall(r"\s*\S+", self.text)


def stating(*texts: str) -> Scripted:
    """A model whose sample i says ``texts[i]``, the last one for all beyond."""
    return saying(*map(Says, texts))


def script(question: str, index: int) -> Reply:
    """Right and sure of it, or wrong and less sure; a function of the question alone."""
    rng = random.Random(question)
    right = rng.random() < 0.6
    stated = min(100, round(rng.gauss(90 if right else 55, 6)))
    return Says(f"so it is {1 if right else 2}.\nConfidence: {stated}%")


@pytest.fixture(scope="module")
def calibrated() -> Any:
    return calibrate(Scripted(script=script), QUESTIONS, ask_confidence=True)


@pytest.fixture(scope="module")
def papers() -> Any:
    """The same by the paper's rule."""
    return calibrate(Scripted(script=script), QUESTIONS, ask_confidence=True, method="paper")


def test_the_line_is_asked_for_and_is_no_part_of_the_answer(runner: Any) -> None:
    model = stating("the answer is 42\n\n**Confidence:** 85 %")
    reasc = ReASCRunnable(model=model, confidence="stated", max_samples=2)
    result = runner.solve(reasc, "How many?")
    assert (result.answer, result.message.content) == ("42", "the answer is 42")
    assert result.message.response_metadata["verbalized_confidence"] == 0.85
    assert all(response.score is None for response in result.responses), "without a calibration votes are counted"
    assert [message.content for message in runner.batch(reasc, ["How many?"] * 2)] == ["the answer is 42"] * 2
    assert "".join(str(chunk.content) for chunk in runner.stream(reasc, "How many?")) == "the answer is 42"
    for system, question in model.log.prompts:
        assert (system, question) == (SystemMessage(instruction(tools=False)), HumanMessage("How many?"))
    unasked = stating("the answer is 42\nConfidence: 85%")
    message = runner.invoke(ReASCRunnable(model=unasked, max_samples=1, answer="text"), "How many?")
    assert message.content == "the answer is 42\nConfidence: 85%"
    assert "verbalized_confidence" not in message.response_metadata
    assert unasked.log.prompts == [[HumanMessage("How many?")]]


@pytest.mark.full
def test_a_response_without_a_statement_is_without_confidence(runner: Any, papers: Any) -> None:
    model = stating("it is 1.\nConfidence: 30%", "it is 2", "it is 2.\nConfidence: certain", "it is 1")
    options: Any = {"model": model, "calibration": papers, "confidence": "stated"}
    with pytest.raises(LogprobsUnavailable, match=r"'Confidence: 85%'"):
        runner.invoke(ReASCRunnable(**options), "q")
    result = runner.solve(ReASCRunnable(**options, on_missing_confidence="count", max_samples=4), "q")
    assert [response.score for response in result.responses] == [0.3, None, None, None]
    assert [response.weight for response in result.responses][1:] == [1.0] * 3, "never a zero"
    assert result.message.response_metadata["reasc"]["without_confidence"] == 3
    [notice] = [one for one in result.notices if "no confidence" in one]
    assert notice.startswith("3 of 4 ")
    message = runner.invoke(ReASCRunnable(model=stating(""), confidence="stated", max_samples=1), "q")
    assert (message.content, message.response_metadata["verbalized_confidence"]) == ("", None)


def test_logprobs_and_statements_are_no_stand_in_for_each_other(runner: Any, calibrated: Any, papers: Any) -> None:
    options: Any = {"model": saying("1"), "confidence": "stated"}
    with pytest.raises(LogprobsUnavailable, match="'verbalized' signal"):
        runner.invoke(ReASCRunnable(**options, calibration=papers), "q")
    result = runner.solve(ReASCRunnable(**options, calibration=calibrated), "q")
    assert {response.score for response in result.responses} == {None}, "the agreement rule counts them"
    model, of_tokens = stating("it is 1.\nConfidence: 30%"), calibration(fingerprint=papers.fingerprint)
    with pytest.raises(LogprobsUnavailable, match="'top_k' signal"):
        runner.invoke(ReASCRunnable(model=model, calibration=of_tokens, confidence="stated"), "q")


def test_models_without_logprobs_can_be_calibrated(calibrated: Any) -> None:
    anthropic = pytest.importorskip("langchain_anthropic")
    model = anthropic.ChatAnthropic(model="claude-sonnet-4-5", api_key="sk-nothing")
    options: dict[str, Any] = {"model": model, "allow_fingerprint_mismatch": True}
    ReASCRunnable(**options, calibration=calibrated, confidence="stated")
    mixture: Any = ReASCRunnable(model=model, calibration="mixture", confidence="stated")
    assert mixture.calibrator.measure == STATED
    for asked in (False, True):
        with pytest.raises(LogprobsUnavailable, match="ChatAnthropic"):
            ReASCRunnable(**options, calibration=calibration(), confidence="stated" if asked else None)
    with pytest.raises(LogprobsUnavailable, match="ChatAnthropic"):
        calibrate(model, QUESTIONS, ask_confidence=True, measure=TOP_K)


@pytest.mark.sync_only
@pytest.mark.slow  # calibrates twice
def test_a_mixture_takes_it_where_there_is_nothing_else_and_online_it_is_a_candidate(runner: Any, fits: Any) -> None:
    reasc = ReASCRunnable(model=Scripted(script=script), calibration="mixture", confidence="stated", max_samples=2)
    accounts = runner.accounts(reasc, [question for question, _ in QUESTIONS])
    assert {account["method"] for account in accounts} == {"reasc"}
    assert not [notice for account in accounts for notice in account["notices"] if "window" in notice]
    for at in range(64):
        runner.invoke(reasc, f"one by one {at}")
    assert reasc.learned is not None and reasc.learned.measure == STATED
    assert reasc.model_copy(update={"max_samples": 3}).learned is reasc.learned
    assert reasc.model_copy(update={"confidence": None, "on_missing_confidence": "count"}).learned is None
    answered(runner, online(lambda question, index: Says(f"it is {index}\nConfidence: 90%"), confidence="stated"))
    for observed in fits[0].questions:
        [scores] = {tuple(row) for row in observed.scores if np.isfinite(row).any()}
        assert scores[0] == pytest.approx(0.9), "no other measure has a score"


@pytest.mark.parametrize(
    ("text", "stated", "left"),
    [("I ask.\nConfidence: 80%", 0.8, "I ask."), ("Confidence: 80%", 0.8, ""), ("", None, "")],
)
def test_the_line_may_stand_beside_a_call(runner: Any, text: str, stated: float | None, left: str) -> None:
    model = Scripted(script=lambda question, index: Says(text, calls=(("ping", {"times": 3}),)))
    options: Any = {"calibration": "mixture", "confidence": "stated", "on_missing_confidence": "count"}
    result = runner.solve(ReASCRunnable(model=model.bind(tools=[PING]), **options), "q")
    assert result.message.tool_calls[0]["args"] == {"times": 3}
    assert (result.message.content, result.responses[0].score) == (left, stated)
    assert model.log.prompts[0][0].content == instruction(tools=True)


@pytest.mark.sync_only
def test_a_model_in_this_process_is_asked_in_its_template(runner: Any) -> None:
    backend = pytest.importorskip("langchain_reasc_llama_cpp")
    with backend.ChatLlamaCpp(seed=1, max_tokens=30) as model:
        reasc = ReASCRunnable(model=model, confidence="stated", max_samples=2)
        result = runner.solve(reasc, "How much is 2 + 3?")
        asked = model.get_num_tokens_from_messages(
            [SystemMessage(instruction(tools=False)), HumanMessage("How much is 2 + 3?")]
        )
        assert result.usage.input_tokens == 2 * asked
        assert all("verbalized_confidence" in response.message.response_metadata for response in result.responses)


def test_it_is_calibrated_like_any_other_signal(runner: Any, calibrated: Any, papers: Any, tmp_path: Any) -> None:
    assert calibrated.measure == STATED and calibrated.rule_.scores, "the agreement rule reads it"
    assert papers.measure == STATED and papers.auroc.value > 0.9
    for made in (calibrated, papers):
        save_calibration(made, tmp_path / "calibration.json")
        assert load_calibration(tmp_path / "calibration.json") == made
    options: Any = {"calibration": papers, "confidence": "stated"}
    results = [runner.solve(ReASCRunnable(model=Scripted(script=script), **options), q) for q, _ in QUESTIONS[:12]]
    for result in results:
        stated = result.responses[0].message.response_metadata["verbalized_confidence"]
        assert result.responses[0].score == stated
        assert (result.decision.reason == "gate") == (stated >= papers.gate.threshold)
    assert {result.decision.reason for result in results} == {"gate", "evidence"}

    def forgetful(question: str, index: int) -> Reply:
        return Says("so it is 1") if question in ("q3", "q5") else script(question, index)

    made = runner.calibrate(Scripted(script=forgetful), QUESTIONS, ask_confidence=True, measure=STATED, max_samples=1)
    assert (made.n, made.measure) == (len(QUESTIONS) - 2, STATED)


@pytest.mark.sync_only
def test_a_surer_response_counts_for_more(runner: Any, calibrated: Any) -> None:
    model = stating("it is 2.\nConfidence: 50%", "it is 1.\nConfidence: 95%", "it is 2.\nConfidence: 50%")
    made = calibration(signal="verbalized", mean=0.6, std=0.1, fingerprint=calibrated.fingerprint)
    result = runner.solve(ReASCRunnable(model=model, calibration=made, confidence="stated", max_samples=3), "q")
    assert (result.answer, result.decision.samples) == ("1", 2)
    assert [response.weight for response in result.responses][:2] == [1.0, pytest.approx(11.588, abs=0.01)]


def test_auto_compares_it_with_the_signals_of_tokens() -> None:
    rng = random.Random(0)
    correct = [rng.random() < 0.6 for _ in range(60)]
    signals = [
        {"token_logprob": [-rng.random() for _ in range(20)], "verbalized": [0.9 if right else 0.3]}
        for right in correct
    ]
    chosen = select_measure(signals, correct)
    assert chosen.measure == STATED and chosen.cross_validated == 1.0
    assert {rejected.signal for rejected in chosen.rejected} == {"token_logprob"}
    weak = [{"token_logprob": [-float(not right)], "verbalized": [rng.random()]} for right in correct]
    other = select_measure(weak, correct)
    assert other.measure.signal == "token_logprob"
    assert [one.score for one in other.rejected if one.signal == "verbalized"] == ["mean"]


@pytest.mark.full
@pytest.mark.sync_only
@pytest.mark.parametrize(("system", "fixed"), [([], None), ([("system", "Be brief.")], 0)])
def test_a_calibration_holds_for_models_that_are_asked_or_for_those_that_are_not(
    runner: Any, system: list[Any], fixed: Any
) -> None:
    def both(question: str, index: int) -> Reply:
        reply = script(question, index)
        reply.logprob = -float(re.findall(r"\d+", reply.text)[-1]) / 20
        return reply

    model, questions = Scripted(script=both), [([*system, ("human", q)], right) for q, right in QUESTIONS]
    for asked in (False, True):
        made = calibrate(model, questions, measure=TOP_K, ask_confidence=asked, fixed_prompt=fixed, max_samples=1)
        kept: Any = {"model": model, "calibration": made, "fixed_prompt": fixed}
        reasc = ReASCRunnable(**kept, confidence="stated" if asked else None)
        assert runner.invoke(reasc, [*system, ("human", "q1")]).content
        shown = ["not asked for", r"asked for \([0-9a-f]{12}\)"]
        sides = rf"\(confidence\): .* {shown[asked]}, .* {shown[not asked]}"
        with pytest.raises(FingerprintMismatch, match=sides):
            ReASCRunnable(**kept, confidence="stated" if not asked else None)
    with_tools = {"model": model.bind(tools=[PING]), "calibration": made, "confidence": "stated"}
    with pytest.raises(FingerprintMismatch, match=r"confidence\): .*asked for .*asked for"):
        ReASCRunnable(**with_tools)  # beside tools it is asked in other words


@pytest.mark.sync_only
def test_it_is_never_measured_unasked(runner: Any) -> None:
    with pytest.raises(ConfigurationError, match="ask_confidence=True"):
        runner.calibrate(Scripted(script=script), QUESTIONS, measure=STATED)
    model = Scripted(script=script)
    runner.invoke(ReASCRunnable(model=model, calibration="mixture", confidence=STATED), "q1")
    assert "Confidence" in str(model.log.prompts[0])
