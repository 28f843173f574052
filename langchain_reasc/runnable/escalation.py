"""A small model before a large one: what is asked of the large one, and one result of
both models' responses.

The order of asking is in :mod:`~langchain_reasc.runnable.loop`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig
from langchain_core.runnables.config import merge_configs
from pydantic import BaseModel

from langchain_reasc.calibration import (
    DEFAULT_RACE,
    Calibration,
    Course,
    Escalation,
    EscalationLearner,
    Shadowed,
    numbered,
)
from langchain_reasc.exceptions import (
    ConfigurationError,
    FingerprintMismatch,
    reason_of,
)
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.decision import Reason
from langchain_reasc.method.stopping import Cap
from langchain_reasc.models.fingerprint import check_fingerprint
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.models.thinking import (
    begins_with_thought,
    has_thoughts,
    is_signed_by_another,
    without_thoughts,
)
from langchain_reasc.runnable.result import ReASCResult, SampledResponse, Usage
from langchain_reasc.threads import in_event_loop

if TYPE_CHECKING:
    from langchain_reasc.runnable.options import Options
    from langchain_reasc.runnable.question import Question
    from langchain_reasc.runnable.request import Request
    from langchain_reasc.runnable.setup import Setup

Asked = Literal["small", "large"]
Prices = tuple[tuple[float, float], tuple[float, float]]
"""Dollars for a million prompt tokens and a million generated tokens, of the small
model and of the large one.
"""
_Spent = tuple[tuple[SampledResponse, ...], Usage]
"""The samples of a question, and what they cost."""
ASKED_ONCE: Final[dict[str, Any]] = {
    "escalate_to": None,
    "rule": Cap(1),
    "max_samples": 1,
    "calibration": None,
    "measure": None,
    "online_state": None,
    "fixed_prompt": None,
    "ask_confidence": False,
    "abstain_below": None,
    "on_undecided": "answer",
    "min_share": 0.0,
}
"""The options of a large model that is asked once, where they differ from those of the
small one.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Large:
    """The large model behind a small one, and what is known of the two.

    Attributes:
        setup: how the large model is asked: once, or as the ReASC model that was given.
        is_asked_once: which of these.
        arguments: the arguments of its calls that were bound to it.
        config: the config that was bound to it.
        prices: of a million prompt tokens and a million generated tokens, of the small
            and of the large model.
        learner: what learns from questions that both models are asked; None if nothing
            is learned.
        known: what a calibration says of the two; None without one.
        scored_by: the measure of that calibration.
    """

    setup: "Setup"
    is_asked_once: bool
    arguments: Mapping[str, Any]
    config: RunnableConfig
    prices: Prices
    learner: EscalationLearner | None = None
    known: Escalation | None = None
    scored_by: Measure | None = None

    @classmethod
    def from_options(
        cls,
        options: "Options",
        small: "Setup",
        model: Runnable[LanguageModelInput, Any],
        *,
        quiet: bool,
    ) -> "Large":
        """Prepare the large model.

        Args:
            options: the options of the small model.
            small: how the small model is asked.
            model: the large model.
            quiet: whether samples are parts of one model call.

        Raises:
            ConfigurationError: an option contradicts ``escalate_to``.
            FingerprintMismatch: the calibration was made with another large model.
        """
        _check_options(options, small)
        setup, asked_once, bound = _asked(options, small, model, quiet=quiet)
        prices = prices_of(options.price_ratio)
        made = cls(setup=setup, is_asked_once=asked_once, prices=prices, **bound)
        calibration = small.calibration
        if calibration and calibration.escalation and options.rule is None:
            _check_calibration(calibration, calibration.escalation, options, setup)
            return replace(
                made, known=calibration.escalation, scored_by=calibration.measure
            )
        return (
            replace(made, learner=_learner(options, small, setup))
            if options.calibration == "online"
            else made
        )

    @property
    def measure(self) -> Measure | None:
        """How the first response of the small model is scored; None if no rule reads
        that.
        """
        if self.known is not None:
            return self.scored_by if self.known.scored else None
        return self.learner.measure if self.learner else None

    def course(self, kind: str, audit: float) -> Course | None:
        """Return how the next question of a kind is answered; None if no rule was
        learned, and the plan decides.
        """
        if self.learner is not None:
            return self.learner.course(kind, audit)
        if self.known is not None:
            rule = self.known.rule
            return Course(
                None if rule is None else self.known.rule_named(rule), known=self.known
            )
        return None

    def cost(self, usage: UsageMetadata, asked: Asked) -> float:
        """Return what tokens cost: in dollars, or in tokens of the small model if only
        the ratio of prices is known.
        """
        prompt, generated = self.prices[asked == "large"]
        return (
            usage["input_tokens"] * prompt + usage["output_tokens"] * generated
        ) / 1e6


