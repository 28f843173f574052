"""One llama.cpp sampler chain per sequence, each with a seed of its own."""

import ctypes
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_llama_cpp import native

__all__ = ["SEEDS", "Candidates", "SamplerChain", "SamplingParameters"]

SEEDS = 2**32 - 1
"""Seeds are taken modulo this: llama.cpp reads the last 32-bit value as "draw one at random"."""


@dataclass(frozen=True, kw_only=True)
class SamplingParameters:
    """How a token is drawn, in llama.cpp's own order: top_k, top_p, min_p, temperature.

    Attributes:
        temperature: 0 takes the most likely token.
        top_k: how many of the most likely tokens are kept; 0 keeps all.
        top_p: smallest set whose probability reaches this is kept; 1 keeps all.
        min_p: tokens below this fraction of the most likely one's probability are dropped; 0 drops none.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05

    def __post_init__(self) -> None:
        """Reject what llama.cpp would take without a word.

        Raises:
            ConfigurationError: a value is out of its range.
        """
        for name, within, wanted in (
            ("temperature", 0 <= self.temperature < float("inf"), "at least 0 and finite"),
            ("top_k", self.top_k >= 0, "at least 0 (0: off)"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1 (1: off)"),
            ("min_p", 0 <= self.min_p < 1, "at least 0 (0: off) and below 1"),
        ):
            if not within:
                raise ConfigurationError(f"{name} must be {wanted}, got {getattr(self, name)}")

    def as_dict(self) -> dict[str, float | int]:
        """The parameters by name."""
        return asdict(self)


class Candidates:
    """Room for the candidates of one draw from logits that are no longer in the context."""

    def __init__(self, vocabulary_size: int) -> None:
        self._llama = native.library()
        self._rows = np.zeros(vocabulary_size, dtype=[("id", "<i4"), ("logit", "<f4"), ("p", "<f4")])
        self._ids = np.arange(vocabulary_size, dtype=np.int32)
        self._data = self._rows.ctypes.data_as(self._llama.llama_token_data_p)

    def of(self, logits: npt.NDArray[np.float32]) -> Any:
        """A ``llama_token_data_array`` over these logits, shape (V,); valid until the next call."""
        self._rows["id"], self._rows["logit"] = self._ids, logits
        return self._llama.llama_token_data_array(data=self._data, size=self._rows.size, selected=-1, sorted=False)


class SamplerChain:
    """A chain of llama.cpp samplers. Owned by the thread that owns the context."""

    def __init__(self, parameters: SamplingParameters, seed: int) -> None:
        llama = self._llama = native.library()
        self._handle = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
        self._sample = llama.llama_sampler_sample
        for sampler in _samplers(llama, parameters, seed):
            llama.llama_sampler_chain_add(self._handle, sampler)

    def sample(self, context: Any, row: int) -> int:
        """Draw from the ``row``-th logits of the last decode."""
        token: int = self._sample(self._handle, context, row)
        return token

    def sample_from(self, candidates: Any) -> int:
        """Draw from a ``llama_token_data_array``, which is reordered by it."""
        self._llama.llama_sampler_apply(self._handle, ctypes.byref(candidates))
        token: int = candidates.data[candidates.selected].id
        self._llama.llama_sampler_accept(self._handle, token)
        return token

    def close(self) -> None:
        """Free the chain. Closing twice does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._llama.llama_sampler_free(handle)


def _samplers(llama: Any, parameters: SamplingParameters, seed: int) -> list[Any]:
    if parameters.temperature == 0:
        return [llama.llama_sampler_init_greedy()]
    chain = []
    if parameters.top_k:
        chain.append(llama.llama_sampler_init_top_k(parameters.top_k))
    if parameters.top_p < 1:
        chain.append(llama.llama_sampler_init_top_p(parameters.top_p, 1))
    if parameters.min_p:
        chain.append(llama.llama_sampler_init_min_p(parameters.min_p, 1))
    chain.append(llama.llama_sampler_init_temp(parameters.temperature))
    chain.append(llama.llama_sampler_init_dist(seed % SEEDS))
    return chain
