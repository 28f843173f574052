"""ReASC: reliability-aware adaptive self-consistency as a LangChain Runnable.

``prompt | ReASCRunnable(model=llm, calibration="calibration.json") | parser`` gives a
more reliable answer for fewer tokens: it samples the model, reads how confident it was,
and stops as soon as the evidence is sufficient.
"""

from typing import TYPE_CHECKING, Final

from langchain_reasc._lazy import lazy_names
from langchain_reasc._version import __version__

if TYPE_CHECKING:
    from langchain_reasc.agents.chat_model import ChatReASC
    from langchain_reasc.agents.middleware import ReASCMiddleware
    from langchain_reasc.calibration import (
        Calibration,
        calibrate_mixture,
        calibrate_offline,
        load_calibration,
        save_calibration,
    )
    from langchain_reasc.exceptions import ReASCError
    from langchain_reasc.method.confidence import Measure
    from langchain_reasc.method.horizon import CannotCatchUp, FiniteHorizon
    from langchain_reasc.method.stopping import (
        ASC,
        ESC,
        Cap,
        Decision,
        FixedBudget,
        Lead,
        ReASC,
        Response,
        decide,
    )
    from langchain_reasc.models.integrations import Integration, register_integration
    from langchain_reasc.models.payloads import register_reader
    from langchain_reasc.runnable import (
        ReASCAnswerParser,
        ReASCResult,
        ReASCRunnable,
        SampledResponse,
    )
    from langchain_reasc.runnable.calibrate import acalibrate, calibrate
    from langchain_reasc.runnable.options import Escalation, Online

__all__ = [
    "ASC",
    "ESC",
    "Calibration",
    "CannotCatchUp",
    "Cap",
    "ChatReASC",
    "Decision",
    "Escalation",
    "FiniteHorizon",
    "FixedBudget",
    "Integration",
    "Lead",
    "Measure",
    "Online",
    "ReASC",
    "ReASCAnswerParser",
    "ReASCError",
    "ReASCMiddleware",
    "ReASCResult",
    "ReASCRunnable",
    "Response",
    "SampledResponse",
    "__version__",
    "acalibrate",
    "calibrate",
    "calibrate_mixture",
    "calibrate_offline",
    "decide",
    "load_calibration",
    "register_integration",
    "register_reader",
    "save_calibration",
]

_LAZY: Final = {
    "agents.chat_model": "ChatReASC",
    "agents.middleware": "ReASCMiddleware",
    "calibration": "Calibration calibrate_mixture calibrate_offline load_calibration save_calibration",
    "exceptions": "ReASCError",
    "method.confidence": "Measure",
    "method.horizon": "CannotCatchUp FiniteHorizon",
    "method.stopping": "ASC ESC Cap Decision FixedBudget Lead ReASC Response decide",
    "models.integrations": "Integration register_integration",
    "models.payloads": "register_reader",
    "runnable.calibrate": "acalibrate calibrate",
    "runnable.options": "Escalation Online",
    "runnable": "ReASCAnswerParser ReASCResult ReASCRunnable SampledResponse",
}
"""Module -> names that are imported from it when they are asked for: a backend alone
needs few of them, and not everybody has the packages that agents are made with.
"""

if not TYPE_CHECKING:  # type checkers would take any name for one of ours
    __getattr__, __dir__ = lazy_names(__name__, _LAZY)
