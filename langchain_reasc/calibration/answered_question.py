"""A live question after sampling, before its responses are scored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from langchain_reasc.calibration.observations import (
    Observation,
    SignalProvenance,
    numbered,
)
from langchain_reasc.exceptions import ConfidenceError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.decision import Decision

__all__ = ["AnsweredQuestion", "AnsweredQuestionListener", "Reading"]


class Reading(Protocol):
    """The token signals of a response."""

    @property
    def signals(self) -> Mapping[str, Any]: ...

    def score(self, measure: Measure) -> float: ...

    def provenance(self, signal: str) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question whose sampling has ended.

    Attributes:
        answers: in launch order, followed by that of an audit; equal numbers for equal
            answers; None for no vote.
        readings: the token signals of each response; None for a response that carries
            none.
        decided: responses that the decision rests on.
        answer: the number of the winning answer; None if there is none, or if it was
            put together from several.
        id: names the question, so that its outcome can be reported later.
        p_correct: the probability that was reported for its answer, if any.
        kind: the kind of request, see
            :attr:`~langchain_reasc.models.fingerprint.Fingerprint.kind`.
    """

    answers: tuple[int | None, ...]
    readings: tuple[Reading | None, ...]
    decided: int
    answer: int | None
    id: str | None = None
    p_correct: float | None = None
    kind: str = ""

    @classmethod
    def from_decision(
        cls,
        answers: Sequence[str | None],
        readings: Sequence[Reading | None],
        decision: Decision,
        id: str | None = None,
        p_correct: float | None = None,
        kind: str = "",
    ) -> Self:
        """Describe a question that was decided; ``answers`` and ``readings`` may end
        with those of an audit.
        """
        numbers = numbered(answers)
        answer = None
        # An answer that was put together from several has a ``whole``.
        if decision.whole is None and decision.answer in answers:
            answer = numbers[answers.index(decision.answer)]
        return cls(
            numbers, tuple(readings), decision.samples, answer, id, p_correct, kind
        )

    def scored_by(
        self,
        measures: Sequence[Measure],
        provenance: SignalProvenance,
        *,
        counted: bool = True,
    ) -> Observation:
        """Return the row of the question: each response scored by each measure.

        Args:
            measures: the candidates.
            provenance: signal -> the k and V of its scores. A signal that is new is
                added; scores with another k or V are left out.
            counted: whether it was decided without a calibration.
        """
        scores = np.full((len(measures), len(self.answers)), np.nan)
        for index, reading in enumerate(self.readings):
            if reading is not None:
                scores[:, index] = [
                    _score(reading, measure, provenance) for measure in measures
                ]
        return Observation(
            self.answers,
            scores,
            counted=counted,
            decided=self.decided,
            answer=self.answer,
            id=self.id,
            p_correct=self.p_correct,
            kind=self.kind,
        )


AnsweredQuestionListener = Callable[[AnsweredQuestion], None]
"""A function that is told of each answered question."""


def _score(reading: Reading, measure: Measure, provenance: SignalProvenance) -> float:
    try:
        score = reading.score(measure)
    except (LogprobsUnavailable, ConfidenceError):
        return np.nan
    source = reading.provenance(measure.signal)
    now = {name: source[name] for name in ("top_k", "vocabulary_size")}
    # The first response with a signal settles its k and V.
    then = provenance.setdefault(measure.signal, now)
    for name, value in now.items():
        if None not in (value, then[name]) and value != then[name]:
            return np.nan
    return score
