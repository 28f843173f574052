"""Token signals of every generated token, computed over blocks of logits rows."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from langchain_reasc.token_signals import signals_from_logits

__all__ = ["SignalBuffers", "SignalRecorder", "SignalSink"]

_BLOCK_BYTES = 1 << 20


class SignalSink(Protocol):
    """Whoever the signals belong to."""

    index: int
    signals: list[npt.NDArray[np.floating[Any]]]
    """Pieces of shape (number of signals, tokens), in the order of the tokens."""


class SignalBuffers:
    """Memory for logits rows and for working on them, allocated once per context.

    With a small vocabulary numpy's cost is per call, so rows are gathered into a block of about 1 MB first; with a
    large one it is per value, and the rows are read where llama.cpp left them.

    Attributes:
        block: shape (rows, V), or None where blocks would not pay.
        scratch: shape (at least n_slots, V).
    """

    def __init__(self, n_slots: int, vocabulary_size: int) -> None:
        rows = _BLOCK_BYTES // (4 * vocabulary_size)
        gathers = rows >= 2 * n_slots
        self.block = np.empty((rows, vocabulary_size), dtype=np.float32) if gathers else None
        self.scratch = np.empty((max(rows, n_slots), vocabulary_size), dtype=np.float32)


class SignalRecorder:
    """Turns logits and drawn tokens into signals, and hands them to the sequences they belong to."""

    def __init__(self, buffers: SignalBuffers, signals: Sequence[str], k: int) -> None:
        self._buffers = buffers
        self._names, self._k = tuple(signals), min(k, buffers.scratch.shape[1])
        self._chosen: list[int] = []
        self._owners: list[SignalSink] = []

    def record(self, logits: npt.NDArray[np.float32], chosen: Sequence[int], owners: Sequence[SignalSink]) -> None:
        """Take one row of logits per owner.

        Args:
            logits: shape (n, V); may be overwritten once this returns.
            chosen: the n tokens drawn.
            owners: the n sequences they were drawn for.

        Raises:
            ConfidenceError: a signal is not finite.
        """
        if not self._names:
            return
        block = self._buffers.block
        if block is None:
            self._hand_out(logits, chosen, owners)
            return
        filled = len(self._chosen)
        if filled + len(chosen) > len(block):
            self.flush()
            filled = 0
        block[filled : filled + len(chosen)] = logits
        self._chosen.extend(chosen)
        self._owners.extend(owners)

    def flush(self) -> None:
        """Compute what was gathered; afterwards every owner has all its signals."""
        if self._chosen and self._buffers.block is not None:
            chosen, owners = self._chosen, self._owners
            self._chosen, self._owners = [], []
            self._hand_out(self._buffers.block[: len(chosen)], chosen, owners)

    def result(self, owner: SignalSink) -> dict[str, list[float]]:
        """Signal name -> one float per token of this sequence, after :meth:`flush`."""
        if not owner.signals:
            return {name: [] for name in self._names}
        rows = np.concatenate(owner.signals, axis=1)
        return {name: rows[i].tolist() for i, name in enumerate(self._names)}

    def _hand_out(self, logits: npt.NDArray[np.float32], chosen: Sequence[int], owners: Sequence[SignalSink]) -> None:
        found = signals_from_logits(
            logits,
            np.asarray(chosen, dtype=np.intp),
            signals=self._names,
            k=self._k,
            scratch=self._buffers.scratch,
        )
        values = np.array([found[name] for name in self._names])
        whose = np.fromiter((owner.index for owner in owners), dtype=np.int64, count=len(owners))
        for owner in {owner.index: owner for owner in owners}.values():
            owner.signals.append(values[:, whose == owner.index])
