"""Many questions at once through LangChain's ``abatch``, beside one after the other.

Each question wants four samples, and takes them by ``asample(question, n=4)``. "At once": a Runnable that does this,
given all questions by ``abatch``. "One after the other": the same Runnable, given one question at a time. Both begin
with a freshly loaded model, so that no prompt is cached. Beside the ratio stands what decoding alone could gain: the
bare loop with as many samples of one prompt as we decode together, against four.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from langchain_core.runnables import RunnableLambda
from langchain_reasc_llama_cpp import ChatLlamaCpp

from benchmarks.rounds import Spread, interleaved, ratios
from benchmarks.settings import CELLS, QUESTION, Settings, open_bare, open_ours, prompt_ids, shipped_questions
from benchmarks.table import Goal, Row

__all__ = ["large_model", "shipped_model"]

_SAMPLES: Final = 4
_STOPS: Final = ["cg", "qc"]  # the random model writes one of them sooner or later


def shipped_model(settings: Settings) -> Iterator[Row]:
    """64 questions of the shipped model's own test set, with the lengths its answers have."""
    own, questions = settings.for_shipped_model(), shipped_questions(8 if settings.quick else 64)
    yield from _compared(own, None, "shipped model", questions, {}, parallel=8, rounds=3)
    yield _floor(own, own.endless_shipped_path, "shipped model", parallel=8)


def large_model(settings: Settings) -> Iterator[Row]:
    """The same at a real model's shape, with stop strings that end responses at very different lengths."""
    count, longest = (4, 12) if settings.quick else (12, 96)
    path, name, options = settings.model_path, settings.shape_name, {"max_tokens": longest, "stop": _STOPS}
    yield from _compared(settings, path, name, shipped_questions(count), options, parallel=16, rounds=2)
    yield _floor(settings, path, name, parallel=16)


def _compared(
    settings: Settings,
    path: Path | None,
    name: str,
    questions: Sequence[str],
    options: dict[str, Any],
    *,
    parallel: int,
    rounds: int,
) -> Iterator[Row]:
    together: defaultdict[bool, list[float]] = defaultdict(list)

    def rate(*, at_once: bool) -> float:
        with open_ours(settings, path, n_parallel=parallel, n_ctx=1024, n_cells=CELLS) as model:
            model.invoke(QUESTION, max_tokens=2)
            steps, begun = model._engine.context.steps, time.perf_counter()
            tokens = asyncio.run(_answer(model, questions, options, at_once=at_once))
            took = time.perf_counter() - begun
            together[at_once].append(tokens / (model._engine.context.steps - steps))
        return tokens / took

    turns = {at_once: partial(rate, at_once=at_once) for at_once in (True, False)}
    rates = interleaved(turns, rounds=settings.rounds_or(rounds))
    yield Row(
        f"{len(questions)} questions × {_SAMPLES} samples by abatch ÷ one after the other with n = {_SAMPLES}, {name}",
        ratios(rates[True], rates[False]),
        Goal("≥", 1.7),
        f"tokens/s; n_parallel={parallel}, five signals, {settings.threads} threads, no prompt cached before",
    )
    for at_once, how in ((True, "abatch"), (False, "one after the other")):
        yield Row(f"{how}, {name}, tokens/s", Spread.of(rates[at_once]))
        yield Row(f"{how}, tokens per decode step", Spread.of(together[at_once][1:]))


def _floor(settings: Settings, path: Path, name: str, *, parallel: int) -> Row:
    """What decoding more samples together gains at best here: equally long, all of one prompt."""
    with open_ours(settings, path, n_ctx=1024) as model:
        prompt = prompt_ids(model, QUESTION)
    with open_bare(settings, path, sequences=parallel) as bare:
        bare.prefill_rate(prompt)
        turns = {n: partial(bare.rate, n, settings.tokens_or(48)) for n in (parallel, _SAMPLES)}
        rates = interleaved(turns, rounds=settings.rounds_or(5))
    spread = ratios(rates[parallel], rates[_SAMPLES])
    return Row(f"bare loop, n = {parallel} ÷ n = {_SAMPLES} tokens/s, {name}", spread)


async def _answer(model: ChatLlamaCpp, questions: Sequence[str], options: dict[str, Any], *, at_once: bool) -> int:
    """Tokens generated for all the questions."""

    async def sample(question: str) -> int:
        async with model.asample(question, n=_SAMPLES, **options) as samples:
            usage = [message.usage_metadata async for _, message in samples]
        return sum(use["output_tokens"] for use in usage if use)

    runnable = RunnableLambda(sample)
    if at_once:
        return sum(await runnable.abatch(list(questions)))
    return sum([await runnable.ainvoke(question) for question in questions])