@dataclass(frozen=True, kw_only=True, eq=False)
class Escalating:
    """One question that a small and a large model may be asked.

    Attributes:
        large: the large model.
        request: what is asked of the small model.
        first: the model that is asked first.
        course: what was learned of how to answer it; None if nothing is learned.
        options: the options of both questions, such as who listens.
    """

    large: Large
    request: "Request"
    first: Asked
    course: Course | None
    options: Mapping[str, Any]

    def goes_on(self, result: ReASCResult | Exception) -> bool:
        """Return whether the small model's result sends the question to the large one."""
        if isinstance(result, Exception):
            return True
        below = self.request.setup.options.abstain_below
        doubted = below is not None and result.doubt_below(below) is not None
        return result.decision.reason != "alone" and (result.undecided or doubted)

    @property
    def notices(self) -> tuple[str, ...]:
        """Why the large model answers alone, or how far learning is; empty if a rule
        decides.
        """
        known = self.course.known if self.course else None
        return (known.status,) if known and known.rule is None else ()

    @property
    def promise(self) -> str | None:
        """What the rule that decides promises; None without one."""
        known = self.course.known if self.course else None
        return known.promise(known.rule) if known and known.rule is not None else None


def _check_options(options: "Options", small: "Setup") -> None:
    """Refuse options that contradict ``escalate_to``."""
    if options.calibration == "mixture":
        raise ConfigurationError(
            "calibration='mixture' decides by the first responses to a whole batch, "
            "and escalate_to question by question; use calibration='online', or leave "
            "out one of the two"
        )
    by_votes = options.rule is None and (
        small.calibration is None or small.calibration.escalation
    )
    if by_votes and options.max_samples < DEFAULT_RACE.votes:
        raise ConfigurationError(
            f"max_samples={options.max_samples} leaves no room for the "
            f"{DEFAULT_RACE.votes} equal votes by which an answer stands with "
            "escalate_to; allow more, or give a rule"
        )


def _asked(
    options: "Options",
    small: "Setup",
    model: Runnable[LanguageModelInput, Any],
    *,
    quiet: bool,
) -> tuple["Setup", bool, dict[str, Any]]:
    """Return how the large model is asked, whether once, and ``arguments`` and
    ``config`` bound to a ReASC model.
    """
    own: Any = model
    bound: dict[str, Any] = {"arguments": {}, "config": {}}
    while isinstance(own, RunnableBinding) and not own.config_factories:
        config = merge_configs(own.config, bound["config"])
        own, bound = (
            own.bound,
            {"arguments": {**own.kwargs, **bound["arguments"]}, "config": config},
        )
    # Not of a wrapper: fallbacks pass on the attributes of their first model, and would
    # be lost.
    if not hasattr(type(own), "_model_field"):
        alone = BaseModel.__copy__(options)
        alone.__dict__.update(ASKED_ONCE | {"model": model})
        return (
            type(small).from_options(alone, model, quiet=quiet),
            True,
            {"arguments": {}, "config": {}},
        )
    given: Setup = own._setup
    if given.large is not None:
        raise ConfigurationError(
            "the model of escalate_to has an escalate_to of its own; give two models, "
            "not three"
        )
    return (
        replace(given, model=replace(given.model, quiet=True)) if quiet else given,
        False,
        bound,
    )


def _check_calibration(
    calibration: Calibration, known: Escalation, options: "Options", large: "Setup"
) -> None:
    """Refuse a calibration that promises less than is asked, or was made with another
    large model.
    """
    if "within" in options.model_fields_set and options.within < known.within:
        raise ConfigurationError(
            f"within={options.within:g} is less than the calibration promises "
            f"({known.within:g}); calibrate again with this value, or leave it out"
        )
    if calibration.large and not options.allow_fingerprint_mismatch:
        try:
            check_fingerprint(calibration.large, large.fingerprint.unbound())
        except FingerprintMismatch as error:
            raise FingerprintMismatch(
                f"the large model (escalate_to): {error}"
            ) from None


def _learner(options: "Options", small: "Setup", large: "Setup") -> EscalationLearner:
    """Return what learns from both models."""
    learner = EscalationLearner(
        within=options.within,
        measure=options.measure,
        fingerprint=small.fingerprint.unbound(),
        large=large.fingerprint.unbound(),
        path=options.online_state,
        any_model=options.allow_fingerprint_mismatch,
    )
    if (
        not in_event_loop()
    ):  # a file that cannot be used is refused at once, or by the first call
        learner.known("")
    return learner


