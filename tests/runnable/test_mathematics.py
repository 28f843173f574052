"""``answer="math"`` in a question: the order in which samples come changes nothing, and no formula holds it up."""

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from langchain_reasc import ReASCRunnable
from langchain_reasc.answers import extractor, mathematics

from .fakes import TOP_K, Reply, saying

HALF_ROOT = ["\\frac{1}{\\sqrt{2}}", "2", "\\frac{\\sqrt{2}}{2}", "\\sqrt{\\frac{1}{2}}"]


def boxes(formulas: list[str]) -> list[Reply]:
    return [Reply(f"\\boxed{{{formula}}}") for formula in formulas]


@pytest.mark.parametrize("last", range(4))
def test_the_order_of_arrival_changes_nothing(runner: Any, last: int) -> None:
    replies, came = boxes(HALF_ROOT), [threading.Event() for _ in HALF_ROOT]
    for reply, event in zip(replies, came, strict=True):
        reply.done = event
    replies[last].opens = came[0 if last == 3 else 3]
    result = runner.solve(ReASCRunnable(model=saying(*replies), answer="math", max_samples=4), "q")
    assert result.decision.evidence == {"sqrt(2)/2": 3.0, "2": 1.0}


@pytest.mark.slow
def test_a_formula_that_takes_for_ever_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the formula after it, for which the process is replaced that reads them."""
    mathematics.canonical_mathematics("\\sqrt{2}+1")  # the worker runs
    monkeypatch.setattr(mathematics, "SECONDS", 0.7)
    mathematics._key.cache_clear()
    start = time.monotonic()
    model = saying(*boxes(["9^{9^{9^8}}", *HALF_ROOT[2:], "2"]))
    for message in asyncio.run(ReASCRunnable(model=model, answer="math", max_samples=4).abatch(["q", "r"])):
        evidence = message.response_metadata["reasc"]["evidence"]
        assert evidence == {"9^{9^{9^8}}": 1.0, "sqrt(2)/2": 2.0, "2": 1.0}
    assert time.monotonic() - start < 20
    mathematics._key.cache_clear()


def test_no_formula_is_read_in_an_event_loop(runner: Any) -> None:
    """Those of the first samples of a batch neither, from which an online calibration is made."""
    readers: list[int] = []
    math = extractor("math")

    def find(text: str) -> Any:
        readers.append(threading.get_ident())
        return math.find(text)

    reasc = ReASCRunnable(
        model=saying(*boxes(HALF_ROOT)),
        answer=replace(math, find=find),
        calibration="mixture",
        measure=TOP_K,
        max_samples=4,
    )
    runner.batch(reasc, ["q", "r"])
    assert len(readers) == 8
    if runner.is_async:
        assert threading.get_ident() not in readers
