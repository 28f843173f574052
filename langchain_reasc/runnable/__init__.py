"""The LangChain face of the method: :class:`ReASCRunnable` and what it answers with."""

from langchain_reasc.runnable.calibrate import acalibrate, calibrate
from langchain_reasc.runnable.calibrate_unlabelled import acalibrate_unlabelled, calibrate_unlabelled
from langchain_reasc.runnable.parser import ReASCAnswerParser
from langchain_reasc.runnable.result import ReASCResult, SampledResponse
from langchain_reasc.runnable.runnable import ReASCRunnable

__all__ = [
    "ReASCAnswerParser",
    "ReASCResult",
    "ReASCRunnable",
    "SampledResponse",
    "acalibrate",
    "acalibrate_unlabelled",
    "calibrate",
    "calibrate_unlabelled",
]
