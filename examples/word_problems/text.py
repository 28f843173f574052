"""The tokenizer (byte-level BPE, every digit a token, ChatML specials) and the chat
format.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from problems import LEVELS, STYLES, problems
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from tokenizers import decoders as token_decoders

# llama.cpp's "qwen2" pre-tokenizer, to the letter: both sides must split alike.
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
START, END = "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt "
    "%}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def prompt(question: str) -> str:
    """What the chat template makes of one user message."""
    return f"{START}user\n{question}{END}\n{START}assistant\n"


def train_tokenizer(
    path: Path, *, vocabulary: int = 800, seed: str = "tokenizer", size: int = 20000
) -> Tokenizer:
    """Train on training-split problems, and save."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = token_decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END, START],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    stream = problems(seed, dict.fromkeys(LEVELS, 1.0), "train")
    texts = (
        f"user\n{p.question}\nassistant\n{p.solutions[STYLES[i % len(STYLES)]]}"
        for i, p in enumerate(islice(stream, size))
    )
    tokenizer.train_from_iterator(texts, trainer)
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    return tokenizer
