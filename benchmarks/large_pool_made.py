"""Pools as large as those of reasoning models, made without one: right answers are a little more confident."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from langchain_reasc_lab.pools.merging import WholeQuestion

from langchain_reasc.method.token_signals import SIGNALS
from langchain_reasc.pools import Message, PoolQuestion, PoolResponse, PoolStore
from langchain_reasc.pools.store import TokenSignals

__all__ = ["SAMPLES", "TOKENS", "questions_of", "write"]

SAMPLES: Final = 16
TOKENS: Final = 2000
_WORDS: Final = ("so", "the", "sum", "of", "both", "sides", "is", "then", "twice", "what", "we", "had", "before", "and")


def write(path: Path, questions: int, *, tokens: int = TOKENS, samples: int = SAMPLES) -> Path:
    """Write such a pool, question by question."""
    store = PoolStore.create(path)
    for question in questions_of(questions, tokens=tokens, samples=samples):
        store.add(*question)
    store.close()
    return path


def questions_of(
    questions: int, *, tokens: int = TOKENS, samples: int = SAMPLES, seed: int = 0
) -> Iterator[WholeQuestion]:
    """Yield questions with responses of about so many tokens: text, answer and all signals of each."""
    rng = np.random.default_rng(seed)
    words = np.array(_WORDS)
    for number in range(questions):
        able = rng.beta(2, 1.3)
        responses, messages, signals = [], [], list[TokenSignals]()
        for _ in range(samples):
            right, length = bool(rng.random() < able), int(rng.integers(tokens * 9 // 10, tokens * 11 // 10 + 1))
            spelled = rng.choice(words, length)
            held = rng.standard_normal((len(SIGNALS), length), dtype=np.float32) + np.float32(0.1 * right)
            responses.append(
                PoolResponse(
                    answer="7" if right else str(rng.integers(1, 5)),
                    completion_tokens=length,
                    prompt_tokens=80,
                    finish_reason="stop",
                    seconds=float(rng.random()),
                    score=float(held[0].mean()),
                    answer_span=(length - 2, length - 1),
                    last_step=(max(0, length - 30), length - 2),
                )
            )
            lengths = [len(word) + 1 for word in spelled.tolist()]
            messages.append(Message(" ".join(spelled), None, {"output_tokens": length}, lengths))
            signals.append(dict(zip(SIGNALS, held, strict=True)))
        asked = f"What is the sum of the numbers in list {number}?"
        yield PoolQuestion(f"q{number:06}", ("7",), tuple(responses), asked), messages, signals
