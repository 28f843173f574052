"""Options that change after the runnable was made, by whatever way LangChain and Python offer."""

import builtins
import sys
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
from langchain_core.runnables import ConfigurableField

from langchain_reasc import ChatReASC, ReASCRunnable
from langchain_reasc.calibration import ConsensusCalibrator, MixtureCalibrator
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.runnable.options import Options, VoteOptions

from .fakes import TOP_K, Reply, Scripted, calibration, saying

pytestmark = pytest.mark.sync_only


def test_the_typed_keywords_are_the_options() -> None:
    assert get_type_hints(VoteOptions).keys() == Options.model_fields.keys() - {"model"}
    assert Options.model_fields.keys() == ReASCRunnable.model_fields.keys() - {"name"}
    hints = get_type_hints(Options)
    assert {name: hints[name] for name in get_type_hints(VoteOptions)} == get_type_hints(VoteOptions)


@pytest.mark.parametrize(
    ("removed", "instead"),
    [
        ({"confidence": 0.9}, r"rule=ASC\(0.99\)"),
        ({"token_budget": 1000}, "total_tokens, for an agent max_run_tokens"),
        ({"time_budget": 1.0}, "set timeout"),
    ],
)
def test_what_was_removed_says_what_to_use_instead(removed: dict[str, Any], instead: str) -> None:
    with pytest.raises(ConfigurationError, match=instead):
        ReASCRunnable(model=saying("1"), **removed)


def test_runnables_learn_together_where_they_share_a_calibrator() -> None:
    options: Any = {"model": saying("1"), "calibration": "online"}
    one, apart = ReASCRunnable(**options), ReASCRunnable(**options)
    assert apart.calibrator is not one.calibrator
    assert ReASCRunnable(**options, calibrator=one.calibrator).calibrator is one.calibrator
    assert one.model_copy(update={"max_samples": 4}).calibrator is one.calibrator
    assert one.model_copy(update={"model": saying("2")}).calibrator is not one.calibrator
    assert ReASCRunnable(**options, answer="number", calibrator=one.calibrator).calibrator is not one.calibrator


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"calibration": "online", "calibrator": MixtureCalibrator(measure=TOP_K)}, "calibration='mixture'"),
        ({"calibration": "mixture", "calibrator": ConsensusCalibrator()}, "calibration='online'"),
    ],
)
def test_a_calibrator_of_the_other_kind_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"goes with {said}"):
        ReASCRunnable(model=saying("1"), **options)


@pytest.mark.parametrize("safeguard", ["default", "paper"])
def test_the_paper_s_rule_goes_without_safeguards(runner: Any, safeguard: Any) -> None:
    known = calibration()
    result = runner.solve(
        ReASCRunnable(model=saying("1"), calibration=known, safeguard=safeguard, on_missing_confidence="count"), "q"
    )
    named = runner.solve(
        ReASCRunnable(
            model=saying("1"),
            calibration=known,
            rule=known.rule(safeguard=safeguard, on_missing_confidence="count"),
            on_missing_confidence="count",
        ),
        "q",
    )
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
    return ReASCRunnable(model=model, calibration="mixture", measure=TOP_K, max_samples=2)


@pytest.mark.full  # computes for long
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
    reasc.measure = type(TOP_K)("token_logprob", "mean")
    assert reasc.calibrator is not calibrator


@pytest.mark.parametrize("call", ["invoke", "batch"])
def test_what_would_be_swallowed_is_refused(runner: Any, call: str) -> None:
    model = saying("1")
    with pytest.raises(ConfigurationError, match=r"on_response goes with solve\(\)"):
        getattr(runner, call)(ReASCRunnable(model=model), ["q"] if call == "batch" else "q", on_response=print)
    with pytest.raises(ConfigurationError, match=r"total_tokens bound a whole batch\(\)"):
        runner.invoke(ReASCRunnable(model=model), "q", total_tokens=3)
    assert model.log.calls == []


def test_a_notebook_shows_a_bar_that_moves(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(runner.batch(ReASCRunnable(model=saying("1")), ["1", "2"], progress=True)) == 2, "no terminal, no bar"
    pictures: list[dict[str, str]] = []

    def display(data: dict[str, str], **options: Any) -> Any:
        pictures.append(data)
        return SimpleNamespace(update=lambda data, **options: pictures.append(data))

    shell = type("ZMQInteractiveShell", (), {})  # by which rich knows a notebook
    monkeypatch.setattr(builtins, "get_ipython", shell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    runner.batch(ReASCRunnable(model=saying("1")), ["1", "2", "3"], progress=True)
    assert pictures[0]["text/plain"].startswith("Answering 0/3 ")
    assert pictures[-1]["text/plain"].startswith("Answering 3/3 ")
    assert pictures[-1]["text/html"].startswith("<progress value='3' max='3'></progress>")
