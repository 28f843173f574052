"""The llama.cpp samplers a set of parameters asks for, in the order of llama.cpp's own programs."""

import ctypes
from typing import Any

from langchain_reasc_llama_cpp.native.model import NativeModel
from langchain_reasc_llama_cpp.sampling.parameters import SEEDS, SamplingParameters

__all__ = ["stages"]

_NEGLIGIBLE = 1e-30  # of the likeliest token's probability


def stages(llama: Any, parameters: SamplingParameters, seed: int, model: NativeModel) -> list[Any]:
    """Make the samplers of a chain; those that would do nothing are left out.

    Args:
        llama: the ``llama_cpp`` module.
        parameters: what to make.
        seed: the random seed, taken modulo :data:`SEEDS`.
        model: the model whose vocabulary it is for.

    Returns:
        Handles, in the order of ``common_sampler_init`` in llama.cpp's common/sampling.cpp; whoever adds them to a
        chain hands them over.
    """
    seed %= SEEDS
    chain = _bias(llama, parameters, model)
    if parameters.mirostat and not parameters.greedy:
        return [
            *chain,
            llama.llama_sampler_init_temp(parameters.temperature),
            _mirostat(llama, parameters, seed, model),
        ]
    if parameters.penalises:
        chain.append(_penalties(llama, parameters, model))
    if parameters.dry:
        chain.append(_dry(llama, parameters, model))
    if parameters.greedy:
        return [*chain, llama.llama_sampler_init_greedy()]
    chain += _truncation(llama, parameters)
    if parameters.xtc:
        probability, threshold = parameters.xtc_probability, parameters.xtc_threshold
        chain.append(llama.llama_sampler_init_xtc(probability, threshold, 1, seed))
    chain.append(_temperature(llama, parameters))
    chain.append(llama.llama_sampler_init_dist(seed))
    return chain


def _truncation(llama: Any, parameters: SamplingParameters) -> list[Any]:
    chain = []
    if parameters.top_n_sigma:
        chain.append(llama.llama_sampler_init_top_n_sigma(parameters.top_n_sigma))
    if parameters.top_k:
        chain.append(llama.llama_sampler_init_top_k(parameters.top_k))
    if parameters.typical_p < 1:
        # It takes log p, and one p that underflows to 0 makes its entropy NaN.
        chain.append(llama.llama_sampler_init_min_p(_NEGLIGIBLE, 1))
        chain.append(llama.llama_sampler_init_typical(parameters.typical_p, 1))
    if parameters.top_p < 1:
        chain.append(llama.llama_sampler_init_top_p(parameters.top_p, 1))
    if parameters.min_p:
        chain.append(llama.llama_sampler_init_min_p(parameters.min_p, 1))
    return chain


def _temperature(llama: Any, parameters: SamplingParameters) -> Any:
    if not parameters.dynatemp_range:
        return llama.llama_sampler_init_temp(parameters.temperature)
    spread, exponent = parameters.dynatemp_range, parameters.dynatemp_exponent
    return llama.llama_sampler_init_temp_ext(parameters.temperature, spread, exponent)


def _bias(llama: Any, parameters: SamplingParameters, model: NativeModel) -> list[Any]:
    pairs = [*parameters.logit_bias, *((token, float("-inf")) for token in model.suppressed)]
    if not pairs:
        return []
    array = (llama.llama_logit_bias * len(pairs))(*pairs)
    return [llama.llama_sampler_init_logit_bias(model.vocabulary_size, len(pairs), array)]


def _penalties(llama: Any, parameters: SamplingParameters, model: NativeModel) -> Any:
    return llama.llama_sampler_init_penalties(
        model.vocabulary_size,
        _window(parameters.repeat_last_n, model),
        parameters.repeat_penalty,
        parameters.frequency_penalty,
        parameters.presence_penalty,
    )


def _dry(llama: Any, parameters: SamplingParameters, model: NativeModel) -> Any:
    """A clone of one kept with the model: to make one, llama.cpp looks for the breakers in every token's text."""
    texts = [text.encode("utf-8", "replace") for text in parameters.dry_sequence_breakers]
    settings = (
        parameters.dry_multiplier,
        parameters.dry_base,
        parameters.dry_allowed_length,
        _window(parameters.dry_penalty_last_n, model),
    )

    def make() -> Any:
        breakers = (ctypes.c_char_p * len(texts))(*texts)
        return llama.llama_sampler_init_dry(model.vocabulary, *settings, breakers, len(texts))

    return llama.llama_sampler_clone(model.kept_sampler(("dry", *settings, *texts), make))


def _mirostat(llama: Any, parameters: SamplingParameters, seed: int, model: NativeModel) -> Any:
    tau, eta = parameters.mirostat_tau, parameters.mirostat_eta
    if parameters.mirostat == 1:
        return llama.llama_sampler_init_mirostat(model.vocabulary_size, seed, tau, eta, 100)
    return llama.llama_sampler_init_mirostat_v2(seed, tau, eta)


def _window(size: int, model: NativeModel) -> int:
    """-1 stands for all of a response; none is longer than what the model was trained to see, or makes sense beyond."""
    return model.training_context if size < 0 else size
