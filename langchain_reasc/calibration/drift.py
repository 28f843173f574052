"""Drift tests: whether what was learned without labels still holds of the questions that come.

Two things are compared with what was expected of them: how often the next response to a question agrees with those
before it, and how well the trusted measure tells the responses that agree from the others. What was expected of a
question is kept in its row (:class:`Prediction`), so :class:`DriftWatch` needs only the rows, in order.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "ALARM",
    "MONITORED",
    "AgreementRates",
    "Drift",
    "DriftMonitor",
    "DriftWatch",
    "Expected",
    "NextResponse",
    "Prediction",
    "mean_separation",
    "next_responses",
    "separation",
]

ALARM: Final = 5_000
"""The evidence R at which a monitor raises an alarm: observations between false alarms, on average and at least."""
MONITORED: Final = ("going on", "audits", "separation")
"""What is watched: the second vote where sampling goes on, audits, and what scores tell."""
Drift = Literal["agreement", "confidence"]
"""What is no longer as was learned: how responses agree, or what their scores tell."""
_SHOWS: Final[dict[str, Drift]] = {"going on": "agreement", "audits": "agreement", "separation": "confidence"}
_SHIFTS: Final = (0.06, 0.15, 0.35, 0.6)
_ERRORS: Final = 1.5  # standard errors that a prediction may be off
_LEAST_MARGIN: Final = 0.02
_LEAST_SEPARATION_MARGIN: Final = 0.05
_FEWEST_SEPARATIONS: Final = 6
_PRIOR_RESPONSES: Final = 4  # that the average of all counts for


class DriftMonitor:
    """Raises an alarm when what is observed has left what was predicted.

    Every prediction p is compared with one outcome x from 0 to 1, such as whether a response agrees. Under the null
    hypothesis E[x] lies within ``margin`` of p, whatever came before. Against "it is lower", with q = p - margin, the
    likelihood ratio of Bernoulli(q (1 - s)) to Bernoulli(q), a straight line in x, is a bet whose expected factor is at
    most 1 under the null hypothesis: a betting martingale (Waudby-Smith & Ramdas, "Estimating means of bounded random
    variables by betting", JRSS-B 2024), which by Ville's inequality ever exceeds 1/α with a probability of α at most,
    whenever one looks. "It is higher" is the mirror image. Since a change may come at any time, the bets begun at all
    times are added up, R ← (R + 1) · factor (Shiryaev-Roberts), and averaged over the shifts s: an e-detector (Shin,
    Ramdas & Rinaldo, arXiv 2203.03532). An alarm at R ≥ 5,000 comes, while nothing has changed, after 5,000
    observations or more on average, and within the first t with a probability of t / 5,000 at most; also where every
    prediction is wrong by the whole margin.
    """

    def __init__(self) -> None:
        self._detectors = [0.0] * 2 * len(_SHIFTS)  # R of each bet: lower by each shift, then higher

    @property
    def evidence(self) -> float:
        """R, averaged over the bets."""
        return sum(self._detectors) / len(self._detectors)

    def observe(self, predicted: float, outcome: float, *, margin: float = 0.05, lower_only: bool = False) -> bool:
        """Compare a prediction with its outcome. Return True for an alarm, after which the monitor begins anew.

        Args:
            predicted: the expected outcome; of whether the next response agrees with the leader, its probability.
            outcome: from 0 to 1; whether it did agree.
            margin: how far the prediction may be from the truth without that being drift.
            lower_only: whether outcomes above the prediction are no drift.
        """
        lower, higher = self._detectors[: len(_SHIFTS)], self._detectors[len(_SHIFTS) :]
        lower = _after_bet(lower, predicted - margin, outcome)
        if not lower_only:
            higher = _after_bet(higher, 1 - predicted - margin, 1 - outcome)
        self._detectors = [*lower, *higher]
        if self.evidence < ALARM:
            return False
        self._detectors = [0.0] * len(self._detectors)
        return True


def _after_bet(detectors: list[float], expected: float, outcome: float) -> list[float]:
    """Return R of each bet on outcomes below the expected one; as it was where none can be below."""
    if expected <= 0:
        return detectors
    expected = min(expected, 1 - 1e-9)  # or what should never happen would be worth infinity
    return [
        (one + 1) * (outcome * (1 - shift) + (1 - outcome) * (1 - expected * (1 - shift)) / (1 - expected))
        for one, shift in zip(detectors, _SHIFTS, strict=True)
    ]


class Prediction(NamedTuple):
    """What was expected of a question before it was asked, and what came.

    Attributes:
        monitor: what it belongs to, one of :data:`MONITORED`.
        expected: the mean of what was expected to come, from 0 to 1.
        margin: how far that may be from the truth.
        came: from 0 to 1; whether a response agreed, say.
    """

    monitor: str
    expected: float
    margin: float
    came: float


class DriftWatch:
    """All monitors, fed with the predictions of one row after another."""

    def __init__(self) -> None:
        self._monitors = {what: DriftMonitor() for what in MONITORED}

    @property
    def evidence(self) -> dict[str, float]:
        """How strongly each monitor speaks for drift, by its name."""
        return {what: monitor.evidence for what, monitor in self._monitors.items()}

    def observe(self, predictions: Iterable[Prediction]) -> Drift | None:
        """Return what the predictions of a row, after those of the rows before it, show to have changed."""
        alarms = [
            _SHOWS[one.monitor]
            for one in predictions
            if self._monitors[one.monitor].observe(
                one.expected, one.came, margin=one.margin, lower_only=one.monitor == "separation"
            )
        ]
        return alarms[0] if alarms else None


class NextResponse(NamedTuple):
    """A response beside those before it.

    Attributes:
        decided: whether the decision had fallen before it.
        leading: votes of the leader by then.
        responses: responses by then.
        agreed: whether it gave the leader's answer.
    """

    decided: bool
    leading: int
    responses: int
    agreed: bool


def next_responses(answers: Sequence[int | None], decided: int, answer: int | None) -> Iterator[NextResponse]:
    """Yield what a question tells of agreement: the second vote, if sampling went on to it, and one after the decision.

    Those between them are left out: how often sampling goes on depends on them, and those of one question are not
    independent.

    Args:
        answers: in launch order; None where there is no vote.
        decided: responses after which the decision fell.
        answer: the one that was decided on.
    """
    first = next((at for at, one in enumerate(answers) if one is not None), len(answers))
    if first + 1 < min(decided, len(answers)):
        yield NextResponse(False, 1, first + 1, answers[first + 1] == answers[first])
    if decided < len(answers) and answer is not None:
        yield NextResponse(True, answers[:decided].count(answer), decided, answers[decided] == answer)


class AgreementRates:
    """How often the next response agreed with the leader: after so many votes of so many responses, decided or not.

    The average of a case is drawn to that of all decided, or of all undecided ones, as by four more observations. Since
    these are few, predictions have a margin: one and a half standard errors of the average of all.

    Args:
        observed: what was seen.
    """

    def __init__(self, observed: Iterable[NextResponse]) -> None:
        self._agreed: Counter[tuple[int, ...]] = Counter()
        self._seen: Counter[tuple[int, ...]] = Counter()
        for *case, agreed in observed:
            for counted in (tuple(case), tuple(case[:1])):
                self._seen[counted] += 1
                self._agreed[counted] += agreed

    def predict(self, coming: NextResponse) -> tuple[float, float] | None:
        """Return the probability that a response agrees, and its margin; None where nothing like it was seen."""
        case, average = coming[:3], coming[:1]
        if not (seen := self._seen[average]):
            return None
        mean, shrunk = self._agreed[average] / seen, (self._agreed[average] + 1) / (seen + 2)
        margin = max(_LEAST_MARGIN, _ERRORS * math.sqrt(shrunk * (1 - shrunk) / seen))
        probability = (self._agreed[case] + _PRIOR_RESPONSES * mean) / (self._seen[case] + _PRIOR_RESPONSES)
        return probability, margin


def separation(answers: Sequence[int | None], scores: npt.NDArray[np.float64]) -> Iterator[float]:
    """Yield the AUROC of the scores of responses that give the leading answer, by counts, against the others'.

    Votes are not weighed, or scores would choose the leader that they are then compared with. Nothing is yielded where
    several answers lead, or none but the leading one has a score.

    Args:
        answers: to one question, equal numbers for equal answers; None where there is no vote.
        scores: one of each response, or more; NaN where there is none.
    """
    given = Counter(answer for answer in answers if answer is not None).most_common(2)
    if len(given) == 2 and given[0][1] > given[1][1]:
        votes = [(answer, float(score)) for answer, score in zip(answers, scores, strict=False) if score == score]
        leading = [score for answer, score in votes if answer == given[0][0]]
        others = [score for answer, score in votes if answer not in (None, given[0][0])]
        if leading and others:
            wins = sum((one > other) + (one == other) / 2 for one in leading for other in others)
            yield wins / (len(leading) * len(others))


class Expected(NamedTuple):
    """What is expected of the next questions under a calibration.

    Attributes:
        row: the number of the trusted measure; None where there is none.
        rates: how often the next response agrees.
        separation: mean of :func:`separation`, and how far it may be from the truth; None where it is unknown.
    """

    row: int | None
    rates: AgreementRates
    separation: tuple[float, float] | None

    def predictions(
        self, answers: Sequence[int | None], scores: npt.NDArray[np.float64], decided: int, answer: int | None
    ) -> Iterator[Prediction]:
        """Yield what was expected of a question, beside what came.

        Args:
            answers: in launch order; equal numbers for equal answers, None for no vote.
            scores: shape (measures, responses).
            decided: responses that the decision rests on.
            answer: the one that was decided on.
        """
        for response in next_responses(answers, decided, answer):
            if (predicted := self.rates.predict(response)) is not None:
                yield Prediction("audits" if response.decided else "going on", *predicted, float(response.agreed))
        if self.separation is not None and self.row is not None:
            for came in separation(answers[:decided], scores[self.row]):
                yield Prediction("separation", *self.separation, came)


def mean_separation(each: Sequence[float]) -> tuple[float, float] | None:
    """Return the mean of :func:`separation` over questions and its margin; None where there are too few of them."""
    if len(each) < _FEWEST_SEPARATIONS:
        return None
    error = float(np.std(each, ddof=1)) / math.sqrt(len(each))
    return float(np.mean(each)), max(_LEAST_SEPARATION_MARGIN, _ERRORS * error)
