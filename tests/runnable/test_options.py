"""Options that change after the runnable was made, by whatever way LangChain and Python offer."""

from typing import Any, get_type_hints

import pytest
from langchain_core.runnables import ConfigurableField

from langchain_reasc import ChatReASC, ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.runnable.options import Options, VoteOptions

from .fakes import TOP_K, Reply, Scripted, calibration, saying

pytestmark = pytest.mark.sync_only


def test_the_typed_keywords_are_the_options() -> None:
    assert get_type_hints(VoteOptions).keys() == Options.model_fields.keys() - {"model"}
    assert Options.model_fields.keys() == ReASCRunnable.model_fields.keys() - {"name"}
    hints = get_type_hints(Options)
    assert {name: hints[name] for name in get_type_hints(VoteOptions)} == get_type_hints(VoteOptions)


@pytest.mark.parametrize("calibration", ["online", "mixture"])
def test_copies_learn_together_and_what_asks_otherwise_learns_apart(calibration: str) -> None:
    options: Any = {"model": saying("1"), "calibration": calibration}
    one, apart = ReASCRunnable(**options), ReASCRunnable(**options)
    assert apart.calibrator is not one.calibrator
    assert one.model_copy(update={"max_samples": 4}).calibrator is one.calibrator
    for changed in ({"model": saying("2")}, {"answer": "number"}, {"confidence": TOP_K}):
        assert one.model_copy(update=changed).calibrator is not one.calibrator
    with pytest.raises(ConfigurationError, match="calibrator"):
        ReASCRunnable(**options, calibrator=one.calibrator)


@pytest.mark.parametrize("known", [calibration(), calibration().as_in_paper()], ids=["guarded", "paper"])
def test_a_calibration_decides_by_the_rule_that_it_makes(runner: Any, known: Any) -> None:
    options: Any = {"model": saying("1"), "calibration": known, "on_missing_confidence": "count"}
    result = runner.solve(ReASCRunnable(**options), "q")
    named = runner.solve(ReASCRunnable(**options, rule=known.rule(on_missing_confidence="count")), "q")
    assert result.decision == named.decision


@pytest.mark.parametrize("kind", [ReASCRunnable, ChatReASC])
def test_assigning_takes_effect(runner: Any, kind: Any) -> None:
    reasc = kind(model=saying("1"), answer="auto")
    reasc.model = saying("2")
    assert runner.account(reasc, "q")["answer"] == "2"
    reasc.answer = lambda text: text.upper()
    assert runner.account(reasc, "q")["answer"] == "THE ANSWER IS 2"
    reasc.calibration = calibration(gate=-9.0)
    account = runner.account(reasc, "q")
    assert (account["reason"], account["method"]) == ("gate", "reasc")


def learning() -> ReASCRunnable:
    model = Scripted(script=lambda question, index: Reply(f"it is {index % 2}", -1.0 - int(question) / 7))
    return ReASCRunnable(model=model, calibration="mixture", confidence=TOP_K, max_samples=2)


@pytest.mark.full
def test_configurable_fields_learn_together(runner: Any) -> None:
    reasc = learning()
    configured = reasc.configurable_fields(max_samples=ConfigurableField(id="budget"))
    for at in range(64):
        runner.invoke(configured, str(at), {"configurable": {"budget": 1 + at % 2}})
    assert reasc.learned is not None
    assert reasc.learned.n == 64


def test_what_was_learned_stays_when_another_option_changes(runner: Any) -> None:
    reasc = learning()
    calibrator = reasc.calibrator
    reasc.max_samples = 1
    assert reasc.calibrator is calibrator
    assert reasc.model_copy(update={"concurrency": 2}).calibrator is calibrator
    reasc.confidence = type(TOP_K)("token_logprob", "mean")
    assert reasc.calibrator is not calibrator


@pytest.mark.parametrize("call", ["invoke", "batch"])
def test_what_would_be_swallowed_is_refused(runner: Any, call: str) -> None:
    model = saying("1")
    with pytest.raises(ConfigurationError, match=r"on_response .*solve\(\)"):
        getattr(runner, call)(ReASCRunnable(model=model), ["q"] if call == "batch" else "q", on_response=print)
    with pytest.raises(ConfigurationError, match=r"total_tokens .*batch\(\)"):
        runner.invoke(ReASCRunnable(model=model), "q", total_tokens=3)
    assert model.log.calls == []


def test_a_terminal_shows_a_bar_that_moves(
    runner: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reasc = ReASCRunnable(model=saying("1"))
    runner.batch(reasc, ["1", "2"], progress=True)
    assert capsys.readouterr().err == "", "no terminal, no bar"
    monkeypatch.setenv("FORCE_COLOR", "1")  # by which rich takes any output for a terminal
    runner.batch(reasc, ["1", "2", "3"], progress=True)
    assert "Answering" in (shown := capsys.readouterr().err) and "3/3" in shown
