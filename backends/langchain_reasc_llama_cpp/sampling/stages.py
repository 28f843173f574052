"""The llama.cpp samplers a set of parameters asks for, in the order of llama.cpp's own programs."""

import ctypes
from typing import Any

from langchain_reasc_llama_cpp.native.bindings import library
from langchain_reasc_llama_cpp.native.model import NativeModel
from langchain_reasc_llama_cpp.sampling.parameters import SEEDS, SamplingParameters

__all__ = ["stages"]

_NEGLIGIBLE = 1e-30  # of the likeliest token's probability


def stages(given: SamplingParameters, seed: int, model: NativeModel) -> list[Any]:
    """Make the samplers of a chain; those that would do nothing are left out. The seed is taken modulo :data:`SEEDS`.

    Returns:
        Handles, in the order of ``common_sampler_init`` in llama.cpp's common/sampling.cpp; whoever adds them to a
        chain hands them over.
    """
    llama, size, seed = library(), model.vocabulary_size, seed % SEEDS
    chain: list[Any] = []
    if biased := [*given.logit_bias, *((token, float("-inf")) for token in model.suppressed)]:
        array = (llama.llama_logit_bias * len(biased))(*biased)
        chain.append(llama.llama_sampler_init_logit_bias(size, len(biased), array))
    if given.mirostat and not given.greedy:
        chain.append(llama.llama_sampler_init_temp(given.temperature))
        aim = (given.mirostat_tau, given.mirostat_eta)
        if given.mirostat == 1:
            return [*chain, llama.llama_sampler_init_mirostat(size, seed, *aim, 100)]
        return [*chain, llama.llama_sampler_init_mirostat_v2(seed, *aim)]
    if given.penalises:
        strengths = (given.repeat_penalty, given.frequency_penalty, given.presence_penalty)
        chain.append(llama.llama_sampler_init_penalties(size, _window(given.repeat_last_n, model), *strengths))
    if given.dry:
        chain.append(_dry(llama, given, model))
    if given.greedy:
        return [*chain, llama.llama_sampler_init_greedy()]
    if given.top_n_sigma:
        chain.append(llama.llama_sampler_init_top_n_sigma(given.top_n_sigma))
    if given.top_k:
        chain.append(llama.llama_sampler_init_top_k(given.top_k))
    if given.typical_p < 1:
        # It takes log p, and one p that underflows to 0 makes its entropy NaN.
        chain.append(llama.llama_sampler_init_min_p(_NEGLIGIBLE, 1))
        chain.append(llama.llama_sampler_init_typical(given.typical_p, 1))
    if given.top_p < 1:
        chain.append(llama.llama_sampler_init_top_p(given.top_p, 1))
    if given.min_p:
        chain.append(llama.llama_sampler_init_min_p(given.min_p, 1))
    if given.xtc:
        chain.append(llama.llama_sampler_init_xtc(given.xtc_probability, given.xtc_threshold, 1, seed))
    if given.dynatemp_range:
        moved = (given.temperature, given.dynatemp_range, given.dynatemp_exponent)
        chain.append(llama.llama_sampler_init_temp_ext(*moved))
    else:
        chain.append(llama.llama_sampler_init_temp(given.temperature))
    return [*chain, llama.llama_sampler_init_dist(seed)]


def _dry(llama: Any, given: SamplingParameters, model: NativeModel) -> Any:
    """A clone of one kept with the model: to make one, llama.cpp looks for the breakers in every token's text."""
    texts = [text.encode("utf-8", "replace") for text in given.dry_sequence_breakers]
    window = _window(given.dry_penalty_last_n, model)
    settings = (given.dry_multiplier, given.dry_base, given.dry_allowed_length, window)

    def make() -> Any:
        breakers = (ctypes.c_char_p * len(texts))(*texts)
        return llama.llama_sampler_init_dry(model.vocabulary, *settings, breakers, len(texts))

    return llama.llama_sampler_clone(model.kept_sampler(("dry", *settings, *texts), make))


def _window(size: int, model: NativeModel) -> int:
    """-1 stands for all of a response; none is longer than what the model was trained to see, or makes sense beyond."""
    return model.training_context if size < 0 else size
