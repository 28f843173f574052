"""The rule that decides: that of the options, of the calibration, or without both the finite horizon."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from langchain_core.runnables import ConfigurableField

from langchain_reasc import (
    ASC,
    ESC,
    CannotCatchUp,
    Cap,
    ChatReASC,
    FiniteHorizon,
    Lead,
    ReASC,
    ReASCRunnable,
)
from langchain_reasc.calibration import Calibration, RuleBlock
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.agreement import Component, Prior
from langchain_reasc.method.evidence import Standardizer
from langchain_reasc.method.stopping import Decision, Response, StoppingRule

from .fakes import TOP_K, Reply, Scripted, calibration, saying

pytestmark = pytest.mark.sync_only

NAMED: dict[str, StoppingRule] = {
    "asc": ASC(),
    "asc:confidence=0.999": ASC(0.999),
    "esc:window=3": ESC(3),
    "finite_horizon": FiniteHorizon(budget=5),
    "lead": Lead(3),
    "lead:k=2": Lead(2),
    "finite_horizon:budget=9": FiniteHorizon(budget=9),
}
SURE, UNSURE, SILENT = Reply("it is 7", -3.0), Reply("it is 8", -0.5), Reply("it is 7", None)
GATED = ReASC(Standardizer(1.0, 1.0), gate=2.5)


def solved(runner: Any, model: Scripted, **options: Any) -> tuple[str | None, str, str, int, tuple[str, ...]]:
    result = runner.solve(ReASCRunnable(**{"model": model, "concurrency": 1, **options}), "q")
    method = result.message.response_metadata["reasc"]["method"]
    return result.answer, method, result.decision.reason, result.decision.samples, result.notices


@dataclass(frozen=True)
class Evaluated(StoppingRule):
    """Another rule, and for how many responses it was evaluated."""

    rule: StoppingRule
    evaluations: list[int] = field(default_factory=list, compare=False)
    name: ClassVar[str] = "evaluated"

    def __call__(self, responses: Sequence[Response]) -> Decision:
        self.evaluations.append(len(responses))
        return self.rule(responses)


def split(index: int) -> Reply:
    return Reply(f"it is {index % 4}")


def calling(index: int) -> Reply:
    return Reply("", calls=(("look_up", {"query": str(index % 4)}),))


@pytest.mark.parametrize("concurrency", [1, 4, 16])
@pytest.mark.parametrize("reply", [split, calling])
def test_a_rule_is_evaluated_a_few_times_for_each_response(runner: Any, reply: Any, concurrency: int) -> None:
    """16 votes that are split: what did not stop the rule once is not evaluated again with each response."""
    rule = Evaluated(ASC())
    model = Scripted(script=lambda question, index: reply(index))
    reasc = ReASCRunnable(model=model, rule=rule, answer="auto", max_samples=16, concurrency=concurrency)
    result = runner.solve(reasc, "q")
    assert (result.decision.samples, result.decision.reason) == (16, "budget")
    assert len(rule.evaluations) <= 16 * 8


def consensus(**fields: Any) -> Calibration:
    """One that was learned without labels from answers alone."""
    nothing: dict[str, Any] = dict.fromkeys(("signal", "score", "window", "std"))
    block = RuleBlock.agreement(threshold=0.97, prior=Prior((Component(0.3, 1.0),), (1.0,)))
    return calibration(mean=None, schema_version=3, method="consensus", rule=block, **nothing, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("budget", "answers", "expected"),
    [
        (16, "1111", ("1", "agreement", 4)),
        (4, "1111", ("1", "agreement", 3)),  # the fourth cannot change it
        (1, "1", ("1", "budget", 1)),
        (4, "1211", ("1", "budget", 4)),  # ahead when the budget is spent, and not before
    ],
)
def test_without_a_calibration_it_looks_ahead_to_the_budget(
    runner: Any, budget: int, answers: str, expected: tuple[str, str, int]
) -> None:
    answer, method, reason, samples, notices = solved(runner, saying(*answers), max_samples=budget)
    assert (answer, reason, samples) == expected
    assert method == "finite_horizon"
    assert len(notices) == 1


def test_a_calibration_without_labels_brings_its_agreement_rule_for_the_budget_there_is(runner: Any) -> None:
    model = saying(*[Reply("it is 7", None)] * 4)
    assert solved(runner, model, calibration=consensus(), max_samples=4)[:4] == ("7", "agreement", "agreement", 3)
    assert not model.log.kwargs[0].get("logprobs"), "nothing reads them"
    split = solved(runner, saying(*"1211"), calibration=consensus(), max_samples=4)
    assert split[:4] == ("1", "agreement", "budget", 4)


@pytest.mark.parametrize("kind", [ReASCRunnable, ChatReASC])
@pytest.mark.parametrize("text", NAMED)
def test_a_name_stands_for_the_rule_with_the_budget_there_is(runner: Any, kind: Any, text: str) -> None:
    given = kind(model=saying(*"1211121"), rule=text, max_samples=5, concurrency=1, answer="auto")
    account = runner.account(given, "q")
    by_object = kind(model=saying(*"1211121"), rule=NAMED[text], max_samples=5, concurrency=1, answer="auto")
    assert account == runner.account(by_object, "q") and account["method"] == NAMED[text].name
    assert given.stopping_rule == NAMED[text] and given.rule == text, "which is what is copied and stored"
    given.max_samples = 4
    assert given.stopping_rule == (FiniteHorizon(budget=4) if text == "finite_horizon" else NAMED[text])
    by_config = given.configurable_fields(rule=ConfigurableField("when"))
    chosen = runner.invoke(by_config, "q", {"configurable": {"when": "fixed_budget:samples=2"}})
    assert chosen.response_metadata["reasc"]["samples"] == 2
    assert [spec.id for spec in by_config.config_specs] == ["when"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Cap(2), ("fixed_budget", "budget", 2)),
        (ASC(0.999) | CannotCatchUp(5), ("asc", "agreement", 3)),
        (ASC(0.999), ("asc", "budget", 5)),
    ],
    ids=str,
)
@pytest.mark.parametrize("learned", [None, calibration(gate=2.5)], ids=["uncalibrated", "calibrated"])
def test_a_given_rule_that_counts_is_used_as_it_is(
    runner: Any, rule: StoppingRule, expected: tuple[str, str, int], learned: Any
) -> None:
    model = saying(SILENT)
    outcome = solved(runner, model, rule=rule, calibration=learned, max_samples=5)
    assert outcome == ("7", *expected, ())
    assert not model.log.kwargs[0].get("logprobs"), "nothing reads them"


def test_a_rule_that_reads_scores_has_them_by_a_measure(runner: Any) -> None:
    assert solved(runner, saying(SURE), rule=GATED, confidence=TOP_K) == ("7", "reasc", "gate", 1, ())
    weighed = solved(runner, saying(UNSURE, SURE), rule=GATED, confidence=TOP_K)
    assert weighed[:4] == ("7", "reasc", "evidence", 3)
    result = runner.solve(ReASCRunnable(model=saying(SURE), rule=GATED, confidence=TOP_K), "q")
    assert result.responses[0].score == pytest.approx(3.0)


def test_or_by_the_calibrations_measure(runner: Any) -> None:
    closed = calibration()
    assert solved(runner, saying(SURE), rule=GATED, calibration=closed)[:4] == ("7", "reasc", "gate", 1)
    with pytest.raises(ConfigurationError, match="confidence"):
        ReASCRunnable(model=saying(SURE), rule=GATED, calibration=closed, confidence=TOP_K)


@pytest.mark.parametrize("advice", [{"fallback": "worth nothing"}, {"unweighed": "worth nothing"}])
def test_a_given_rule_wins_over_a_calibration_that_would_count(runner: Any, advice: dict[str, str]) -> None:
    options: dict[str, Any] = {"rule": GATED, "calibration": calibration(**advice)}
    told = "the rule reasc decides as given, where the calibration advises counting votes: worth nothing"
    assert solved(runner, saying(SURE), **options) == ("7", "reasc", "gate", 1, (told,))
    assert solved(runner, saying(SURE), rule=ASC(), calibration=options["calibration"])[4] == ()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rule": GATED}, "rule reasc"),
        ({"rule": ASC() | GATED}, "rule asc"),
        ({"rule": GATED, "calibration": consensus()}, "scored"),
        ({"rule": ASC(), "confidence": TOP_K}, "confidence"),
        ({"confidence": TOP_K}, "confidence.*calibration='online' or 'mixture'"),
        ({"rule": ASC(), "calibration": "online"}, "calibration='online'"),
        ({"rule": GATED, "calibration": "mixture", "confidence": TOP_K}, "rule reasc"),
        ({"rule": ASC}, "rule: "),
        ({"rule": "ascc"}, "'ascc'.*fixed_budget, asc, esc"),
        ({"rule": "bayesian_vote"}, "'bayesian_vote'.*fixed_budget, asc, esc"),
        ({"rule": "esc:width=3"}, "'width'.*window"),
        ({"rule": "esc:3"}, "'3'.*name=value"),
        ({"rule": "asc", "calibration": "online"}, "rule asc"),
    ],
)
@pytest.mark.parametrize("face", [ReASCRunnable, ChatReASC])
def test_what_does_not_fit_is_said_before_anything_is_paid_for(face: Any, options: dict[str, Any], why: str) -> None:
    model = saying(SURE)
    with pytest.raises(ConfigurationError, match=why):
        face(model=model, **options)
    assert model.log.calls == []


@dataclass(frozen=True)
class Twice(StoppingRule):
    """A rule of one's own."""

    name = "twice"

    def __call__(self, responses: Any) -> Any:
        return self.tally(responses, "evidence" if len(responses) == 2 else None)


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_rule_prepares_itself_once_and_never_in_an_event_loop(in_loop: bool) -> None:
    prepared = list[threading.Thread]()

    class Ahead(Twice):
        def __call__(self, responses: Any) -> Any:
            if [response.answer for response in responses] == ["5"]:  # which no response says
                prepared.append(threading.current_thread())
            return super().__call__(responses)

    def made() -> ReASCRunnable:
        return ReASCRunnable(model=saying("1"), rule=Ahead() | Cap(4))

    async def asked(runnable: ReASCRunnable | None) -> None:
        runnable = runnable or made()
        await asyncio.gather(*(runnable.ainvoke("q") for _ in range(3)))

    asyncio.run(asked(None if in_loop else made()))
    assert [one is threading.main_thread() for one in prepared] == [not in_loop]


def test_a_rule_of_ones_own_decides_on_every_face(runner: Any) -> None:
    assert solved(runner, saying("1"), rule=Twice())[1:4] == ("twice", "evidence", 2)
    chat = ChatReASC(model=saying("1"), rule=Twice(), when=lambda message: True)
    assert runner.account(chat, "q")["method"] == "twice"
