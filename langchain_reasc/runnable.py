"""``ReASCRunnable``: a more reliable answer for fewer tokens, as a step in any LangChain chain."""

import asyncio
import threading
from contextlib import aclosing, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import patch_config
from pydantic import ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from langchain_reasc.answers import AnswerSpec, Extractor, extractor
from langchain_reasc.calibration import Calibration, OnlineCalibrator, check_fingerprint, load_calibration
from langchain_reasc.confidence import Measure
from langchain_reasc.deliberation import Deliberation, ResponseListener
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.result import ReASCResult
from langchain_reasc.sampling import awave, wave
from langchain_reasc.source import Source, to_messages
from langchain_reasc.stopping import ASC, DEFAULT_BUDGET, DEFAULT_CONFIDENCE, StoppingRule
from langchain_reasc.transductive import TransductiveBatch, TransductiveStart

__all__ = ["ReASCRunnable"]


class ReASCRunnable(TransductiveBatch):
    """Samples a chat model until the evidence for one answer is sufficient (ReASC).

    Stands where the model stood: ``prompt | ReASCRunnable(model=llm, calibration="calibration.json") | parser``. The
    output is the winning response; ``response_metadata["reasc"]`` says what was decided and spent, and
    ``usage_metadata`` is the bill of all samples. Each sample is a traced run of its own below this one.

    Example:
        >>> reasc = ReASCRunnable(model=llm, calibration="calibration.json")
        >>> message = reasc.invoke("What is 12 times 17?")
        >>> message.response_metadata["reasc"]["samples"]
        1
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: Runnable[LanguageModelInput, Any]
    """A chat model (or a binding of one). Best is one that returns logprobs; it must sample (temperature above 0)."""
    calibration: Calibration | Literal["online"] | Path | None = None
    """A calibration, the path of one, ``"online"`` to learn without labels, or None to count votes (ASC)."""
    max_samples: int = Field(DEFAULT_BUDGET, ge=1)
    """Samples per question at most."""
    answer: AnswerSpec = "auto"
    """Where the answer is in a response: see :func:`langchain_reasc.answers.extractor`."""
    concurrency: int = Field(4, ge=1)
    """Samples launched at once (a wave). 1 spends the fewest tokens, ``max_samples`` takes the least time. While an
    open gate may accept the first response, that one is launched alone. ``config["max_concurrency"]`` lowers it."""
    confidence: float = Field(DEFAULT_CONFIDENCE, gt=0.5, lt=1)
    """C_threshold: the posterior at which the evidence is sufficient."""
    on_missing_confidence: Literal["error", "count"] = "error"
    """What to do with a response without logprobs where a calibration needs them: refuse, or count it as one vote."""
    allow_fingerprint_mismatch: bool = False
    """Use a calibration that was measured on another model, prompt or sampling."""
    measure: Measure | None = None
    """How ``calibration="online"`` scores a response; None for the paper's (self-certainty, bottom 10 %, W = 128)."""

    _calibration: Calibration | None = PrivateAttr(None)
    _online: OnlineCalibrator | None = PrivateAttr(None)
    _extract: Extractor = PrivateAttr()
    _source: Source = PrivateAttr()

    @model_validator(mode="after")
    def _prepare(self) -> "ReASCRunnable":
        self._extract = extractor(self.answer)
        if self.measure is not None and self.calibration != "online":
            raise ConfigurationError(
                f"measure={str(self.measure)!r} goes with calibration='online'; a calibration brings its own, and "
                "without one no confidence is read"
            )
        self._source = Source.of(self.model, logprobs=self.calibration is not None)
        if self.calibration == "online":
            self._online = OnlineCalibrator(measure=self.measure or Measure(), fingerprint=self._source.fingerprint())
        elif isinstance(self.calibration, Path):
            self._calibration = load_calibration(self.calibration)
        elif isinstance(self.calibration, Calibration):
            self._calibration = self.calibration
        if self._calibration and not self.allow_fingerprint_mismatch:
            check_fingerprint(self._calibration, self._source.fingerprint())
        return self

    if not TYPE_CHECKING:  # type checkers see the signature pydantic makes from the fields

        def __init__(self, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise _explained(error) from None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> "ReASCRunnable":
        """A copy that shares the model and what ``"online"`` has learned."""
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the configuration only: ``"online"`` starts anew, so save :attr:`learned` to keep it."""
        return _remade, (type(self), {name: getattr(self, name) for name in self.model_fields_set})

    @classmethod
    def get_lc_namespace(cls) -> list[str]:
        """Where LangChain's serialization finds the class."""
        return ["langchain_reasc", "runnable"]

    @property
    def learned(self) -> Calibration | None:
        """The calibration in use: what ``"online"`` has learned so far can be saved, and given to the next process."""
        return self._online.calibration if self._online else self._calibration

    def invoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> AIMessage:
        """The winning response.

        Args:
            input: whatever the chat model takes: a string, messages, a prompt value.
            config: callbacks, tags, metadata, run name.
            **kwargs: passed to every call of the model.

        Raises:
            SamplingError: no sample could be drawn.
            LogprobsUnavailable: a calibration needs logprobs and the model returned none.
            FingerprintMismatch: the calibration was made with other system messages.
        """
        return self._call_with_config(self._answer, input, config, run_type="chain", **kwargs)

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """The asynchronous :meth:`invoke`."""
        return await self._acall_with_config(self._aanswer, input, config, run_type="chain", **kwargs)

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
        traced: Any = self._call_with_config
        result: ReASCResult = traced(self._solve, input, config, run_type="chain", on_response=on_response, **kwargs)
        return result

    async def asolve(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        on_response: ResponseListener | None = None,
        **kwargs: Any,
    ) -> ReASCResult:
        """The asynchronous :meth:`solve`."""
        traced: Any = self._acall_with_config
        run = traced(self._asolve, input, config, run_type="chain", on_response=on_response, **kwargs)
        result: ReASCResult = await run
        return result

    def _transductive(self, kwargs: dict[str, Any]) -> tuple[Source, Measure] | None:
        if self._online is None:
            return None
        return self._source.bind(kwargs), self._online.measure

    def _answer(
        self, input: LanguageModelInput, run_manager: CallbackManagerForChainRun, config: RunnableConfig, **kwargs: Any
    ) -> AIMessage:
        return self._solve(input, run_manager, config, **kwargs).message

    async def _aanswer(
        self,
        input: LanguageModelInput,
        run_manager: AsyncCallbackManagerForChainRun,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> AIMessage:
        return (await self._asolve(input, run_manager, config, **kwargs)).message

    def _solve(
        self,
        input: LanguageModelInput,
        run_manager: CallbackManagerForChainRun,
        config: RunnableConfig,
        *,
        on_response: ResponseListener | None = None,
        start: TransductiveStart | None = None,
        **kwargs: Any,
    ) -> ReASCResult:
        messages = to_messages(input)
        source = self._source.bind(kwargs)
        course = self._deliberation(source, messages, config, start, on_response)
        below = patch_config(config, callbacks=run_manager.get_child())
        while indices := course.next_wave():
            stop = threading.Event()
            with closing(wave(source, messages, indices, below, stop)) as samples:
                for sample in samples:
                    if course.add(sample):
                        stop.set()
        return self._learn(course)

    async def _asolve(
        self,
        input: LanguageModelInput,
        run_manager: AsyncCallbackManagerForChainRun,
        config: RunnableConfig,
        *,
        on_response: ResponseListener | None = None,
        start: TransductiveStart | None = None,
        **kwargs: Any,
    ) -> ReASCResult:
        messages = to_messages(input)
        source = self._source.bind(kwargs)
        course = self._deliberation(source, messages, config, start, on_response)
        below = patch_config(config, callbacks=run_manager.get_child())
        while indices := course.next_wave():
            stop = threading.Event()
            async with aclosing(awave(source, messages, indices, below, stop)) as samples:
                async for sample in samples:
                    if course.add(sample):
                        stop.set()
        return await asyncio.to_thread(self._learn, course) if self._online else course.result()  # it may fit a mixture

    def _deliberation(
        self,
        source: Source,
        messages: list[BaseMessage],
        config: RunnableConfig,
        start: TransductiveStart | None,
        on_response: ResponseListener | None,
    ) -> Deliberation:
        if self._calibration and not self.allow_fingerprint_mismatch:
            check_fingerprint(self._calibration, source.fingerprint(messages))
        current = start.calibration if start else self.learned
        rule, notices = self._rule(current)
        course = Deliberation(
            rule,
            extract=self._extract,
            measure=current.measure if current else self._online.measure if self._online else None,
            max_samples=self.max_samples,
            concurrency=min(self.concurrency, config.get("max_concurrency") or self.concurrency),
            required=self.on_missing_confidence == "error" and not self._counts(current),
            notices=start.notices if start else notices,
            on_response=on_response,
        )
        if start and start.sample.status == "complete":
            course.add(start.sample)
        return course

    def _counts(self, calibration: Calibration | None) -> bool:
        """Whether votes are counted, whatever the confidence, and go on being so."""
        return self.calibration is None or bool(calibration and calibration.fallback)

    def _rule(self, calibration: Calibration | None) -> tuple[StoppingRule, tuple[str, ...]]:
        if calibration is None:
            why = "online calibration has seen too few responses yet" if self._online else "no calibration"
            return ASC(self.confidence), (f"{why}: counting votes (ASC)",)
        rule = calibration.rule(confidence=self.confidence, on_missing_confidence=self.on_missing_confidence)
        if calibration.fallback:
            return rule, (f"counting votes (ASC): {calibration.fallback}",)
        if calibration.gate.closed_because:
            return rule, (f"the gate is closed: {calibration.gate.closed_because}",)
        return rule, ()

    def _learn(self, course: Deliberation) -> ReASCResult:
        result = course.result()
        if self._online and course.first_score is not None:
            self._online.observe(course.first_score)
        return result


def _remade(kind: type[ReASCRunnable], fields: dict[str, Any]) -> ReASCRunnable:
    return kind(**fields)


def _explained(error: ValidationError) -> ConfigurationError:
    """Pydantic's findings, a line each."""
    return ConfigurationError(
        "; ".join(
            f"{'.'.join(map(str, found['loc']))}: {found['msg']}, got {found['input']!r}"
            if found["loc"]
            else found["msg"].removeprefix("Value error, ")
            for found in error.errors(include_url=False)
        )
    )
