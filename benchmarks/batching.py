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

from benchmarks.decode_rate import bare_rate
from benchmarks.rounds import Spread, interleaved, ratios
from benchmarks.settings import CELLS, QUESTION, Settings, open_bare, open_ours, prompt_ids, shipped_questions
from benchmarks.table import AtLeast, Row

__all__ = ["large_model", "shipped_model"]

_SAMPLES: Final = 4
_STOPS: Final = ("cg", "qc")  # the random model writes one of them sooner or later
Question = tuple[str, dict[str, Any]]  # and the options of its call


def shipped_model(settings: Settings) -> Iterator[Row]:
    """64 questions of the shipped model's own test set, with the lengths its answers have."""
    count = 8 if settings.quick else 64
    questions: list[Question] = [(text, {}) for text in shipped_questions(count)]
    yield from _Comparison(settings.for_shipped_model(), None, questions, "shipped model", parallel=8).rows(rounds=3)


def large_model(settings: Settings) -> Iterator[Row]:
    """The same at a real model's shape, with stop strings that end responses at very different lengths."""
    count, longest = (4, 12) if settings.quick else (12, 96)
    questions: list[Question] = [
        (text, {"max_tokens": longest, "stop": [*_STOPS]}) for text in shipped_questions(count)
    ]
    compared = _Comparison(settings, settings.model_path, questions, settings.shape_name, parallel=16)
    yield from compared.rows(rounds=2)


class _Comparison:
    """Questions at once beside one by one."""

    def __init__(
        self, settings: Settings, path: Path | None, questions: Sequence[Question], name: str, *, parallel: int
    ) -> None:
        self._settings, self._path, self._questions = settings, path, questions
        self._name, self._parallel = name, parallel
        self._together: defaultdict[bool, list[float]] = defaultdict(list)

    def rows(self, *, rounds: int) -> Iterator[Row]:
        """Measure, and say what was found."""
        turns = {at_once: partial(self._rate, at_once=at_once) for at_once in (True, False)}
        rates = interleaved(turns, rounds=self._settings.rounds_or(rounds))
        measure = f"{len(self._questions)} questions × {_SAMPLES} samples by abatch ÷ one after the other"
        threads = self._settings.threads
        yield Row(
            measure=f"{measure} with n = {_SAMPLES}, {self._name}",
            spread=ratios(rates[True], rates[False]),
            goal=AtLeast(1.7),
            note=f"tokens/s; n_parallel={self._parallel}, five signals, {threads} threads, no prompt cached before",
        )
        for at_once, how in ((True, "abatch"), (False, "one after the other")):
            yield Row(measure=f"{how}, {self._name}, tokens/s", spread=Spread.of(rates[at_once]))
            yield Row(measure=f"{how}, tokens per decode step", spread=Spread.of(self._together[at_once][1:]))
        yield self._floor()

    def _rate(self, *, at_once: bool) -> float:
        settings, parallel = self._settings, self._parallel
        with open_ours(settings, self._path, n_parallel=parallel, n_ctx=1024, n_cells=CELLS) as model:
            model.invoke(QUESTION, max_tokens=2)
            steps, begun = model._engine.context.steps, time.perf_counter()
            tokens = asyncio.run(_answer(model, self._questions, at_once=at_once))
            took = time.perf_counter() - begun
            self._together[at_once].append(tokens / (model._engine.context.steps - steps))
        return tokens / took

    def _floor(self) -> Row:
        """What decoding more samples together gains at best here: equally long, all of one prompt."""
        settings, path, tokens = self._settings, self._path, self._settings.tokens_or(48)
        if path is None:
            path = settings.endless_shipped_path
        with open_ours(settings, path, n_ctx=1024) as model:
            prompt = prompt_ids(model, QUESTION)
        with open_bare(settings, path, sequences=self._parallel) as bare:
            bare.prefill(prompt)
            turns = {n: partial(bare_rate, bare, n, tokens) for n in (self._parallel, _SAMPLES)}
            rates = interleaved(turns, rounds=settings.rounds_or(5))
        spread = ratios(rates[self._parallel], rates[_SAMPLES])
        return Row(measure=f"bare loop, n = {self._parallel} ÷ n = {_SAMPLES} tokens/s, {self._name}", spread=spread)


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
