"""The options of runnable, chat model and middleware, each declared once in
:class:`Options`.
"""

import inspect
import math
import os
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from langchain_core.runnables import Runnable
from pydantic import ConfigDict, Field

from langchain_reasc.answers import AnswerSpec, Extractor, ToolVotes
from langchain_reasc.calibration import WITHIN, Calibration
from langchain_reasc.complaints import Checked, shortened
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.registry import rule_from_text
from langchain_reasc.method.stopping import DEFAULT_BUDGET, StoppingRule
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.fingerprint import FixedPrompt
from langchain_reasc.models.named import ModelOrName
from langchain_reasc.models.wrappers import leaves, name_of_model

_FORMER_NAMES: Final = {
    "ask_confidence": 'confidence="stated"',
    "audit": "calibration=Online(audit=...)",
    "measure": "confidence=Measure(...)",
    "online_state": "calibration=Online(state=...)",
    "price_ratio": "escalate_to=Escalation(model, prices=...)",
    "within": "escalate_to=Escalation(model, within=...)",
}
"""What to write instead of options that are now part of another one."""
Prices = tuple[tuple[float, float], tuple[float, float]]
"""Dollars for a million prompt tokens and a million generated tokens, of the small
model and of the large one.
"""


@dataclass(frozen=True)
class Online:
    """Learning while questions are answered, as ``calibration="online"``, with settings
    of its own.

    Attributes:
        state: the SQLite file in which what is learned is kept. It is read at the
            start, and each question is written to it. It contains scores, and answers
            as numbers, but no text. A file of another model is refused. Any number of
            processes on one machine may share a file and learn together.
        audit: the share of questions for which one more response is drawn (and paid
            for), to check that what was learned still holds. If it does not hold,
            learning starts again.
    """

    state: str | os.PathLike[str] | None = None
    audit: float = 0.05

    def __post_init__(self) -> None:
        if not isinstance(self.state, str | os.PathLike | None):
            raise ConfigurationError(f"state={self.state!r} is not the path of a file")
        if not _is_share(self.audit):
            raise ConfigurationError(f"audit={self.audit!r} is not a share in [0, 1]")

    @property
    def path(self) -> Path | None:
        """The path of the file."""
        return None if self.state is None else Path(self.state)


@dataclass(frozen=True)
class Escalation:
    """A larger model, what is promised of answers without it, and what it costs.

    Attributes:
        model: the larger model, or its name.
        within: what learning promises, with 95 % confidence: on at most this share of
            questions, an answer of the small model contradicts an answer that the
            larger model repeats, if questions come in random order. Where the small
            model cannot keep that, or does not pay, the larger model answers alone. A
            promise below 0.05 takes more questions than most have. None is what a
            calibration promises, or 0.05.
        prices: dollars for a million prompt and generated tokens of the small model and
            of the larger one: ``((0.15, 0.6), (2.5, 10))``; or how many times as much a
            token of the larger model costs. They decide whether a rule pays.
    """

    model: ModelOrName
    _: KW_ONLY
    within: float | None = None
    prices: float | Prices = 10.0

    def __post_init__(self) -> None:
        if not isinstance(self.model, Runnable | str):
            raise ConfigurationError(
                "escalate_to takes a chat model or its name, or an Escalation to one; "
                f"got {self.model!r}"
            )
        if self.within is not None and not (
            _is_share(self.within) and 0 < self.within < 1
        ):
            raise ConfigurationError(f"within={self.within!r} is not a share in (0, 1)")
        if not self._has_prices():
            raise ConfigurationError(
                "prices takes prices of 0 or more, and the large model's above 0; got "
                f"{self.prices!r}"
            )

    def _has_prices(self) -> bool:
        try:
            small, large = self.token_prices
            is_valid = all(0 <= price < math.inf for price in [*small, *large])
        except (TypeError, ValueError):  # another shape, or no numbers
            return False
        return is_valid and any(large)

    @property
    def promise(self) -> float:
        """The share of contradictions that learning promises to stay within."""
        return WITHIN if self.within is None else self.within

    @property
    def token_prices(self) -> Prices:
        """What a million prompt tokens and a million generated tokens cost, of the
        small model and of the larger one.
        """
        if isinstance(self.prices, int | float):
            ratio = 1e6 * self.prices
            return (1e6, 1e6), (ratio, ratio)
        return self.prices


