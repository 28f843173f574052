"""Writes a tiny Mamba GGUF with random weights: its memory is one state per sequence, not a cache of tokens."""

from pathlib import Path

import gguf
import numpy as np

from backends.llama_cpp.tiny_gguf import CHATML, END, START, byte_alphabet


def write_tiny_mamba(path: Path, *, seed: int = 0) -> Path:
    """Two layers over a vocabulary of the 256 bytes and two ChatML marks; it never draws the end token."""
    vocabulary, width, layers, inner, state, rank, kernel = 259, 32, 2, 64, 8, 4, 4
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_name("tiny random mamba")
    writer.add_context_length(1024)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*byte_alphabet(), END, START, "th"])
    writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL])
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(256)
    writer.add_bos_token_id(257)
    writer.add_add_bos_token(False)
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
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
