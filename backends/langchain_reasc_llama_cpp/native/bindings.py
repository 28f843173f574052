"""llama.cpp's C API, imported on first use, with its log silenced."""

import ctypes
import sys
import threading
from collections import deque
from functools import cache, cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import missing_extra
from langchain_reasc_llama_cpp.native.safe_kernels import check_processor

__all__ = ["Candidates", "Logits", "NativeLog", "library", "log"]

_ERROR_LEVEL: Final = 4  # GGML_LOG_LEVEL_ERROR
_CONTINUATION_LEVEL: Final = 5  # GGML_LOG_LEVEL_CONT


class NativeLog:
    """Receives llama.cpp's log, keeps the last errors, and prints all lines while a
    verbose model exists.

    llama.cpp has one log callback per process, so ``verbose`` is one switch for all
    models of the process.
    """

    def __init__(self) -> None:
        self.callback: Any = (
            None  # kept alive here: llama.cpp calls it as long as the process lives
        )
        self._verbose = 0
        self._level = 0
        self._errors: deque[str] = deque(maxlen=8)
        self._lock = threading.Lock()

    def receive(self, level: int, text: bytes | None, _user_data: object) -> None:
        """Receive a line of the log. This must not raise into C."""
        line = (text or b"").decode("utf-8", "replace")
        if level != _CONTINUATION_LEVEL:
            self._level = level
        if self._level == _ERROR_LEVEL and line.strip():
            self._errors.append(line.strip())
        if self._verbose and sys.stderr is not None:
            sys.stderr.write(line)

    def set_verbose(self, verbose: bool) -> None:
        """Register (True) or unregister (False) a verbose model."""
        with self._lock:
            self._verbose += 1 if verbose else -1

    def clear_errors(self) -> None:
        """Drop the errors so far, before a call whose errors will be reported."""
        self._errors.clear()

    def last_error(self) -> str:
        """Return the joined errors since :meth:`clear_errors`, or an empty text."""
        return "; ".join(self._errors)


log: Final = NativeLog()
_importing: Final = threading.Lock()


def library() -> Any:
    """Return the ``llama_cpp`` module, initialised once.

    Raises:
        MissingExtraError: llama-cpp-python is not installed.
        UnsupportedProcessorError: llama.cpp was built for instructions that this
            processor lacks.
    """
    with _importing:  # two threads may make the first two models
        return load_library()


@cache
def load_library() -> Any:
    try:
        import llama_cpp
    except ImportError as error:
        raise missing_extra("llama-cpp", "llama-cpp-python") from error
    check_processor(llama_cpp)
    log.callback = llama_cpp.llama_log_callback(log.receive)
    llama_cpp.llama_log_set(log.callback, None)
    llama_cpp.llama_backend_init()
    return llama_cpp


Logits = npt.NDArray[np.float32]

# llama_token_data
_CANDIDATE: Final = np.dtype([("id", "<i4"), ("logit", "<f4"), ("p", "<f4")])


class Candidates:
    """A ``llama_token_data_array`` for a whole vocabulary. Only the thread that draws
    uses it.

    Attributes:
        address: the address of the array.
        array: the array itself.
    """

    def __init__(self, vocabulary_size: int) -> None:
        llama = library()
        self._size = vocabulary_size
        # takes memory only where it is written to
        self._rows = np.zeros(vocabulary_size, dtype=_CANDIDATE)
        self._words = self._rows.view(np.int32)
        self._ids, self._logits = self._rows["id"], self._rows["logit"]
        self._data = self._rows.ctypes.data_as(llama.llama_token_data_p)
        self.array: Any = llama.llama_token_data_array(
            data=self._data, size=0, selected=-1, sorted=False
        )
        self.address: int = ctypes.addressof(self.array)

    def fill(self, row: Logits) -> None:
        """Fill in a whole row of logits, shape (V,), in the order of the ids."""
        np.copyto(self._words, self._fresh)
        np.copyto(self._logits, row)
        self._ready(self._size, ordered=False)

    def fill_some(
        self, ids: npt.NDArray[np.integer[Any]], logits: Logits, *, ordered: bool
    ) -> None:
        """Fill in some tokens only.

        Args:
            ids: the candidates' token ids, shape (k,), 1 ≤ k ≤ V.
            logits: the logits of the candidates, shape (k,).
            ordered: whether they are in descending order of likelihood.
        """
        size = len(ids)
        self._ids[:size] = ids
        self._logits[:size] = logits
        self._ready(size, ordered=ordered)

    @cached_property
    def _fresh(self) -> npt.NDArray[np.int32]:
        """All candidates in order, to restore what samplers have reordered by one copy."""
        rows = np.zeros(self._size, dtype=_CANDIDATE)
        rows["id"] = np.arange(self._size)
        return rows.view(np.int32)

    def _ready(self, size: int, *, ordered: bool) -> None:
        array = self.array
        array.data = self._data  # XTC moves it
        array.size, array.selected, array.sorted = size, -1, ordered