def prices_of(ratio: float | Prices) -> Prices:
    """Return prices of prompt and generated tokens, of the small and the large model.

    Raises:
        ConfigurationError: a price is negative or not finite, or the large model's
            prices are all 0.
    """
    million = 1e6
    prices = (
        ratio
        if isinstance(ratio, tuple)
        else ((million, million), (million * ratio, million * ratio))
    )
    every = [price for one in prices for price in one]
    if not all(0 <= price < math.inf for price in every) or not any(prices[1]):
        raise ConfigurationError(
            "price_ratio takes prices of 0 or more, and the large model's above 0; got "
            f"{ratio!r}"
        )
    return prices


def as_readable(
    asked: Asked, model: PreparedModel, messages: Sequence[BaseMessage]
) -> tuple[PreparedModel, list[BaseMessage]]:
    """Return one of two models, and a history as this model may read it.

    What the other model wrote keeps its text and its calls. Its signed reasoning and
    its ids mean nothing to this one, and many providers refuse them. The same goes for
    thoughts that a third model signed, before there were two. A model that refuses tool
    calls without thoughts does not think in this step.
    """
    readable = [
        _plain(one)
        if isinstance(one, AIMessage) and _is_foreign(one, asked, model)
        else one
        for one in messages
    ]
    if not model.must_think:
        return model, readable
    turn = _open_turn(readable)
    if not _lacks_thoughts(readable[turn]):
        return model, readable
    readable[turn] = map(without_thoughts, readable[turn])
    return model.without_thinking(), readable


def _is_foreign(message: AIMessage, asked: Asked, model: PreparedModel) -> bool:
    """Return whether another model wrote a message, as far as that is known and
    matters.
    """
    writer = _writer(message)
    if writer is not None:
        return writer != asked
    return has_thoughts(message) and is_signed_by_another(message, model.names)


def _writer(message: AIMessage) -> Asked | None:
    account = message.response_metadata.get("reasc")
    writer: Asked | None = (
        account.get("answered_by") if isinstance(account, dict) else None
    )
    return writer


def _open_turn(messages: Sequence[BaseMessage]) -> slice:
    """Return where the calls of tools stand that the model goes on from; empty if the
    last response called none.
    """
    end = next(
        (
            at
            for at in range(len(messages), 0, -1)
            if isinstance(messages[at - 1], AIMessage)
        ),
        0,
    )
    last = messages[end - 1]
    start = end
    if isinstance(last, AIMessage) and last.tool_calls:
        while start and isinstance(messages[start - 1], AIMessage | ToolMessage):
            start -= 1
    return slice(start, end)


def _lacks_thoughts(turn: Sequence[BaseMessage]) -> bool:
    """Return whether a turn does not begin with a thought, or has a step without one
    that another model made.
    """
    steps = [one for one in turn if isinstance(one, AIMessage)]
    lacking = [one for one in steps if not begins_with_thought(one)]
    return bool(lacking) and (
        lacking[0] is steps[0] or any(_writer(one) is None for one in lacking)
    )


def _plain(message: AIMessage) -> AIMessage:
    return AIMessage(
        str(message.text), tool_calls=message.tool_calls, name=message.name
    )


def shadowed_row(
    large: Large,
    small: "Question",
    of_small: ReASCResult | None,
    of_large: Sequence[ReASCResult],
    grade: Callable[[AIMessage], bool] | None = None,
) -> Shadowed:
    """Return the row of a question that both models were asked.

    Args:
        large: the large model.
        small: the question as the small model was asked.
        of_small: the small model's result; None if all its samples failed.
        of_large: the large model's results.
        grade: returns whether a response is right, if that is known.
    """
    right = None
    if grade is not None:
        first = (
            next((one.message for one in of_small.responses if one.used), None)
            if of_small
            else None
        )
        right = first is not None and grade(first), grade(of_large[0].message)
    read = [
        small.answer_of(one.message) if one.answer is not None else None
        for one in of_large
    ]
    used = [one for one in of_small.responses if one.used] if of_small else []
    numbers = numbered([*read, *([one.answer for one in used] or [None])])
    responses = len(of_small.responses) if of_small else 1
    spent = large.cost(of_small.usage.bill, "small") / responses if of_small else 0.0
    return Shadowed(
        small=numbers[len(read) :],
        large=numbers[: len(read)],
        score=used[0].score if used else None,
        right=right,
        costs=(spent, large.cost(of_large[0].usage.bill, "large")),
    )


