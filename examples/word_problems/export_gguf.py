"""Write a checkpoint as an F16 GGUF that llama.cpp runs, and check that both compute
and tokenize alike.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
from itertools import islice
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import torch
from network import Llama, Shape
from problems import LEVELS, STYLES, problems
from text import CHAT_TEMPLATE, END, START, prompt
from tokenizers import Tokenizer

SAMPLING = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "max_tokens": 256,
}


def load(run: Path) -> tuple[Llama, Tokenizer]:
    """The model (in evaluation mode) and tokenizer of a training folder."""
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    model = Llama(Shape(**state["shape"])).eval()
    model.load_state_dict(state["model"])
    return model, Tokenizer.from_file(str(run / "tokenizer.json"))


def interleave(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder the rows of each head from rotary halves to the adjacent pairs of
    llama.cpp.
    """
    rows, columns = weight.shape
    return (
        weight.view(heads, 2, rows // heads // 2, columns)
        .transpose(1, 2)
        .reshape(rows, columns)
    )


def tensors(model: Llama) -> dict[str, np.ndarray]:
    """llama.cpp's tensor names; matrices in F16, norms in F32. The output is tied:
    llama.cpp reuses the embeddings.
    """
    made: dict[str, torch.Tensor] = {}
    for name, value in model.state_dict().items():
        if name.endswith("attn_qkv.weight"):
            query, key, made[name.replace("qkv", "v")] = value.chunk(3)
            made[name.replace("qkv", "q")] = interleave(query, model.shape.heads)
            made[name.replace("qkv", "k")] = interleave(key, model.shape.heads)
        else:
            made[name] = value
    return {
        name: value.numpy().astype(np.float16 if value.ndim == 2 else np.float32)
        for name, value in made.items()
    }


def write(path: Path, model: Llama, tokenizer: Tokenizer) -> None:
    """Write the GGUF to a temporary file, then rename it."""
    shape, temporary = model.shape, path.with_suffix(".tmp")
    writer = gguf.GGUFWriter(temporary, "llama")
    writer.add_name("word-problems-1m")
    writer.add_description(
        "Answers synthetic multi-step word problems, and nothing else. Trained from "
        "scratch."
    )
    writer.add_license("mit")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    for name, setting in SAMPLING.items():
        add = writer.add_float32 if isinstance(setting, float) else writer.add_uint32
        add(f"reasc.sampling.{name}", setting)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    merges = [
        " ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([token for token, _ in vocabulary])
    kinds = gguf.TokenType
    writer.add_token_types(
        [
            kinds.CONTROL if token in (START, END) else kinds.NORMAL
            for token, _ in vocabulary
        ]
    )
    writer.add_token_merges(merges)
    end = tokenizer.token_to_id(END)
    writer.add_bos_token_id(tokenizer.token_to_id(START))
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(end)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, value in tensors(model).items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


def check(
    path: Path, model: Llama, tokenizer: Tokenizer, *, size: int = 500
) -> tuple[int, float]:
    """Compare with llama.cpp: texts that tokenize differently, and the largest logit
    difference over 20 texts.
    """
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    engine = llama_cpp.Llama(
        str(path),
        n_ctx=model.shape.context,
        logits_all=True,
        n_threads=1,
        verbose=False,
    )
    differing, worst = 0, 0.0
    for i, problem in enumerate(
        islice(problems("parity", dict.fromkeys(LEVELS, 1.0), "dev"), size)
    ):
        text = (
            prompt(problem.question) + problem.solutions[STYLES[i % len(STYLES)]] + END
        )
        ids = tokenizer.encode(text).ids
        differing += ids != engine.tokenize(text.encode(), add_bos=False, special=True)
        if i < 20:
            engine.reset()
            engine.eval(ids)
            with torch.no_grad():
                wanted = model(torch.tensor([ids]))[0].numpy()
            worst = max(worst, float(np.abs(engine.scores[: len(ids)] - wanted).max()))
    engine.close()
    return differing, worst


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--run",
        type=Path,
        default=Path("runs/word_problems"),
        help="folder written by train.py",
    )
    parser.add_argument("--out", type=Path, required=True, help="the .gguf to write")
    options = parser.parse_args()
    model, tokenizer = load(options.run)
    write(options.out, model, tokenizer)
    parameters = sum(value.numel() for value in model.parameters())
    print(
        f"{options.out}: {parameters:,} parameters, {options.out.stat().st_size:,} "
        "bytes"
    )
    differing, worst = check(options.out, model, tokenizer)
    print(
        f"llama.cpp: {differing} of 500 texts tokenized differently; largest logit "
        f"difference {worst:.2f} (F16)"
    )
    if differing or worst > 0.5:
        raise SystemExit("llama.cpp disagrees with PyTorch: do not ship this file")


if __name__ == "__main__":
    main()
