"""Many questions at once through LangChain's ``abatch``, beside one after the other.

Each question wants four samples, and takes them by ``asample(question, n=4)``. "At once": a Runnable that does this,
given all questions by ``abatch``. "One after the other": the same Runnable, given one question at a time. Both begin
with a freshly loaded model, so that no prompt is cached.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from langchain_core.runnables import RunnableLambda
from langchain_reasc_llama_cpp import ChatLlamaCpp

from benchmarks.rounds import Spread, interleaved, ratios
from benchmarks.settings import CELLS, QUESTION, Settings, open_ours, shipped_questions
from benchmarks.table import AtLeast, Row

__all__ = ["large_model", "shipped_model"]

_SAMPLES: Final = 4
_STOPS: Final = ("qu", "th", "ea")  # a token of the random model completes one in some 40 draws
Question = tuple[str, dict[str, Any]]  # and the options of its call


def shipped_model(settings: Settings) -> Iterator[Row]:
    """64 questions of the shipped model's own test set, with the lengths its answers have."""
    count = 8 if settings.quick else 64
    questions: list[Question] = [(text, {}) for text in shipped_questions(count)]
    yield from _against_one_by_one(settings.for_shipped_model(), None, questions, "shipped model", parallel=8, rounds=3)


def large_model(settings: Settings) -> Iterator[Row]:
    """The same at a real model's shape, with stop strings that end a response after some 30 tokens, sooner or later."""
    count, longest = (4, 12) if settings.quick else (12, 64)
    questions: list[Question] = [
        (text, {"max_tokens": longest, "stop": [*_STOPS]}) for text in shipped_questions(count)
    ]
    yield from _against_one_by_one(settings, settings.model_path, questions, settings.shape_name, parallel=16, rounds=1)


def _against_one_by_one(
    settings: Settings, path: Path | None, questions: Sequence[Question], name: str, *, parallel: int, rounds: int
) -> Iterator[Row]:
    rate = partial(_rate, settings, path, questions, parallel=parallel)
    turns = {at_once: partial(rate, at_once=at_once) for at_once in (True, False)}
    rates = interleaved(turns, rounds=settings.rounds_or(rounds))
    count = len(questions)
    yield Row(
        measure=f"{count} questions × {_SAMPLES} samples by abatch ÷ one after the other with n = {_SAMPLES}, {name}",
        spread=ratios(rates[True], rates[False]),
        goal=AtLeast(1.7),
        note=f"tokens/s; n_parallel={parallel}, all five signals, {settings.threads} threads, no prompt cached before",
    )
    yield Row(measure=f"abatch, {name}, tokens/s", spread=Spread.of(rates[True]))


def _rate(
    settings: Settings, path: Path | None, questions: Sequence[Question], *, parallel: int, at_once: bool
) -> float:
    with open_ours(settings, path, n_parallel=parallel, n_ctx=1024, n_cells=CELLS) as model:
        model.invoke(QUESTION, max_tokens=2)
        begun = time.perf_counter()
        tokens = asyncio.run(_answer(model, questions, at_once=at_once))
        return tokens / (time.perf_counter() - begun)


async def _answer(model: ChatLlamaCpp, questions: Sequence[Question], *, at_once: bool) -> int:
    """Tokens generated for all the questions."""

    async def sample(question: Question) -> int:
        text, options = question
        tokens = 0
        async with model.asample(text, n=_SAMPLES, **options) as samples:
            async for _, message in samples:
                tokens += message.usage_metadata["output_tokens"] if message.usage_metadata else 0
        return tokens

    runnable = RunnableLambda(sample)
    if at_once:
        return sum(await runnable.abatch(list(questions)))
    return sum([await runnable.ainvoke(question) for question in questions])
