"""Read a pool for replay, with notes on its grading and on what cannot be computed from it."""

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from langchain_reasc import pools
from langchain_reasc.answers import EXTRACTION_VERSION
from langchain_reasc.exceptions import PoolError
from langchain_reasc.pools import Pool, PoolSignals, read_ungraded

__all__ = ["CALIBRATION_POOL", "Contradiction", "calibrated_on", "contradictions", "read_pool"]

CALIBRATION_POOL: Final = "calibration-pool.sqlite"
"""The file beside a pool whose questions calibrate, unless another is named."""
_SHOWN: Final = 3
_LONGEST: Final = 40  # characters of an answer in a note


def read_pool(path: str | os.PathLike[str], *, labelled: Collection[str] = ()) -> Pool:
    """Read a pool as :func:`langchain_reasc.pools.read_pool` does, and add notes on it."""
    pool = pools.read_pool(path, labelled=labelled)
    return replace(pool, notes=(*pool.notes, *_grader_notes(pool), *_contradiction_notes(pool), *_missing_notes(pool)))


def calibrated_on(pool: Pool, other: Pool) -> Pool:
    """Return a pool, to be tested, behind the questions of another one, which calibrate.

    Raises:
        PoolError: they were recorded from different models or prompts, share no measure of confidence, or share a
            question, which would be tested on what it calibrated.
    """
    then, now = (one.metadata.get("fingerprint") for one in (other, pool))
    if then and now and then != now:
        names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
        raise PoolError(
            f"{other.path} was recorded otherwise than {pool.path} (their {', '.join(names)} differ), so what it "
            "teaches does not hold there"
        )
    joined = replace(other + pool, calibrating=len(other.questions), calibration_path=other.path)
    if not (joined.signals or (pool.has_scores and other.has_scores)):
        raise PoolError(f"{other.path} and {pool.path} share no token signal and no scores")
    return joined


class Contradiction(NamedTuple):
    """One answer to one question, flagged both right and wrong.

    Attributes:
        question: the question's id.
        answer: the answer.
        right: responses that give it and are flagged right.
        wrong: those that give it and are flagged wrong.
        decides: the flag of the first recorded of them, which replay takes for all.
    """

    question: str
    answer: str
    right: int
    wrong: int
    decides: bool


def contradictions(pool: Pool) -> Iterator[Contradiction]:
    """Yield the answers that a pool flags both right and wrong, in the order of its questions."""
    for question in pool.questions:
        flags: dict[str, list[bool]] = {}
        for one in question.responses:
            if one.answer is not None and one.correct is not None:
                flags.setdefault(one.answer, []).append(one.correct)
        for answer, given in flags.items():
            if 0 < sum(given) < len(given):
                yield Contradiction(question.id, answer, sum(given), len(given) - sum(given), given[0])


def _contradiction_notes(pool: Pool) -> Iterator[str]:
    if not (found := list(contradictions(pool))):
        return
    each = []
    for one in found[:_SHOWN]:
        answer = one.answer if len(one.answer) <= _LONGEST else one.answer[:_LONGEST] + "..."
        each.append(f"question {one.question!r}, answer {answer!r}: {one.right} right, {one.wrong} wrong")
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    yield (
        f"{pool.path.name} flags equal answers to one question both right and wrong ({'; '.join(each)}{more}); the "
        "first recorded one decides for all of them, and `reasc grade` flags them alike"
    )


def _grader_notes(pool: Pool) -> Iterator[str]:
    """Name the grader, where it is not the comparison of answers and labels."""
    if (grader := pool.metadata.get("grader", "exact")) == "exact":
        return
    note = f"{pool.path.name} was graded by {grader}"
    if since := sum(one.correct is None and one.answer is not None for one in read_ungraded(pool.path).responses):
        note += (
            f", but {since} responses were recorded since and are compared with their labels; `reasc grade` grades "
            "them alike"
        )
    yield note


def _missing_notes(pool: Pool) -> Iterator[str]:
    missing = []
    if not pool.has_scores and pool.signals is None:
        missing.append("no scores or token signals, so ReASC cannot be replayed (only the methods that count votes)")
    if not pool.has_prompt_tokens:
        missing.append("no prompt tokens, so only generated tokens are counted")
    for name, questions in PoolSignals(pool.path, pool.stores, {}).left_out.items():
        yield (
            f"only {questions} questions of {pool.path.name} have signal {name!r}, others have others: it is left out"
        )
    if missing:
        yield f"{pool.path.name} has " + ", and ".join(missing)
    if "answer" in pool.metadata and "extraction_version" not in pool.metadata:
        yield (
            f"{pool.path.name} does not say by which version of the extraction rules its answers were found (here is "
            f"version {EXTRACTION_VERSION}); they are taken as they are, and `reasc record` finds them again"
        )
