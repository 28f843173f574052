"""Record token signals and log-probabilities from blocks of logits rows."""

from collections import deque
from collections.abc import Sequence as Many
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from langchain_reasc_backend.logits import (
    CHUNK,
    WhichStatistics,
    row_statistics,
    signals_from_statistics,
    statistics_for,
)

from langchain_reasc.exceptions import ConfidenceError
from langchain_reasc_llama_cpp.engine.request import Measures
from langchain_reasc_llama_cpp.engine.sequences import Sequence
from langchain_reasc_llama_cpp.native.model import NativeModel

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]
Rows = npt.NDArray[np.float32]

# OpenAI's value for an impossible token, since JSON has no infinity
_IMPOSSIBLE: Final = -9999.0
# the largest vocabulary whose rows are gathered, because numpy costs per call
_GATHERED: Final = CHUNK // 16
_AHEAD: Final = 1  # blocks that the worker thread may hold while another fills


class _Logprobs(NamedTuple):
    """Log-probabilities at T generated tokens, in nats, of the model's raw
    distribution.

    Attributes:
        tokens: shape (T,), the drawn tokens.
        logprobs: shape (T,), the log-probabilities of the drawn tokens.
        top_tokens: shape (T, k), the k likeliest tokens, from the likeliest down.
        top_logprobs: shape (T, k), the log-probabilities of the likeliest tokens.
    """

    tokens: Integers
    logprobs: Floats
    top_tokens: Integers
    top_logprobs: Floats


_Measured = tuple[Floats, _Logprobs | None, npt.NDArray[np.bool_]]


# values that are not finite are reported, without a warning
@np.errstate(invalid="ignore")
def _measure_rows(
    rows: Rows, chosen: Many[int], what: Measures, scratch: Rows
) -> _Measured:
    """Compute signals and log-probabilities of rows of logits.

    Args:
        rows: shape (n, V), n ≥ 1, before temperature. Not modified.
        chosen: the n drawn tokens.
        what: the measures to compute.
        scratch: the memory to work in, see
            :func:`~langchain_reasc_backend.logits.row_statistics`.

    Returns:
        The signals, shape (number of signals, n), in the order of ``Measures.signals``;
        the log-probabilities of the drawn tokens, if they are wanted; and whether the
        logits were finite, shape (n,).

    Raises:
        ConfigurationError: an unknown signal, or its ``k`` is below 1.
    """
    n, vocabulary = rows.shape
    found = row_statistics(rows, _which(what, vocabulary), scratch=scratch)
    tokens = np.asarray(chosen, dtype=np.intp)
    drawn = rows[np.arange(n), tokens]
    by_name = signals_from_statistics(
        found, drawn, vocabulary, signals=what.signals, k=min(what.k, vocabulary)
    )
    signals = np.array([by_name[name] for name in what.signals]).reshape(-1, n)
    sound = np.isfinite(signals).all(axis=0)
    if what.logprobs is None:
        return signals, None, sound
    # rounding may put a certain token above 0
    logprob = np.minimum(drawn - found.log_total, 0)
    sound &= np.isfinite(logprob)
    top_tokens: Integers = np.empty((n, 0), dtype=np.intp)
    top: Floats = np.empty((n, 0))
    if found.top is not None and found.top_ids is not None:
        top_tokens = found.top_ids[:, : what.logprobs]
        top = np.minimum(found.top[:, : what.logprobs] - found.log_total[:, None], 0)
    return signals, _Logprobs(tokens, logprob, top_tokens, top), sound


def _spelling(model: NativeModel, token: int) -> tuple[str, bytes]:
    """Return a token's text and bytes, which are empty if the model has no vocabulary."""
    raw = model.written(token) if model.has_tokenizer else b""
    return raw.decode("utf-8", "replace"), raw


@lru_cache(maxsize=64)
def _which(what: Measures, vocabulary: int) -> WhichStatistics:
    which = statistics_for(what.signals, min(what.k, vocabulary), vocabulary)
    top = min(what.logprobs or 0, vocabulary)
    return replace(which, top=max(which.top, top), ids=top > 0)


