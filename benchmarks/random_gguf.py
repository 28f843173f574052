"""Writes a GGUF with random weights at a real model's shape: decoding it costs what
decoding the real one costs.

The weights' blocks are drawn as they lie in the file, so that half a billion of them
take seconds.
"""

import os
import string
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import numpy.typing as npt

CHATML: Final = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt "
    "%}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_CONTROL: Final = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_RESERVED: Final = (
    293  # ids at the end that Qwen2.5 keeps for control tokens and padding
)
# coprime to 26², so that a part of all four-letter tokens is spread over the alphabet
_STRIDE: Final = 37
Tensor = tuple[str, npt.NDArray[Any], Any]
QUANTIZATIONS: Final = ("Q8_0", "Q4_0", "F16")
_VERSION: Final = 2  # of what is written; part of the cached files' names


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Dimensions of a Qwen2-architecture model; widths are multiples of 32."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    context: int = 32_768


HALF_BILLION: Final = Shape(
    layers=24, width=896, heads=14, kv_heads=2, hidden=4864, vocabulary=151_936
)
"""Qwen2.5-0.5B."""


def cached_model(folder: Path | None, *, shape: Shape, quantization: str) -> Path:
    """The random model of this shape, written unless it is in the folder (None: one
    beside temporary files) already.
    """
    folder = folder or Path(tempfile.gettempdir()) / "langchain-reasc-benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    dimensions = "-".join(str(int(value)) for value in asdict(shape).values())
    path = folder / f"random-v{_VERSION}-{dimensions}-{quantization}.gguf"
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}.part")
        try:
            write_random_model(unfinished, shape=shape, quantization=quantization)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return path


def write_random_model(
    path: Path,
    *,
    shape: Shape = HALF_BILLION,
    quantization: str = "Q4_0",
    seed: int = 0,
) -> Path:
    """Write a model whose responses run to their limit.

    Its end token's logit is exactly 0, where the 40 most likely of V random ones lie
    far above: with ``top_k`` it is never drawn.

    Args:
        path: where to write.
        shape: of the model.
        quantization: of the matrices; with Q4_0 embeddings and output are Q8_0, as
            llama.cpp's own quantizer has it.
        seed: the same seed writes the same file.
    """
    writer = gguf.GGUFWriter(path, "qwen2")
    vocabulary = make_vocabulary(shape.vocabulary)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{quantization}"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.kinds)
    writer.add_token_merges(vocabulary.merges)
    writer.add_eos_token_id(vocabulary.end)
    writer.add_pad_token_id(vocabulary.ordinary)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)
    for name, values, kind in _tensors(
        shape, quantization, np.random.default_rng(seed), vocabulary.ordinary
    ):
        writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(
    shape: Shape, quantization: str, rng: np.random.Generator, ordinary: int
) -> Iterator[Tensor]:
    """Name, values and type of each tensor; those of control tokens' embeddings are 0."""
    kind = gguf.GGMLQuantizationType[quantization]
    four_bits = kind == gguf.GGMLQuantizationType.Q4_0
    outer, width = gguf.GGMLQuantizationType.Q8_0 if four_bits else kind, shape.width
    # Logits get a standard deviation of 3; outputs of a layer are about as large as its
    # inputs.
    embeddings = random_blocks(
        rng, shape.vocabulary, width, kind=outer, scale=3 * width**-0.5
    )
    embeddings[ordinary:] = 0
    yield "token_embd.weight", embeddings, outer
    keys, ones = width // shape.heads * shape.kv_heads, np.ones(width, dtype=np.float32)
    sizes = {
        "attn_q": (width, width),
        "attn_k": (keys, width),
        "attn_v": (keys, width),
        "attn_output": (width, width),
    }
    sizes |= {
        "ffn_gate": (shape.hidden, width),
        "ffn_up": (shape.hidden, width),
        "ffn_down": (width, shape.hidden),
    }
    for layer in range(shape.layers):
        for name, (rows, columns) in sizes.items():
            yield (
                f"blk.{layer}.{name}.weight",
                random_blocks(rng, rows, columns, kind=kind, scale=columns**-0.5),
                kind,
            )
        for name in ("attn_q", "attn_k", "attn_v"):
            yield (
                f"blk.{layer}.{name}.bias",
                rng.normal(0, 0.1, sizes[name][0]).astype(np.float32),
                None,
            )
        yield f"blk.{layer}.attn_norm.weight", ones, None
        yield f"blk.{layer}.ffn_norm.weight", ones, None
    yield "output_norm.weight", ones, None


