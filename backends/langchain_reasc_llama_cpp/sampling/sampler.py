"""Draw tokens. Each sequence has a llama.cpp sampler chain with its own seed."""

import ctypes
from collections import deque
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from langchain_reasc_backend.logits import top_candidates

from langchain_reasc.exceptions import ConfigurationError, ModelError
from langchain_reasc_llama_cpp.grammar.grammar import Grammar, GrammarSampler
from langchain_reasc_llama_cpp.native.bindings import Logits, library
from langchain_reasc_llama_cpp.native.model import NativeModel
from langchain_reasc_llama_cpp.sampling.parameters import SEEDS, SamplingParameters

_SELECTS: Final = 12_000
"""The smallest vocabulary for which numpy selects the top k faster than llama.cpp sorts
the whole vocabulary.
"""
_SHARE: Final = (
    64  # a larger part of the vocabulary than 1 / this is not worth selecting
)
_NEGLIGIBLE: Final = 1e-30  # of the likeliest token's probability

Ids = npt.NDArray[np.integer[Any]]


class SamplerChain:
    """A chain of llama.cpp samplers that draws from rows of raw logits. The engine's
    thread owns it.

    If the vocabulary is large and the chain keeps the top k, only tokens that can be
    among them go through the chain: the likeliest, and those whose logits penalties or
    ``logit_bias`` change. The draws are the same.
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
            seed: the random seed, taken modulo :data:`~.parameters.SEEDS`.
            model: the model of the logits.
            grammar: the grammar of the response, or None.
            context: the address of the ``llama_context`` that decodes the rows; 0 if
                they come from elsewhere.

        Raises:
            ConfigurationError: ``logit_bias`` names a token that the model does not
                have, or the grammar is malformed.
        """
        check_tokens([token for token, _ in parameters.logit_bias], model)
        llama = self._llama = library()
        self.selects = _selected(parameters, model)
        brief = self.selects > 0 or model.vocabulary_size < _SELECTS
        self._apply, self._accept, self._sample = _functions(brief)
        self._candidates = model.candidates
        biases = _biases(parameters, model)
        self._biased = list(biases)
        self._banned = [token for token, bias in biases.items() if bias == -np.inf]
        self._recent = _recent_tokens(parameters)
        self._largest = model.vocabulary_size // _SHARE
        self._takes_best = (
            parameters.greedy and not self._biased and self._recent is None
        )
        self._grammar = None if grammar is None else GrammarSampler(grammar, model)
        plain = brief and not (self.selects or self._biased or grammar)
        # 0: rows go through the candidates
        self._context = context * (plain and _always_draws(parameters))
        self._handle = llama.llama_sampler_chain_init(
            llama.llama_sampler_chain_default_params()
        )
        for applies, make, *arguments in _stages(
            parameters, biases, seed % SEEDS, model
        ):
            if applies:
                llama.llama_sampler_chain_add(self._handle, make(*arguments))
        self._chain = ctypes.cast(self._handle, ctypes.c_void_p).value

    def draw(self, row: Logits, place: int = -1) -> int:
        """Draw a token, and remember it for penalties and the grammar.

        Args:
            row: raw logits, shape (V,), contiguous. Not modified.
            place: the index of the row in the last decode; below 0 if it is not in the
                last decode.

        Raises:
            ModelError: the grammar or banned tokens leave no token to draw.
        """
        # a small vocabulary: llama.cpp reads its own logits faster than numpy can
        if place >= 0 and self._context:
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
        """Draw from a whole row."""
        if self._takes_best:
            return int(row.argmax())
        if self.selects and not self._biased and self._recent is None:
            return self._pick_among(*top_candidates(row, self.selects), ordered=True)
        # the tokens whose logits the chain changes before it looks for the largest
        if self.selects:
            touched = np.unique(
                np.array([*self._biased, *(self._recent or ())], dtype=np.intp)
            )
            if self.selects + len(touched) <= self._largest:
                ids = np.union1d(
                    top_candidates(row, self.selects + len(touched))[0], touched
                )
                return self._pick_among(ids, row[ids], ordered=False)
        self._candidates.fill(row)
        return self._apply_chain()

    def _pick_among(self, ids: Ids, logits: Logits, *, ordered: bool) -> int:
        self._candidates.fill_some(ids, logits, ordered=ordered)
        return self._apply_chain()

    def _apply_chain(self) -> int:
        """Draw from the candidates that are filled in."""
        array = self._candidates.array
        self._apply(self._chain, self._candidates.address)
        place = array.selected
        chosen = array.data[place if place >= 0 else 0]
        if place < 0 or chosen.logit == -np.inf:
            raise ModelError(
                "logit_bias bans every token that the other parameters leave; ban "
                "fewer tokens"
            )
        token: int = chosen.id
        return token

    def _permitted(self, row: Logits, token: int, grammar: GrammarSampler) -> int:
        """Return the token, or one of the tokens that the grammar allows, and add it to
        the grammar's state.
        """
        refused: list[int] = []
        while not grammar.allows(token):
            refused.append(token)
            ids = grammar.allowed([*self._banned, *refused])
            logits = row[ids]
            token = (
                int(ids[logits.argmax()])
                if self._takes_best
                else self._pick_among(ids, logits, ordered=False)
            )
        grammar.accept(token)
        return token


def check_tokens(biased: Iterable[int], model: NativeModel) -> None:
    """Require that the model has all tokens with a bias.

    Raises:
        ConfigurationError: the model lacks one of them.
    """
    size = model.vocabulary_size
    if token := next((token for token in biased if token >= size), None):
        raise ConfigurationError(
            f"logit_bias: {model.path.name} has no token {token}; its tokens are 0 to "
            f"{size - 1:,}"
        )