class Options(Checked):
    """The options of the runnable, the chat model and the middleware.

    Assigning to an option, and ``model_copy(update=...)``, check all options again.
    Pickling keeps the options.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: ModelOrName = Field(
        kw_only=False,
        description="""
        A chat model (or a binding of one), or its name: ``"openai:gpt-4o-mini"``, or
        one for LangChain's ``init_chat_model`` (with ``langchain-reasc[agents]``). It
        must sample (temperature above 0). A model that returns logprobs is best.
        """,
    )
    calibration: (
        Calibration | Online | Literal["online", "mixture"] | str | Path | None
    ) = Field(
        default=None,
        description="""
        A calibration, the path of its file, or None to count votes; with
        ``escalate_to``, None is ``"online"``. ``"online"`` learns without labels from
        how the responses to each question agree: it decides 16 questions as without a
        calibration, then by what it learned, and continues to learn.
        Logprobs are used if the model returns them. ``Online(state=..., audit=...)``
        does the same with a file that keeps what is learned. ``"mixture"`` is the
        paper's Algorithm 2. Copies of a runnable learn together.
        """,
    )
    rule: StoppingRule | str | None = Field(
        default=None,
        description="""
        The stopping rule, or its name: ``"asc"``, ``"esc:window=3"``. None uses the
        rule of the calibration, or without a calibration
        ``FiniteHorizon(budget=max_samples)``, which counts votes and stops when the
        remaining samples would hardly change the answer. A given rule decides, up to
        ``max_samples``, instead of the calibration's. If it looks ahead, give it the
        same budget, which a name gets by itself. A rule that reads scores needs a
        calibration with a measure, or ``confidence``. ``"online"`` and ``"mixture"`` make
        their own rule, and accept no other.
        """,
    )
    max_samples: int = Field(
        default=DEFAULT_BUDGET,
        ge=1,
        description="The most samples per question.",
    )
    answer: AnswerSpec = Field(
        default="auto",
        description="""
        Where the answer is in a response: see
        :func:`langchain_reasc.answers.extractor`.
        """,
    )
    tool_votes: ToolVotes = Field(
        default=ToolVotes(),
        description="""
        How tool calls are compared: which arguments do not count, and which numbers
        agree.
        """,
    )
    concurrency: int = Field(
        default=4,
        ge=1,
        description="""
        The most samples launched in parallel (a wave). A wave never has more samples
        than what decides if all agree. 1 is slowest. If one response may be enough, the
        first is launched alone. ``config["max_concurrency"]`` limits the samples
        in flight of a whole call, over all inputs of a batch and all branches of a
        chain. Simultaneous calls that draw from one model with the same number share
        this limit.
        """,
    )
    timeout: float | None = Field(
        default=None,
        gt=0,
        description="""
        Seconds that a question may take, not counting the wait for others of its batch;
        None for no limit. After that, running samples are cut off, and the complete
        responses decide.
        """,
    )
    sample_timeout: float | None = Field(
        default=3600.0,
        gt=0,
        description="""
        Seconds that a sample may take from its launch; None for no limit. A sample that
        takes longer fails, without effect on the others. Only this limit ends a
        response whose server never stops sending.
        """,
    )
    on_undecided: Literal["answer", "raise", "abstain"] = Field(
        default="answer",
        description="""
        What to do if the budget or the time is spent without sufficient evidence, or if
        no answer has ``min_share``: return the best answer so far, raise
        :class:`~langchain_reasc.exceptions.Undecided`, or return an empty message with
        ``reasc["abstained"]``.
        """,
    )
    abstain_below: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="""
        Return an empty message, with ``reasc["abstained"]`` and
        ``reasc["abstained_because"]``, if the answer's probability is below this number
        in (0, 1); with ``on_undecided="raise"``, raise an error. A calibration on
        labels gives the probability that the answer is right (``reasc["p_correct"]``).
        One without labels gives the probability that one more response agrees
        (``reasc["p_agree"]``), which says nothing about consistent mistakes of the
        model.
        """,
    )
    min_share: float = Field(
        default=0.5,
        ge=0,
        lt=1,
        description="""
        The share of the votes, in [0, 1), that an answer must exceed to be decided. A
        response without an answer counts against it. With ``on_undecided`` or
        ``abstain_below``, sampling continues until an answer has it, or none can.
        """,
    )
    on_missing_confidence: Literal["error", "count"] = Field(
        default="error",
        description="""
        What to do with a response without logprobs if the paper's rule, or another that
        weighs votes by scores, needs them: raise an error, or count one vote. What is
        learned from agreement counts it.
        """,
    )
    confidence: Measure | Literal["stated"] | None = Field(
        default=None,
        description="""
        How a response is scored: a ``Measure``, for a ``rule`` that reads scores
        without a calibration, and for learning; or ``"stated"``. With
        ``calibration="online"``, None is the mean log-probability of the tokens, if
        there are any. With ``"mixture"``, None is the paper's measure
        (self-certainty, bottom 10 %, W = 128), or the same score of another signal that
        the model gives. ``"stated"`` asks the model to end each response with a line
        such as ``Confidence: 85%``. This is for models without logprobs: the stated
        (verbalised) confidence is the measure ``Measure("verbalized", "mean")``, which
        asks, too, if it is given. The line is removed from the winning message, and its
        number, or None, is in ``response_metadata["verbalized_confidence"]``. A
        calibration made with stated confidence needs it, and one made without refuses
        it.
        """,
    )
    fixed_prompt: FixedPrompt | None = Field(
        default=None,
        description="""
        The part of a prompt that is the same for every question, if it is more than the
        system messages: the number of first messages, these messages (with
        ``{question}`` for the part that changes), or the prompt template. A calibration
        measured with another fixed part is refused.
        """,
    )
    allow_fingerprint_mismatch: bool = Field(
        default=False,
        description="""
        Use a calibration that was measured on another model, prompt or sampling.
        """,
    )
    escalate_to: ModelOrName | Escalation | None = Field(
        default=None,
        description="""
        A larger model, or its name, that answers where an answer of ``model`` may not
        stand; a ReASC model votes. Without ``rule`` and ``calibration``, as with
        ``calibration="online"``, the larger model answers at first, and questions that
        both are asked tell when an answer of ``model`` may stand. That keeps the
        promise of ``Escalation(model, within=..., prices=...)`` for questions in random
        order: by default, at most 5 % contradictions, where a token of the larger model
        costs 10 times as much. ``rule="race"`` accepts three equal votes of ``model``
        and learns nothing, which promises nothing. With another ``rule``, or a
        calibration of ``model`` alone, the votes of ``model`` decide, and what is
        undecided is escalated.
        """,
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """List all options in the class's docstring for ``help()``."""
        super().__pydantic_init_subclass__(**kwargs)
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\n{cls.listed_options()}"

    @classmethod
    def listed_options(cls, names: Iterable[str] | None = None) -> str:
        """Return a list of the options with defaults and descriptions, required ones
        first, without LangChain's own.
        """
        described = {
            name: field for name, field in cls.model_fields.items() if field.description
        }
        listed = ["Options:"]
        for name in sorted(
            names or described, key=lambda name: not described[name].is_required()
        ):
            field = described[name]
            default = repr(field.get_default(call_default_factory=True))
            if len(default) > 60:
                default = default.split("(")[0] + "()"
            needed = "required" if field.is_required() else f"default {default}"
            text = " ".join(f"{name} ({needed}): {field.description}".split())
            listed.append(
                textwrap.fill(
                    text,
                    116,
                    initial_indent=" " * 4,
                    subsequent_indent=" " * 8,
                    break_on_hyphens=False,
                )
            )
        return "\n".join([*listed, ""])

    # Type checkers see the signature that pydantic makes from the fields.
    if not TYPE_CHECKING:

        def __init__(self, model: Any = None, **fields: Any) -> None:
            refuse_former_names(fields)
            if model is not None:
                fields["model"] = model
            super().__init__(**fields)

    @property
    def stopping_rule(self) -> StoppingRule | None:
        """The given rule, even if only its name was given."""
        if isinstance(self.rule, str):
            return rule_from_text(self.rule, budget=self.max_samples)
        return self.rule

    @property
    def online(self) -> Online | None:
        """How what is answered is learned from; None if nothing is learned."""
        if isinstance(self.calibration, Online):
            return self.calibration
        is_default = (
            self.escalate_to is not None
            and self.calibration is None
            and self.rule is None
        )
        return Online() if is_default or self.calibration == "online" else None

    @property
    def audit(self) -> float:
        """The share of questions for which one more response is drawn."""
        return 0.0 if self.online is None else self.online.audit

    @property
    def is_learning(self) -> bool:
        """Whether anything is learned from what is answered."""
        return self.online is not None or self.calibration == "mixture"

    @property
    def measure(self) -> Measure | None:
        """The measure given as ``confidence``."""
        return self.confidence if isinstance(self.confidence, Measure) else None

    @property
    def asks_confidence(self) -> bool:
        """Whether the model is asked to state its confidence."""
        if self.confidence == "stated":
            return True
        return self.measure is not None and self.measure.signal == VERBALIZED

    @property
    def escalation(self) -> Escalation | None:
        """What ``escalate_to`` says, even if only the model was given."""
        if self.escalate_to is None or isinstance(self.escalate_to, Escalation):
            return self.escalate_to
        return Escalation(self.escalate_to)

    def escalating_to(self, model: ModelOrName) -> ModelOrName | Escalation:
        """Return ``escalate_to`` with another form of the larger model."""
        if isinstance(self.escalate_to, Escalation):
            return replace(self.escalate_to, model=model)
        return model

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield the options that were set, each in some words."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if (
                name in self.model_fields_set
                and field.description
                and field.repr
                and value != field.default
            ):
                yield name, _Shown(value)


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


