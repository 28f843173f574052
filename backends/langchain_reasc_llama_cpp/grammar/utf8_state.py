"""Keeps a response to well-formed UTF-8: llama.cpp's grammars take an overlong quote for a quote."""

import codecs
from typing import Final

__all__ = ["Utf8State"]

_SELECTIVE: Final = (b"\xe0", b"\xed", b"\xf0", b"\xf4")  # lead bytes that not every continuation byte may follow


class Utf8State:
    """Where a response is within a character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")

    def allows(self, piece: bytes) -> bool:
        """Whether the response may go on with these bytes."""
        if piece.isascii() and not self._decoder.getstate()[0]:
            return True
        before = self._decoder.getstate()
        try:
            self._decoder.decode(piece)
            pending = self._decoder.getstate()[0]
        except UnicodeDecodeError:
            return False
        finally:
            self._decoder.setstate(before)
        # Python refuses a surrogate at its third byte only.
        return not (pending[:1] == b"\xed" and pending[1:] >= b"\xa0")

    def push(self, piece: bytes) -> None:
        """Add bytes that are allowed."""
        self._decoder.decode(piece)

    def after(self, piece: bytes) -> "Utf8State":
        """The state once these bytes, which are allowed, are added."""
        state = Utf8State()
        state._decoder.setstate(self._decoder.getstate())
        state.push(piece)
        return state

    @property
    def selective(self) -> bool:
        """Whether the next byte must be of a part of the continuation bytes, which llama.cpp knows nothing of."""
        return self._decoder.getstate()[0] in _SELECTIVE
