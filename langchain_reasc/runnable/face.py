"""What every face of ReASC is set up with: the options, checked and prepared anew whenever one of them changes."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import Runnable
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from langchain_reasc.answers import AnswerSpec, ToolVotes
from langchain_reasc.calibration import Calibration, OnlineCalibrator
from langchain_reasc.calibration.asked import FixedPrompt
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET, DEFAULT_CONFIDENCE
from langchain_reasc.models.integrations import leaves
from langchain_reasc.runnable.options import explained, prepared_solver
from langchain_reasc.runnable.solver import Solver

__all__ = ["Face"]


class Face(BaseModel):
    """The options that the faces of ReASC have in common.

    Assigning to one, and ``model_copy(update=...)``, check and prepare everything anew. Pickling keeps the options.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: Runnable[LanguageModelInput, Any]
    """A chat model (or a binding of one). Best is one that returns logprobs; it must sample (temperature above 0)."""
    calibration: Calibration | Literal["online"] | str | Path | None = None
    """A calibration, the path of one, ``"online"`` to learn without labels, or None to count votes (ASC)."""
    max_samples: int = Field(default=DEFAULT_BUDGET, ge=1)
    """Samples per question at most."""
    answer: AnswerSpec = "auto"
    """Where the answer is in a response: see :func:`langchain_reasc.answers.extractor`."""
    tool_votes: ToolVotes = ToolVotes()
    """How calls of tools are compared: which arguments do not count, which numbers agree."""
    fixed_prompt: FixedPrompt | None = None
    """Which part of a prompt is the same for every question, where that is more than its system messages: the number of
    its first messages, those messages themselves (``{question}`` stands for what changes), or the prompt template. A
    calibration measured with another such part is refused. What a conversation has said is never part of it."""
    concurrency: int = Field(default=4, ge=1)
    """Samples launched at once (a wave). 1 spends the fewest tokens, ``max_samples`` takes the least time. While an
    open gate may accept the first response, that one is launched alone. ``config["max_concurrency"]`` bounds the
    samples in flight of a whole call, over all inputs of a batch."""
    confidence: float = Field(default=DEFAULT_CONFIDENCE, gt=0.5, lt=1)
    """C_threshold: the posterior at which the evidence is sufficient."""
    on_missing_confidence: Literal["error", "count"] = "error"
    """What to do with a response without logprobs where a calibration needs them: refuse, or count it as one vote."""
    sample_timeout: float | None = Field(default=None, gt=0)
    """Seconds a sample may take from its launch. One that takes longer has failed, which costs only itself."""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds a question may take, but for those in which it waits for others of its batch. Then what still runs is cut
    off, and the responses that have ended decide."""
    allow_fingerprint_mismatch: bool = False
    """Use a calibration that was measured on another model, prompt or sampling."""
    on_undecided: Literal["answer", "raise", "abstain"] = "answer"
    """What to do when the budget or the time is spent and the evidence is not sufficient: give the best answer so far,
    raise :class:`~langchain_reasc.exceptions.Undecided`, or give an empty message with ``reasc["abstained"]``."""
    token_budget: int | None = Field(default=None, ge=1)
    """Tokens, prompt and generated, that the samples of a question may cost. No sample is launched once they are spent;
    what a wave has in flight then may go beyond."""
    time_budget: float | None = Field(default=None, gt=0)
    """Seconds in which the samples of a question may be launched. Unlike with ``timeout``, what a wave has in flight
    then is waited for, so that this alone never leaves a question without a response."""
    ask_confidence: bool = False
    """Ask the model to end each response with a line such as ``Confidence: 85%``, for models that return no logprobs:
    stated (verbalised) confidence, what the model says of itself, as the measure ``Measure("verbalized", "mean")``. The
    line is no part of the answer, nor of the winning message's text; its number is in
    ``response_metadata["verbalized_confidence"]``, None where none was stated. A calibration holds for models that are
    asked, or for such as are not."""
    measure: Measure | None = None
    """How ``calibration="online"`` scores a response; None for the paper's (self-certainty, bottom 10 %, W = 128) where
    the model gives that signal, else the same score of one that it gives; with ``ask_confidence``, what the model
    states where it gives none."""
    calibrator: OnlineCalibrator | None = Field(default=None, repr=False, exclude=True)
    """What ``calibration="online"`` learns with; made when it is None. Runnables that are given the same one learn
    together, as those do that LangChain makes of one with configurable fields."""

    _quiet: ClassVar[bool] = False
    """Whether the samples are parts of one model call, told of by that alone."""
    _solver: Solver = PrivateAttr()

    @model_validator(mode="after")
    def _prepare(self) -> Self:
        if any(isinstance(leaf.model, Face) for leaf in leaves(self.model, {})) or isinstance(self.model, Face):
            raise ConfigurationError(
                f"the model is ReASC already ({self.model.get_name()}): votes on votes would take up to "
                f"{self.max_samples} times its samples; give the model inside it"
            )
        options = {option: getattr(self, option) for option in Face.model_fields}
        self._solver = prepared_solver(**options, quiet=self._quiet)
        # Not by assignment, which prepares anew; the constructor that LangChain calls again takes it from here.
        self.__dict__["calibrator"] = self._solver.calibrator
        return self

    if not TYPE_CHECKING:  # type checkers see the signature pydantic makes from the fields

        def __init__(self, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise explained(error) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Face.model_fields:
            changed = self.model_copy(update={name: value})
            self.__dict__.clear()  # of what was cached, too
            self.__dict__.update(changed.__dict__)
            self.__pydantic_fields_set__.update(changed.model_fields_set)
            self._solver = changed._solver
        else:
            super().__setattr__(name, value)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other options, checked like a new one. It shares the model and what ``"online"`` has learned."""
        changed = dict(update or {})
        kept = self.model_fields_set | {"calibrator"}
        if changed.keys() & {"model", "calibration", "measure"}:
            kept -= {"calibrator"}  # which learned of something else
        return type(self)(**{name: getattr(self, name) for name in kept} | changed)

    def __copy__(self) -> Self:
        return self.model_copy()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """A copy that shares the model and what ``"online"`` has learned."""
        return self.model_copy()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the configuration only: ``"online"`` starts anew, so save :attr:`learned` to keep it."""
        kept = self.model_fields_set - {"calibrator"}
        return _remade, (type(self), {name: getattr(self, name) for name in kept})

    @property
    def learned(self) -> Calibration | None:
        """The calibration in use: what ``"online"`` has learned so far can be saved, and given to the next process."""
        return self._solver.learned


def _remade(kind: type[Face], fields: dict[str, Any]) -> Face:
    return kind(**fields)
