"""A wave: a handful of samples of one prompt, drawn at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.models.cutoff import Cutoff
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.sampling.time_limit import TimeLimit

__all__ = ["Wave"]


@dataclass(frozen=True)
class Wave:
    """What is drawn by :func:`~langchain_reasc.sampling.drawn`, and how it is stopped.

    Attributes:
        model: what is sampled.
        messages: the prompt.
        indices: which samples, by their place in launch order.
        config: the config of the run above the samples' own.
        limit: how long they may take.
        cutoff: how they are stopped, or given up.
        ended: told the index of each that has ended, in any thread, whether or not somebody reads it.
    """

    model: PreparedModel
    messages: list[BaseMessage]
    indices: Sequence[int]
    config: RunnableConfig
    limit: TimeLimit | None = None
    cutoff: Cutoff = field(default_factory=Cutoff)
    ended: Callable[[int], object] = lambda index: None
