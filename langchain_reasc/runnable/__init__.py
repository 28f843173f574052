"""The LangChain interface: :class:`ReASCRunnable` and its results."""

from langchain_reasc.runnable.message_metadata import ReASCAnswerParser
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.runnable.runnable import ReASCRunnable
from langchain_reasc.sampling import SampledResponse

__all__ = ["ReASCAnswerParser", "ReASCResult", "ReASCRunnable", "SampledResponse"]
