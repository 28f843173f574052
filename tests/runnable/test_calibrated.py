"""With a calibration: the gate, weights, what is refused, and what is announced."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, SystemMessage

from langchain_reasc import ASC, ReASCRunnable, calibrate, save_calibration
from langchain_reasc.calibration import Gate
from langchain_reasc.exceptions import (
    FingerprintMismatch,
    LogprobsUnavailable,
)
from langchain_reasc.method.stopping import FirstAccepted
from langchain_reasc.models.fingerprint import Fingerprint, prompt_hash

from .fakes import TOP_K, Reply, Scripted, calibration, saying

pytestmark = pytest.mark.sync_only

SURE, UNSURE = Reply("it is 7", -3.0), Reply("it is 8", -0.5)


def test_a_score_at_the_gate_is_accepted_and_one_below_is_not(runner: Any) -> None:
    at, below = (calibration(gate=gate, mean=3.0) for gate in (3.0, 3.0000001))
    assert runner.solve(ReASCRunnable(model=saying(SURE), calibration=at), "q").decision.samples == 1
    assert runner.solve(ReASCRunnable(model=saying(SURE), calibration=below), "q").decision.samples == 4


def test_a_calibration_comes_as_an_object_a_path_or_a_string(runner: Any, tmp_path: Path) -> None:
    measured = calibration(gate=2.5)
    path = save_calibration(measured, tmp_path / "calibration.json")
    for given in (measured, path, str(path)):
        reasc = ReASCRunnable(model=saying(SURE), calibration=given)
        assert reasc.learned == measured
        account = runner.account(reasc, "q")
        assert (account["method"], account["stage"], account["reason"], account["samples"]) == ("reasc", 1, "gate", 1)
        assert account["notices"] == []


@pytest.mark.parametrize("reply", [SURE, Reply("it is 7", logprob=None)], ids=["with logprobs", "without logprobs"])
def test_a_weak_calibration_counts_votes_and_says_why(runner: Any, reply: Reply) -> None:
    weak = calibration(gate=2.5, fallback="the score does not separate right from wrong")
    result = runner.solve(ReASCRunnable(model=saying(reply), calibration=weak), "q")
    assert (result.decision.samples, result.decision.evidence) == (4, {"7": 4.0})
    assert "the score does not separate right from wrong" in result.notices[0]
    assert result.message.response_metadata["reasc"]["method"] == "asc"


def test_a_signal_the_model_does_not_give_is_refused_by_name(runner: Any) -> None:
    options: Any = {"model": saying(SURE), "calibration": calibration(signal="self_certainty")}
    with pytest.raises(FingerprintMismatch, match=r"'self_certainty'.*'top_k, token_logprob"):
        runner.invoke(ReASCRunnable(**options), "q")
    with pytest.raises(LogprobsUnavailable, match=r"'self_certainty' signal.*top_k, token_logprob"):
        runner.invoke(ReASCRunnable(**options, allow_fingerprint_mismatch=True), "q")


@pytest.mark.parametrize(
    ("measured_on", "both_sides"),
    [
        ({"model": "other"}, "model: .*'other'.*'scripted'"),
        ({"sampling": {"temperature": 0.3}}, "temperature: .*0.3.*1.0"),
    ],
)
def test_another_model_or_sampling_is_refused_with_both_sides(
    runner: Any, measured_on: dict[str, Any], both_sides: str
) -> None:
    made = calibration(gate=2.5, fingerprint=Fingerprint(**measured_on))
    with pytest.raises(FingerprintMismatch, match=f"{both_sides}.*allow_fingerprint_mismatch=True"):
        ReASCRunnable(model=saying(SURE), calibration=made)
    reasc = ReASCRunnable(model=saying(SURE), calibration=made, allow_fingerprint_mismatch=True)
    assert runner.solve(reasc, "q").decision.reason == "gate"


@pytest.mark.parametrize("how", ["bound to the model", "bound to the runnable", "given to the call"])
def test_a_temperature_given_elsewhere_is_checked_too(runner: Any, how: str) -> None:
    given = {"temperature": 0.2}
    model = saying(SURE).bind(**given) if how == "bound to the model" else saying(SURE)
    with pytest.raises(FingerprintMismatch, match=r"temperature: .*1.0.*0.2"):
        reasc: Any = ReASCRunnable(model=model, calibration=calibration(gate=2.5))
        reasc = reasc.bind(**given) if how == "bound to the runnable" else reasc
        runner.invoke(reasc, "q", **(given if how == "given to the call" else {}))


def test_another_system_prompt_is_refused_and_the_same_accepted(runner: Any) -> None:
    system = SystemMessage("Think step by step.")
    made = calibration(gate=2.5, fingerprint=Fingerprint(prompt_sha256=prompt_hash([system])))
    reasc = ReASCRunnable(model=saying(SURE), calibration=made)
    assert runner.solve(reasc, [system, HumanMessage("another question")]).decision.reason == "gate"
    for other in ("q", [SystemMessage("Be brief."), HumanMessage("q")]):
        with pytest.raises(FingerprintMismatch, match="prompt_sha256"):
            runner.invoke(reasc, other)
        lenient = ReASCRunnable(model=saying(SURE), calibration=made, allow_fingerprint_mismatch=True)
        assert runner.solve(lenient, other).decision.reason == "gate"


def test_the_answer_and_the_fixed_prompt_are_part_of_what_was_measured(runner: Any) -> None:
    shots = [("human", "1 + 1"), ("ai", "2"), ("human", "{question}")]
    questions = [(f"q{at}", str(at % 2)) for at in range(8)]
    model = Scripted(script=lambda question, index: Reply("it is 1", -1.0 - int(question[1:]) / 7))
    measured = calibrate(model, questions, answer="number", fixed_prompt=shots, measure=TOP_K)
    runner.invoke(ReASCRunnable(model=model, calibration=measured, answer="number", fixed_prompt=shots), "q1")
    with pytest.raises(FingerprintMismatch, match=r"answer: .*'number, .*'auto, "):
        ReASCRunnable(model=model, calibration=measured, fixed_prompt=shots)
    with pytest.raises(FingerprintMismatch, match="prompt"):
        ReASCRunnable(model=model, calibration=measured, answer="number", fixed_prompt=shots[1:])
    talk = [*shots[:2], ("human", "hello"), ("ai", "hello"), ("human", "q1")]  # what was said is no part of it
    assert runner.account(ReASCRunnable(model=model, calibration=measured, answer="number", fixed_prompt=shots), talk)
    # How many first messages are fixed is said once, and what they are is seen in each call.
    counted = ReASCRunnable(model=model, calibration=measured, answer="number", fixed_prompt=2)
    with pytest.raises(FingerprintMismatch, match="prompt"):
        runner.invoke(counted, [("human", "1 + 2"), ("ai", "3"), ("human", "q1")])


def guarded(**fields: Any) -> Any:
    """The paper's gate accepts 2.5 or more, the safe one 3.5; votes are counted where ``unweighed`` says so."""
    safe = {"level": 0.95, "safe_threshold": 3.5, "accepted": 46, "lower_bound": 0.9}
    measured = calibration(gate=2.5, schema_version=3, **fields)
    return measured.model_copy(update={"gate": Gate(threshold=2.5, **safe)})


