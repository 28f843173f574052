"""The LangChain interface: :class:`ReASCRunnable` and its results."""

from langchain_reasc.runnable.account import ReASCAnswerParser
from langchain_reasc.runnable.result import ReASCResult, SampledResponse
from langchain_reasc.runnable.runnable import ReASCRunnable

__all__ = ["ReASCAnswerParser", "ReASCResult", "ReASCRunnable", "SampledResponse"]
