"""Keeps drawn tokens to a grammar, without ever giving llama.cpp a token that it would throw an exception for."""

import ctypes
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfigurationError, ModelError
from langchain_reasc.method.top_candidates import top_candidates
from langchain_reasc_llama_cpp.grammar.gbnf import check_gbnf
from langchain_reasc_llama_cpp.grammar.grammar import Grammar
from langchain_reasc_llama_cpp.grammar.trigger import TriggerWatch
from langchain_reasc_llama_cpp.grammar.utf8_state import Utf8State
from langchain_reasc_llama_cpp.native.bindings import library, log
from langchain_reasc_llama_cpp.native.model import NativeModel
from langchain_reasc_llama_cpp.sampling.candidates import Logits

__all__ = ["GrammarSampler"]

_CHECKED: Final[WeakKeyDictionary[NativeModel, set[tuple[str, str]]]] = WeakKeyDictionary()
_MOST_KNOWN: Final = 64
_LIKELIEST: Final = 256

_LEADS_THREE: Final = 0xE0  # the first byte that leads a character of three


class GrammarSampler:
    """The state of one response within its grammar.

    llama.cpp throws when it accepts a token that its grammar refuses, and a C++ exception that reaches ctypes ends the
    process. So a token is tested before it is accepted, also where the grammar begins in the middle of a response.
    """

    def __init__(self, grammar: Grammar, model: NativeModel) -> None:
        """Read the grammar.

        Raises:
            ConfigurationError: it is malformed.
        """
        self._llama, self._model = library(), model
        self._texts = (grammar.gbnf.encode("utf-8", "replace"), grammar.root.encode("utf-8", "replace"))
        _check(grammar, model)
        self._one = self._llama.llama_token_data_array(
            data=ctypes.pointer(self._llama.llama_token_data()), size=1, selected=-1, sorted=False
        )
        self._single = self._one.data[0]
        self._handle: Any = self._fresh()
        self._watch = TriggerWatch(grammar.triggers, model) if grammar.triggers else None
        self._started: tuple[int, Any, Utf8State] | None = None
        self._utf8 = Utf8State()

    def allows(self, token: int) -> bool:
        """Whether the response may go on with this token."""
        if self._watch is None:
            return self._goes_on(self._handle, self._utf8, token)
        tokens = self._watch.set_off_by(token)
        if tokens is None:
            return True
        self._drop_start()
        handle, utf8 = self._fresh(), Utf8State()
        for part in tokens:
            if not self._goes_on(handle, utf8, part):
                self._llama.llama_sampler_free(handle)
                return False
            self._llama.llama_sampler_accept(handle, part)
            utf8.push(self._model.written(part))
        self._started = (token, handle, utf8)
        return True

    def accept(self, token: int) -> None:
        """Go on with a token that :meth:`allows` was just asked about."""
        if self._watch is None:
            self._llama.llama_sampler_accept(self._handle, token)
            self._utf8.push(self._model.written(token))
        elif self._started is not None and self._started[0] == token:
            self._llama.llama_sampler_free(self._handle)
            (_, self._handle, self._utf8), self._started, self._watch = self._started, None, None
        else:
            self._watch.push(token)

    def allowed(self, row: Logits, banned: list[int], *, enough: int | None = None) -> npt.NDArray[np.intp]:
        """Ids of the tokens the response may go on with, as far as one look tells, less the banned ones.

        Args:
            row: the logits of all tokens, shape (V,).
            banned: the token ids to leave out.
            enough: how many of the likeliest will do, which saves llama.cpp from looking at the whole vocabulary.

        Raises:
            ModelError: there is none.
        """
        left = np.ones(row.size, dtype=np.bool_)
        left[banned] = False
        if enough is not None and row.size > _LIKELIEST:
            likeliest, _ = top_candidates(row, _LIKELIEST)
            ids = self._allowed_of(likeliest[left[likeliest]], row)
            if ids.size >= enough:
                return ids
        ids = self._allowed_of(np.flatnonzero(left), row)
        if not ids.size:
            raise ModelError(
                "the grammar allows no token here: what it asks for cannot be written with the tokens of "
                f"{self._model.path.name} that logit_bias does not ban"
            )
        return ids

    def _allowed_of(self, ids: npt.NDArray[np.intp], row: Logits) -> npt.NDArray[np.intp]:
        if self._watch is not None or not ids.size:
            return ids
        candidates = self._model.candidates
        candidates.fill_some(ids, row[ids], ordered=False)
        self._llama.llama_sampler_apply(self._handle, candidates.array)
        return ids[candidates.logits[: ids.size] > -np.inf]

    def close(self) -> None:
        """Free the grammar. Closing twice does nothing."""
        self._drop_start()
        handle, self._handle = self._handle, None
        if handle is not None:
            self._llama.llama_sampler_free(handle)

    def _goes_on(self, handle: Any, utf8: Utf8State, token: int) -> bool:
        piece = self._model.written(token)
        if not utf8.allows(piece) or not self._fits(handle, token):
            return False
        after = utf8.after(piece) if piece and piece[-1] >= _LEADS_THREE else None
        return after is None or not after.selective or self._has_way_on(handle, after, token)

    def _has_way_on(self, handle: Any, after: Utf8State, token: int) -> bool:
        """Whether some token may follow this one; llama.cpp takes E0 for the beginning of an overlong character too."""
        clone = self._llama.llama_sampler_clone(handle)
        self._llama.llama_sampler_accept(clone, token)
        candidates = self._model.candidates
        candidates.fill(np.zeros(self._model.vocabulary_size, dtype=np.float32))
        self._llama.llama_sampler_apply(clone, candidates.array)
        self._llama.llama_sampler_free(clone)
        following = np.flatnonzero(candidates.logits == 0).tolist()
        return any(after.allows(self._model.written(token)) for token in following)

    def _fits(self, handle: Any, token: int) -> bool:
        self._single.id, self._single.logit = token, 1.0
        self._llama.llama_sampler_apply(handle, self._one)
        return bool(self._single.logit == 1.0)

    def _fresh(self) -> Any:
        log.forget()
        handle = self._llama.llama_sampler_init_grammar(self._model.vocabulary, *self._texts)
        if not handle:
            raise ConfigurationError(f"the grammar cannot be used: {log.last_error() or 'llama.cpp refuses it'}")
        return handle

    def _drop_start(self) -> None:
        if self._started is not None:
            self._llama.llama_sampler_free(self._started[1])
            self._started = None


def _check(grammar: Grammar, model: NativeModel) -> None:
    """Check each grammar once per model: that of many tools takes 10 ms, and every sample has it."""
    known = _CHECKED.setdefault(model, set())
    if (grammar.gbnf, grammar.root) not in known:
        check_gbnf(grammar.gbnf, root=grammar.root, is_token=lambda text: len(model.tokenize(text)) == 1)
        if len(known) >= _MOST_KNOWN:
            known.clear()
        known.add((grammar.gbnf, grammar.root))