def combined(
    large: Large,
    question: "Question",
    asked: Mapping[Asked, Sequence[ReASCResult]],
    answered_by: Asked,
    notices: Sequence[str],
    promise: str | None,
    *,
    shadowed: bool = False,
    failed: Mapping[Asked, Exception] | None = None,
) -> ReASCResult:
    """Return one result of both models' results, with both bills.

    Args:
        large: the large model.
        question: the question as the first model was asked.
        asked: the results of each model that was asked; the first one of
            ``answered_by`` is the answer.
        answered_by: the model whose answer counts.
        notices: what else the caller should know.
        promise: what the rule that decided promises.
        shadowed: whether both were asked to learn.
        failed: the model that the other one answers for, and its error.
    """
    result = asked[answered_by][0]
    every = [one for results in asked.values() for one in results]
    lost: dict[Asked, list[_Spent]] = {"small": [], "large": []}
    for one in (question, *question.beside):
        if not one.has_response:
            lost["large" if one.setup is large.setup else "small"].append(one.spent())
    decision = result.decision
    if answered_by == "large":
        decision = replace(
            decision,
            reason=_reason(
                large, result, after_small="small" in asked and not shadowed
            ),
        )
    if decision.reason == "alone":  # such responses were never compared
        promise = None
    spent = [
        *((one.responses, one.usage) for one in every),
        *lost["small"],
        *lost["large"],
    ]
    bill, judge = UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0), None
    for _, paid in spent:
        bill, judge = (
            add_usage(bill, paid.bill),
            add_usage(judge, paid.judge) if paid.judge else judge,
        )
    usage = Usage(
        bill,
        sum(
            one.unused_output_tokens if one is result.usage else one.output_tokens
            for _, one in spent
        ),
        estimated=any(one.estimated for _, one in spent),
        judge=judge,
    )
    drawn = [
        one if responses is result.responses else replace(one, used=False, weight=0.0)
        for responses, _ in spent
        for one in responses
    ]
    account = dict(result.message.response_metadata["reasc"])
    said, told = list(notices), [*notices, *result.notices]
    for name, error in (failed or {}).items():
        account |= {
            "failed_model": name,
            "failed_because": repr(error),
            "failed_reason": reason_of(error),
        }
        said.insert(0, f"the {name} model failed, so the {answered_by} one answers")
        told.insert(0, f"{said[0]}: {error!r}")
    if decision.reason == "escalated" and question.request.asked == "small":
        account = {
            **account,
            "method": question.plan.rule.name,
        }  # which sent it to the large model
    account = {
        **account,
        "reason": decision.reason,
        "stage": decision.stage,
        "launched": len(drawn),
        "failed": [one.status for one in drawn].count("failed"),
        **({} if promise is None else {"guarantee": promise}),
        "tokens": {**usage.account, "winner": account["tokens"]["winner"]},
        "answered_by": answered_by,
        **({"shadowed": True} if shadowed else {}),
        "models": {
            name: _account(large, name, asked.get(name, ()), lost[name])
            for name in lost
            if name in asked or lost[name]
        },
        "notices": [*said, *account["notices"]],
    }
    metadata = {**result.message.response_metadata, "reasc": account}
    message = result.message.model_copy(
        update={"response_metadata": metadata, "usage_metadata": bill}
    )
    responses = tuple(replace(one, index=at) for at, one in enumerate(drawn))
    return replace(
        result,
        message=message,
        decision=decision,
        responses=responses,
        usage=usage,
        notices=tuple(told),
    )


def _reason(large: Large, result: ReASCResult, *, after_small: bool) -> Reason | None:
    """Return why the large model's answer is the result; its own reason if its votes
    are undecided.
    """
    decision = result.decision
    if decision.reason == "alone":
        return "escalated" if after_small else "alone"
    if decision.answer is None and large.is_asked_once:
        return "unanswered"
    return (
        "escalated"
        if large.is_asked_once or not decision.undecided
        else decision.reason
    )


def _account(
    large: Large, name: Asked, results: Sequence[ReASCResult], failed: Sequence[_Spent]
) -> dict[str, Any]:
    """Return what one model answered, and what it cost."""
    spent = [*((one.responses, one.usage) for one in results), *failed]
    told: dict[str, Any] = {"answer": None, "evidence": {}, "reason": "failed"}
    if results:
        account = results[0].message.response_metadata["reasc"]
        told = {one: account[one] for one in told}
        if name == "large" and large.is_asked_once and told["answer"] is not None:
            told["reason"] = "answered"
    return {
        **told,
        "launched": sum(len(responses) for responses, _ in spent),
        "input": sum(usage.input_tokens for _, usage in spent),
        "output": sum(usage.output_tokens for _, usage in spent),
        "cost": sum(large.cost(usage.bill, name) for _, usage in spent),
    }
