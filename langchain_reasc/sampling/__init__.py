"""Draw samples from a chat model in waves, cancellable, with every token counted.

A :class:`Wave` is a handful of samples of one prompt drawn at once; :func:`samples`
yields them in order of completion. It is written once, as coroutines; a synchronous
call runs them in its own thread: see :func:`langchain_reasc.threads.blocking`.
"""

from langchain_reasc.sampling.clock import QuestionClock
from langchain_reasc.sampling.cutoff import Cutoff, within
from langchain_reasc.sampling.drawing import draw_samples, samples
from langchain_reasc.sampling.in_flight import checked_limit, take_slots
from langchain_reasc.sampling.response import SampledResponse
from langchain_reasc.sampling.tracing import TracedRun
from langchain_reasc.sampling.wave import Wave

__all__ = [
    "Cutoff",
    "QuestionClock",
    "SampledResponse",
    "TracedRun",
    "Wave",
    "checked_limit",
    "draw_samples",
    "samples",
    "take_slots",
    "within",
]
