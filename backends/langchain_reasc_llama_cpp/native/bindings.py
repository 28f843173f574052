"""llama.cpp's C API: imported when first needed, and its process-wide log kept quiet."""

import sys
import threading
from collections import deque
from functools import cache
from typing import Any, Final

from langchain_reasc.exceptions import missing_extra
from langchain_reasc_llama_cpp.native.safe_kernels import check_processor

__all__ = ["NativeLog", "library", "log"]

_ERROR_LEVEL: Final = 4  # GGML_LOG_LEVEL_ERROR
_CONTINUATION_LEVEL: Final = 5  # GGML_LOG_LEVEL_CONT


class NativeLog:
    """Receives every line llama.cpp logs: keeps the last errors, prints only while a verbose model lives.

    llama.cpp has one log callback per process, so ``verbose`` is one switch for all models of the process.
    """

    def __init__(self) -> None:
        self.callback: Any = None  # kept alive here: llama.cpp calls it as long as the process lives
        self._verbose = 0
        self._level = 0
        self._errors: deque[str] = deque(maxlen=8)
        self._lock = threading.Lock()

    def receive(self, level: int, text: bytes | None, _user_data: object) -> None:
        """The callback itself; it must not raise into C."""
        line = (text or b"").decode("utf-8", "replace")
        if level != _CONTINUATION_LEVEL:
            self._level = level
        if self._level == _ERROR_LEVEL and line.strip():
            self._errors.append(line.strip())
        if self._verbose and sys.stderr is not None:
            sys.stderr.write(line)

    def speak(self, louder: bool) -> None:
        """Count a verbose model in (True) or out (False)."""
        with self._lock:
            self._verbose += 1 if louder else -1

    def forget(self) -> None:
        """Drop the errors kept so far, before a call whose own errors are wanted."""
        self._errors.clear()

    def last_error(self) -> str:
        """The errors since :meth:`forget`, joined; empty when llama.cpp said nothing."""
        return "; ".join(self._errors)


log: Final = NativeLog()
_importing: Final = threading.Lock()


def library() -> Any:
    """The ``llama_cpp`` module, initialised once.

    Raises:
        MissingExtraError: llama-cpp-python is not installed.
        UnsupportedProcessorError: it was built for instructions that this processor lacks.
    """
    with _importing:  # two threads may make the first two models
        return _library()


@cache
def _library() -> Any:
    try:
        import llama_cpp
    except ImportError as error:
        raise missing_extra("llama-cpp", "llama-cpp-python") from error
    check_processor(llama_cpp)
    log.callback = llama_cpp.llama_log_callback(log.receive)
    llama_cpp.llama_log_set(log.callback, None)
    llama_cpp.llama_backend_init()
    return llama_cpp
