"""ReASC: reliability-aware adaptive self-consistency as a LangChain Runnable.

``prompt | ReASCRunnable(model=llm, calibration="calibration.json") | parser`` gives a more reliable answer for fewer
tokens: it samples the model, reads how confident it was, and stops as soon as the evidence is sufficient.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from langchain_reasc._version import __version__
from langchain_reasc.calibration import (
    Calibration,
    calibrate_mixture,
    calibrate_offline,
    load_calibration,
    save_calibration,
)
from langchain_reasc.exceptions import ReASCError
from langchain_reasc.method.bayesian_vote import BayesianVote
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.horizon import CannotCatchUp, FiniteHorizon
from langchain_reasc.method.stopping import ASC, ESC, Cap, Decision, FixedBudget, ReASC, Response, decide
from langchain_reasc.models.integrations import Integration, register_integration
from langchain_reasc.models.logprobs import register_reader
from langchain_reasc.runnable import (
    ReASCAnswerParser,
    ReASCResult,
    ReASCRunnable,
    SampledResponse,
    acalibrate,
    acalibrate_unlabelled,
    calibrate,
    calibrate_unlabelled,
)

if TYPE_CHECKING:
    from langchain_reasc.agents.chat_model import ChatReASC
    from langchain_reasc.agents.decision_model import ReASCDecisionModel
    from langchain_reasc.agents.middleware import ReASCMiddleware

__all__ = [
    "ASC",
    "ESC",
    "BayesianVote",
    "Calibration",
    "CannotCatchUp",
    "Cap",
    "ChatReASC",
    "Decision",
    "FiniteHorizon",
    "FixedBudget",
    "Integration",
    "Measure",
    "ReASC",
    "ReASCAnswerParser",
    "ReASCDecisionModel",
    "ReASCError",
    "ReASCMiddleware",
    "ReASCResult",
    "ReASCRunnable",
    "Response",
    "SampledResponse",
    "__version__",
    "acalibrate",
    "acalibrate_unlabelled",
    "calibrate",
    "calibrate_mixture",
    "calibrate_offline",
    "calibrate_unlabelled",
    "decide",
    "load_calibration",
    "register_integration",
    "register_reader",
    "save_calibration",
]

_LAZY: Final = {
    "ChatReASC": "langchain_reasc.agents.chat_model",
    "ReASCDecisionModel": "langchain_reasc.agents.decision_model",
    "ReASCMiddleware": "langchain_reasc.agents.middleware",
}
"""What is imported when it is asked for: not everybody has agents, and the packages that those are made with."""

if not TYPE_CHECKING:  # type checkers would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_LAZY[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
