"""What one step of the engine does."""

from dataclasses import dataclass, field

from langchain_reasc_llama_cpp.engine.sequences import Prefill, Sequence, SequenceGroup

__all__ = ["Plan"]


@dataclass(slots=True)
class Plan:
    """What one step does, in this order.

    Attributes:
        starting: samples that first draw a token from their prompt's logits, which needs no decode.
        rows: samples that decode one token each, in the order of their rows; those that are starting among them.
        chunks: pieces of prompts, or of what preempted samples had generated, each with its size.
        preempted: samples, and prompts on their way, that gave their cells back for this step.
        failed: a request that does not fit even alone; whoever runs the plan removes it.
    """

    starting: list[Sequence] = field(default_factory=list)
    rows: list[Sequence] = field(default_factory=list)
    chunks: list[tuple[Prefill, int]] = field(default_factory=list)
    preempted: list[Sequence | SequenceGroup] = field(default_factory=list)
    failed: list[SequenceGroup] = field(default_factory=list)
