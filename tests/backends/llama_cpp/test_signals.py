"""Token signals against a float64 reference over the logits of a plain, sequential llama_decode run."""

import zlib
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt
import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableParallel
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.sampling import SEEDS

from backends.llama_cpp.faces import Face, merged, output_tokens
from backends.llama_cpp.tiny_gguf import write_tiny_model
from langchain_reasc.exceptions import ConfidenceError
from langchain_reasc.method.token_signals import SIGNALS
from langchain_reasc.models import read_signals

Logits = npt.NDArray[np.float64]
QUESTION = "Kira has 7 roses and buys 12 more. How many roses does Kira have?"


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


@pytest.mark.parametrize(("n", "scale"), [(1, 0.05), (5, 0.4), (5, 1.5)], ids=["flat", "plain", "peaked"])
def test_signals_are_exact(tmp_path: Path, scale: float, n: int) -> None:
    path = write_tiny_model(tmp_path / "model.gguf", scale=scale)
    with ChatLlamaCpp(model_path=path, seed=3, max_tokens=40, top_k_signal=7) as model:
        check_exact(model, "hello", n, k=7)


def test_a_real_models_signals_are_exact(real: ChatLlamaCpp) -> None:
    model = real.model_copy(update={"top_k": 30, "max_tokens": 40, "seed": 3})
    check_exact(model, QUESTION, 8, k=20)


def test_logits_that_are_not_finite_are_an_error(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "broken.gguf", poison=float("nan"))
    with ChatLlamaCpp(model_path=path, max_tokens=5) as model:
        for _ in range(2):
            with pytest.raises(ConfidenceError, match="not finite"):
                model.invoke("hello")


def check_response(message: AIMessage, k: int) -> None:
    """One entry per token, which spell the text, with the numbers that the signals have."""
    content = message.response_metadata["logprobs"]["content"]
    assert len(content) == output_tokens(message)
    assert {len(entry["top_logprobs"]) for entry in content} == {k}
    spelled_out = "".join(entry["token"] for entry in content)
    assert spelled_out.startswith(message.text)  # and then the end token or the stop string
    assert all(entry["logprob"] <= 0 for entry in content)
    recorded = message.response_metadata["token_signals"]
    assert [entry["logprob"] for entry in content] == recorded["token_logprob"]
    if k == 20:
        np.testing.assert_allclose(
            read_signals(AIMessage("", response_metadata={"logprobs": {"content": content}})).signals["top_k"],
            recorded["top_k"],
            atol=1e-5,
        )


@pytest.mark.parametrize("options", [{}, {"max_tokens": 9}, {"stop": ["."]}], ids=["to its end", "length", "stop"])
def test_a_stream_of_logprobs_gives_each_entry_once(face: Face, real: ChatLlamaCpp, options: dict[str, Any]) -> None:
    chunks = face.stream(real, QUESTION, logprobs=True, top_logprobs=2, seed=5, **options)
    assert sum("logprobs" in chunk.response_metadata for chunk in chunks) > 5
    check_response(merged(chunks), 2)


def test_samples_carry_logprobs_cancelled_or_not(face: Face, endless: ChatLlamaCpp) -> None:
    got = face.sample(endless, "hello", n=4, max_tokens=50, cancel_after=1, logprobs=True)
    assert len(got) == 4
    for _, message in got:
        assert len(message.response_metadata["logprobs"]["content"]) == output_tokens(message)


def test_requests_beside_each_other_get_what_each_asked_for(real: ChatLlamaCpp) -> None:
    both = ("top_k", "token_logprob")
    options: dict[str, dict[str, Any]] = {
        "logprobs": {"logprobs": True, "top_logprobs": 20, "signals": both},
        "few": {"logprobs": True, "signals": both},
        "signals": {"signals": ("self_certainty",)},
        "nothing": {"signals": ()},
    }
    beside = RunnableParallel({name: real.bind(**asked) for name, asked in options.items()})
    for answers in beside.batch([QUESTION] * 3):
        check_response(answers["logprobs"], 20)
        check_response(answers["few"], 0)
        assert set(answers["signals"].response_metadata["token_signals"]) == {"self_certainty"}
        for name in ("signals", "nothing"):
            assert "logprobs" not in answers[name].response_metadata
        assert "token_signals" not in answers["nothing"].response_metadata
