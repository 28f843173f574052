"""Writes a GGUF with random weights at a real model's shape: decoding it costs what decoding the real one costs.

    python -m benchmarks.random_gguf model.gguf --quantization Q4_0

The weights' blocks are drawn as they lie in the file, so that half a billion of them take seconds.
"""

import argparse
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import numpy.typing as npt

from benchmarks.random_vocabulary import CHATML, Vocabulary, make_vocabulary

__all__ = ["HALF_BILLION", "QUANTIZATIONS", "Shape", "cached_model", "write_random_model"]

QUANTIZATIONS: Final = ("Q8_0", "Q4_0", "F16")
_VERSION: Final = 1  # of what is written; part of the cached files' names


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
    tied: bool = True


HALF_BILLION: Final = Shape(layers=24, width=896, heads=14, kv_heads=2, hidden=4864, vocabulary=151_936)
"""Qwen2.5-0.5B."""


def cached_model(
    folder: Path | None, *, shape: Shape = HALF_BILLION, quantization: str = "Q4_0", seed: int = 0
) -> Path:
    """The random model of this shape, written unless it is there already.

    Args:
        folder: where it is kept; None: a folder of its own beside the system's temporary files.
        shape: of the model.
        quantization: one of :data:`QUANTIZATIONS`.
        seed: of the weights.
    """
    folder = folder or Path(tempfile.gettempdir()) / "langchain-reasc-benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    dimensions = "-".join(str(int(value)) for value in asdict(shape).values())
    path = folder / f"random-v{_VERSION}-{dimensions}-{quantization}-seed{seed}.gguf"
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}.part")
        try:
            write_random_model(unfinished, shape=shape, quantization=quantization, seed=seed)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return path


def write_random_model(path: Path, *, shape: Shape = HALF_BILLION, quantization: str = "Q4_0", seed: int = 0) -> Path:
    """Write a model whose responses run to their limit.

    Its end token's logit is exactly 0, where the 40 most likely of V random ones lie far above: with ``top_k`` it is
    never drawn.

    Args:
        path: where to write.
        shape: of the model.
        quantization: of the matrices; with Q4_0 embeddings and output are Q8_0, as llama.cpp's own quantizer has it.
        seed: the same seed writes the same file.
    """
    writer = gguf.GGUFWriter(path, "qwen2")
    vocabulary = make_vocabulary(shape.vocabulary)
    _describe(writer, shape, quantization)
    _write_vocabulary(writer, vocabulary)
    _Weights(writer, shape, quantization, np.random.default_rng(seed)).add(vocabulary.ordinary)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _describe(writer: Any, shape: Shape, quantization: str) -> None:
    writer.add_name(f"random weights, {shape.layers} layers of {shape.width}")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{quantization}"])


def _write_vocabulary(writer: Any, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.kinds)
    writer.add_token_merges(vocabulary.merges)
    writer.add_eos_token_id(vocabulary.end)
    writer.add_pad_token_id(vocabulary.ordinary)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)


class _Weights:
    """Draws tensors and hands them to the writer."""

    def __init__(self, writer: Any, shape: Shape, quantization: str, rng: np.random.Generator) -> None:
        self._writer, self._shape, self._rng = writer, shape, rng
        self._kind = gguf.GGMLQuantizationType[quantization]

    def add(self, ordinary: int) -> None:
        shape = self._shape
        key_width = shape.width // shape.heads * shape.kv_heads
        self._vocabulary_matrix("token_embd", ordinary)
        for layer in range(shape.layers):
            block = f"blk.{layer}."
            for name, outputs in (("attn_q", shape.width), ("attn_k", key_width), ("attn_v", key_width)):
                self._matrix(f"{block}{name}", outputs, shape.width)
                self._vector(f"{block}{name}.bias", self._rng.normal(0, 0.1, outputs))
            self._matrix(f"{block}attn_output", shape.width, shape.width)
            self._matrix(f"{block}ffn_gate", shape.hidden, shape.width)
            self._matrix(f"{block}ffn_up", shape.hidden, shape.width)
            self._matrix(f"{block}ffn_down", shape.width, shape.hidden)
            self._vector(f"{block}attn_norm.weight", np.ones(shape.width))
            self._vector(f"{block}ffn_norm.weight", np.ones(shape.width))
        self._vector("output_norm.weight", np.ones(shape.width))
        if not shape.tied:
            self._vocabulary_matrix("output", ordinary)

    def _vector(self, name: str, values: npt.NDArray[np.float64]) -> None:
        self._writer.add_tensor(name, values.astype(np.float32))

    def _matrix(self, name: str, rows: int, columns: int) -> None:
        """Add a matrix of standard deviation 1/√columns: outputs of a layer are then about as large as its inputs."""
        self._add(name, random_blocks(self._rng, rows, columns, kind=self._kind, scale=columns**-0.5), self._kind)

    def _vocabulary_matrix(self, name: str, ordinary: int) -> None:
        """Logits of standard deviation 3; rows of control tokens are 0."""
        four_bits = self._kind == gguf.GGMLQuantizationType.Q4_0
        kind = gguf.GGMLQuantizationType.Q8_0 if four_bits else self._kind
        width = self._shape.width
        blocks = random_blocks(self._rng, self._shape.vocabulary, width, kind=kind, scale=3 * width**-0.5)
        blocks[ordinary:] = 0
        self._add(name, blocks, kind)

    def _add(self, name: str, blocks: npt.NDArray[Any], kind: Any) -> None:
        self._writer.add_tensor(f"{name}.weight", blocks, raw_dtype=kind)


def random_blocks(
    rng: np.random.Generator, rows: int, columns: int, *, kind: Any, scale: float
) -> npt.NDArray[np.uint8] | npt.NDArray[np.float16]:
    """A random matrix of shape (rows, columns) as it lies in a GGUF: half-precision values, or bytes of blocks.

    Args:
        rng: where it is drawn from.
        rows: number of outputs.
        columns: number of inputs, a multiple of 32.
        kind: F16, Q8_0 or Q4_0, both of which are blocks of 32 values: a half-precision factor, then the integers.
        scale: standard deviation of the values.
    """
    if kind == gguf.GGMLQuantizationType.F16:
        return (rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(scale)).astype(np.float16)
    values, size = gguf.GGML_QUANT_SIZES[kind]
    levels = 16 if kind == gguf.GGMLQuantizationType.Q4_0 else 256
    blocks = np.frombuffer(rng.bytes(rows * columns // values * size), dtype=np.uint8).reshape(-1, size).copy()
    # Integers of either kind are uniform and centred on -1/2; a factor of random sign takes that mean away.
    factor = scale / np.sqrt((levels**2 - 1) / 12 + 0.25)
    signed = np.where(rng.integers(0, 2, len(blocks)) == 1, factor, -factor).astype("<f2")
    blocks[:, :2] = signed[:, None].view(np.uint8)
    return blocks.reshape(rows, columns // values * size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a GGUF with random weights at the shape of Qwen2.5-0.5B.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--quantization", choices=QUANTIZATIONS, default="Q4_0")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(write_random_model(given.path, quantization=given.quantization, seed=given.seed))
