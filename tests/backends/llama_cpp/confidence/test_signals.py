"""Token signals against a float64 reference over the logits of a plain, sequential llama_decode run."""

import zlib
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt
import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.sampling import SEEDS

from backends.llama_cpp.faces import output_tokens
from backends.llama_cpp.tiny_gguf import write_tiny_model
from langchain_reasc.exceptions import ConfidenceError
from langchain_reasc.method.token_signals import SIGNALS

Logits = npt.NDArray[np.float64]


def reference_signals(logits: Logits, chosen: list[int], k: int) -> dict[str, npt.NDArray[np.float64]]:
    """The definitions, term by term, in float64."""
    log_p = (
        logits
        - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
        - logits.max(1, keepdims=True)
    )
    mean = -log_p.mean(axis=1)
    return {
        "self_certainty": mean,
        "kl_uniform": mean - np.log(logits.shape[1]),
        "top_k": -np.sort(log_p, axis=1)[:, -k:].mean(axis=1),
        "token_logprob": log_p[np.arange(len(chosen)), chosen],
        "neg_entropy": (np.exp(log_p) * log_p).sum(axis=1),
    }


def plain_run(model: ChatLlamaCpp, prompt: list[int], seeds: list[int], tokens: int) -> list[tuple[Logits, list[int]]]:
    """Generation with llama.cpp's own calls in a context of its own: logits and drawn tokens for each seed.

    Sequences decode together, as in the engine: the weights and the KV cache are in half precision, so their logits
    depend on what else is in the batch, by more than the signals may be off.
    """
    native = model.engine.model
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx, parameters.n_threads, parameters.n_seq_max = 2048, 1, len(seeds) + 1
    parameters.kv_unified, parameters.flash_attn_type = True, 0
    context = llama_cpp.llama_init_from_model(native.handle, parameters)
    memory = llama_cpp.llama_get_memory(context)
    vocabulary = llama_cpp.llama_model_get_vocab(native.handle)
    salt = zlib.crc32(np.array(prompt, dtype=np.int32).tobytes())  # each prompt has draws of its own
    chains = [sampler_chain(model, (salt + seed) % SEEDS) for seed in seeds]
    batch = llama_cpp.llama_batch_init(512, 0, 1)

    def decode(entries: list[tuple[int, int, int, bool]]) -> None:
        batch.n_tokens = len(entries)
        for i, (token, position, sequence, wanted) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        assert llama_cpp.llama_decode(context, batch) == 0

    def draw(chain: Any, row: int, run: tuple[list[Any], list[int]]) -> bool:
        logits = llama_cpp.llama_get_logits_ith(context, row)
        run[0].append(np.ctypeslib.as_array(logits, (native.vocabulary_size,)).astype(np.float64))
        run[1].append(llama_cpp.llama_sampler_sample(chain, context, row))
        return llama_cpp.llama_vocab_is_eog(vocabulary, run[1][-1]) or len(run[1]) == tokens

    decode([(token, at, 0, at == len(prompt) - 1) for at, token in enumerate(prompt)])
    runs: list[tuple[list[Any], list[int]]] = [([], []) for _ in seeds]
    live = []
    for i, chain in enumerate(chains):
        llama_cpp.llama_memory_seq_cp(memory, 0, i + 1, -1, -1)
        if not draw(chain, -1, runs[i]):
            live.append(i)
    while live:
        decode([(runs[i][1][-1], len(prompt) + len(runs[i][1]) - 1, i + 1, True) for i in live])
        ended = [i for row, i in enumerate(live) if draw(chains[i], row, runs[i])]
        for i in ended:
            llama_cpp.llama_memory_seq_rm(memory, i + 1, -1, -1)
        live = [i for i in live if i not in ended]
    llama_cpp.llama_batch_free(batch)
    for chain in chains:
        llama_cpp.llama_sampler_free(chain)
    llama_cpp.llama_free(context)
    return [(np.array(rows), chosen) for rows, chosen in runs]


def sampler_chain(model: ChatLlamaCpp, seed: int) -> Any:
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    sampling = model.call_options().sampling(model.engine.model.metadata)
    for sampler in (
        llama_cpp.llama_sampler_init_top_k(sampling.top_k),
        llama_cpp.llama_sampler_init_top_p(sampling.top_p, 1),
        llama_cpp.llama_sampler_init_min_p(sampling.min_p, 1),
        llama_cpp.llama_sampler_init_temp(sampling.temperature),
        llama_cpp.llama_sampler_init_dist(seed),
    ):
        llama_cpp.llama_sampler_chain_add(chain, sampler)
    return chain


def check_exact(model: ChatLlamaCpp, question: str, n: int, *, k: int) -> None:
    samples = dict(model.sample(question, n=n))
    runs = plain_run(model, model.prompt_tokens(question), [3 + i for i in range(n)], 40)
    for index, (logits, chosen) in enumerate(runs):
        message = samples[index]
        assert output_tokens(message) == len(chosen)
        wanted = reference_signals(logits, chosen, k)
        for name in SIGNALS:
            found = message.response_metadata["token_signals"][name]
            np.testing.assert_allclose(found, wanted[name], atol=1e-4, rtol=0, err_msg=f"{index} {name}")


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("scale", [0.05, 0.4, 1.5], ids=["flat", "plain", "peaked"])
def test_signals_are_exact(tmp_path: Path, scale: float, n: int) -> None:
    path = write_tiny_model(tmp_path / "model.gguf", scale=scale)
    with ChatLlamaCpp(model_path=path, seed=3, max_tokens=40, top_k_signal=7) as model:
        check_exact(model, "hello", n, k=7)


@pytest.mark.parametrize("n", [1, 8])
def test_the_shipped_models_signals_are_exact(solo: ChatLlamaCpp, n: int) -> None:
    model = solo.model_copy(update={"top_k": 30, "max_tokens": 40, "seed": 3})
    check_exact(model, "Kira has 7 roses and buys 12 more. How many roses does Kira have?", n, k=20)


def test_logits_that_are_not_finite_are_an_error(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "broken.gguf", poison=float("nan"))
    with ChatLlamaCpp(model_path=path, max_tokens=5) as model:
        for _ in range(2):
            with pytest.raises(ConfidenceError, match="not finite"):
                model.invoke("hello")
