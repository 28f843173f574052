"""Writes tiny GGUFs with random weights: real files for llama.cpp, of a few hundred kB."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
END, START = "<|im_end|>", "<|im_start|>"


def random_weights(seed: int, scale: float) -> Callable[..., np.ndarray]:
    """Return a function that draws weights of a shape."""
    rng = np.random.default_rng(seed)
    return lambda *shape: (rng.standard_normal(shape) * scale).astype(np.float32)


def byte_alphabet() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def write_tiny_model(
    path: Path,
    *,
    chat_template: str | None = CHATML,
    context: int = 1024,
    seed: int = 0,
    scale: float = 0.4,
    ends: bool = True,
    architecture: str = "llama",
    tokenizer: str = "gpt2",
    metadata: Mapping[str, float | int | str] | None = None,
    poison: float | None = None,
    words: Sequence[str] = (),
    word_kind: gguf.TokenType = gguf.TokenType.USER_DEFINED,
    hidden: int = 64,
    sentencepiece: bool = False,
) -> Path:
    """A model of two layers over a vocabulary of the 256 bytes, two ChatML marks and one merge.

    Args:
        path: where to write.
        chat_template: None writes a GGUF without one.
        context: the training context it claims, in tokens.
        seed: of the random weights.
        scale: standard deviation of the weights; larger makes a more opinionated model.
        ends: False makes the end token impossible, so that responses run to their limit.
        architecture: what ``general.architecture`` claims.
        tokenizer: what ``tokenizer.ggml.model`` claims; "no_vocab" writes no tokens at all.
        metadata: further keys.
        poison: a value put into every output weight, such as NaN.
        words: texts that are one token each; their ids begin at 259.
        word_kind: what kind of token they are.
        hidden: width of the feed-forward layers; 10,000 make 8 MB of weights.
        sentencepiece: True writes Llama 2's kind of vocabulary, whose tokenizer puts a space before each text.
    """
    vocabulary, width, heads, layers = 259 + len(words), 32, 4, 2
    writer = begun(path, architecture, context=context, width=width, layers=layers, hidden=hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("llama" if sentencepiece else tokenizer)
    if sentencepiece:
        add_pieces(writer, words)
    elif tokenizer != "no_vocab":
        add_tokens(writer, words, word_kind)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    for key, value in (metadata or {}).items():
        writers = {float: writer.add_float32, int: writer.add_uint32, str: writer.add_string, bool: writer.add_bool}
        add = writers[type(value)]
        add(key, value)
    weights = random_weights(seed, scale)
    ones = np.ones(width, dtype=np.float32)
    # The first hidden value is a positive constant that no layer changes: a bias that output weights can use.
    embeddings = weights(vocabulary, width)
    embeddings[:, 0] = 1
    writer.add_tensor("token_embd.weight", embeddings)
    for layer in range(layers):
        block = f"blk.{layer}."
        for name in ("attn_q", "attn_k", "attn_v"):
            writer.add_tensor(f"{block}{name}.weight", weights(width, width))
        for name, inputs in (("attn_output", width), ("ffn_down", hidden)):
            writes = weights(width, inputs)
            writes[0] = 0
            writer.add_tensor(f"{block}{name}.weight", writes)
        writer.add_tensor(f"{block}attn_norm.weight", ones)
        writer.add_tensor(f"{block}ffn_norm.weight", ones)
        writer.add_tensor(f"{block}ffn_gate.weight", weights(hidden, width))
        writer.add_tensor(f"{block}ffn_up.weight", weights(hidden, width))
    writer.add_tensor("output_norm.weight", ones)
    output = weights(vocabulary, width)
    if not ends:
        output[256] = np.eye(1, width) * -1000
    if poison is not None:
        output[:] = poison
    writer.add_tensor("output.weight", output)
    return finished(writer, path)


def begun(path: Path, architecture: str, *, context: int, width: int, layers: int, hidden: int) -> gguf.GGUFWriter:
    """A writer that has been told what all models tell of themselves."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny random model")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    return writer


def add_tokens(
    writer: gguf.GGUFWriter, words: Sequence[str] = (), kind: gguf.TokenType = gguf.TokenType.NORMAL
) -> None:
    """The 256 bytes, two ChatML marks, one merge, and words that are one token each."""
    kinds = [gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL]
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*byte_alphabet(), END, START, "th", *words])
    writer.add_token_types(kinds + [kind] * len(words))
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(256)
    writer.add_bos_token_id(257)
    writer.add_add_bos_token(False)


def add_pieces(writer: gguf.GGUFWriter, words: Sequence[str]) -> None:
    """The same tokens for SentencePiece, and words that are pieces."""
    kinds = [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * (1 + len(words))
    writer.add_token_list([*(f"<0x{byte:02X}>" for byte in range(256)), END, START, "th", *words])
    writer.add_token_scores([0.0] * len(kinds))
    writer.add_token_types(kinds)
    writer.add_eos_token_id(256)
    writer.add_bos_token_id(257)
    writer.add_unk_token_id(256)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(True)


def finished(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_tiny_mamba(path: Path, *, seed: int = 0) -> Path:
    """A model whose memory is one state per sequence, not a cache of tokens; it never draws the end token."""
    vocabulary, width, layers, inner, state, rank, kernel = 259, 32, 2, 64, 8, 4, 4
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
    weights = random_weights(seed, 0.3)
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


def write_tiny_gemma(path: Path, *, window: int, seed: int = 0) -> Path:
    """A Gemma 3: five of its six layers attend to so many tokens only. It never draws the end token."""
    vocabulary, width, heads, layers, hidden = 259, 32, 4, 6, 64
    writer = begun(path, "gemma3", context=4096, width=width, layers=layers, hidden=hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_key_length(width // heads)
    writer.add_value_length(width // heads)
    writer.add_sliding_window(window)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("gpt2")
    add_tokens(writer)
    writer.add_chat_template(CHATML)
    weights = random_weights(seed, 0.4)
    ones = np.ones(width, dtype=np.float32)
    writer.add_tensor("token_embd.weight", weights(vocabulary, width))
    for layer in range(layers):
        block = f"blk.{layer}."
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            writer.add_tensor(f"{block}{name}.weight", ones)
        for name in ("attn_q_norm", "attn_k_norm"):
            writer.add_tensor(f"{block}{name}.weight", np.full(width // heads, 2, dtype=np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"{block}{name}.weight", weights(width, width))
        writer.add_tensor(f"{block}ffn_gate.weight", weights(hidden, width))
        writer.add_tensor(f"{block}ffn_up.weight", weights(hidden, width))
        writer.add_tensor(f"{block}ffn_down.weight", weights(width, hidden))
    writer.add_tensor("output_norm.weight", ones)
    output = weights(vocabulary, width)
    output[256] = 0
    writer.add_tensor("output.weight", output)
    return finished(writer, path)