def refuse_former_names(names: Iterable[str]) -> None:
    """Say what to write instead of an option that is now part of another one.

    Raises:
        ConfigurationError: there is one among the names.
    """
    for name in names:
        if name in _FORMER_NAMES:
            raise ConfigurationError(
                f"unknown option {name!r}; write {_FORMER_NAMES[name]}"
            )


class VoteOptions(TypedDict, total=False):
    """The types of all :class:`Options` except the model, for functions that pass them
    on as keywords.
    """

    calibration: Calibration | Online | Literal["online", "mixture"] | str | Path | None
    rule: StoppingRule | str | None
    max_samples: int
    answer: AnswerSpec
    tool_votes: ToolVotes
    fixed_prompt: FixedPrompt | None
    concurrency: int
    on_missing_confidence: Literal["error", "count"]
    sample_timeout: float | None
    timeout: float | None
    allow_fingerprint_mismatch: bool
    on_undecided: Literal["answer", "raise", "abstain"]
    abstain_below: float | None
    min_share: float
    confidence: Measure | Literal["stated"] | None
    escalate_to: ModelOrName | Escalation | None


class _Shown:
    """Represents an option in some words: a model by its name."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        value = self._value
        if isinstance(value, Escalation):
            model = _Shown(value.model)
            return (
                f"Escalation({model!r}, within={value.within}, prices={value.prices})"
            )
        if isinstance(value, Runnable):
            models = [
                f"{type(leaf.model).__name__}({name_of_model(leaf.model) or ''})"
                for leaf in leaves(value, {})
            ]
            return " or ".join(models) or value.get_name()
        return shortened(
            value.name if isinstance(value, Extractor) else repr(value), 80
        )