def test_the_safeguard_takes_the_safe_gate_and_the_paper_its_own(runner: Any) -> None:
    made = guarded(mean=3.0)
    for known, samples, promise in ((made, 4, "95% sure"), (made.as_in_paper(), 1, "an optimistic figure")):
        options: Any = {"calibration": known, "max_samples": 4}
        result = runner.solve(ReASCRunnable(model=saying(SURE), **options), "q")
        assert (result.decision.samples, result.decision.reason == "gate") == (samples, known is not made)
        assert result.notices == ()
        surer = runner.solve(ReASCRunnable(model=saying(Reply("it is 7", -4.0)), **options), "q")
        assert surer.decision.reason == "gate"
        assert promise in surer.message.response_metadata["reasc"]["guarantee"], "of the gate that accepted it"


@pytest.mark.parametrize("made", [guarded(mean=3.0), guarded(mean=3.0).as_in_paper()], ids=["guarded", "paper"])
def test_a_rule_that_a_calibration_made_says_the_same_of_its_gate(runner: Any, made: Any) -> None:
    """By whatever confidence the votes then decide; a gate below the calibration's is not vouched for."""
    options: Any = {"model": saying(Reply("it is 7", -4.0)), "calibration": made}
    expected = runner.account(ReASCRunnable(**options), "q")["guarantee"]
    for confidence in (0.9, 0.95):
        rule = made.rule(confidence=confidence)
        assert runner.account(ReASCRunnable(**options, rule=rule), "q")["guarantee"] == expected
    lower = {**options, "model": saying(Reply("it is 7", -1.5))}
    assert "guarantee" not in runner.account(ReASCRunnable(**lower, rule=ASC() | FirstAccepted(1.0)), "q")


def test_votes_are_counted_where_weights_are_not_vouched_for(runner: Any) -> None:
    made = guarded(unweighed="nothing shows it")
    result = runner.solve(ReASCRunnable(model=saying(UNSURE, SURE, SURE), calibration=made, max_samples=3), "q")
    assert result.decision.evidence == {"8": 1.0, "7": 2.0}
    (notice,) = result.notices
    assert "nothing shows it" in notice
    rule = made.as_in_paper().rule()
    paper = ReASCRunnable(model=saying(UNSURE, SURE, SURE), calibration=made, max_samples=3, rule=rule)
    assert runner.solve(paper, "q").decision.evidence["7"] > 2
