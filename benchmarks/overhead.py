"""What our own code costs by itself: the method's arithmetic, the signals, the imports."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np
from langchain_reasc_backend.logits import signals_from_logits

from benchmarks.rounds import Spread, interleaved, seconds
from benchmarks.settings import Settings
from benchmarks.table import Row
from langchain_reasc import ReASC, Response, decide
from langchain_reasc.method.confidence import response_score
from langchain_reasc.method.evidence import Standardizer
from langchain_reasc.method.token_signals import SIGNALS

__all__ = ["imports", "method"]

_OURS: Final = "from langchain_reasc import ReASCRunnable"
_BASE: Final = "import langchain_core.language_models.chat_models, langchain_core.runnables.base"


def method(settings: Settings) -> Iterator[Row]:
    """Scores, decisions and signals, without a model."""
    rng = np.random.default_rng(0)
    rounds = settings.rounds_or(15)
    tokens = rng.normal(size=30_000)
    scored = _milliseconds(lambda: response_score(tokens), rounds)
    yield Row("score of a 30,000-token response (bottom_group, W = 128), ms", scored)
    rule = ReASC(Standardizer(0.0, 1.0), gate=9.0)
    responses = [
        Response(str(answer), float(score))
        for answer, score in zip(rng.integers(0, 8, 16), rng.normal(size=16), strict=True)
    ]
    decided = _milliseconds(lambda: decide(rule, responses), rounds, repeat=20)
    yield Row("decision over 16 responses, all prefixes, ms", decided)
    for vocabulary in (800, 32_000, 151_936):
        logits = rng.normal(size=(8, vocabulary)).astype(np.float32) * 3
        chosen, scratch = np.zeros(8, dtype=np.int64), np.empty((8, vocabulary), dtype=np.float32)
        for signal in SIGNALS:
            work = partial(signals_from_logits, logits, chosen, signals=[signal], scratch=scratch)
            spent = _milliseconds(work, rounds, per=8)
            yield Row(f"{signal}, 8 sequences, V = {vocabulary:,}, per token, ms", spent)


def imports(settings: Settings) -> Iterator[Row]:
    """What importing ReASCRunnable adds to LangChain's own import."""
    turns = {"base": partial(_start, _BASE), "ours": partial(_start, f"{_BASE}; {_OURS}")}
    figures = interleaved(turns, rounds=settings.rounds_or(10))
    beyond = [ours - base for ours, base in zip(figures["ours"], figures["base"], strict=True)]
    yield Row("import of langchain_core's chat models and runnables, ms", Spread.of(figures["base"]))
    yield Row("import of ReASCRunnable, beyond that, ms", Spread.of(beyond))


def _milliseconds(work: Callable[[], object], rounds: int, *, repeat: int = 1, per: int = 1) -> Spread:
    """Milliseconds of one of ``per`` parts of a call."""

    def turn() -> float:
        return seconds(lambda: [work() for _ in range(repeat)]) / repeat / per * 1e3

    return Spread.of(turn() for _ in range(rounds))


def _start(code: str) -> float:
    return seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True)) * 1e3
