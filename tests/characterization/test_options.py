"""Options: what is refused, and that copies, pickles, assignments and configurations decide alike."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.runnables import ConfigurableField, RunnableLambda

import langchain_reasc as lr
from langchain_reasc import ChatReASC, ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError, ReASCError

from .conftest import Runner
from .fakes import Reply, Scripted, said, saying
from .setting import ONE, TIES, calibration

Golden = Callable[..., None]
WRONG: dict[str, Any] = {
    "model": 3,
    "calibration": 3,
    "rule": "ascc",
    "max_samples": 0,
    "concurrency": 0,
    "on_missing_confidence": "guess",
    "sample_timeout": 0,
    "timeout": -1,
    "allow_fingerprint_mismatch": "perhaps",
    "confidence": "top_k",
    "answer": "vibes",
    "tool_votes": 3,
    "fixed_prompt": object(),
    "on_undecided": "guess",
    "abstain_below": 0.9,
    "token_budget": 0,
    "escalate_to": 3,
    "max_sample": 3,
}


TOGETHER: dict[str, dict[str, Any]] = {
    "rule and online": {"rule": lr.ASC(), "calibration": "online"},
    "confidence alone": {"confidence": lr.Measure()},
    "a rule without scores": {"rule": lr.ReASC(calibration().as_in_paper().rule().statistics)},  # type: ignore[attr-defined]
    "abstain below nothing": {"abstain_below": 0.5, "calibration": calibration()},
    "no such file": {"calibration": "nowhere.json"},
}


@pytest.mark.parametrize("face", [ReASCRunnable, ChatReASC])
def test_a_wrong_option_is_refused_and_changes_nothing(face: type[Any]) -> None:
    made = face(model=saying("1"))
    before = {name: getattr(made, name) for name in type(made).model_fields}
    for name, value in WRONG.items():
        with pytest.raises(ConfigurationError):
            face(**{"model": saying("1"), name: value})
        with pytest.raises(ValueError):
            setattr(made, name, value)
        with pytest.raises(ValueError):
            made.model_copy(update={name: value})
    for options in TOGETHER.values():
        with pytest.raises(ReASCError):
            face(**{"model": saying("1"), **options})
    assert before == {name: getattr(made, name) for name in type(made).model_fields}


@pytest.mark.parametrize("face", [ReASCRunnable, ChatReASC])
def test_options_and_defaults(face: type[Any], golden: Golden) -> None:
    """Those of LangChain's own classes are left out: they differ between its versions."""
    ours = {
        name for kind in face.__mro__ if kind.__module__.startswith("langchain_reasc") for name in kind.__annotations__
    }
    fields = sorted((name, field) for name, field in face.model_fields.items() if name in ours and not field.exclude)
    golden({name: repr(field.default) for name, field in fields})


def script(question: str, index: int) -> Reply:
    return Reply(f"so {'12111211'[index % 8]}", -1.0 - index % 3)


def plain(model: Any = None, **options: Any) -> ReASCRunnable:
    known = calibration()
    rule = known.as_in_paper().rule(confidence=0.9)
    given: dict[str, Any] = {"calibration": known, "rule": rule, "max_samples": 8}
    return ReASCRunnable(model=model or Scripted(script=script), **ONE, **(given | options))


def changed(name: str, value: Any) -> ReASCRunnable:
    reasc = plain(**{name: {"max_samples": 2, "min_share": 0.4, "model": saying("5")}[name]})
    setattr(reasc, name, value)
    return reasc


MADE: dict[str, Callable[[], Any]] = {
    "plain": plain,
    "pickled": lambda: pickle.loads(pickle.dumps(plain())),
    "deep copy": lambda: copy.deepcopy(plain()),
    "copy": lambda: copy.copy(plain()),
    "model_copy": lambda: plain(max_samples=2).model_copy(update={"max_samples": 8}),
    "assigned": lambda: changed("max_samples", 8),
    "assigned share": lambda: changed("min_share", 0.5),
    "assigned model": lambda: changed("model", Scripted(script=script)),
    "bound": lambda: plain().bind(stop=["END"]),
    "with config": lambda: plain().with_config(tags=["mine"], max_concurrency=3),
    "with retry": lambda: plain().with_retry(stop_after_attempt=2),
    "with fallbacks": lambda: plain(saying(Reply("", error=ValueError("no")))).with_fallbacks([plain()]),
    "a field": lambda: (
        plain(max_samples=2)
        .configurable_fields(max_samples=ConfigurableField("budget"))
        .with_config(configurable={"budget": 8})
    ),
    "a field of the model": lambda: plain(
        Scripted(script=lambda q, i: Reply("5")).configurable_fields(script=ConfigurableField("script"))
    ).with_config(configurable={"script": script}),
    "an alternative model": lambda: plain(
        saying("5").configurable_alternatives(ConfigurableField("which"), this=Scripted(script=script))
    ).with_config(configurable={"which": "this"}),
    "an alternative": lambda: (
        plain(saying("5"))
        .configurable_alternatives(ConfigurableField("how"), other=plain())
        .with_config(configurable={"how": "other"})
    ),
    "bound model": lambda: plain(Scripted(script=script).bind(stop=["END"])),
    "model in a chain": lambda: plain(RunnableLambda(lambda given: given) | Scripted(script=script)),
    "model with retry": lambda: plain(Scripted(script=script).with_retry()),
}


@pytest.mark.parametrize("made", MADE)
def test_whatever_it_is_made_of_decides_alike(made: str, run: Runner, golden: Golden) -> None:
    account = said(run(MADE[made](), "invoke", "q"))["metadata"]["reasc"]
    assert account == said(plain().invoke("q"))["metadata"]["reasc"]
    if made == "plain":
        golden(account)


@pytest.mark.full
def test_abstaining_by_a_probability(run: Runner, golden: Golden) -> None:
    """Labels tell P(correct), and it is compared with abstain_below."""
    labelled = [(f"q{at}", "1") for at in range(40)]

    def drawn(question: str, index: int) -> Reply:
        at = int(question[1:])
        return Reply(f"so {1 if at % 3 else 2 + index % 2}", -2.0 - at % 3 - index % 4 / 10)

    made = lr.calibrate(Scripted(script=drawn), labelled, measure=lr.Measure("top_k", "mean"))
    for below in (0.2, 0.97):
        model = saying(*(Reply(f"so {answer}", -2.5) for answer in TIES))
        reasc = ReASCRunnable(model=model, calibration=made, abstain_below=below, max_samples=6, **ONE)
        golden(said(run(reasc, "invoke", "q"))["metadata"]["reasc"], str(below))