def random_blocks(
    rng: np.random.Generator, rows: int, columns: int, *, kind: Any, scale: float
) -> npt.NDArray[np.uint8] | npt.NDArray[np.float16]:
    """A random matrix of shape (rows, columns) as it lies in a GGUF: half-precision
    values, or bytes of blocks.

    Args:
        rng: where it is drawn from.
        rows: number of outputs.
        columns: number of inputs, a multiple of 32.
        kind: F16, Q8_0 or Q4_0, both of which are blocks of 32 values: a half-precision
            factor, then the integers.
        scale: standard deviation of the values.
    """
    if kind == gguf.GGMLQuantizationType.F16:
        return (
            rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(scale)
        ).astype(np.float16)
    values, size = gguf.GGML_QUANT_SIZES[kind]
    levels = 16 if kind == gguf.GGMLQuantizationType.Q4_0 else 256
    blocks = (
        np.frombuffer(rng.bytes(rows * columns // values * size), dtype=np.uint8)
        .reshape(-1, size)
        .copy()
    )
    # Integers of either kind are uniform and centred on -1/2; a factor of random sign
    # takes that mean away.
    factor = scale / np.sqrt((levels**2 - 1) / 12 + 0.25)
    signed = np.where(rng.integers(0, 2, len(blocks)) == 1, factor, -factor).astype(
        "<f2"
    )
    blocks[:, :2] = signed[:, None].view(np.uint8)
    return blocks.reshape(rows, columns // values * size)


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Tokens as a GGUF stores them.

    Attributes:
        tokens: V texts in GPT-2's printable alphabet.
        kinds: their V types.
        merges: how pairs make longer tokens, the most wanted first.
        ordinary: how many tokens from the first on are text; the rest is control tokens
            and padding.
        end: id of the token that ends a message.
    """

    tokens: list[str]
    kinds: list[int]
    merges: list[str]
    ordinary: int
    end: int


def make_vocabulary(size: int) -> Vocabulary:
    """At least 262 tokens: the bytes, then 2 to 4 letters, each merged from two earlier
    ones.
    """
    reserved = _RESERVED if size > 4 * _RESERVED else len(_CONTROL)
    ordinary, unused = size - reserved, reserved - len(_CONTROL)
    alphabet = _byte_alphabet()
    pairs = list(islice(_merges(alphabet[ord(" ")]), ordinary - len(alphabet)))
    normal, control, padding = map(
        int, (gguf.TokenType.NORMAL, gguf.TokenType.CONTROL, gguf.TokenType.UNUSED)
    )
    return Vocabulary(
        tokens=[
            *alphabet,
            *map("".join, pairs),
            *_CONTROL,
            *(f"<|unused_{i}|>" for i in range(unused)),
        ],
        kinds=[normal] * ordinary + [control] * len(_CONTROL) + [padding] * unused,
        merges=list(map(" ".join, pairs)),
        ordinary=ordinary,
        end=ordinary + _CONTROL.index("<|im_end|>"),
    )


def _merges(space: str) -> Iterator[tuple[str, str]]:
    letters = string.ascii_lowercase
    two = list(map("".join, product(letters, letters)))
    yield from product(letters, letters)
    yield from ((space, letter) for letter in letters)
    yield from product(two, letters)
    yield from ((space + first, second) for first, second in product(letters, letters))
    count = len(two) ** 2
    for i in range(count):
        left, right = divmod(i * _STRIDE % count, len(two))
        yield two[left], two[right]


def _byte_alphabet() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in byte order."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]
