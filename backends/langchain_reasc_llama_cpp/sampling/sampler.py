"""Draws tokens: one llama.cpp sampler chain per sequence, each with a seed of its own."""

import ctypes
from collections import deque
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from langchain_reasc_backend.logits import top_candidates

from langchain_reasc.exceptions import ConfigurationError, ModelError
from langchain_reasc_llama_cpp.grammar.grammar import Grammar
from langchain_reasc_llama_cpp.grammar.grammar_sampler import GrammarSampler
from langchain_reasc_llama_cpp.native.bindings import library
from langchain_reasc_llama_cpp.native.candidates import Logits
from langchain_reasc_llama_cpp.native.model import NativeModel
from langchain_reasc_llama_cpp.sampling.parameters import SEEDS, SamplingParameters
from langchain_reasc_llama_cpp.sampling.stages import stages

__all__ = ["SEEDS", "SamplerChain", "SamplingParameters", "check_tokens"]

_SELECTS: Final = 12_000
"""From this vocabulary on, numpy selects the top k faster than llama.cpp is given, and sorts, the whole of it."""
_SHARE: Final = 64  # a larger part of the vocabulary than 1 / this is not worth selecting

Ids = npt.NDArray[np.integer[Any]]


class SamplerChain:
    """A chain of llama.cpp samplers that draws from rows of raw logits. Owned by the engine's thread.

    Where the vocabulary is large and the chain keeps the top k, only the tokens that can be among those go through it:
    the likeliest, and those whose logits penalties or ``logit_bias`` change. The draws are the same either way.
    """

    def __init__(
        self,
        parameters: SamplingParameters,
        seed: int,
        model: NativeModel,
        grammar: Grammar | None = None,
        *,
        context: int = 0,
    ) -> None:
        """Make the chain.

        Args:
            parameters: how tokens are drawn.
            seed: the random seed, taken modulo :data:`SEEDS`.
            model: the model whose logits are drawn from.
            grammar: what the drawn tokens must spell; None: anything.
            context: the address of the ``llama_context`` that rows are decoded in; 0: they come from elsewhere.

        Raises:
            ConfigurationError: ``logit_bias`` names a token that the model does not have, or the grammar is malformed.
        """
        check_tokens((token for token, _ in parameters.logit_bias), model)
        llama = self._llama = library()
        self._selects = _selected(parameters, model)
        brief = self._selects > 0 or model.vocabulary_size < _SELECTS
        self._apply, self._accept, self._sample = _functions(brief)
        self._candidates = model.candidates
        self._biased = [token for token, _ in parameters.logit_bias] + [*model.suppressed]
        self._banned = [token for token, bias in parameters.logit_bias if bias == -np.inf] + [*model.suppressed]
        self._recent: deque[int] | None = None
        if parameters.penalises or parameters.dry:
            self._recent = deque(maxlen=_window(parameters))
        self._largest = model.vocabulary_size // _SHARE
        self._takes_best = parameters.greedy and not self._biased and self._recent is None
        self._grammar = None if grammar is None else GrammarSampler(grammar, model)
        self._context = (
            0 if not brief or self._selects or self._biased or grammar or not _plain(parameters) else context
        )
        self._handle = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
        for sampler in stages(parameters, seed, model):
            llama.llama_sampler_chain_add(self._handle, sampler)
        self._chain = ctypes.cast(self._handle, ctypes.c_void_p).value

    def draw(self, row: Logits, place: int = -1) -> int:
        """Draw a token, and remember it for penalties and the grammar.

        Args:
            row: raw logits, shape (V,), contiguous. Not modified.
            place: which row of the last decode it is; below 0: of none.

        Raises:
            ModelError: the grammar, or the ban of tokens, leaves nothing to draw.
        """
        if place >= 0 and self._context:  # a small vocabulary: llama.cpp reads its own logits faster than numpy can
            drawn: int = self._sample(self._chain, self._context, place)
            return drawn
        token = self._pick(row)
        if self._grammar is not None:
            token = self._permitted(row, token, self._grammar)
        if self._recent is not None:
            self._recent.append(token)
            self._accept(self._chain, token)
        return token

    def close(self) -> None:
        """Free the chain. Closing twice does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._llama.llama_sampler_free(handle)

    def _pick(self, row: Logits) -> int:
        if self._takes_best:
            return int(row.argmax())
        if self._selects:
            touched = self._touched()
            if touched is None:
                return self._pick_some(*top_candidates(row, self._selects), ordered=True)
            if self._selects + len(touched) <= self._largest:
                ids = np.union1d(top_candidates(row, self._selects + len(touched))[0], touched)
                return self._pick_some(ids, row[ids], ordered=False)
        self._candidates.fill(row)
        return self._pick_ready()

    def _pick_some(self, ids: Ids, logits: Logits, *, ordered: bool) -> int:
        self._candidates.fill_some(ids, logits, ordered=ordered)
        return self._pick_ready()

    def _pick_ready(self) -> int:
        """Run the chain over the candidates that are ready."""
        array = self._candidates.array
        self._apply(self._chain, self._candidates.address)
        place = array.selected
        chosen = array.data[place if place >= 0 else 0]
        if place < 0 or chosen.logit == -np.inf:
            raise ModelError("logit_bias bans every token that the other parameters leave; ban fewer")
        token: int = chosen.id
        return token

    def _touched(self) -> Ids | None:
        """The tokens whose logits the chain changes before it looks for the largest; None: it changes none."""
        if self._recent is None and not self._biased:
            return None
        return np.unique(np.array([*self._biased, *(self._recent or ())], dtype=np.intp))

    def _permitted(self, row: Logits, token: int, grammar: GrammarSampler) -> int:
        """The token, or else one drawn from those the grammar allows; accepted by the grammar."""
        refused: list[int] = []
        while not grammar.allows(token):
            refused.append(token)
            ids = grammar.allowed([*self._banned, *refused])
            logits = row[ids]
            token = int(ids[logits.argmax()]) if self._takes_best else self._pick_some(ids, logits, ordered=False)
        grammar.accept(token)
        return token


def check_tokens(biased: Iterable[int], model: NativeModel) -> None:
    """Refuse a bias of a token that the model does not have.

    Raises:
        ConfigurationError: there is one.
    """
    size = model.vocabulary_size
    for token in biased:
        if token >= size:
            raise ConfigurationError(
                f"logit_bias: {model.path.name} has no token {token}; its tokens are 0 to {size - 1:,}"
            )


def _selected(parameters: SamplingParameters, model: NativeModel) -> int:
    """How many of the likeliest tokens the chain needs to see; 0: the whole vocabulary."""
    size, k = model.vocabulary_size, parameters.top_k
    if parameters.greedy:
        k = 1
    elif parameters.mirostat or parameters.top_n_sigma:
        k = 0
    return k if size >= _SELECTS and k * _SHARE <= size else 0


def _window(parameters: SamplingParameters) -> int | None:
    """Tokens that penalties and DRY look back at; None: all."""
    sizes = [parameters.repeat_last_n] * parameters.penalises + [parameters.dry_penalty_last_n] * parameters.dry
    return None if min(sizes) < 0 else max(sizes)


def _plain(parameters: SamplingParameters) -> bool:
    """Whether there always is a token to draw, so that ``llama_sampler_sample`` need not abort the process."""
    special = parameters.greedy or parameters.mirostat or parameters.penalises or parameters.dry or parameters.xtc
    return not special and not parameters.top_n_sigma and parameters.typical_p >= 1


@cache
def _functions(brief: bool) -> tuple[Any, Any, Any]:
    """``llama_sampler_apply``, ``_accept``, ``_sample``; brief calls keep the GIL: getting it back can take longer."""
    llama = library()
    apply, accept, sample = (
        ctypes.cast(function, ctypes.c_void_p).value or 0
        for function in (llama.llama_sampler_apply, llama.llama_sampler_accept, llama.llama_sampler_sample)
    )
    kind = ctypes.PYFUNCTYPE if brief else ctypes.CFUNCTYPE
    return (
        kind(None, ctypes.c_void_p, ctypes.c_void_p)(apply),
        ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(accept),
        ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)(sample),
    )
