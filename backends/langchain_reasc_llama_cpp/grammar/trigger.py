"""Watches a response for the texts that switch a grammar on."""

from collections import deque
from collections.abc import Sequence

from langchain_reasc_llama_cpp.native.model import NativeModel

__all__ = ["TriggerWatch"]


class TriggerWatch:
    """The last tokens of a response, as far back as a trigger could begin."""

    def __init__(self, triggers: Sequence[str], model: NativeModel) -> None:
        self._model = model
        self._triggers = [trigger.encode("utf-8", "replace") for trigger in triggers]
        self._reach = max(map(len, self._triggers)) - 1
        self._tokens: deque[tuple[int, bytes]] = deque()
        self._length = 0

    def set_off_by(self, token: int) -> list[int] | None:
        """Whether this token would complete a trigger.

        Returns:
            The tokens that spell the response from the trigger's first byte on; None where no trigger is complete.
        """
        written = [*self._tokens, (token, self._model.written(token))]
        text = b"".join(piece for _, piece in written)
        begins = [at for at in map(text.find, self._triggers) if at >= 0]
        return self._tokens_from(min(begins), written) if begins else None

    def push(self, token: int) -> None:
        """Add a token that did not complete a trigger."""
        piece = self._model.written(token)
        self._tokens.append((token, piece))
        self._length += len(piece)
        while self._tokens and self._length - len(self._tokens[0][1]) >= self._reach:
            self._length -= len(self._tokens.popleft()[1])

    def _tokens_from(self, begin: int, written: list[tuple[int, bytes]]) -> list[int]:
        at, tokens = 0, []
        for token, piece in written:
            if at >= begin:
                tokens.append(token)
            elif at + len(piece) > begin:  # the trigger begins inside this token
                tokens += self._spelled(piece[begin - at :])
            at += len(piece)
        return tokens

    def _spelled(self, text: bytes) -> list[int]:
        """Other tokens that write this text."""
        # Some tokenizers put a space before a text; after a newline it is not in the way.
        tokens = self._model.tokenize("\n" + text.decode("utf-8", "replace"))
        found: list[int] = []
        tail = b""
        while tokens and len(tail) < len(text):
            token = tokens.pop()
            tail = self._model.written(token) + tail
            found.insert(0, token)
        return found
