"""The options of :class:`~langchain_reasc.ReASCMiddleware`, checked when it is made: before an agent runs."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.outputs import ChatResult

from langchain_reasc.agents.chat_model import ChatReASC
from langchain_reasc.answers import AnswerSpec, ToolVotes
from langchain_reasc.calibration import Calibration, ConsensusCalibrator, FixedPrompt, MixtureCalibrator, Safeguard
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import StoppingRule
from langchain_reasc.runnable.setup import LEARNING

__all__ = ["VoteOptions", "checked_names", "checked_options"]


class VoteOptions(TypedDict, total=False):
    """The options of :class:`~langchain_reasc.ChatReASC`, with the meaning and the defaults that they have there."""

    calibration: Calibration | Literal["online", "mixture"] | str | Path | None
    rule: StoppingRule | None
    max_samples: int
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
    token_budget: int | None
    time_budget: float | None
    ask_confidence: bool
    measure: Measure | None
    online_state: str | Path | None
    audit: float
    calibrator: MixtureCalibrator | ConsensusCalibrator | None


class _AnyModel(BaseChatModel):
    """Stands where the agent's model will, which nobody knows yet."""

    @property
    def _llm_type(self) -> str:
        return "any"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        raise NotImplementedError("stands for a model, and is never called")


def checked_options(given: VoteOptions) -> tuple[dict[str, Any], ChatReASC]:
    """The options, with a calibration read from its file, and how a model is set up with them.

    Raises:
        ConfigurationError: one that does not exist, or a value that it cannot have.
        CalibrationFileError: the calibration's file cannot be read.
    """
    options: dict[str, Any] = dict(given)
    if unknown := options.keys() - VoteOptions.__annotations__.keys():
        raise ConfigurationError(
            f"unknown: {', '.join(sorted(unknown))}; besides its own, ReASCMiddleware takes the options of ChatReASC "
            f"but its model: {', '.join(VoteOptions.__annotations__)}"
        )
    trial = ChatReASC(model=_AnyModel(), **options | {"allow_fingerprint_mismatch": True})
    if options.get("calibration") not in (None, *LEARNING):
        options["calibration"] = trial.learned
    return options, trial


def checked_names(given: Collection[str]) -> frozenset[str]:
    """The names of tools.

    Raises:
        ConfigurationError: they are none.
    """
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise ConfigurationError(f"read_only takes names of tools, such as ['search', 'get_weather'], got {given!r}")
    return frozenset(given)
