"""One ``llama_context``: a KV cache shared by a prompt and the sequences that continue it."""

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ModelError
from langchain_reasc_llama_cpp import lora, native
from langchain_reasc_llama_cpp.model import NativeModel
from langchain_reasc_llama_cpp.native_parameters import ContextParameters

__all__ = ["PROMPT", "CacheFull", "DecodeContext"]

PROMPT: Final = 0
"""The sequence that holds the prompt; slots 1..n_slots continue it."""
_NO_ROOM: Final = 1  # llama_decode: no KV cells for the batch; the memory is as it was

Logits = npt.NDArray[np.float32]


class CacheFull(Exception):
    """The KV cache has no cell left for this batch; nothing was changed."""


class DecodeContext:
    """Batches, KV cache and logits. Not thread-safe: one thread owns it.

    The batch lives in numpy arrays that llama.cpp reads in place, so a step writes n tokens and n positions, no more.

    Attributes:
        cells: tokens the KV cache can hold, over all sequences.
        handle: the ``llama_context *``; None once closed.
        decode_seconds: time spent inside ``llama_decode`` so far.
        decoded: tokens given to ``llama_decode`` so far.
    """

    def __init__(
        self, model: NativeModel, *, cells: int, n_slots: int, n_threads: int, parameters: ContextParameters
    ) -> None:
        """Allocate the KV cache.

        Raises:
            ModelError: llama.cpp cannot, mostly for want of memory.
        """
        self._llama = native.library()
        self._vocabulary_size = model.vocabulary_size
        self._n_batch = n_batch = parameters.n_batch
        settings = self._llama.llama_context_default_params()
        settings.n_ctx = cells
        settings.n_seq_max = n_slots + 1
        # Logits are wanted for one token per sequence only: without this, buffers are sized for n_batch × V floats.
        settings.n_outputs_max = n_slots + 1
        settings.n_threads = settings.n_threads_batch = n_threads
        settings.kv_unified = True
        settings.no_perf = True
        parameters.apply(self._llama, settings)
        native.log.forget()
        self.handle: Any = self._llama.llama_init_from_model(model.handle, settings)
        if not self.handle:
            raise ModelError(
                f"llama.cpp cannot make a context of {cells:,} tokens for {model.path.name}: "
                f"{native.log.last_error() or 'it does not say why'}; try a smaller n_ctx or n_cells"
            )
        try:
            lora.attach(self._llama, self.handle, model)
        except BaseException:
            self.close()
            raise
        self._memory = self._llama.llama_get_memory(self.handle)
        self.cells: int = self._llama.llama_n_ctx(self.handle)
        self.decode_seconds = 0.0
        self.decoded = 0
        self._make_batch(max(n_batch, n_slots + 1))

    def prefill(
        self,
        tokens: npt.NDArray[np.int32],
        *,
        slot: int = PROMPT,
        start: int = 0,
        logits: bool = True,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> int:
        """Put tokens into a sequence, ``n_batch`` at a time.

        Args:
            tokens: shape (T,), T ≥ 1.
            slot: the sequence.
            start: position of the first token.
            logits: whether :meth:`logits` is wanted for the last token.
            interrupted: asked before each batch; True ends the prefill early.

        Returns:
            How many tokens were put in; fewer than T only when interrupted.

        Raises:
            CacheFull: there is no room.
            ModelError: llama.cpp failed.
        """
        for begin in range(0, len(tokens), self._n_batch):
            if interrupted():
                return begin
            part = tokens[begin : begin + self._n_batch]
            size = len(part)
            self._tokens[:size] = part
            self._positions[:size] = np.arange(start + begin, start + begin + size)
            self._slots[:size] = slot
            self._wanted[:size] = 0
            self._wanted[size - 1] = logits and begin + size == len(tokens)
            self._decode(size)
        return len(tokens)

    def arrange(self, slots: Sequence[int], positions: Sequence[int]) -> None:
        """Say which sequences the next :meth:`advance` continues, and at which positions."""
        size = len(slots)
        self._slots[:size] = slots
        self._positions[:size] = positions
        self._wanted[:size] = 1

    def advance(self, tokens: Sequence[int]) -> Logits:
        """Decode one token for each arranged sequence, and move their positions on.

        Returns:
            Shape (n, V): a view of llama.cpp's own buffer, valid until the next decode.

        Raises:
            CacheFull: there is no room; positions are as they were.
            ModelError: llama.cpp failed.
        """
        size = len(tokens)
        self._tokens[:size] = tokens
        self._decode(size)
        self._positions[:size] += 1
        return self.logits(size)

    def logits(self, rows: int) -> Logits:
        """Shape (rows, V): the logits of the last decode, in batch order; a view where they lie together."""
        address = self._address
        last = address(self.handle, -1)
        first = address(self.handle, 0) if rows > 1 else last
        if not first or not last:
            raise ModelError("llama.cpp returned no logits for a token that asked for them")
        if last - first == (rows - 1) * self._vocabulary_size * 4:
            return self._view(first, rows)
        return np.concatenate([self._view(address(self.handle, row), 1) for row in range(rows)])

    def share_prompt(self, slot: int) -> None:
        """Let a slot continue the prompt: its cells are shared, not copied."""
        self._llama.llama_memory_seq_cp(self._memory, PROMPT, slot, -1, -1)

    def forget(self, slot: int) -> None:
        """Free what one sequence alone holds."""
        self._llama.llama_memory_seq_rm(self._memory, slot, -1, -1)

    def clear(self) -> None:
        """Forget every sequence."""
        self._llama.llama_memory_clear(self._memory, False)

    def close(self) -> None:
        """Free the context. Closing twice does nothing."""
        handle, self.handle = self.handle, None
        if handle is not None:
            self._llama.llama_free(handle)

    def _decode(self, size: int) -> None:
        self._batch.n_tokens = size
        begun = time.perf_counter()
        code = self._llama.llama_decode(self.handle, self._batch)
        self.decode_seconds += time.perf_counter() - begun
        if code == _NO_ROOM:
            raise CacheFull
        if code != 0:
            raise ModelError(f"llama.cpp could not decode {size} tokens (code {code}): {native.log.last_error()}")
        self.decoded += size

    def _make_batch(self, size: int) -> None:
        llama = self._llama
        self._tokens, self._positions, self._slots = (np.zeros(size, dtype=np.int32) for _ in range(3))
        self._one_slot = np.ones(size, dtype=np.int32)
        self._wanted = np.zeros(size, dtype=np.int8)
        # One pointer per token, each to that token's own entry of the slot array.
        self._slot_pointers = (self._slots.ctypes.data + 4 * np.arange(size)).astype(np.uintp)
        int32, int8 = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int8)
        self._batch = llama.llama_batch(
            n_tokens=0,
            token=self._tokens.ctypes.data_as(int32),
            pos=self._positions.ctypes.data_as(int32),
            n_seq_id=self._one_slot.ctypes.data_as(int32),
            seq_id=self._slot_pointers.ctypes.data_as(ctypes.POINTER(int32)),
            logits=self._wanted.ctypes.data_as(int8),
        )

    def _address(self, handle: Any, row: int) -> int:
        pointer = self._llama.llama_get_logits_ith(handle, row)
        return ctypes.cast(pointer, ctypes.c_void_p).value or 0

    def _view(self, address: int, rows: int) -> Logits:
        size = rows * self._vocabulary_size
        return np.ctypeslib.as_array((ctypes.c_float * size).from_address(address)).reshape(rows, -1)
