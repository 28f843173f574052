"""What every face of ReASC is set up with: the options, checked and prepared anew whenever one of them changes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import Runnable
from pydantic import ConfigDict, Field, PrivateAttr, SkipValidation, model_validator

from langchain_reasc.answers import AnswerSpec, ToolVotes
from langchain_reasc.calibration import Calibration, MixtureCalibrator, Safeguard
from langchain_reasc.calibration.asked import FixedPrompt
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET, StoppingRule
from langchain_reasc.models.prepared import ModelOrName, model_of
from langchain_reasc.models.wrappers import leaves
from langchain_reasc.runnable.consensus_calibrator import ConsensusCalibrator
from langchain_reasc.runnable.options import prepared_solver
from langchain_reasc.runnable.recreated import Recreated

__all__ = ["Face", "VoteFields"]


class VoteFields(Recreated):
    """The options of all that decides by votes."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    calibration: Calibration | Literal["online", "mixture"] | str | Path | None = None
    """A calibration, the path of one, or None to count votes. ``"online"`` learns without labels, from how far
    the responses to each question agree: it counts votes (ASC) for 32 questions, then its own rule decides, and it goes
    on learning. It needs no logprobs, and uses them where they come. ``"mixture"`` is the paper's Algorithm 2."""
    rule: StoppingRule | None = None
    """When to stop. None leaves it to the calibration: its ReASC, or, made without labels, its agreement rule. Without
    a calibration it is ``FiniteHorizon(budget=max_samples)``, which counts votes and stops when the samples that are
    left would hardly change the answer. A rule that is given decides, whatever a calibration advises, up to
    ``max_samples``, which one that looks ahead should have for its budget. One that reads scores needs a calibration's
    measure, or ``measure``. ``"online"`` and ``"mixture"`` make their own of what is learned, and take no other."""
    max_samples: int = Field(default=DEFAULT_BUDGET, ge=1)
    """Samples per question at most."""
    concurrency: int = Field(default=4, ge=1)
    """Samples launched at once (a wave). 1 spends the fewest tokens, ``max_samples`` takes the least time. While an
    open gate may accept the first response, that one is launched alone. ``config["max_concurrency"]`` bounds the
    samples in flight of a whole call, over all inputs of a batch and all branches of a chain: calls that draw from one
    model under the same number at the same time share it, and wait for each other."""
    confidence: float | None = Field(default=None, gt=0.5, lt=1)
    """C_threshold of the Beta rules, ReASC and ASC: the posterior at which the evidence is sufficient; None for 0.95.
    Without a calibration, one that is given, be it 0.95, asks for the Beta rule on counts, ``ASC(confidence)``. With
    ``rule`` it has no place."""
    on_missing_confidence: Literal["error", "count"] = "error"
    """What to do with a response without logprobs where a calibration needs them: refuse, or count it as one vote."""
    sample_timeout: float | None = Field(default=3600.0, gt=0)
    """Seconds a sample may take from its launch; None for any time. One that takes longer has failed, which costs only
    itself. A server that sends something now and then, and never ends, is noticed by this alone."""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds a question may take, but for those in which it waits for others of its batch. Then what still runs is cut
    off, and the responses that have ended decide."""
    allow_fingerprint_mismatch: bool = False
    """Use a calibration that was measured on another model, prompt or sampling."""
    measure: Measure | None = None
    """How a response is scored, for a ``rule`` that reads scores without a calibration. With ``calibration="online"``
    it is the only candidate, None for all that can be had. With ``"mixture"``, None is the paper's (self-certainty,
    bottom 10 %, W = 128) where the model gives that signal, else the same score of one that it gives; with
    ``ask_confidence``, what the model states where it gives none."""
    online_state: str | Path | None = None
    """The file in which ``calibration="online"`` keeps what it has learned: read at the start, where it is there (in an
    event loop, by a thread of the first call), and written every few seconds while it learns, and when the process
    ends. It holds scores, and answers as numbers, but no text. A file of another model is refused. Processes that share
    one learn together."""
    audit: float = Field(default=0.05, ge=0, le=1)
    """For what share of the questions that ``calibration="online"`` decides one more response is drawn, and paid for,
    to see whether what was learned still holds. Where it does not, it counts votes (ASC) and learns again."""
    calibrator: MixtureCalibrator | ConsensusCalibrator | None = Field(default=None, repr=False, exclude=True)
    """What ``calibration="online"`` or ``"mixture"`` learns with; made when it is None. Runnables that are given the
    same one learn together, as those do that LangChain makes of one with configurable fields."""

    advised: SkipValidation[set[str]] = Field(default_factory=set, repr=False, exclude=True)
    """The arguments and fields of which it was said once how to leave them out of the vote. Copies share it."""


class Face(VoteFields):
    """The options that the faces of ReASC have in common.

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
    """Which part of a prompt is the same for every question, where that is more than its system messages: the number of
    its first messages, those messages themselves (``{question}`` stands for what changes), or the prompt template. A
    calibration measured with another such part is refused. What a conversation has said is never part of it."""
    safeguard: Safeguard = "default"
    """Whether what a calibration on labels found is believed only as far as its data vouch for it: a gate that holds
    with 95 %, weights where the score separates the responses to one question, and votes counted where it does not
    separate right from wrong. ``"paper"`` takes the paper's rule as it stands."""
    on_undecided: Literal["answer", "raise", "abstain"] = "answer"
    """What to do when the budget or the time is spent and the evidence is not sufficient: give the best answer so far,
    raise :class:`~langchain_reasc.exceptions.Undecided`, or give an empty message with ``reasc["abstained"]``."""
    abstain_below: float | None = Field(default=None, gt=0, lt=1)
    """The probability below which an answer is none, in (0, 1): an empty message is given in its place, with
    ``reasc["abstained"]`` and ``reasc["abstained_because"]``, or with ``on_undecided="raise"`` an error. With a
    calibration on labels it is the probability that the answer is right (``reasc["p_correct"]``). With one without
    labels it is the probability that further responses agree with it (``reasc["p_agree"]``), which promises nothing
    where the model errs the same way each time. A calibration that tells neither is refused."""
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

    _quiet: ClassVar[bool] = False
    """Whether the samples are parts of one model call, told of by that alone."""
    _made: Runnable[LanguageModelInput, Any] | None = PrivateAttr(default=None)
    """The model that was made of a name."""

    if not TYPE_CHECKING:  # type checkers see the signature pydantic makes from the fields

        def __init__(self, model: Any = None, **fields: Any) -> None:
            super().__init__(**({} if model is None else {"model": model}), **fields)

    @property
    def sampled(self) -> Runnable[LanguageModelInput, Any]:
        """The model itself, also where its name was given."""
        if not isinstance(self.model, str):
            return self.model
        self._made = self._made or model_of(self.model)
        return self._made

    @model_validator(mode="after")
    def _prepare(self) -> Self:
        model = self.sampled
        if any(isinstance(leaf.model, Face) for leaf in leaves(model, {})) or isinstance(model, Face):
            raise ConfigurationError(
                f"the model is ReASC already ({model.get_name()}): votes on votes would take up to "
                f"{self.max_samples} times its samples; give the model inside it"
            )
        options = {option: getattr(self, option) for option in Face.model_fields} | {"model": model}
        self._solver = prepared_solver(**options, quiet=self._quiet)
        # Not by assignment, which prepares anew; the constructor that LangChain calls again takes it from here.
        self.__dict__["calibrator"] = self._solver.calibrator
        return self

    def _recreated(self, fields: dict[str, Any]) -> Self:
        if self._made is None or fields["model"] != self.model:
            return super()._recreated(fields)
        copy = super()._recreated(fields | {"model": self._made})  # one model made of a name is enough
        copy.__dict__["model"], copy._made = self.model, self._made
        return copy

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Face.model_fields:
            changed = self.model_copy(update={name: value})
            self.__dict__.clear()  # of what was cached, too
            self.__dict__.update(changed.__dict__)
            self.__pydantic_fields_set__.update(changed.model_fields_set)
            self._solver, self._made = changed._solver, changed._made
        else:
            super().__setattr__(name, value)
