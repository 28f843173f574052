"""The options of runnable, chat model, middleware and decision model, each declared once."""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict

from langchain_core.messages import AIMessage
from pydantic import ConfigDict, Field, PrivateAttr

from langchain_reasc.answers import AnswerSpec, ToolVotes
from langchain_reasc.calibration import Calibration, ConsensusCalibrator, FixedPrompt, MixtureCalibrator, Safeguard
from langchain_reasc.complaints import Checked
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET, StoppingRule
from langchain_reasc.models.prepared import ModelOrName
from langchain_reasc.threads import in_thread

__all__ = ["DecisionOptions", "Options", "VoteOptions", "question_id"]


@cache
def _texts_below_fields(cls: type) -> dict[str, str]:
    """Return the text below each field; pydantic's ``use_attribute_docstrings`` takes a third of a second."""
    try:
        [body] = [
            node.body
            for node in ast.parse(Path(inspect.getsourcefile(cls) or "").read_text(encoding="utf-8")).body
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__
        ]
    except (OSError, TypeError, ValueError, SyntaxError):  # a class without a file, or inside a function
        return {}
    return {
        field.target.id: inspect.cleandoc(str(text.value.value))
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


class DecisionOptions(Checked):
    """The options of everything that decides by votes.

    ``model_copy(update=...)`` checks and prepares everything anew. Pickling keeps the options.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    calibration: Calibration | Literal["online", "mixture"] | str | Path | None = None
    """A calibration, the path of one, or None to count votes. ``"online"`` learns without labels, from how far the
    responses to each question agree: it counts votes (ASC) for 16 questions, then its own rule decides while it goes on
    learning. It needs no logprobs, and uses them if they come. ``"mixture"`` is the paper's Algorithm 2."""
    rule: StoppingRule | None = None
    """When to stop. None leaves it to the calibration (ReASC, or the agreement rule of one made without labels), and
    without a calibration to ``FiniteHorizon(budget=max_samples)``, which counts votes and stops when the samples left
    would hardly change the answer. A given rule decides up to ``max_samples``, whatever a calibration advises; give a
    rule that looks ahead the same budget. A rule that reads scores needs a calibration with a measure, or ``measure``.
    ``"online"`` and ``"mixture"`` make their own rule, and take no other."""
    max_samples: int = Field(default=DEFAULT_BUDGET, ge=1)
    """Samples per question at most."""
    worth: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Samples that a question may cost for one more point of agreement, under a calibration learned from agreement: one
    point is a hundredth of all responses that the model would ever give. Sampling also stops where more would gain less
    (``reason`` is ``worth``, and the answer counts as undecided), such as where votes scatter behind one leader. 0
    switches this off, and so does ``max_samples`` above 24. None is the calibration's own, or 0 with
    ``on_undecided="raise"`` or ``"abstain"``."""
    concurrency: int = Field(default=4, ge=1)
    """Samples launched at once (a wave), at most: no wave has more than decide if all agree. 1 takes the most time.
    While an open gate may accept the first response, that one is launched alone. ``config["max_concurrency"]`` bounds
    the samples in flight of a whole call, over all inputs of a batch and all branches of a chain; calls that draw from
    one model under the same number at the same time share it, and wait for each other."""
    confidence: float | None = Field(default=None, gt=0.5, lt=1)
    """C_threshold of the Beta rules, ReASC and ASC: the posterior at which the evidence is sufficient; None for 0.95.
    Without a calibration, setting any value, even 0.95, selects ``ASC(confidence)``, the Beta rule on counts. It has no
    effect with ``rule``."""
    on_missing_confidence: Literal["error", "count"] = "error"
    """What to do with a response without logprobs where a calibration needs them: raise, or count it as one vote."""
    sample_timeout: float | None = Field(default=3600.0, gt=0)
    """Seconds a sample may take from its launch; None for no limit. A sample that takes longer fails, at no cost to the
    others. Only this limit ends a response whose server keeps sending and never finishes."""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds a question may take, not counting those in which it waits for others of its batch; None for no limit.
    Then what still runs is cut off, and the responses that have ended decide."""
    allow_fingerprint_mismatch: bool = False
    """Use a calibration that was measured on another model, prompt or sampling."""
    measure: Measure | None = None
    """How a response is scored, for a ``rule`` that reads scores without a calibration. With ``calibration="online"``
    it is the only candidate; None tries all that can be had. With ``"mixture"``, None is the paper's (self-certainty,
    bottom 10 %, W = 128), or the same score of a signal that the model gives; with ``ask_confidence``, the stated
    confidence of a model that gives none."""
    online_state: str | Path | None = None
    """The SQLite file in which ``calibration="online"`` keeps what it has learned. It is read at the start, and each
    question that is learned from is written to it. It holds scores, and answers as numbers, but no text. A file of
    another model is refused. Any number of processes of one machine may share one, and learn together."""
    audit: float = Field(default=0.05, ge=0, le=1)
    """The share of the questions decided by ``calibration="online"`` for which one more response is drawn, and paid
    for, to check that what was learned still holds. Where it does not, it counts votes (ASC) and learns again."""
    calibrator: MixtureCalibrator | ConsensusCalibrator | None = Field(default=None, repr=False, exclude=True)
    """What ``calibration="online"`` or ``"mixture"`` learns with; made if None. Runnables that share one learn
    together."""

    _learns_of: ClassVar[frozenset[str]] = frozenset({"model", "calibration", "measure", "online_state"})
    """The options that what was learned depends on."""
    _setup: Any = PrivateAttr()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Describe the options by the text below each, and list them in the docstring, where ``help()`` shows them."""
        super().__pydantic_init_subclass__(**kwargs)
        for kind in reversed(cls.__mro__):
            for name, text in _texts_below_fields(kind).items() if issubclass(kind, DecisionOptions) else ():
                if name in cls.model_fields:
                    cls.model_fields[name].description = text
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\n{cls.listed_options()}"

    @classmethod
    def listed_options(cls, names: Iterable[str] | None = None) -> str:
        """Return the options with default and meaning, those that must be given first; without LangChain's own."""
        described = {name: field for name, field in cls.model_fields.items() if field.description}
        listed = ["Options:"]
        for name in sorted(names or described, key=lambda name: not described[name].is_required()):
            field = described[name]
            default = repr(field.get_default(call_default_factory=True))
            if len(default) > 60:
                default = default.split("(")[0] + "()"
            needed = "required" if field.is_required() else f"default {default}"
            text = " ".join(f"{name} ({needed}): {field.description}".split())
            listed.append(textwrap.fill(text, 116, initial_indent=" " * 4, subsequent_indent=" " * 8))
        return "\n".join([*listed, ""])

    @property
    def learned(self) -> Calibration | None:
        """The calibration in use; one that was learned can be saved, and given to the next process."""
        return self._setup.learned  # type: ignore[no-any-return]

    def record_outcome(self, answered: AIMessage | str, correct: bool) -> bool:
        """Tell ``calibration="online"`` whether an answer was right. False: the question is not known, or no longer.

        Args:
            answered: the message, or the ``id`` in its account.
            correct: whether its answer was right.

        Raises:
            ConfigurationError: nothing is learned here, or the message is not one of ReASC's.
        """
        if not isinstance(self.calibrator, ConsensusCalibrator):
            raise ConfigurationError(f"outcomes are learned with calibration='online', not {self.calibration!r}")
        id = question_id(answered)
        return id is not None and self.calibrator.record_outcome(id, bool(correct))

    async def arecord_outcome(self, answered: AIMessage | str, correct: bool) -> bool:
        """The asynchronous :meth:`record_outcome`, in a thread."""
        return await in_thread(self.record_outcome, answered, correct)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other options, checked like a new one. It shares the model and what has been learned."""
        changed = dict(update or {})
        kept = self.model_fields_set | {"calibrator"}
        if changed.keys() & self._learns_of:
            kept -= {"calibrator"}  # which learned of something else
        return self._recreate({name: getattr(self, name) for name in kept} | changed)

    def _recreate(self, fields: dict[str, Any]) -> Self:
        return type(self)(**fields)

    def __copy__(self) -> Self:
        return self.model_copy()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return a copy that shares the model and what has been learned."""
        return self.model_copy()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the options only; save :attr:`learned`, or give ``online_state``, to keep what was learned."""
        kept = self.model_fields_set - {"calibrator"}
        return _unpickle, (type(self), {name: getattr(self, name) for name in kept})


class Options(DecisionOptions):
    """The options of the runnable, the chat model and the middleware.

    Assigning to one, and ``model_copy(update=...)``, check and prepare everything anew. Pickling keeps the options.
    """

    model: ModelOrName = Field(kw_only=False)
    """A chat model (or a binding of one), or its name as LangChain's ``init_chat_model`` takes it
    (``"openai:gpt-4o-mini"``; needs ``langchain-reasc[agents]``). Best is one that returns logprobs; it must sample
    (temperature above 0)."""
    answer: AnswerSpec = "auto"
    """Where the answer is in a response: see :func:`langchain_reasc.answers.extractor`."""
    tool_votes: ToolVotes = ToolVotes()
    """How calls of tools are compared: which arguments do not count, which numbers agree."""
    fixed_prompt: FixedPrompt | None = None
    """Which part of a prompt is the same for every question, if that is more than its system messages: the number of
    its first messages, those messages themselves (``{question}`` stands for what changes), or the prompt template. A
    calibration measured with another such part is refused."""
    safeguard: Safeguard = "default"
    """``"default"`` decides by the agreement rule that the calibration learned. A calibration on one response to each
    labelled question has none; then Algorithm 1 decides, as far as its data support it: with a gate that holds with
    95 %, and votes counted where the score does not separate right from wrong. ``"paper"`` takes Algorithm 1 as it
    stands."""
    on_undecided: Literal["answer", "raise", "abstain"] = "answer"
    """What to do when the budget or the time is spent without sufficient evidence, or no answer has ``min_share``: give
    the best answer so far, raise :class:`~langchain_reasc.exceptions.Undecided`, or give an empty message with
    ``reasc["abstained"]``."""
    abstain_below: float | None = Field(default=None, gt=0, lt=1)
    """The probability, in (0, 1), below which an empty message is given in place of an answer, with
    ``reasc["abstained"]`` and ``reasc["abstained_because"]``; with ``on_undecided="raise"``, an error. A calibration on
    labels gives the probability that the answer is right (``reasc["p_correct"]``), one without labels the probability
    that further responses agree (``reasc["p_agree"]``), which promises nothing where the model errs consistently."""
    min_share: float = Field(default=0.5, ge=0, lt=1)
    """The share of the votes, in [0, 1), that an answer must exceed to be decided. A response without an answer votes
    against it. With ``on_undecided`` or ``abstain_below``, sampling goes on until one has it, or none can."""
    token_budget: int | None = Field(default=None, ge=1)
    """Tokens, prompt and generated, that the samples of a question may cost. No sample is launched once they are spent;
    what a wave has in flight then may exceed it."""
    time_budget: float | None = Field(default=None, gt=0)
    """Seconds in which samples of a question may be launched; what is in flight then is waited for."""
    ask_confidence: bool = False
    """Ask the model to end each response with a line such as ``Confidence: 85%``, for models without logprobs: stated
    (verbalised) confidence, as the measure ``Measure("verbalized", "mean")``. The line is not part of the winning
    message; its number, or None, is in ``response_metadata["verbalized_confidence"]``. A calibration holds either for
    models that are asked or for models that are not."""

    if not TYPE_CHECKING:  # type checkers see the signature pydantic makes from the fields

        def __init__(self, model: Any = None, **fields: Any) -> None:
            super().__init__(**({} if model is None else {"model": model}), **fields)


class VoteOptions(TypedDict, total=False):
    """The types of all :class:`Options` except the model, for functions that pass them on as keywords."""

    calibration: Calibration | Literal["online", "mixture"] | str | Path | None
    rule: StoppingRule | None
    max_samples: int
    worth: float | None
    answer: AnswerSpec
    tool_votes: ToolVotes
    fixed_prompt: FixedPrompt | None
    concurrency: int
    confidence: float | None
    on_missing_confidence: Literal["error", "count"]
    safeguard: Safeguard
    sample_timeout: float | None
    timeout: float | None
    allow_fingerprint_mismatch: bool
    on_undecided: Literal["answer", "raise", "abstain"]
    abstain_below: float | None
    min_share: float
    token_budget: int | None
    time_budget: float | None
    ask_confidence: bool
    measure: Measure | None
    online_state: str | Path | None
    audit: float
    calibrator: MixtureCalibrator | ConsensusCalibrator | None


def question_id(answered: AIMessage | str) -> str | None:
    """Return the ``id`` that an outcome is told by: given, or in a message's account; None where nothing was voted on.

    Raises:
        ConfigurationError: the message is not one of ReASC's.
    """
    if isinstance(answered, str):
        return answered
    account: dict[str, Any] | None = answered.response_metadata.get("reasc")
    if account is None:
        raise ConfigurationError("the message has no response_metadata['reasc']; give one that ReASC returned")
    return account.get("id")


def _unpickle(kind: type[DecisionOptions], fields: dict[str, Any]) -> DecisionOptions:
    return kind(**fields)
