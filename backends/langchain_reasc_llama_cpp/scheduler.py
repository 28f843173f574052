"""Which sequences are live: who joins the batch, who leaves it, who has to wait for room."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_reasc_llama_cpp.sampler import SamplerChain
from langchain_reasc_llama_cpp.text import TextAssembler

__all__ = ["Scheduler", "Sequence"]


@dataclass(eq=False)
class Sequence:
    """One sample being generated.

    Attributes:
        index: of the sample.
        seed: it is drawn with.
        text: its text so far.
        tokens: generated so far; the last one is not in the KV cache yet.
        signals: pieces of its token signals.
        sampler: its chain; None until it first joins.
        slot: its sequence id in the KV cache; None until it first joins.
    """

    index: int
    seed: int
    text: TextAssembler
    tokens: list[int] = field(default_factory=list)
    signals: list[npt.NDArray[np.floating[Any]]] = field(default_factory=list)
    sampler: SamplerChain | None = None
    slot: int | None = None


class Scheduler:
    """Gives slots and KV cells to sequences, first come first served.

    The cache is not reserved for the worst case. When it is full the youngest live sequence gives its cells back and
    waits, keeping its tokens and its sampler, so it goes on later where it was; the oldest always runs, so all end.

    Attributes:
        live: sequences in the batch, in the order they joined.
        waiting: sequences that have no slot.
    """

    def __init__(self, sequences: Iterable[Sequence], *, n_slots: int, cells: int, prompt: int) -> None:
        """Queue sequences that continue one prompt.

        Args:
            sequences: in the order they should run.
            n_slots: sequences decoded together at most.
            cells: tokens the KV cache holds.
            prompt: tokens of the prompt, which all sequences share.
        """
        self.waiting = deque(sequences)
        self.live: list[Sequence] = []
        self._free_slots = list(range(n_slots, 0, -1))
        self._room = cells - prompt

    @property
    def busy(self) -> bool:
        """Whether any sequence is live or waits."""
        return bool(self.live or self.waiting)

    def admit(self) -> list[Sequence]:
        """Move waiting sequences into free slots, as far as there is room; returns those that joined."""
        joined: list[Sequence] = []
        while self.waiting and self._free_slots and self._fits(self.waiting[0]):
            sequence = self.waiting.popleft()
            sequence.slot = self._free_slots.pop()
            self.live.append(sequence)
            joined.append(sequence)
        return joined

    def release(self, sequence: Sequence) -> None:
        """Take a sequence out of the batch; its slot is free at once."""
        self.live.remove(sequence)
        assert sequence.slot is not None
        self._free_slots.append(sequence.slot)

    def step_fits(self) -> bool:
        """Whether the cache can take one more token of every live sequence."""
        return self._needed() <= self._room

    def set_back(self) -> Sequence | None:
        """Make the youngest live sequence wait for room; None when only one is left."""
        if len(self.live) < 2:
            return None
        youngest = max(self.live, key=lambda sequence: sequence.index)
        self.release(youngest)
        self.waiting.appendleft(youngest)  # it fits again only when another has ended, and nobody passes it
        return youngest

    def _fits(self, sequence: Sequence) -> bool:
        if not self.live:
            return True
        return self._needed() + len(sequence.tokens) + 1 <= self._room

    def _needed(self) -> int:
        return sum(max(1, len(sequence.tokens)) for sequence in self.live)
