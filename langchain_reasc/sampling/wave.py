"""A wave: the samples of one prompt that are drawn at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.concurrency import THREADS, Concurrency
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.sampling.clock import TimeLimit
from langchain_reasc.sampling.cutoff import Cutoff


@dataclass(frozen=True)
class Wave:
    """What :func:`~langchain_reasc.sampling.samples` draws, and how it is stopped.

    Attributes:
        model: what is sampled.
        messages: the prompt.
        indices: which samples, by their place in launch order.
        config: the config of the run above the samples' own.
        limit: how long they may take.
        cutoff: how they are stopped, or given up.
        ended: called when a sample has ended, in any thread, whether or not somebody
            reads it.
        io: whether threads draw them, or tasks of an event loop.
    """

    model: PreparedModel
    messages: list[BaseMessage]
    indices: Sequence[int]
    config: RunnableConfig
    limit: TimeLimit | None = None
    cutoff: Cutoff = field(default_factory=Cutoff)
    ended: Callable[[], object] = lambda: None
    io: Concurrency = THREADS
