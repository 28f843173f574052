"""One ``llama_context``: batches, the KV cache of many sequences, logits."""

import ctypes
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ModelError
from langchain_reasc_llama_cpp.engine.threads import Threads
from langchain_reasc_llama_cpp.native.bindings import library, log
from langchain_reasc_llama_cpp.native.model import NativeModel, attach_adapters
from langchain_reasc_llama_cpp.native.parameters import LoadFields, fill_context_params

_NO_ROOM: Final = 1  # llama_decode: no KV cells for the batch; the memory is as it was
_BY_FOUR: Final = ("Q4_0", "Q4_K", "Q2_K", "IQ4_NL", "MXFP4")
"""Formats that llama.cpp repacks for x86. Their kernels multiply four rows in the time
of two, and what is left over row by row; so two or three rows left over go faster with
idle ones beside them.
"""
_IDLE: Final = (0, 0, 2, 1)  # rows beside, by rows left over

Logits = npt.NDArray[np.float32]
Tokens = npt.NDArray[np.int32]
State = npt.NDArray[np.uint8]
"""What a sequence's cells hold, in llama.cpp's own format."""


class CacheFull(Exception):
    """The KV cache has no room for this batch. Nothing was changed."""


class Chunk(NamedTuple):
    """Consecutive tokens of one sequence.

    Attributes:
        sequence: the sequence's id.
        tokens: the token ids, shape (T,), T ≥ 1.
        start: the position of the first token.
        logits: whether to compute those after the last token.
    """

    sequence: int
    tokens: npt.NDArray[np.int32]
    start: int
    logits: bool


