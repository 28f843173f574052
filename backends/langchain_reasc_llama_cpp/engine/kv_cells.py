"""Who holds which cells of the KV cache: sequences, and the prefixes they share."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["KvCells", "KvMemory", "Slot", "State"]

State = npt.NDArray[np.uint8]
"""What a sequence's cells hold, in llama.cpp's own format."""


class KvMemory(Protocol):
    """What llama.cpp itself does to the KV cache."""

    def share(self, source: int, target: int, length: int) -> None:
        """Let a sequence begin with the first tokens of another: their cells are shared, not copied."""

    def forget(self, sequence: int) -> None:
        """Free what one sequence alone holds."""

    def clear(self) -> None:
        """Forget every sequence."""

    def save(self, sequence: int) -> State:
        """A copy of what a sequence holds."""

    def restore(self, sequence: int, state: State) -> bool:
        """Put a copy back, into cells of its own; False when llama.cpp cannot."""


@dataclass(eq=False, slots=True)
class Run:
    """Neighbouring cells that the same sequences hold: ``ref_count`` of them."""

    size: int
    ref_count: int = 1


@dataclass(eq=False, slots=True)
class Slot:
    """One sequence of the KV cache.

    Attributes:
        id: llama.cpp's sequence id.
        runs: the cells of the sequence, in the order of positions.
    """

    id: int
    runs: list[Run] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens it holds."""
        return sum(run.size for run in self.runs)


class KvCells:
    """Opens and closes sequences, and counts cells exactly: llama.cpp does not tell how many are free.

    Attributes:
        capacity: how many cells there are.
        used: how many cells somebody holds.
    """

    def __init__(self, memory: KvMemory, *, capacity: int, n_sequences: int) -> None:
        self._memory = memory
        self.capacity, self.used = capacity, 0
        self._free = list(range(n_sequences - 1, -1, -1))
        self._open: set[Slot] = set()

    @property
    def room(self) -> int:
        """Free cells."""
        return self.capacity - self.used

    @property
    def sequences_left(self) -> int:
        """How many more can be opened."""
        return len(self._free)

    def open(self, parent: Slot | None = None, length: int = 0) -> Slot:
        """A new sequence that begins with the first ``length`` tokens of its parent; this takes no cells."""
        slot = Slot(self._free.pop())
        self._open.add(slot)
        if parent is not None and length:
            for run in self._first(parent, length):
                run.ref_count += 1
                slot.runs.append(run)
            self._memory.share(parent.id, slot.id, -1 if length == parent.length else length)
        return slot

    def grow(self, *slots: Slot, tokens: int = 1) -> None:
        """Count so many tokens that were decoded into each of these sequences."""
        self.used += tokens * len(slots)
        for slot in slots:
            runs = slot.runs
            if runs and runs[-1].ref_count == 1:
                runs[-1].size += tokens
            else:
                runs.append(Run(tokens))

    def close(self, slot: Slot) -> None:
        """Forget a sequence; cells that others hold too stay."""
        self._open.remove(slot)
        self._free.append(slot.id)
        for run in slot.runs:
            run.ref_count -= 1
            if not run.ref_count:
                self.used -= run.size
        slot.runs.clear()
        self._memory.forget(slot.id)

    def save(self, slot: Slot) -> State:
        """A copy of what a sequence holds, in the machine's main memory."""
        return self._memory.save(slot.id)

    def restore(self, state: State, tokens: int) -> Slot | None:
        """A new sequence with the tokens of a copy; None when llama.cpp cannot take it."""
        slot = self.open()
        if not self._memory.restore(slot.id, state):
            self.close(slot)
            return None
        self.grow(slot, tokens=tokens)
        return slot

    def clear(self) -> None:
        """Forget every sequence, after a decode that failed half-way."""
        for slot in list(self._open):
            self._free.append(slot.id)
            slot.runs.clear()
        self._open.clear()
        self.used = 0
        self._memory.clear()

    def _first(self, slot: Slot, length: int) -> Iterable[Run]:
        """The runs that hold the first tokens of a sequence, cut so that they hold no more."""
        taken: list[Run] = []
        for run in list(slot.runs):
            if not length:
                break
            if run.size > length:
                self._cut(run, length)
            taken.append(run)
            length -= run.size
        return taken

    def _cut(self, run: Run, at: int) -> None:
        rest = Run(run.size - at, run.ref_count)
        run.size = at
        for slot in self._open:
            if run in slot.runs:
                slot.runs.insert(slot.runs.index(run) + 1, rest)
