"""Calibrate without labels, on how far the responses to each question agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from langchain_reasc._version import __version__
from langchain_reasc.calibration.offline import auroc_of
from langchain_reasc.calibration.schema import SCHEMA_VERSION, Calibration, Fingerprint, Gate, RuleBlock
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure

__all__ = ["Observed", "calibrate_consensus"]


@dataclass(frozen=True, slots=True)
class Observed:
    """One question, as sampling left it.

    Attributes:
        answers: in launch order; equal numbers for equal answers; None: no vote.
        scores: shape (measures, responses); NaN where there is none.
        right: whether each response is right, where that is known; empty where it is of none.
        counted: whether votes were counted when it was sampled.
    """

    answers: tuple[int | None, ...]
    scores: npt.NDArray[np.float64]
    right: tuple[bool | None, ...] = ()
    counted: bool = True


def calibrate_consensus(
    questions: Sequence[Observed],
    *,
    measures: Sequence[Measure] = (),
    budget: int = 16,
    threshold: float = 0.97,
    made_of: Mapping[str, Mapping[str, int | None]] | None = None,
    fingerprint: Fingerprint | None = None,
    seed: int = 0,
) -> Calibration:
    """A stand-in with the signature of the real one: the measure of the best consensus AUROC weighs votes."""
    if len(questions) < 2:
        raise CalibrationDataError(f"a calibration by consensus needs at least 2 questions, got {len(questions)}")
    made = {"fingerprint": fingerprint or Fingerprint(), "gate": Gate(threshold=None, closed_because="by consensus")}
    rule = RuleBlock(name="agreement", parameters={"threshold": threshold, "budget": budget})
    best = max(range(len(measures)), key=lambda at: _auroc(questions, at), default=None)
    if best is None or _auroc(questions, best) < 0.6:
        return Calibration(
            **{"schema_version": SCHEMA_VERSION, "method": "consensus", "n": len(questions), "rule": rule, **made},
            **dict.fromkeys(("signal", "score", "window", "mean", "std")),
            fallback="the stand-in for calibrating by consensus knows no other rule for counts",
            library_version=__version__,
            created_at=datetime.now(UTC).replace(microsecond=0),
        )
    scores = np.concatenate([question.scores[best] for question in questions])
    found = Calibration.of_scores(
        scores[np.isfinite(scores)],
        measures[best],
        method="consensus",
        rule=rule,
        **dict((made_of or {}).get(measures[best].signal, {})),
        **made,
    )
    return found.model_copy(update={"n": len(questions)})


def _auroc(questions: Sequence[Observed], at: int) -> float:
    right: list[float] = []
    wrong: list[float] = []
    for question in questions:
        votes = [answer for answer in question.answers if answer is not None]
        for answer, score in zip(question.answers, question.scores[at], strict=True):
            if answer is not None and np.isfinite(score):
                (right if 2 * votes.count(answer) > len(votes) else wrong).append(score)
    return float(auroc_of(np.array(right), np.array(wrong))) if right and wrong else 0.0
