"""Stated confidence is calibrated like any other signal, and by whom it is refused; sync and async."""

import random
import re
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate

from langchain_reasc import ReASCRunnable, calibrate, load_calibration, save_calibration
from langchain_reasc.calibration import select_measure
from langchain_reasc.exceptions import ConfigurationError, FingerprintMismatch

from .fakes import TOP_K, Reply, Scripted, calibration
from .stating import PING, QUESTIONS, STATED, Says, script, stating


def test_it_is_calibrated_like_any_other_signal(runner: Any, tmp_path: Any) -> None:
    made = runner.calibrate(Scripted(script=script), QUESTIONS, ask_confidence=True)
    assert made.measure == STATED
    assert made.auroc.value > 0.9 and made.gate.threshold > 0.7
    save_calibration(made, tmp_path / "calibration.json")
    kept = load_calibration(tmp_path / "calibration.json")
    assert kept == made
    reasc = ReASCRunnable(model=Scripted(script=script), calibration=kept, ask_confidence=True)
    by_reason: dict[str, list[float]] = {}
    for question, _ in QUESTIONS:
        result = runner.solve(reasc.model_copy(update={"safeguard": "paper"}), question)
        stated = result.responses[0].message.response_metadata["verbalized_confidence"]
        assert result.responses[0].score == stated
        by_reason.setdefault(result.decision.reason, []).append(stated)
    assert min(by_reason["gate"]) >= made.gate.threshold > max(by_reason["evidence"])


def test_a_surer_response_counts_for_more(runner: Any) -> None:
    model = stating("it is 2.\nConfidence: 50%", "it is 1.\nConfidence: 95%", "it is 2.\nConfidence: 50%")
    made = calibration(
        signal="verbalized",
        mean=0.6,
        std=0.1,
        fingerprint=ReASCRunnable(model=model, ask_confidence=True)._setup.fingerprint,
    )
    result = runner.solve(ReASCRunnable(model=model, calibration=made, ask_confidence=True, max_samples=3), "q")
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
    del signals[7]["verbalized"]
    assert select_measure(signals, correct).measure.signal == "token_logprob", "all responses must carry it"


def test_questions_without_a_statement_are_left_out(runner: Any, caplog: Any) -> None:
    def forgetful(question: str, index: int) -> Reply:
        return Says("so it is 1") if question in ("q3", "q5") else script(question, index)

    for measure in ("auto", STATED):
        made = runner.calibrate(Scripted(script=forgetful), QUESTIONS, ask_confidence=True, measure=measure)
        assert (made.n, made.measure) == (len(QUESTIONS) - 2, STATED)
    assert "the response states no confidence" in caplog.text


@pytest.mark.parametrize("system", [None, "Be brief."])
@pytest.mark.parametrize("fixed", [None, 0, ChatPromptTemplate.from_template("{question}")])
def test_a_calibration_holds_for_models_that_are_asked_or_for_those_that_are_not(
    runner: Any, system: str | None, fixed: Any
) -> None:
    def prompt(question: str) -> list[BaseMessage]:
        return [*([SystemMessage(system)] if system else []), HumanMessage(question)]

    def both(question: str, index: int) -> Reply:
        reply = script(question, index)
        reply.logprob = -float(re.findall(r"\d+", reply.text)[-1]) / 20
        return reply

    model, questions = Scripted(script=both), [(prompt(question), right) for question, right in QUESTIONS]
    for asked in (False, True):
        made = calibrate(model, questions, measure=TOP_K, ask_confidence=asked, fixed_prompt=fixed)
        kept = {"model": model, "calibration": made, "fixed_prompt": fixed}
        assert runner.invoke(ReASCRunnable(**kept, ask_confidence=asked), prompt("q1")).content
        shown = ["not asked for", r"asked for \([0-9a-f]{12}\)"]
        sides = rf"\(ask_confidence\): calibrated on {shown[asked]}, running {shown[not asked]}"
        with pytest.raises(FingerprintMismatch, match=sides):
            ReASCRunnable(**kept, ask_confidence=not asked)
        reasc = ReASCRunnable(**kept, ask_confidence=not asked, allow_fingerprint_mismatch=True)
        assert runner.invoke(reasc, prompt("q1")).content


def test_what_is_asked_beside_tools_is_something_else() -> None:
    model = stating("pong")
    runnables = [ReASCRunnable(model=one, ask_confidence=True) for one in (model, model.bind(tools=[PING]))]
    alone, beside = (one._setup.fingerprint.ask_confidence for one in runnables)
    assert alone and beside and alone.sha256 != beside.sha256


def test_it_cannot_be_measured_unasked(runner: Any) -> None:
    with pytest.raises(ConfigurationError, match="ask_confidence=True"):
        runner.calibrate(Scripted(script=script), QUESTIONS, measure=STATED)
    with pytest.raises(ConfigurationError, match="ask_confidence=True"):
        ReASCRunnable(model=Scripted(script=script), calibration="mixture", measure=STATED)
