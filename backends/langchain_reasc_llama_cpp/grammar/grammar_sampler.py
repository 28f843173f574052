"""Keeps drawn tokens to a grammar: llguidance says which tokens may come next."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ModelError
from langchain_reasc_llama_cpp.grammar.grammar import Grammar
from langchain_reasc_llama_cpp.grammar.matchers import matchers
from langchain_reasc_llama_cpp.native.model import NativeModel

__all__ = ["GrammarSampler"]


class GrammarSampler:
    """The state of one response within its grammar."""

    def __init__(self, grammar: Grammar, model: NativeModel) -> None:
        """Begin a response.

        Raises:
            ConfigurationError: the grammar is malformed, or no text keeps to it.
        """
        self._model = model
        made, tokenizer = matchers(grammar, model)
        self._matchers = [matcher.deep_copy() for matcher in made]
        self._watch = _TriggerWatch(grammar.triggers, model, tokenizer.greedy_tokenize) if grammar.triggers else None
        self._begun: list[int] | None = None  # what the token asked about would switch the grammar on with

    def allows(self, token: int) -> bool:
        """Whether the response may go on with this token."""
        if self._watch is None:
            return all(self._goes_on(matcher, token) for matcher in self._matchers)
        self._begun = tokens = self._watch.set_off_by(token)
        return tokens is None or all(matcher.validate_tokens(tokens) == len(tokens) for matcher in self._matchers)

    def accept(self, token: int) -> None:
        """Go on with a token that :meth:`allows` was just asked about."""
        tokens = [token]
        if self._watch is not None:
            if self._begun is None:
                self._watch.push(token)
                return
            tokens, self._watch = self._begun, None
        if not self._model.piece(token)[1]:
            for matcher in self._matchers:
                matcher.consume_tokens(tokens)

    def allowed(self, banned: list[int]) -> npt.NDArray[np.intp]:
        """Ids of the tokens the response may go on with, less the banned ones.

        While the grammar waits for a trigger these are all: :meth:`allows` tells which would begin it wrongly.

        Raises:
            ModelError: there is none.
        """
        left = np.ones(self._model.vocabulary_size, dtype=np.bool_)
        for matcher in self._matchers if self._watch is None else ():
            left &= self._mask(matcher)
        left[banned] = False
        ids = np.flatnonzero(left)
        if not ids.size:
            raise ModelError(
                "the grammar allows no token here: what it asks for cannot be written with the tokens of "
                f"{self._model.path.name} that logit_bias does not ban"
            )
        return ids

    def _goes_on(self, matcher: Any, token: int) -> bool:
        if matcher.validate_tokens([token]):
            return True
        return self._model.piece(token)[1] and bool(matcher.is_accepting())

    def _mask(self, matcher: Any) -> npt.NDArray[np.bool_]:
        """Which tokens one matcher allows, shape (V,)."""
        bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        if matcher.is_stopped() and not matcher.is_accepting():
            why = " ".join(matcher.get_error().split())[:200]
            raise ModelError(f"the grammar allows no token here ({matcher.stop_reason()}): {why}")
        return np.unpackbits(bits, count=self._model.vocabulary_size, bitorder="little").view(np.bool_)


class _TriggerWatch:
    """The last tokens of a response, as far back as one of the texts that switch a grammar on could begin."""

    def __init__(self, triggers: Sequence[str], model: NativeModel, spell: Callable[[str], list[int]]) -> None:
        """Begin; ``spell`` gives tokens that write a text."""
        self._model, self._spell = model, spell
        self._triggers = [trigger.encode("utf-8", "replace") for trigger in triggers]
        self._reach = max(map(len, self._triggers)) - 1
        self._tokens: deque[tuple[int, bytes]] = deque()
        self._length = 0

    def set_off_by(self, token: int) -> list[int] | None:
        """Tokens that spell the response from a trigger's first byte on; None where this token would complete none."""
        written = [*self._tokens, (token, self._model.piece(token)[0])]
        text = b"".join(piece for _, piece in written)
        begins = [at for at in map(text.find, self._triggers) if at >= 0]
        if not begins:
            return None
        begin, at, tokens = min(begins), 0, list[int]()
        for number, piece in written:
            if at >= begin:
                tokens.append(number)
            elif at + len(piece) > begin:  # the trigger begins inside this token
                tokens += self._spell(piece[begin - at :].decode("utf-8", "replace"))
            at += len(piece)
        return tokens

    def push(self, token: int) -> None:
        """Add a token that did not complete a trigger."""
        piece = self._model.piece(token)[0]
        self._tokens.append((token, piece))
        self._length += len(piece)
        while self._tokens and self._length - len(self._tokens[0][1]) >= self._reach:
            self._length -= len(self._tokens.popleft()[1])
