"""The options of runnable, chat model and middleware, each declared once in
:class:`Options`.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from langchain_core.runnables import Runnable
from pydantic import ConfigDict, Field

from langchain_reasc.answers import AnswerSpec, Extractor, ToolVotes
from langchain_reasc.calibration import WITHIN, Calibration
from langchain_reasc.complaints import Checked, shortened
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.registry import rule_from_text
from langchain_reasc.method.stopping import DEFAULT_BUDGET, StoppingRule
from langchain_reasc.models.fingerprint import FixedPrompt
from langchain_reasc.models.prepared import ModelOrName
from langchain_reasc.models.wrappers import leaves, name_of_model

LEARNING: Final = ("online", "mixture")
"""Values of ``calibration`` that learn from what is answered."""
Prices = tuple[tuple[float, float], tuple[float, float]]
"""Dollars for a million prompt tokens and a million generated tokens, of the small
model and of the large one.
"""


@cache
def _texts_below_fields(cls: type) -> dict[str, str]:
    """Return the docstring of each field (pydantic's ``use_attribute_docstrings`` would
    take a third of a second).
    """
    try:
        [body] = [
            node.body
            for node in ast.parse(
                Path(inspect.getsourcefile(cls) or "").read_text(encoding="utf-8")
            ).body
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__
        ]
    except (
        OSError,
        TypeError,
        ValueError,
        SyntaxError,
    ):  # a class without a file, or inside a function
        return {}
    return {
        field.target.id: inspect.cleandoc(str(text.value.value))
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


class Options(Checked):
    """The options of the runnable, the chat model and the middleware.

    Assigning to an option, and ``model_copy(update=...)``, check all options again.
    Pickling keeps the options.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: ModelOrName = Field(kw_only=False)
    """A chat model (or a binding of one), or its name for LangChain's
    ``init_chat_model`` (``"openai:gpt-4o-mini"``; needs ``langchain-reasc[agents]``).
    It must sample (temperature above 0). A model that returns logprobs is best.
    """
    calibration: Calibration | Literal["online", "mixture"] | str | Path | None = None
    """A calibration, the path of its file, or None to count votes. ``"online"`` learns
    without labels from how the responses to each question agree: it counts votes (ASC)
    for 16 questions, then decides by its own rule and continues to learn. Logprobs are
    used if the model returns them. ``"mixture"`` is the paper's Algorithm 2. Copies of
    a runnable learn together.
    """
    rule: StoppingRule | str | None = None
    """The stopping rule, or its name: ``"asc"``, ``"esc:window=3"``. None uses the rule
    of the calibration, or without a calibration ``FiniteHorizon(budget=max_samples)``,
    which counts votes and stops when the remaining samples would hardly change the
    answer. A given rule decides, up to ``max_samples``, instead of the calibration's.
    If it looks ahead, give it the same budget, which a name gets by itself. A rule that
    reads scores needs a calibration with a measure, or ``measure``. ``"online"`` and
    ``"mixture"`` make their own rule, and accept no other.
    """
    max_samples: int = Field(default=DEFAULT_BUDGET, ge=1)
    """The most samples per question."""
    answer: AnswerSpec = "auto"
    """Where the answer is in a response: see :func:`langchain_reasc.answers.extractor`.
    """
    tool_votes: ToolVotes = ToolVotes()
    """How tool calls are compared: which arguments do not count, and which numbers
    agree.
    """
    concurrency: int = Field(default=4, ge=1)
    """The most samples launched in parallel (a wave). A wave never has more samples
    than what decides if all agree. 1 is slowest. If a gate may accept the first
    response, it is launched alone. ``config["max_concurrency"]`` limits the samples in
    flight of a whole call, over all inputs of a batch and all branches of a chain.
    Simultaneous calls that draw from one model with the same number share this limit.
    """
    timeout: float | None = Field(default=None, gt=0)
    """Seconds that a question may take, not counting the wait for others of its batch;
    None for no limit. After that, running samples are cut off, and the complete
    responses decide.
    """
    sample_timeout: float | None = Field(default=3600.0, gt=0)
    """Seconds that a sample may take from its launch; None for no limit. A sample that
    takes longer fails, without effect on the others. Only this limit ends a response
    whose server never stops sending.
    """
    on_undecided: Literal["answer", "raise", "abstain"] = "answer"
    """What to do if the budget or the time is spent without sufficient evidence, or if
    no answer has ``min_share``: return the best answer so far, raise
    :class:`~langchain_reasc.exceptions.Undecided`, or return an empty message with
    ``reasc["abstained"]``.
    """
    abstain_below: float | None = Field(default=None, gt=0, lt=1)
    """Return an empty message, with ``reasc["abstained"]`` and
    ``reasc["abstained_because"]``, if the answer's probability is below this number in
    (0, 1); with ``on_undecided="raise"``, raise an error. A calibration on labels gives
    the probability that the answer is right (``reasc["p_correct"]``). One without
    labels gives the probability that further responses agree (``reasc["p_agree"]``),
    which says nothing about consistent mistakes of the model.
    """
    min_share: float = Field(default=0.5, ge=0, lt=1)
    """The share of the votes, in [0, 1), that an answer must exceed to be decided. A
    response without an answer counts against it. With ``on_undecided`` or
    ``abstain_below``, sampling continues until an answer has it, or none can.
    """
    on_missing_confidence: Literal["error", "count"] = "error"
    """What to do with a response without logprobs if a calibration needs them: raise an
    error, or count one vote.
    """
    ask_confidence: bool = False
    """Ask the model to end each response with a line such as ``Confidence: 85%``. This
    is for models without logprobs: the stated (verbalised) confidence is the measure
    ``Measure("verbalized", "mean")``. The line is removed from the winning message, and
    its number, or None, is in ``response_metadata["verbalized_confidence"]``. A
    calibration made with this option needs it, and one made without it refuses it.
    """
    measure: Measure | None = None
    """How a response is scored, for a ``rule`` that reads scores without a calibration.
    With ``calibration="online"`` it is the only candidate, and None tries all available
    measures. With ``"mixture"``, None is the paper's measure (self-certainty, bottom 10
    %, W = 128), or the same score of another signal that the model gives, or with
    ``ask_confidence`` the stated confidence of a model without signals.
    """
    fixed_prompt: FixedPrompt | None = None
    """The part of a prompt that is the same for every question, if it is more than the
    system messages: the number of first messages, these messages (with ``{question}``
    for the part that changes), or the prompt template. A calibration measured with
    another fixed part is refused.
    """
    allow_fingerprint_mismatch: bool = False
    """Use a calibration that was measured on another model, prompt or sampling."""
    online_state: str | Path | None = None
    """The SQLite file in which ``calibration="online"`` keeps what it learns. It is
    read at the start, and each question is written to it. It contains scores, and
    answers as numbers, but no text. A file of another model is refused. Any number of
    processes on one machine may share a file and learn together.
    """
    audit: float = Field(default=0.05, ge=0, le=1)
    """The share of questions for which ``calibration="online"`` draws (and pays for)
    one more response, to check that what was learned still holds. If it does not hold,
    votes are counted (ASC), and learning starts again.
    """

    escalate_to: ModelOrName | None = None
    """A larger model, or its name, that answers where ``model`` is contested; a ReASC
    model votes. By default, three equal votes of ``model`` are an answer, and the first
    dissent asks the larger model. That promises nothing. ``calibration="online"``
    starts with the answers of the larger model, learns from questions that both are
    asked when an answer of ``model`` may stand, and keeps the promise of ``within``. A
    ``rule`` or another calibration decides on votes of ``model``, and what is undecided
    is escalated.
    """
    within: float = Field(default=WITHIN, gt=0, lt=1)
    """What learning with ``escalate_to`` promises, with 95 % confidence: on at most
    this share of questions, an answer of ``model`` contradicts an answer that the
    larger model repeats. Where ``model`` cannot keep that, or does not pay, the larger
    model answers alone. A promise below 0.05 takes more questions than most have.
    """
    price_ratio: float | Prices = Field(default=10.0)
    """How many times as much a token of ``escalate_to`` costs as one of ``model``; or
    dollars for a million prompt and generated tokens of each:
    ``((0.15, 0.6), (2.5, 10))``. It decides whether a rule pays.
    """

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Describe each option by its docstring, and list all options in the class's
        docstring for ``help()``.
        """
        super().__pydantic_init_subclass__(**kwargs)
        for kind in reversed(cls.__mro__):
            for name, text in (
                _texts_below_fields(kind).items() if issubclass(kind, Options) else ()
            ):
                if name in cls.model_fields:
                    cls.model_fields[name].description = text
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
                    text, 116, initial_indent=" " * 4, subsequent_indent=" " * 8
                )
            )
        return "\n".join([*listed, ""])

    if (
        not TYPE_CHECKING
    ):  # type checkers see the signature pydantic makes from the fields

        def __init__(self, model: Any = None, **fields: Any) -> None:
            super().__init__(**({} if model is None else {"model": model}), **fields)

    @property
    def stopping_rule(self) -> StoppingRule | None:
        """The given rule, even if only its name was given."""
        return (
            rule_from_text(self.rule, budget=self.max_samples)
            if isinstance(self.rule, str)
            else self.rule
        )

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


class VoteOptions(TypedDict, total=False):
    """The types of all :class:`Options` except the model, for functions that pass them
    on as keywords.
    """

    calibration: Calibration | Literal["online", "mixture"] | str | Path | None
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
    ask_confidence: bool
    measure: Measure | None
    online_state: str | Path | None
    audit: float
    escalate_to: ModelOrName | None
    within: float
    price_ratio: float | Prices


class _Shown:
    """Represents an option in some words: a model by its name."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        value = self._value
        if isinstance(value, Runnable):
            models = [
                f"{type(leaf.model).__name__}({name_of_model(leaf.model) or ''})"
                for leaf in leaves(value, {})
            ]
            return " or ".join(models) or value.get_name()
        return shortened(
            value.name if isinstance(value, Extractor) else repr(value), 80
        )
