"""Write stderr in a thread, so that no request waits for whoever reads the log."""

import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Final

__all__ = ["QueuedStderr", "queued_stderr"]

_MOST_WAITING: Final = 1_000
"""Lines that may wait for the reader of stderr. Further lines are dropped."""
_WRITTEN_WITHIN: Final = 2.0
"""Seconds that waiting lines have to be written when the server ends."""
_log = logging.getLogger(__name__)


class QueuedStderr(io.TextIOBase):
    """A text stream that never blocks: a thread writes its lines to a file descriptor.

    It replaces ``sys.stderr``, because logging's ``QueueHandler`` would leave out
    warnings, tracebacks and remarks, and a ``QueueListener`` waits at its end until all
    is written, which may be never.

    Attributes:
        dropped: lines that were dropped because too many waited.
        on_drop: called for each line that is dropped.
    """

    def __init__(self, stream: Any) -> None:
        """Write to the file descriptor of a stream. The stream itself could block the
        end of the process.
        """
        self._stream, self._descriptor = stream, stream.fileno()
        # a finalizer may write while another write is going on
        self._waiting: SimpleQueue[str | None] = SimpleQueue()
        self.dropped = self._reported = 0
        self.on_drop: Callable[[], object] = lambda: None
        self._thread = threading.Thread(
            target=self._write_waiting, name="stderr", daemon=True
        )
        self._thread.start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream."""
        return str(self._stream.encoding)

    def fileno(self) -> int:
        """Return the file descriptor, to which faulthandler writes on its own."""
        return int(self._descriptor)

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return bool(self._stream.isatty())

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Queue a text, or drop it if too many wait."""
        if self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(text)
        else:
            self.dropped += 1
            self.on_drop()
        return len(text)

    def finish(self) -> None:
        """Wait until everything is written, but not for a reader that has stopped
        reading.
        """
        self._waiting.put(None)
        self._thread.join(_WRITTEN_WITHIN)

    def _write_waiting(self) -> None:
        ending = False
        while not (ending and self._waiting.empty()):
            text = self._waiting.get()
            if text is None:
                ending = True
                continue
            self._write_all(text.encode(self.encoding, self._stream.errors))
            if lost := self.dropped - self._reported:
                self._reported += lost
                self._waiting.put(
                    f"{lost:,} lines of the log were dropped, because stderr was not "
                    "read fast enough\n"
                )

    def _write_all(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                # whoever started the process has made the pipe non-blocking
                time.sleep(0.05)
            except OSError:  # nobody reads stderr any more
                return


@contextmanager
def queued_stderr() -> Iterator[None]:
    """Replace ``sys.stderr``, if it is a file, by a :class:`QueuedStderr`. At the end,
    write what waits.
    """
    stream = sys.stderr
    try:
        queued = QueuedStderr(stream)
    except (AttributeError, OSError, ValueError):
        yield
        return
    sys.stderr = queued
    try:
        yield
    finally:
        sys.stderr = stream
        queued.finish()