def _biases(parameters: SamplingParameters, model: NativeModel) -> dict[int, float]:
    """Return token -> the number to add to its logit. Tokens that the GGUF forbids are
    banned.
    """
    return dict(parameters.logit_bias) | dict.fromkeys(model.suppressed, -np.inf)


def _stages(
    p: SamplingParameters, biases: dict[int, float], seed: int, model: NativeModel
) -> list[tuple[Any, ...]]:
    """Return the samplers of a chain: whether each has an effect, the function that
    makes it, and its arguments.

    The order is that of ``common_sampler_init`` in llama.cpp's common/sampling.cpp.
    """
    llama, size = library(), model.vocabulary_size
    biased = (llama.llama_logit_bias * len(biases))(*biases.items())
    bias = (biases, llama.llama_sampler_init_logit_bias, size, len(biases), biased)
    if p.mirostat and not p.greedy:
        aim = (p.mirostat_tau, p.mirostat_eta)
        return [
            bias,
            (True, llama.llama_sampler_init_temp, p.temperature),
            (p.mirostat == 1, llama.llama_sampler_init_mirostat, size, seed, *aim, 100),
            (p.mirostat == 2, llama.llama_sampler_init_mirostat_v2, seed, *aim),
        ]
    strengths = (p.repeat_penalty, p.frequency_penalty, p.presence_penalty)
    draws = not p.greedy
    return [
        bias,
        (
            p.penalises,
            llama.llama_sampler_init_penalties,
            size,
            _window(p.repeat_last_n, model),
            *strengths,
        ),
        (p.dry, _dry, p, model),
        (p.greedy, llama.llama_sampler_init_greedy),
        (draws and p.top_n_sigma, llama.llama_sampler_init_top_n_sigma, p.top_n_sigma),
        (draws and p.top_k, llama.llama_sampler_init_top_k, p.top_k),
        # Typical sampling takes log p, and one p that underflows to 0 makes its entropy
        # NaN.
        (draws and p.typical_p < 1, llama.llama_sampler_init_min_p, _NEGLIGIBLE, 1),
        (draws and p.typical_p < 1, llama.llama_sampler_init_typical, p.typical_p, 1),
        (draws and p.top_p < 1, llama.llama_sampler_init_top_p, p.top_p, 1),
        (draws and p.min_p, llama.llama_sampler_init_min_p, p.min_p, 1),
        (
            draws and p.xtc,
            llama.llama_sampler_init_xtc,
            p.xtc_probability,
            p.xtc_threshold,
            1,
            seed,
        ),
        # With a range of 0 this is the plain temperature.
        (
            draws,
            llama.llama_sampler_init_temp_ext,
            p.temperature,
            p.dynatemp_range,
            p.dynatemp_exponent,
        ),
        (draws, llama.llama_sampler_init_dist, seed),
    ]


def _dry(p: SamplingParameters, model: NativeModel) -> Any:
    """Clone a DRY sampler of the model (making one is slow, since llama.cpp searches
    the text of every token).
    """
    llama = library()
    texts = [text.encode("utf-8", "replace") for text in p.dry_sequence_breakers]
    window = _window(p.dry_penalty_last_n, model)
    settings = (p.dry_multiplier, p.dry_base, p.dry_allowed_length, window)

    def make() -> Any:
        breakers = (ctypes.c_char_p * len(texts))(*texts)
        return llama.llama_sampler_init_dry(
            model.vocabulary, *settings, breakers, len(texts)
        )

    return llama.llama_sampler_clone(model.kept_sampler((*settings, *texts), make))


def _window(size: int, model: NativeModel) -> int:
    """Return a window in tokens; -1 (the whole response) becomes the context length in
    training.
    """
    return model.training_context if size < 0 else size


def _selected(parameters: SamplingParameters, model: NativeModel) -> int:
    """Return how many of the likeliest tokens the chain needs; 0 for the whole
    vocabulary.
    """
    size, k = model.vocabulary_size, parameters.top_k
    if parameters.greedy:
        k = 1
    elif parameters.mirostat or parameters.top_n_sigma:
        k = 0
    return k if size >= _SELECTS and k * _SHARE <= size else 0


def _recent_tokens(p: SamplingParameters) -> deque[int] | None:
    """Return the window of tokens for penalties and DRY, or None if they are off."""
    sizes = [p.repeat_last_n] * p.penalises + [p.dry_penalty_last_n] * p.dry
    if not sizes:
        return None
    return deque(maxlen=None if min(sizes) < 0 else max(sizes))


def _always_draws(p: SamplingParameters) -> bool:
    """Return whether there is always a token to draw, so that ``llama_sampler_sample``
    cannot abort the process.
    """
    special = p.greedy or p.mirostat or p.penalises or p.dry or p.xtc
    return not special and not p.top_n_sigma and p.typical_p >= 1


@cache
def _functions(brief: bool) -> tuple[Any, Any, Any]:
    """Return ``llama_sampler_apply``, ``_accept`` and ``_sample`` that keep the GIL,
    since getting it back is slow.
    """
    llama = library()
    apply, accept, sample = (
        ctypes.cast(function, ctypes.c_void_p).value or 0
        for function in (
            llama.llama_sampler_apply,
            llama.llama_sampler_accept,
            llama.llama_sampler_sample,
        )
    )
    kind = ctypes.PYFUNCTYPE if brief else ctypes.CFUNCTYPE
    return (
        kind(None, ctypes.c_void_p, ctypes.c_void_p)(apply),
        ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(accept),
        ctypes.PYFUNCTYPE(
            ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32
        )(sample),
    )
