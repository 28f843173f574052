"""What a question that is answered leaves to learn from: no text of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from langchain_reasc.calibration import MadeOf, Observed
from langchain_reasc.exceptions import ConfidenceError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import Decision
from langchain_reasc.models.logprobs import SignalReading
from langchain_reasc.runnable.audit import Audit

__all__ = ["Finished", "FinishedListener", "observed"]


@dataclass(frozen=True, slots=True)
class Finished:
    """A question, as sampling left it.

    Attributes:
        answers: in launch order, and last that of an audit; equal numbers for equal answers; None: no vote.
        readings: the token signals of each response; None where it carries none, or casts no vote.
        decided: responses that the decision rests on.
        answer: the number of the answer that was decided on; None where that is none, or is put together from several.
    """

    answers: tuple[int | None, ...]
    readings: tuple[SignalReading | None, ...]
    decided: int
    answer: int | None

    @classmethod
    def of(
        cls,
        answers: Sequence[str | None],
        readings: Sequence[SignalReading | None],
        decision: Decision,
        audit: Audit,
    ) -> Self:
        """What is left of the responses to a question that was decided."""
        given = [*answers, audit.answer] if audit.answered else list(answers)
        numbers = {one: at for at, one in enumerate(dict.fromkeys(one for one in given if one is not None))}
        chosen = decision.answer if decision.whole is None else None
        return cls(
            tuple(None if one is None else numbers[one] for one in given),
            (*readings, None) if audit.answered else tuple(readings),
            decision.samples,
            None if chosen is None else numbers.get(chosen),
        )


FinishedListener = Callable[[Finished], None]


def observed(question: Finished, measures: Sequence[Measure], made_of: MadeOf) -> Observed:
    """Score the responses by each measure.

    Args:
        question: what sampling left.
        measures: the candidates.
        made_of: signal -> the k and V that its scores are made of. A signal that is seen for the first time enters it;
            scores made of another k or V are left out.
    """
    scores = np.full((len(measures), len(question.answers)), np.nan)
    for at, reading in enumerate(question.readings):
        if reading is not None:
            scores[:, at] = [_score(reading, measure, made_of) for measure in measures]
    return Observed(question.answers, scores)


def _score(reading: SignalReading, measure: Measure, made_of: MadeOf) -> float:
    try:
        score = reading.score(measure)
    except (LogprobsUnavailable, ConfidenceError):
        return np.nan
    made = reading.provenance(measure.signal)
    now = {"top_k": made["top_k"], "vocabulary_size": made["vocabulary_size"]}
    then = made_of.setdefault(measure.signal, now)
    return score if all(None in (then[name], now[name]) or then[name] == now[name] for name in now) else np.nan
