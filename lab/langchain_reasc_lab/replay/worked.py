"""One worked question: the evidence after each sample, under two rules."""

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_reasc.calibration import Calibration
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import (
    ASC,
    DEFAULT_BUDGET,
    Cap,
    Decision,
    Response,
    StoppingRule,
    decide,
)
from langchain_reasc_lab.pools import Pool, PoolQuestion, PoolScores

__all__ = ["Worked", "pick_worked", "trace"]


@dataclass(frozen=True, slots=True)
class Worked:
    """A question with what ASC and ReASC made of the same responses.

    Attributes:
        question: the question, as recorded.
        responses: the responses that the rules saw, in launch order.
        weights: the evidence each response contributes under ReASC.
        asc: ASC's decision after each sample it used.
        reasc: ReASC's decision after each sample it used.
    """

    question: PoolQuestion
    responses: Sequence[Response]
    weights: Sequence[float]
    asc: Sequence[Decision]
    reasc: Sequence[Decision]


def trace(rule: StoppingRule, responses: Sequence[Response]) -> list[Decision]:
    """Return the decision after each sample, up to the one at which it stops."""
    stop = decide(rule, responses).samples
    return [rule(responses[:n]) for n in range(1, stop + 1)]


def pick_worked(
    pool: Pool,
    calibration: Calibration,
    *,
    max_samples: int = DEFAULT_BUDGET,
    among: Sequence[int] | None = None,
    measure: Measure | str | None = None,
) -> Worked:
    """Return the question that shows Stage 2 best: both rules right, ReASC after a few
    samples, ASC after a few more.

    Args:
        pool: recorded responses with token signals.
        calibration: the calibration that ReASC decides with, as the paper has it.
        max_samples: the budget of both.
        among: indices of the questions to choose from; None for all.
        measure: how responses are scored, where the calibration does not say:
            ``"recorded"``.
    """
    held = PoolScores(pool).responses(measure or calibration.measure)
    chosen = range(len(held)) if among is None else among
    cap = Cap(max_samples)
    rule = calibration.as_in_paper().rule(on_missing_confidence="count")
    worked = [
        Worked(
            question,
            seen,
            rule.weights(seen),
            trace(ASC() | cap, seen),
            trace(rule | cap, seen),
        )
        for question, seen in (
            (pool.questions[at], held[at][:max_samples]) for at in chosen
        )
    ]
    return max(worked, key=_instructive)


def _instructive(worked: Worked) -> tuple[bool, bool, bool, int]:
    asc, reasc = worked.asc[-1], worked.reasc[-1]
    right = {
        response.answer for response in worked.question.responses if response.correct
    }
    contested = len(asc.evidence) > 1
    saved = len(worked.asc) - len(worked.reasc)
    return (
        asc.answer in right and reasc.answer in right and reasc.reason == "evidence",
        contested and 2 <= len(worked.reasc) <= 5,
        len(worked.asc) <= 8,
        saved,
    )
