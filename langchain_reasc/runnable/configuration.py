"""What a ``ReASCRunnable`` is configured with: its options, their checks, and the rule they stand for."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import Runnable
from pydantic import ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from langchain_reasc.answers import AnswerSpec, Extractor, extractor
from langchain_reasc.calibration import Calibration, OnlineCalibrator, check_fingerprint, load_calibration
from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import ASC, DEFAULT_BUDGET, DEFAULT_CONFIDENCE, StoppingRule
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.runnable.online_batch import TransductiveBatch
from langchain_reasc.sampling.time_limit import QuestionClock

__all__ = ["Configured"]


class Configured(TransductiveBatch):
    """The options of :class:`~langchain_reasc.runnable.ReASCRunnable`, checked and prepared when it is made."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: Runnable[LanguageModelInput, Any]
    """A chat model (or a binding of one). Best is one that returns logprobs; it must sample (temperature above 0)."""
    calibration: Calibration | Literal["online"] | str | Path | None = None
    """A calibration, the path of one, ``"online"`` to learn without labels, or None to count votes (ASC)."""
    max_samples: int = Field(default=DEFAULT_BUDGET, ge=1)
    """Samples per question at most."""
    answer: AnswerSpec = "auto"
    """Where the answer is in a response: see :func:`langchain_reasc.answers.extractor`."""
    concurrency: int = Field(default=4, ge=1)
    """Samples launched at once (a wave). 1 spends the fewest tokens, ``max_samples`` takes the least time. While an
    open gate may accept the first response, that one is launched alone. ``config["max_concurrency"]`` lowers it."""
    confidence: float = Field(default=DEFAULT_CONFIDENCE, gt=0.5, lt=1)
    """C_threshold: the posterior at which the evidence is sufficient."""
    on_missing_confidence: Literal["error", "count"] = "error"
    """What to do with a response without logprobs where a calibration needs them: refuse, or count it as one vote."""
    sample_timeout: float | None = Field(default=None, gt=0)
    """Seconds a sample may take from its launch. One that takes longer has failed, which costs only itself."""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds a question may take. Then what still runs is cut off, and the responses that have ended decide."""
    allow_fingerprint_mismatch: bool = False
    """Use a calibration that was measured on another model, prompt or sampling."""
    measure: Measure | None = None
    """How ``calibration="online"`` scores a response; None for the paper's (self-certainty, bottom 10 %, W = 128)."""

    _calibration: Calibration | None = PrivateAttr(None)
    _online: OnlineCalibrator | None = PrivateAttr(None)
    _extract: Extractor = PrivateAttr()
    _source: PreparedModel = PrivateAttr()

    @model_validator(mode="after")
    def _prepare(self) -> Self:
        self._extract = extractor(self.answer)
        if self.measure is not None and self.calibration != "online":
            raise ConfigurationError(
                f"measure={str(self.measure)!r} goes with calibration='online'; a calibration brings its own, and "
                "without one no confidence is read"
            )
        self._source = PreparedModel.of(self.model, logprobs=self.calibration is not None)
        if self.calibration == "online":
            self._online = OnlineCalibrator(measure=self.measure or Measure(), fingerprint=self._source.fingerprint())
        elif isinstance(self.calibration, str | Path):
            self._calibration = load_calibration(self.calibration)
        elif isinstance(self.calibration, Calibration):
            self._calibration = self.calibration
        if self._calibration and not self.allow_fingerprint_mismatch:
            check_fingerprint(self._calibration, self._source.fingerprint())
        self._require_confidence()
        return self

    if not TYPE_CHECKING:  # type checkers see the signature pydantic makes from the fields

        def __init__(self, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise _explained(error) from None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """A copy that shares the model and what ``"online"`` has learned."""
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the configuration only: ``"online"`` starts anew, so save :attr:`learned` to keep it."""
        return _remade, (type(self), {name: getattr(self, name) for name in self.model_fields_set})

    @property
    def learned(self) -> Calibration | None:
        """The calibration in use: what ``"online"`` has learned so far can be saved, and given to the next process."""
        return self._online.calibration if self._online else self._calibration

    def _transductive(self, kwargs: dict[str, Any]) -> tuple[PreparedModel, Measure] | None:
        if self._online is None:
            return None
        return self._source.bind(kwargs), self._online.measure

    def _clock(self) -> QuestionClock:
        return QuestionClock(question=self.timeout, sample=self.sample_timeout)

    def _require_confidence(self) -> None:
        """Say before anything is paid for that a model gives none."""
        why = self._source.no_logprobs
        if why and self.on_missing_confidence == "error" and not self._counts(self._calibration):
            raise LogprobsUnavailable(f"{why}; or count votes with on_missing_confidence='count'")

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


def _remade(kind: type[Configured], fields: dict[str, Any]) -> Configured:
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
