"""A wave: the samples of one prompt that are drawn at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.sampling.cutoff import Cutoff
from langchain_reasc.sampling.limits import TimeLimit


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
    """

    model: PreparedModel
    messages: list[BaseMessage]
    indices: Sequence[int]
    config: RunnableConfig
    limit: TimeLimit | None = None
    cutoff: Cutoff = field(default_factory=Cutoff)
    ended: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Sample:
    """One drawn sample.

    Attributes:
        index: its place in launch order, from 0.
        message: what the model said; partial when cancelled, None when it failed before
            the first token.
        status: ``complete``, ``cancelled`` (cut off once the decision had fallen) or
            ``failed``.
        error: what a failed sample raised.
        seconds: from the launch of its wave to its end, where that was timed.
    """

    index: int
    message: AIMessage | None
    status: Literal["complete", "cancelled", "failed"] = "complete"
    error: Exception | None = None
    seconds: float | None = None
