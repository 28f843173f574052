"""From the bytes of tokens to text: UTF-8 across token borders, stop strings that straddle tokens."""

import codecs
from collections.abc import Sequence

__all__ = ["TextAssembler"]


class TextAssembler:
    """Collects the bytes of one response, and tells what may be shown of them.

    A character is shown when its last byte has come; bytes that are no UTF-8 become U+FFFD. Text that may turn out to
    be the beginning of a stop string is held back until that is settled.

    Attributes:
        stopped: whether a stop string was found; the text ends before it.
    """

    def __init__(self, stop: Sequence[bytes] = ()) -> None:
        self._stop = tuple(stop)
        self._longest = max((len(s) for s in self._stop), default=0)
        self._bytes = bytearray()
        self._shown = 0  # bytes given to the decoder
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.stopped = False

    def push(self, piece: bytes) -> bool:
        """Append a token's bytes; returns :attr:`stopped`, which is set when they complete a stop string."""
        self._bytes += piece
        if self._stop:
            begin = max(0, len(self._bytes) - len(piece) - self._longest + 1)
            found = [at for s in self._stop if (at := self._bytes.find(s, begin)) >= 0]
            if found:
                del self._bytes[min(found) :]
                self.stopped = True
        return self.stopped

    def delta(self, *, final: bool = False) -> str:
        """Text that can be shown since the last call; ``final`` gives out everything that was held back."""
        end = len(self._bytes) - (0 if final or self.stopped else self._held())
        fresh = bytes(self._bytes[self._shown : end])
        self._shown = max(self._shown, end)
        return self._decoder.decode(fresh, final=final)

    def text(self) -> str:
        """The whole text so far."""
        return self._bytes.decode("utf-8", "replace")

    def _held(self) -> int:
        """Length of the longest tail that begins a stop string."""
        return next(
            (
                size
                for size in range(min(self._longest - 1, len(self._bytes)), 0, -1)
                if any(s.startswith(self._bytes[-size:]) for s in self._stop)
            ),
            0,
        )
