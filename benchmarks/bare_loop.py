"""The floor: ``llama_decode`` and ``llama_sampler_sample`` through llama_cpp's
bindings, and nothing else.

n sequences share one prompt, as in ``llama.cpp/examples/batched``. No text, no end
tokens, no confidence.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import llama_cpp
import numpy as np
from langchain_reasc_llama_cpp.native.bindings import library
from langchain_reasc_llama_cpp.native.gguf_file import read_header
from langchain_reasc_llama_cpp.native.safe_kernels import may_repack

from benchmarks.table import seconds

SAMPLING: Final = {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8}
"""What every contender draws with."""

_BATCH: Final = 512  # prompt tokens per decode
_PROMPT: Final = 0  # the sequence that holds the prompt; 1 to n continue it


class BareLoop:
    """A model and a context with a unified KV cache, used from one thread, until its
    process ends.
    """

    def __init__(
        self,
        path: Path,
        *,
        sequences: int,
        cells: int,
        threads: int,
        n_gpu_layers: int,
        flash_attn: bool | None,
    ) -> None:
        """Load.

        Args:
            path: the GGUF.
            sequences: n at most.
            cells: tokens the KV cache holds.
            threads: CPU threads.
            n_gpu_layers: layers on a GPU; -1 for all.
            flash_attn: None leaves it to llama.cpp.

        Raises:
            RuntimeError: llama.cpp cannot load the model or make the context.
        """
        library()  # which keeps llama.cpp's log quiet
        model_parameters = llama_cpp.llama_model_default_params()
        model_parameters.n_gpu_layers = n_gpu_layers
        model_parameters.use_extra_bufts = may_repack(llama_cpp, read_header(path))
        model: Any = llama_cpp.llama_model_load_from_file(
            str(path).encode(), model_parameters
        )
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = cells
        parameters.n_batch = parameters.n_ubatch = _BATCH
        parameters.n_seq_max = parameters.n_outputs_max = sequences + 2
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.flash_attn_type = -1 if flash_attn is None else int(flash_attn)
        parameters.kv_unified = True
        parameters.no_perf = True
        self._context: Any = (
            llama_cpp.llama_init_from_model(model, parameters) if model else None
        )
        if not self._context:
            raise RuntimeError(
                f"llama.cpp cannot load {path} with {cells:,} cells for {sequences} "
                "sequences"
            )
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._sequences, self._last_prompt_token, self._prompt_tokens = sequences, 0, 0
        self._batch = llama_cpp.llama_batch_init(_BATCH, 0, 1)
        self._tokens = np.ctypeslib.as_array(self._batch.token, shape=(_BATCH,))
        self._positions = np.ctypeslib.as_array(self._batch.pos, shape=(_BATCH,))
        self._wanted = np.ctypeslib.as_array(
            ctypes.cast(self._batch.logits, ctypes.POINTER(ctypes.c_int8)), (_BATCH,)
        )
        np.ctypeslib.as_array(self._batch.n_seq_id, shape=(_BATCH,))[:] = 1

    def build(self) -> str:
        """What llama.cpp says of its build."""
        return str(llama_cpp.llama_print_system_info().decode()).rstrip(" |")

    def prefill_rate(self, prompt: Sequence[int], *, idle: Sequence[int] = ()) -> float:
        """Put a prompt into the cache, in place of all it held; returns tokens per
        second.

        Args:
            prompt: what sequences continue.
            idle: a prompt that stays in the cache beside it, used by nobody.
        """
        llama_cpp.llama_memory_clear(self._memory, False)
        self._put(idle, self._sequences + 1)
        self._last_prompt_token, self._prompt_tokens = prompt[-1], len(prompt)
        return len(prompt) / seconds(lambda: self._put(prompt, _PROMPT))

    def rate(self, n: int, tokens: int) -> float:
        """Generate ``tokens`` for each of n sequences of the prompt; returns tokens per
        second.

        The clock starts with the logits of the prompt at hand, as a prompt cache gives
        them: of those before, only the prompt is left, and its last token is decoded
        again.
        """
        for sequence in range(1, self._sequences + 1):
            llama_cpp.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        llama_cpp.llama_memory_seq_rm(
            self._memory, _PROMPT, self._prompt_tokens - 1, -1
        )
        self._own([_PROMPT])
        self._tokens[0], self._positions[0], self._wanted[0] = (
            self._last_prompt_token,
            self._prompt_tokens - 1,
            1,
        )
        self._decode(1)
        return n * tokens / seconds(lambda: self._generate(n, tokens))

    def _generate(self, n: int, tokens: int) -> None:
        sample, context = llama_cpp.llama_sampler_sample, self._context
        chains = [_chain(seed) for seed in range(n)]
        drawn = [sample(chain, context, -1) for chain in chains]
        for sequence in range(1, n + 1):
            llama_cpp.llama_memory_seq_cp(self._memory, _PROMPT, sequence, -1, -1)
        self._own(range(1, n + 1))
        self._positions[:n] = self._prompt_tokens
        self._wanted[:n] = 1
        for _ in range(tokens - 1):
            self._tokens[:n] = drawn
            self._decode(n)
            self._positions[:n] += 1
            drawn = [sample(chain, context, row) for row, chain in enumerate(chains)]
        for chain in chains:
            llama_cpp.llama_sampler_free(chain)

    def _put(self, prompt: Sequence[int], sequence: int) -> None:
        self._own([sequence] * _BATCH)
        for begin in range(0, len(prompt), _BATCH):
            part = prompt[begin : begin + _BATCH]
            self._tokens[: len(part)] = part
            self._positions[: len(part)] = range(begin, begin + len(part))
            self._wanted[: len(part)] = 0
            self._wanted[len(part) - 1] = 1
            self._decode(len(part))

    def _own(self, sequences: Sequence[int]) -> None:
        for row, sequence in enumerate(sequences):
            self._batch.seq_id[row][0] = sequence

    def _decode(self, size: int) -> None:
        self._batch.n_tokens = size
        code = llama_cpp.llama_decode(self._context, self._batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code} for {size} tokens")


def _chain(seed: int) -> Any:
    chain = llama_cpp.llama_sampler_chain_init(
        llama_cpp.llama_sampler_chain_default_params()
    )
    for sampler in (
        llama_cpp.llama_sampler_init_top_k(SAMPLING["top_k"]),
        llama_cpp.llama_sampler_init_top_p(SAMPLING["top_p"], 1),
        llama_cpp.llama_sampler_init_min_p(SAMPLING["min_p"], 1),
        llama_cpp.llama_sampler_init_temp(SAMPLING["temperature"]),
        llama_cpp.llama_sampler_init_dist(seed),
    ):
        llama_cpp.llama_sampler_chain_add(chain, sampler)
    return chain
