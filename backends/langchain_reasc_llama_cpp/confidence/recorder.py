"""Token signals and log-probabilities of every generated token, found over blocks of logits rows."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from langchain_reasc_backend.logits import CHUNK

from langchain_reasc.exceptions import ConfidenceError
from langchain_reasc_llama_cpp.confidence.measurement import Measured, Wanted, measure, wants
from langchain_reasc_llama_cpp.confidence.token_logprobs import LogprobWriter, TokenLogprobs
from langchain_reasc_llama_cpp.native.model import NativeModel

__all__ = ["Owner", "Recorder", "Wanted", "wants"]

Rows = npt.NDArray[np.float32]

_GATHERED: Final = CHUNK // 16  # vocabularies up to here: numpy costs per call, so rows are gathered
_AHEAD: Final = 1  # blocks that may be with the worker thread while another fills


class Owner(Protocol):
    """The sequence that a row of logits belongs to, told from others by identity."""

    wanted: Wanted
    signals: list[npt.NDArray[np.floating[Any]]]
    """Pieces of shape (number of signals, tokens), in the order of the tokens."""
    logprobs: list[dict[str, Any]]
    """Entries written so far, in the order of the tokens."""


OwnerT = TypeVar("OwnerT", bound=Owner)


@dataclass(slots=True)
class _Block(Generic[OwnerT]):
    """Rows that want the same, gathered; shape of ``rows``: (room, V)."""

    wanted: Wanted
    rows: Rows
    chosen: list[int] = field(default_factory=list)
    owners: list[OwnerT | None] = field(default_factory=list)


class Recorder(Generic[OwnerT]):
    """Finds what each sequence wants to know of its tokens. Used by one thread.

    With a small vocabulary rows are gathered into blocks, as numpy costs per call; with a large one they are read
    where llama.cpp left them. Overlapped, all rows are copied and a thread computes while the model decodes the next
    step: for models on a GPU, which leave the processor idle. The numbers are the same.

    A row that is not finite concerns its owner only: :meth:`record` and :meth:`flush` return such owners as they are
    found, and :meth:`signals` and :meth:`logprobs_since` raise for them.
    """

    def __init__(self, n_slots: int, model: NativeModel, *, overlapped: bool = False) -> None:
        """Allocate for ``n_slots`` rows at a time."""
        vocabulary = model.vocabulary_size
        self._gathers = vocabulary <= _GATHERED
        self._room = max(n_slots, CHUNK // vocabulary) if self._gathers else n_slots
        self._width = vocabulary
        self._scratch = np.empty((max(1, CHUNK // vocabulary), vocabulary), dtype=np.float32)
        self._writer = LogprobWriter(model)
        self._worker = ThreadPoolExecutor(1, "reasc-signals") if overlapped else None
        self._blocks: dict[Wanted, _Block[OwnerT]] = {}
        self._running: deque[tuple[_Block[OwnerT], Future[Measured]]] = deque()
        self._free: list[Rows] = []
        self._unwritten: dict[int, tuple[OwnerT, list[TokenLogprobs]]] = {}
        self._unsound: list[OwnerT] = []

    def record(self, logits: Rows, chosen: Sequence[int], owners: Sequence[OwnerT]) -> list[OwnerT]:
        """Take one row of logits per owner.

        Args:
            logits: shape (n, V), n at most ``n_slots``; may be overwritten once this returns.
            chosen: the n tokens drawn.
            owners: the n sequences they were drawn for; those whose ``wanted`` is false cost nothing.

        Returns:
            Owners whose logits turned out not to be finite, now or in an earlier step.

        Raises:
            ConfigurationError: an unknown signal, or its ``k`` is below 1.
        """
        first = owners[0].wanted if owners else None
        if first is not None and all(owner.wanted is first for owner in owners):
            self._take(first, logits, chosen, owners)
        else:
            start = 0
            for wanted, run in groupby(owners, key=attrgetter("wanted")):
                stop = start + len(list(run))
                self._take(wanted, logits[start:stop], chosen[start:stop], owners[start:stop])
                start = stop
        if self._worker is not None and not self._gathers:
            self._measure_blocks()
        return self._reported() if self._unsound else []

    def flush(self) -> list[OwnerT]:
        """Find what is gathered, or wait for it; afterwards every owner has all its numbers. Returns as `record`."""
        self._measure_blocks()
        while self._running:
            self._collect()
        return self._reported()

    def signals(self, owner: OwnerT) -> dict[str, list[float]]:
        """Signal name -> one float per token of this sequence, after :meth:`flush`.

        Raises:
            ConfidenceError: the model's logits were not finite.
        """
        names = owner.wanted.signals
        if not owner.signals:
            return {name: [] for name in names}
        rows = np.concatenate(owner.signals, axis=1)
        if not np.isfinite(rows).all():
            raise _not_finite()
        return dict(zip(names, rows.tolist(), strict=True))

    def logprobs_since(self, owner: OwnerT, start: int) -> list[dict[str, Any]] | None:
        """Entries of the tokens recorded so far, from the ``start``-th on; None where none were wanted.

        Flushes what wants the same.

        Raises:
            ConfidenceError: the model's logits were not finite.
        """
        if block := self._blocks.pop(owner.wanted, None):
            self._measure(block)
        while self._running:
            self._collect()
        if owner.wanted.logprobs is None:
            return None
        _, pieces = self._unwritten.get(id(owner), (owner, []))
        if not all(np.isfinite(piece.logprobs).all() for piece in pieces):
            raise _not_finite()
        self._unwritten.pop(id(owner), None)
        for piece in pieces:
            owner.logprobs.extend(self._writer.entries(piece))
        return owner.logprobs[start:]

    def drop(self, owner: OwnerT) -> None:
        """Forget all that was recorded for a sequence whose numbers nobody wants any more."""
        for block in (*self._blocks.values(), *(block for block, _ in self._running)):
            block.owners[:] = [None if each is owner else each for each in block.owners]
        self._unwritten.pop(id(owner), None)
        self._unsound = [each for each in self._unsound if each is not owner]
        owner.signals.clear()
        owner.logprobs.clear()

    def close(self) -> None:
        """End the worker thread. Closing twice does nothing."""
        if self._worker is not None:
            self._worker.shutdown()

    def _take(self, wanted: Wanted, logits: Rows, chosen: Sequence[int], owners: Sequence[OwnerT]) -> None:
        if not wanted:
            return
        if not self._gathers and self._worker is None:
            self._hand_out(measure(logits, chosen, wanted, self._scratch), owners)
            return
        block = self._blocks.get(wanted)
        if block is not None and len(block.chosen) + len(chosen) > self._room:
            self._measure(self._blocks.pop(wanted))
            block = None
        if block is None:
            block = self._blocks[wanted] = _Block(wanted, self._rows())
        filled = len(block.chosen)
        block.rows[filled : filled + len(chosen)] = logits
        block.chosen.extend(chosen)
        block.owners.extend(owners)

    def _rows(self) -> Rows:
        """Room for a block: reused, so there is never more than the different wants at one time, and those ahead."""
        while not self._free and len(self._running) >= _AHEAD:
            self._collect()
        return self._free.pop() if self._free else np.empty((self._room, self._width), dtype=np.float32)

    def _measure_blocks(self) -> None:
        blocks, self._blocks = self._blocks, {}
        for block in blocks.values():
            self._measure(block)

    def _measure(self, block: _Block[OwnerT]) -> None:
        work = (block.rows[: len(block.chosen)], block.chosen, block.wanted, self._scratch)
        if self._worker is not None:
            self._running.append((block, self._worker.submit(measure, *work)))
            return
        self._free.append(block.rows)
        self._hand_out(measure(*work), block.owners)

    def _collect(self) -> None:
        """Wait for the worker's oldest block."""
        block, future = self._running.popleft()
        self._free.append(block.rows)
        self._hand_out(future.result(), block.owners)

    def _hand_out(self, measured: Measured, owners: Sequence[OwnerT | None]) -> None:
        places: dict[int, list[int]] = {}
        for place, owner in enumerate(owners):
            places.setdefault(id(owner), []).append(place)
        all_sound = measured.sound.all()
        for own in places.values():
            owner = owners[own[0]]
            if owner is None:
                continue
            if len(measured.signals):
                owner.signals.append(measured.signals[:, own])
            if measured.logprobs is not None:
                self._unwritten.setdefault(id(owner), (owner, []))[1].append(measured.logprobs.at(own))
            if not all_sound and not measured.sound[own].all() and not any(each is owner for each in self._unsound):
                self._unsound.append(owner)

    def _reported(self) -> list[OwnerT]:
        unsound, self._unsound = self._unsound, []
        return unsound


def _not_finite() -> ConfidenceError:
    return ConfidenceError("the model's logits are not finite, so they give no confidence and no log-probabilities")
