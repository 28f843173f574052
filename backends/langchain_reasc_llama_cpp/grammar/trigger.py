"""Watches a response for the texts that switch a grammar on."""

from collections import deque
from collections.abc import Callable, Sequence

from langchain_reasc_llama_cpp.native.model import NativeModel

__all__ = ["TriggerWatch"]


class TriggerWatch:
    """The last tokens of a response, as far back as a trigger could begin."""

    def __init__(self, triggers: Sequence[str], model: NativeModel, spell: Callable[[str], list[int]]) -> None:
        """Begin.

        Args:
            triggers: the texts, at least one.
            model: whose tokens are watched.
            spell: tokens that write a text.
        """
        self._model, self._spell = model, spell
        self._triggers = [trigger.encode("utf-8", "replace") for trigger in triggers]
        self._reach = max(map(len, self._triggers)) - 1
        self._tokens: deque[tuple[int, bytes]] = deque()
        self._length = 0

    def set_off_by(self, token: int) -> list[int] | None:
        """Whether this token would complete a trigger.

        Returns:
            Tokens that spell the response from the trigger's first byte on; None where no trigger is complete.
        """
        written = [*self._tokens, (token, self._model.piece(token)[0])]
        text = b"".join(piece for _, piece in written)
        begins = [at for at in map(text.find, self._triggers) if at >= 0]
        return self._tokens_from(min(begins), written) if begins else None

    def push(self, token: int) -> None:
        """Add a token that did not complete a trigger."""
        piece = self._model.piece(token)[0]
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
                tokens += self._spell(piece[begin - at :].decode("utf-8", "replace"))
            at += len(piece)
        return tokens