@dataclass(slots=True)
class _Block:
    """Rows with the same measures, gathered in an array of shape (capacity, V)."""

    measures: Measures
    rows: Rows
    chosen: list[int] = field(default_factory=list)
    owners: list[Sequence | None] = field(default_factory=list)


class Recorder:
    """Computes signals and log-probabilities of each sequence's tokens. Used by one
    thread.

    With a small vocabulary, rows are gathered into blocks, because numpy costs per
    call. With a large vocabulary, rows are read from llama.cpp's own memory. If
    ``overlapped``, all rows are copied, and a thread computes while the model decodes
    the next step. This suits models on a GPU, which leave the processor idle. The
    numbers are the same.

    A row that is not finite concerns only its owner: :meth:`record` and :meth:`flush`
    return such owners, and :meth:`logprobs_since` raises for them.
    """

    def __init__(
        self, n_slots: int, model: NativeModel, *, overlapped: bool = False
    ) -> None:
        """Allocate for ``n_slots`` rows at a time."""
        vocabulary = model.vocabulary_size
        self._gathers = vocabulary <= _GATHERED
        self._shape = (
            max(n_slots, CHUNK // vocabulary) if self._gathers else n_slots,
            vocabulary,
        )
        self._scratch = np.empty(
            (max(1, CHUNK // vocabulary), vocabulary), dtype=np.float32
        )
        self._spelling = cache(partial(_spelling, model))
        self._worker = ThreadPoolExecutor(1, "reasc-signals") if overlapped else None
        self._blocks: dict[Measures, _Block] = {}
        self._running: deque[tuple[_Block, Future[_Measured]]] = deque()
        self._free: list[Rows] = []
        self._unwritten: dict[Sequence, list[_Logprobs]] = {}
        self._unsound: list[Sequence] = []

    def record(
        self, logits: Rows, chosen: Many[int], owners: Many[Sequence]
    ) -> list[Sequence]:
        """Record one row of logits for each owner.

        Args:
            logits: shape (n, V), n at most ``n_slots``; may be overwritten once this
                returns.
            chosen: the n drawn tokens.
            owners: the n sequences of these tokens. A sequence without measures costs
                nothing.

        Returns:
            Owners with logits that were not finite, in this step or an earlier one.

        Raises:
            ConfigurationError: an unknown signal, or its ``k`` is below 1.
        """
        first = owners[0].measures if owners else None
        if first is not None and all(owner.measures is first for owner in owners):
            self._record_rows(first, logits, chosen, owners)
        else:
            start = 0
            for what, run in groupby(owners, key=attrgetter("measures")):
                stop = start + len(list(run))
                self._record_rows(
                    what, logits[start:stop], chosen[start:stop], owners[start:stop]
                )
                start = stop
        if self._worker is not None and not self._gathers:
            self._measure_blocks()
        return self._reported() if self._unsound else []

    def flush(self) -> list[Sequence]:
        """Measure all gathered rows, so that every owner has its numbers. Return the
        same as :meth:`record`.
        """
        self._measure_blocks()
        while self._running:
            self._collect()
        return self._reported()

    def signals(self, owner: Sequence) -> dict[str, list[float]]:
        """Return signal name -> one float per token of a sound sequence, after
        :meth:`flush`.
        """
        names = owner.measures.signals
        if not owner.signals:
            return {name: [] for name in names}
        return dict(
            zip(names, np.concatenate(owner.signals, axis=1).tolist(), strict=True)
        )

    def logprobs_since(
        self, owner: Sequence, start: int
    ) -> list[dict[str, Any]] | None:
        """Return the entries of the recorded tokens from the ``start``-th on, or None
        if the request wants none.

        This measures the owner's block, with the rows of other owners in it.

        Raises:
            ConfidenceError: the model's logits were not finite.
        """
        if owner.measures.logprobs is None:
            return None
        if block := self._blocks.pop(owner.measures, None):
            self._measure(block)
        while self._running:
            self._collect()
        pieces = self._unwritten.get(owner, [])
        if not all(np.isfinite(piece.logprobs).all() for piece in pieces):
            raise ConfidenceError(
                "the model's logits are not finite, so they give no log-probabilities"
            )
        self._unwritten.pop(owner, None)
        for piece in pieces:
            owner.logprobs.extend(self._entries(piece))
        return owner.logprobs[start:]

    def drop(self, owner: Sequence) -> None:
        """Forget everything recorded for a sequence."""
        for block in (*self._blocks.values(), *(block for block, _ in self._running)):
            block.owners[:] = [None if each is owner else each for each in block.owners]
        self._unwritten.pop(owner, None)
        self._unsound = [each for each in self._unsound if each is not owner]
        owner.signals.clear()
        owner.logprobs.clear()

    def close(self) -> None:
        """End the worker thread. Closing twice does nothing."""
        if self._worker is not None:
            self._worker.shutdown()

    def _record_rows(
        self, what: Measures, logits: Rows, chosen: Many[int], owners: Many[Sequence]
    ) -> None:
        if not what:
            return
        if not self._gathers and self._worker is None:
            self._hand_out(_measure_rows(logits, chosen, what, self._scratch), owners)
            return
        block = self._blocks.get(what)
        if block is not None and len(block.chosen) + len(chosen) > self._shape[0]:
            self._measure(self._blocks.pop(what))
            block = None
        if block is None:
            block = self._blocks[what] = _Block(what, self._free_rows())
        filled = len(block.chosen)
        block.rows[filled : filled + len(chosen)] = logits
        block.chosen.extend(chosen)
        block.owners.extend(owners)

    def _free_rows(self) -> Rows:
        """Return an array for a block: a free one if there is one, else a new one."""
        while not self._free and len(self._running) >= _AHEAD:
            self._collect()
        return (
            self._free.pop() if self._free else np.empty(self._shape, dtype=np.float32)
        )

    def _measure_blocks(self) -> None:
        blocks, self._blocks = self._blocks, {}
        for block in blocks.values():
            self._measure(block)

    def _measure(self, block: _Block) -> None:
        work = (
            block.rows[: len(block.chosen)],
            block.chosen,
            block.measures,
            self._scratch,
        )
        if self._worker is not None:
            self._running.append((block, self._worker.submit(_measure_rows, *work)))
            return
        self._free.append(block.rows)
        self._hand_out(_measure_rows(*work), block.owners)

    def _collect(self) -> None:
        """Wait for the worker's oldest block."""
        block, future = self._running.popleft()
        self._free.append(block.rows)
        self._hand_out(future.result(), block.owners)

    def _hand_out(self, measured: _Measured, owners: Many[Sequence | None]) -> None:
        signals, logprobs, sound = measured
        places: dict[Sequence, list[int]] = {}
        for place, owner in enumerate(owners):
            if owner is not None:
                places.setdefault(owner, []).append(place)
        for owner, own in places.items():
            if len(signals):
                owner.signals.append(signals[:, own])
            if logprobs is not None:
                piece = _Logprobs._make(array[own] for array in logprobs)
                self._unwritten.setdefault(owner, []).append(piece)
        if not sound.all():
            unsound = [owner for owner, own in places.items() if not sound[own].all()]
            self._unsound += [owner for owner in unsound if owner not in self._unsound]

    def _entries(self, found: _Logprobs) -> list[dict[str, Any]]:
        """Return OpenAI's entries. ``bytes`` are exact; ``token`` has U+FFFD for a part
        of a character.
        """
        drawn = self._spelled(found.tokens, found.logprobs)
        for entry, tokens, logprobs in zip(
            drawn, found.top_tokens, found.top_logprobs, strict=True
        ):
            entry["top_logprobs"] = self._spelled(
                tokens, np.maximum(logprobs, _IMPOSSIBLE)
            )
        return drawn

    def _spelled(self, tokens: Integers, logprobs: Floats) -> list[dict[str, Any]]:
        return [
            {"token": text, "bytes": [*raw], "logprob": logprob}
            for (text, raw), logprob in zip(
                map(self._spelling, tokens.tolist()), logprobs.tolist(), strict=True
            )
        ]

    def _reported(self) -> list[Sequence]:
        unsound, self._unsound = self._unsound, []
        return unsound
