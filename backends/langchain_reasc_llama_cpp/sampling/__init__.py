"""Draw tokens."""

from langchain_reasc_llama_cpp.sampling.parameters import (
    DEFAULTS,
    SEEDS,
    SamplingFields,
    SamplingParameters,
)
from langchain_reasc_llama_cpp.sampling.sampler import SamplerChain

__all__ = ["DEFAULTS", "SEEDS", "SamplerChain", "SamplingFields", "SamplingParameters"]
