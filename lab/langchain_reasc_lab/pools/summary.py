"""What is in a pool, in figures."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from langchain_reasc.pools.bill import Bill
from langchain_reasc.pools.pool import Pool, PoolResponse

__all__ = ["Summary", "pool_bill", "summary"]


@dataclass(frozen=True, slots=True)
class Summary:
    """A pool in figures.

    Attributes:
        questions: how many it holds.
        responses: how many to all of them.
        fewest: responses of the question that has fewest.
        most: and of the one that has most.
        right: share of the responses that are right, where all are graded.
        without_answer: responses in which no answer was found.
        cut_off: responses that ended before their end.
        signals: names of its token signals.
        with_signals: responses that have them.
        seconds: median and 95th percentile of how long a response took, where that was timed.
        model: its name, where the recording says.
        metadata: all that the recording says of itself.
    """

    questions: int
    responses: int
    fewest: int
    most: int
    right: float | None
    without_answer: int
    cut_off: int
    signals: tuple[str, ...]
    with_signals: int
    seconds: tuple[float, float] | None
    model: str | None
    metadata: dict[str, Any]


def summary(pool: Pool) -> Summary:
    """The figures of a pool."""
    sizes = [len(question.responses) for question in pool.questions]
    each = list(_responses(pool))
    graded = [one.correct for one in each if one.correct is not None]
    seconds = [one.seconds for one in each if one.seconds is not None]
    fingerprint = pool.metadata.get("fingerprint")
    return Summary(
        questions=len(sizes),
        responses=len(each),
        fewest=min(sizes),
        most=max(sizes),
        right=sum(graded) / len(graded) if len(graded) == len(each) else None,
        without_answer=sum(one.answer is None for one in each),
        cut_off=sum(one.cut_off for one in each),
        signals=pool.signals.names if pool.signals else (),
        with_signals=sum(one.signal_tokens > 0 for one in each),
        seconds=(float(np.median(seconds)), float(np.quantile(seconds, 0.95))) if seconds else None,
        model=fingerprint.get("model") if isinstance(fingerprint, dict) else None,
        metadata=pool.metadata,
    )


def pool_bill(pool: Pool) -> Bill:
    """What all that a pool holds has cost, with the samples that failed meanwhile."""
    usages = {id: held for store in pool.stores for id, held in store.usages()}
    bill = sum((Bill.of_question(one, usages.get(one.id) or ()) for one in pool.questions), Bill())
    failed = pool.metadata.get("failed") or {}
    lost = int(failed.get("tokens", 0))
    return bill + Bill(failed=int(failed.get("samples", 0)), lost=lost, completion=lost)


def _responses(pool: Pool) -> Iterator[PoolResponse]:
    return (response for question in pool.questions for response in question.responses)