class DecodeContext:
    """Batches, KV cache and logits. Not thread-safe: one thread owns the context.

    The batch is in numpy arrays that llama.cpp reads in place, so a step only writes n
    tokens and n positions.

    Attributes:
        cells: tokens the KV cache can hold, over all sequences.
        n_batch: tokens one decode takes at most; never fewer than there are sequences.
        n_sequences: how many sequence ids there are.
        handle: the ``llama_context *``; None once closed.
        address: the same as a number.
        decode_seconds: time spent inside ``llama_decode`` so far.
        decoded: tokens given to ``llama_decode`` so far.
        steps: calls of ``llama_decode`` so far.
        threads: the number of CPU threads, which may change before each decode.
    """

    def __init__(
        self,
        model: NativeModel,
        *,
        cells: int,
        n_sequences: int,
        threads: Threads,
        fields: LoadFields,
    ) -> None:
        """Allocate the KV cache.

        Args:
            model: the loaded model.
            cells: tokens the KV cache holds, over all sequences.
            n_sequences: how many sequence ids there are, at most 256.
            threads: the number of CPU threads.
            fields: the other options of the context.

        Raises:
            ModelError: llama.cpp cannot, mostly for want of memory.
        """
        self._llama = library()
        self._vocabulary_size = model.vocabulary_size
        self.n_sequences = n_sequences
        self.threads, self._batch_threads = threads, fields.n_threads_batch
        self._pads = (
            model.repacked
            and not model.on_gpu
            and model.quantization.startswith(_BY_FOUR)
        )
        params = self._llama.llama_context_default_params()
        params.n_ctx = cells
        params.n_seq_max = n_sequences + self._pads  # the last holds idle rows
        # Logits are needed for one token per sequence at most: without this, buffers
        # are sized for n_batch × V floats.
        params.n_outputs_max = n_sequences + max(_IDLE) * self._pads
        params.kv_unified = True
        params.no_perf = True
        fill_context_params(params, fields, n_threads=threads.now, on_gpu=model.on_gpu)
        params.n_batch = self.n_batch = max(params.n_batch, n_sequences + max(_IDLE))
        log.clear_errors()
        self.handle: Any = self._llama.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise ModelError(
                f"llama.cpp cannot make a context of {cells:,} tokens for "
                f"{model.path.name}: {log.last_error() or 'it does not say why'}; try "
                "a smaller n_ctx or n_cells"
            )
        try:
            attach_adapters(self._llama, self.handle, model.adapters)
        except BaseException:
            self.close()
            raise
        self.address: int = ctypes.cast(self.handle, ctypes.c_void_p).value or 0
        self._memory = self._llama.llama_get_memory(self.handle)
        self.cells: int = self._llama.llama_n_ctx(self.handle)
        function = (
            ctypes.cast(self._llama.llama_get_logits_ith, ctypes.c_void_p).value or 0
        )
        self._row_address = ctypes.CFUNCTYPE(
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32
        )(function)
        self._first_row = 0
        self._rows: Logits = np.empty((0, 0), dtype=np.float32)
        self.decode_seconds = 0.0
        self.decoded = self.steps = 0
        self._make_batch(self.n_batch)

    def arrange(self, sequences: Sequence[int], positions: Sequence[int]) -> None:
        """Set the sequences that the next :meth:`decode` continues by one token each,
        and their positions.
        """
        size = len(sequences)
        self._sequences[:size] = sequences
        self._positions[:size] = positions
        self._needs_logits[:size] = 1

    def decode(self, tokens: Sequence[int], chunks: Sequence[Chunk] = ()) -> Logits:
        """Decode one token for each arranged sequence, advance their positions, and
        decode the chunks.

        Args:
            tokens: one token for each arranged sequence.
            chunks: prompts or parts of prompts. With ``tokens`` they have at most
                ``n_batch`` tokens.

        Returns:
            Shape (n + chunks that want logits, V): a view of llama.cpp's own buffer,
                valid until the next decode.

        Raises:
            CacheFull: the KV cache has no room. Nothing was changed.
            ModelError: llama.cpp failed.
        """
        rows = len(tokens)
        self._tokens[:rows] = tokens
        end = rows
        for chunk in chunks:
            begin, end = end, end + len(chunk.tokens)
            self._tokens[begin:end] = chunk.tokens
            self._positions[begin:end] = np.arange(
                chunk.start, chunk.start + end - begin
            )
            self._sequences[begin:end] = chunk.sequence
            self._needs_logits[begin:end] = 0
            self._needs_logits[end - 1] = chunk.logits
        if self._pads and end == rows > 2 and _IDLE[rows % 4]:
            outputs = self._decode_beside(rows, _IDLE[rows % 4])
        else:
            self._decode(end)
            outputs = rows + sum(chunk.logits for chunk in chunks)
        self._positions[:rows] += 1
        return self._logits(outputs)[: outputs if chunks else rows]

    def share(self, source: int, target: int, length: int) -> None:
        """Begin a sequence with the first ``length`` tokens of another (-1: all). Cells
        are shared, not copied.
        """
        self._llama.llama_memory_seq_cp(
            self._memory, source, target, -1 if length < 0 else 0, length
        )

    def forget(self, sequence: int) -> None:
        """Free the cells that only this sequence uses."""
        self._llama.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def first_position(self, sequence: int) -> int:
        """Return the first position that all layers hold; sliding-window layers lose
        what is before their window.
        """
        position: int = self._llama.llama_memory_seq_pos_min(self._memory, sequence)
        return position

    def save(self, sequence: int) -> State:
        """Return a copy of a sequence's cells, and of sliding-window layers only those
        of the last window.
        """
        state = np.empty(
            self._llama.llama_state_seq_get_size(self.handle, sequence), dtype=np.uint8
        )
        self._llama.llama_state_seq_get_data(
            self.handle, _bytes_of(state), len(state), sequence
        )
        return state

    def restore(self, sequence: int, state: State) -> bool:
        """Restore a copy into new cells; return False if there is no room."""
        return bool(
            self._llama.llama_state_seq_set_data(
                self.handle, _bytes_of(state), len(state), sequence
            )
        )

    def clear(self) -> None:
        """Remove all sequences."""
        self._llama.llama_memory_clear(self._memory, False)

    def close(self) -> None:
        """Free the context. Closing twice does nothing."""
        handle, self.handle = self.handle, None
        if handle is not None:
            self._llama.llama_free(handle)

    def _decode_beside(self, rows: int, idle: int) -> int:
        """Decode rows with idle ones beside them, where there is room for these;
        returns how many had logits.
        """
        end = rows + idle
        self._tokens[rows:end] = 0
        self._positions[rows:end] = range(idle)
        self._sequences[rows:end] = self.n_sequences
        self._needs_logits[rows:end] = 1
        try:
            self._decode(end)
        except CacheFull:
            self._decode(rows)
            return rows
        self.forget(self.n_sequences)
        self.decoded -= idle
        return end

    def _decode(self, size: int) -> None:
        self._batch.n_tokens = size
        n_threads = self.threads.choose(self.decode_seconds)
        self._llama.llama_set_n_threads(
            self.handle, n_threads, self._batch_threads or n_threads
        )
        begun = time.perf_counter()
        code = self._llama.llama_decode(self.handle, self._batch)
        self.decode_seconds += time.perf_counter() - begun
        if code == _NO_ROOM:
            raise CacheFull
        if code != 0:
            raise ModelError(
                f"llama.cpp could not decode {size} tokens (code {code}): "
                f"{log.last_error()}"
            )
        self.decoded += size
        self.steps += 1

    def _logits(self, rows: int) -> Logits:
        """Return the logits of the last decode, in batch order; llama.cpp keeps them
        together, mostly in one place.
        """
        if not rows:
            return np.empty((0, self._vocabulary_size), dtype=np.float32)
        address: int | None = self._row_address(self.handle, -rows)
        if not address:
            raise ModelError(
                "llama.cpp returned no logits for a token that asked for them"
            )
        if address != self._first_row:
            shape = (self.n_sequences, self._vocabulary_size)
            self._rows = np.ctypeslib.as_array(
                (ctypes.c_float * (shape[0] * shape[1])).from_address(address)
            )
            self._rows, self._first_row = self._rows.reshape(shape), address
        return self._rows[:rows]

    def _make_batch(self, size: int) -> None:
        llama = self._llama
        self._tokens, self._positions, self._sequences = (
            np.zeros(size, dtype=np.int32) for _ in range(3)
        )
        self._ones = np.ones(size, dtype=np.int32)
        self._needs_logits = np.zeros(size, dtype=np.int8)
        # One pointer per token, each to that token's own entry of the array of
        # sequences.
        self._pointers = (self._sequences.ctypes.data + 4 * np.arange(size)).astype(
            np.uintp
        )
        int32, int8 = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int8)
        self._batch: Any = llama.llama_batch(
            n_tokens=0,
            token=self._tokens.ctypes.data_as(int32),
            pos=self._positions.ctypes.data_as(int32),
            n_seq_id=self._ones.ctypes.data_as(int32),
            seq_id=self._pointers.ctypes.data_as(ctypes.POINTER(int32)),
            logits=self._needs_logits.ctypes.data_as(int8),
        )


def _bytes_of(state: State) -> Any:
    return state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
