"""``ReASCRunnable``: a more reliable answer for fewer tokens, as a step in any LangChain chain."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSerializable
from pydantic import ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from langchain_reasc.answers import AnswerSpec
from langchain_reasc.calibration import Calibration, OnlineCalibrator
from langchain_reasc.calibration.asked import FixedPrompt
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET, DEFAULT_CONFIDENCE
from langchain_reasc.runnable.batch import Batch, Outcome
from langchain_reasc.runnable.options import explained, prepared_solver, refuse_swallowed
from langchain_reasc.runnable.progress import Progress
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.runnable.runs import AsyncRun, Run
from langchain_reasc.runnable.session import ResponseListener
from langchain_reasc.runnable.solver import Solver
from langchain_reasc.sampling.slots import AsyncSlots, Slots

__all__ = ["ReASCRunnable"]


class ReASCRunnable(RunnableSerializable[LanguageModelInput, AIMessage]):
    """Samples a chat model until the evidence for one answer is sufficient (ReASC).

    Stands where the model stood: ``prompt | ReASCRunnable(model=llm, calibration="calibration.json") | parser``. The
    output is the winning response; ``response_metadata["reasc"]`` says what was decided and spent, and
    ``usage_metadata`` is the bill of all samples. Each sample is a traced run of its own below this one.

    Assigning to a field, and ``model_copy(update=...)``, check and prepare everything anew. Pickling keeps the options;
    LangChain's own serialization (``dumps``) writes that it cannot be loaded again, since a model may be anything.

    Example:
        >>> reasc = ReASCRunnable(model=llm, calibration="calibration.json")
        >>> message = reasc.invoke("What is 12 times 17?")
        >>> message.response_metadata["reasc"]["samples"]
        1
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

    _solver: Solver = PrivateAttr()

    @model_validator(mode="after")
    def _prepare(self) -> Self:
        options = type(self).model_fields.keys() - {"name"}
        self._solver = prepared_solver(**{option: getattr(self, option) for option in options})
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
        if name in type(self).model_fields:
            changed = self.model_copy(update={name: value})
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

    def invoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> AIMessage:
        """The winning response.

        Args:
            input: whatever the chat model takes: a string, messages, a prompt value.
            config: callbacks, tags, metadata, run name; ``max_concurrency`` bounds the samples in flight.
            **kwargs: passed to every call of the model.

        Raises:
            SamplingError: no sample could be drawn; SampleTimeout where that is because none ended in time.
            LogprobsUnavailable: a calibration needs logprobs and the model returned none.
            FingerprintMismatch: the calibration was made with other system messages.
        """
        refuse_swallowed(kwargs)
        return self._run(input, config).last(lambda below: self._solved(input, below, None, kwargs).message)

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """The asynchronous :meth:`invoke`."""
        refuse_swallowed(kwargs)

        async def answered(below: RunnableConfig) -> AIMessage:
            return (await self._asolved(input, below, None, kwargs)).message

        return await self._arun(input, config).last(answered)

    def solve(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        on_response: ResponseListener | None = None,
        **kwargs: Any,
    ) -> ReASCResult:
        """:meth:`invoke` with everything behind the answer.

        Args:
            input: whatever the chat model takes.
            config: callbacks, tags, metadata, run name.
            on_response: called with each response and the decision after it, in launch order.
            **kwargs: passed to every call of the model.
        """
        return self._run(input, config).last(lambda below: self._solved(input, below, on_response, kwargs))

    async def asolve(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        on_response: ResponseListener | None = None,
        **kwargs: Any,
    ) -> ReASCResult:
        """The asynchronous :meth:`solve`."""
        return await self._arun(input, config).last(lambda below: self._asolved(input, below, on_response, kwargs))

    def batch(
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        progress: Progress = None,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """One winning response per input; ``calibration="online"`` calibrates on all first responses (Algorithm 2).

        Args:
            inputs: whatever the chat model takes.
            config: one for all inputs, or one each; ``max_concurrency`` bounds the samples in flight of all together.
            return_exceptions: whether an input that fails gives its error; else the first error ends the batch, and
                what runs beside it is cut off.
            progress: True for a bar on stderr, or a function called with (inputs answered, inputs).
            **kwargs: passed to every call of the model.
        """
        outcomes = dict(self._batch(inputs, config, return_exceptions, progress, kwargs).completed())
        return [cast(AIMessage, outcomes[index]) for index in range(len(inputs))]

    async def abatch(
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        progress: Progress = None,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """The asynchronous :meth:`batch`."""
        batch = self._batch(inputs, config, return_exceptions, progress, kwargs)
        outcomes = dict([outcome async for outcome in batch.acompleted()])
        return [cast(AIMessage, outcomes[index]) for index in range(len(inputs))]

    def batch_as_completed(  # type: ignore[override]
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        progress: Progress = None,
        **kwargs: Any,
    ) -> Iterator[Outcome]:
        """(index, winning response) in order of completion; arguments as those of :meth:`batch`."""
        return self._batch(inputs, config, return_exceptions, progress, kwargs).completed()

    def abatch_as_completed(  # type: ignore[override]
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        progress: Progress = None,
        **kwargs: Any,
    ) -> AsyncIterator[Outcome]:
        """The asynchronous :meth:`batch_as_completed`."""
        return self._batch(inputs, config, return_exceptions, progress, kwargs).acompleted()

    def _solved(
        self, input: LanguageModelInput, below: RunnableConfig, on_response: ResponseListener | None, kwargs: Any
    ) -> ReASCResult:
        question = self._solver.question(input, below, kwargs, on_response=on_response)
        return self._solver.solve(question, below, slots=Slots(below.get("max_concurrency")))

    async def _asolved(
        self, input: LanguageModelInput, below: RunnableConfig, on_response: ResponseListener | None, kwargs: Any
    ) -> ReASCResult:
        question = self._solver.question(input, below, kwargs, on_response=on_response)
        return await self._solver.asolve(question, below, slots=AsyncSlots(below.get("max_concurrency")))

    def _run(self, input: LanguageModelInput, config: RunnableConfig | None) -> Run:
        return Run(self.get_name(), input, config)

    def _arun(self, input: LanguageModelInput, config: RunnableConfig | None) -> AsyncRun:
        return AsyncRun(self.get_name(), input, config)

    def _batch(
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None,
        return_exceptions: bool,
        progress: Progress,
        kwargs: dict[str, Any],
    ) -> Batch:
        refuse_swallowed(kwargs)
        return Batch(
            self._solver,
            self.get_name(),
            inputs,
            config,
            kwargs,
            return_exceptions=return_exceptions,
            progress=progress,
        )


def _remade(kind: type[ReASCRunnable], fields: dict[str, Any]) -> ReASCRunnable:
    return kind(**fields)
