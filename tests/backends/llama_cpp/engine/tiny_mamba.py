"""Writes a tiny Mamba GGUF with random weights: its memory is one state per sequence, not a cache of tokens."""

from pathlib import Path

import numpy as np

from backends.llama_cpp.tiny_gguf import CHATML, add_tokens, begun, finished


def write_tiny_mamba(path: Path, *, seed: int = 0) -> Path:
    """Two layers over a vocabulary of the 256 bytes and two ChatML marks; it never draws the end token."""
    vocabulary, width, layers, inner, state, rank, kernel = 259, 32, 2, 64, 8, 4, 4
    rng = np.random.default_rng(seed)
    writer = begun(path, "mamba", context=1024, width=width, layers=layers, hidden=0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("gpt2")
    add_tokens(writer)
    writer.add_chat_template(CHATML)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.3).astype(np.float32)

    ones = np.ones(width, dtype=np.float32)
    writer.add_tensor("token_embd.weight", weights(vocabulary, width))
    for layer in range(layers):
        block = f"blk.{layer}."
        writer.add_tensor(f"{block}attn_norm.weight", ones)
        writer.add_tensor(f"{block}ssm_in.weight", weights(2 * inner, width))
        writer.add_tensor(f"{block}ssm_conv1d.weight", weights(inner, kernel))
        writer.add_tensor(f"{block}ssm_conv1d.bias", weights(inner))
        writer.add_tensor(f"{block}ssm_x.weight", weights(rank + 2 * state, inner))
        writer.add_tensor(f"{block}ssm_dt.weight", weights(inner, rank))
        writer.add_tensor(f"{block}ssm_dt.bias", weights(inner))
        writer.add_tensor(f"{block}ssm_a", -np.abs(weights(inner, state)) - 0.1)
        writer.add_tensor(f"{block}ssm_d", weights(inner))
        writer.add_tensor(f"{block}ssm_out.weight", weights(width, inner))
    writer.add_tensor("output_norm.weight", ones)
    output = weights(vocabulary, width)
    output[256] = 0
    writer.add_tensor("output.weight", output)
    return finished(writer, path)
