"""The candidates of a draw, in memory that numpy fills and llama.cpp's samplers reorder."""

import ctypes
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc_llama_cpp.native.bindings import library

__all__ = ["Candidates", "Logits"]

Logits = npt.NDArray[np.float32]

_CANDIDATE: Final = np.dtype([("id", "<i4"), ("logit", "<f4"), ("p", "<f4")])  # llama_token_data


class Candidates:
    """A ``llama_token_data_array`` with room for a whole vocabulary; used by the thread that draws.

    Attributes:
        address: the address of the array.
        array: the array itself.
    """

    def __init__(self, vocabulary_size: int) -> None:
        llama = library()
        self._size = vocabulary_size
        self._rows = np.zeros(vocabulary_size, dtype=_CANDIDATE)  # takes memory only where it is written to
        self._words = self._rows.view(np.int32)
        self._ids, self._logits = self._rows["id"], self._rows["logit"]
        self._data = self._rows.ctypes.data_as(llama.llama_token_data_p)
        self.array: Any = llama.llama_token_data_array(data=self._data, size=0, selected=-1, sorted=False)
        self.address: int = ctypes.addressof(self.array)

    def fill(self, row: Logits) -> None:
        """Make candidates of a whole row, shape (V,), in the order of the ids."""
        np.copyto(self._words, self._fresh)
        np.copyto(self._logits, row)
        self._ready(self._size, ordered=False)

    def fill_some(self, ids: npt.NDArray[np.integer[Any]], logits: Logits, *, ordered: bool) -> None:
        """Make candidates of some tokens alone.

        Args:
            ids: the candidates' token ids, shape (k,), 1 ≤ k ≤ V.
            logits: the logits of the candidates, shape (k,).
            ordered: whether they go from the most likely down.
        """
        size = len(ids)
        self._ids[:size] = ids
        self._logits[:size] = logits
        self._ready(size, ordered=ordered)

    @cached_property
    def _fresh(self) -> npt.NDArray[np.int32]:
        """All candidates in order: what samplers reorder is restored by one straight copy."""
        rows = np.zeros(self._size, dtype=_CANDIDATE)
        rows["id"] = np.arange(self._size)
        return rows.view(np.int32)

    def _ready(self, size: int, *, ordered: bool) -> None:
        array = self.array
        array.data = self._data  # XTC moves it
        array.size, array.selected, array.sorted = size, -1, ordered
