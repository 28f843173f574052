"""Drift tests: whether a calibration without labels still holds for new questions.

Two predictions are compared with what comes: how often the next response to a question
agrees with the earlier ones, and how well scores separate agreeing responses from
others. The predictions about a question are part of its row
(:class:`Prediction`), so :class:`DriftWatch` needs only the rows, in order.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.method.stopping import Response, StoppingRule

__all__ = [
    "ALARM",
    "MONITORED",
    "Drift",
    "DriftMonitor",
    "DriftWatch",
    "Expected",
    "Prediction",
    "mean_separation",
    "responses_of",
    "separation",
]

ALARM: Final = 5_000
"""The evidence R at which a monitor raises an alarm: observations between false alarms,
on average and at least.
"""
MONITORED: Final = ("going on", "audits", "separation")
"""The monitors: second votes of questions on which sampling goes on, audits, and the
separation by scores.
"""
Drift = Literal["agreement", "confidence"]
"""What has changed: how responses agree, or what their scores mean."""
_SHOWS: Final[dict[str, Drift]] = {
    "going on": "agreement",
    "audits": "agreement",
    "separation": "confidence",
}
_SHIFTS: Final = (0.06, 0.15, 0.35, 0.6)
_ERRORS: Final = 1.5  # margin of a prediction, in standard errors
_LEAST_MARGIN: Final = 0.06  # how far the agreement rule may be from the truth
_LEAST_SEPARATION_MARGIN: Final = 0.05
_FEWEST_SEPARATIONS: Final = 6


class DriftMonitor:
    """Raises an alarm when outcomes differ from predictions.

    Every prediction p is compared with one outcome x from 0 to 1, such as whether a
    response agrees. Under the null hypothesis E[x] is within ``margin`` of p, given the
    past. For the alternative "lower", with q = p - margin, the likelihood ratio of
    Bernoulli(q (1 - s)) to Bernoulli(q), which is linear in x, is a bet with an
    expected factor of at most 1 under the null hypothesis: a betting martingale
    (Waudby-Smith & Ramdas, "Estimating means of bounded random variables by betting",
    JRSS-B 2024). By Ville's inequality it ever exceeds 1/α with a probability of at
    most α. The alternative "higher" is the mirror image. Because a change may come at
    any time, the bets started at all times are summed, R ← (R + 1) · factor
    (Shiryaev-Roberts), and averaged over the shifts s: an e-detector (Shin, Ramdas &
    Rinaldo, arXiv 2203.03532). Without a change, the alarm at R ≥ 5,000 comes after at
    least 5,000 observations on average, and within the first t observations with a
    probability of at most t / 5,000, even if every prediction is wrong by the whole
    margin.

    Args:
        detectors: those of a monitor to go on from.
        alarm: the evidence R that raises the alarm.
    """

    def __init__(
        self, detectors: Sequence[float] = (), *, alarm: float = ALARM
    ) -> None:
        self._alarm = alarm
        # R of each bet: lower by each shift, then higher.
        self._detectors = list(detectors) or [0.0] * 2 * len(_SHIFTS)

    @property
    def detectors(self) -> tuple[float, ...]:
        """R of each bet, with which a monitor goes on."""
        return tuple(self._detectors)

    @property
    def evidence(self) -> float:
        """R, averaged over the bets."""
        return sum(self._detectors) / len(self._detectors)

    def observe(
        self,
        predicted: float,
        outcome: float,
        *,
        margin: float = 0.05,
        lower_only: bool = False,
    ) -> bool:
        """Compare a prediction with its outcome. Return True for an alarm, which also
        resets the monitor.

        Args:
            predicted: the expected outcome, such as the probability that the next
                response agrees with the leader.
            outcome: from 0 to 1, such as whether it did agree.
            margin: how far the prediction may be from the truth without being drift.
            lower_only: whether outcomes above the prediction are ignored.
        """
        lower = self._detectors[: len(_SHIFTS)]
        higher = self._detectors[len(_SHIFTS) :]
        lower = _after_bet(lower, predicted - margin, outcome)
        if not lower_only:
            higher = _after_bet(higher, 1 - predicted - margin, 1 - outcome)
        self._detectors = [*lower, *higher]
        if self.evidence < self._alarm:
            return False
        self._detectors = [0.0] * len(self._detectors)
        return True


def _after_bet(detectors: list[float], expected: float, outcome: float) -> list[float]:
    """Return R of each bet on outcomes below the expected one; unchanged if none can be
    below.
    """
    if expected <= 0:
        return detectors
    # An impossible outcome would give infinity.
    expected = min(expected, 1 - 1e-9)
    results = []
    for detector, shift in zip(detectors, _SHIFTS, strict=True):
        miss = (1 - expected * (1 - shift)) / (1 - expected)
        factor = outcome * (1 - shift) + (1 - outcome) * miss
        results.append((detector + 1) * factor)
    return results


class Prediction(NamedTuple):
    """A prediction about a question, made before it was asked, and what came.

    Attributes:
        monitor: the monitor, one of :data:`MONITORED`.
        expected: the expected outcome, from 0 to 1.
        margin: how far the expectation may be from the truth.
        came: the outcome, from 0 to 1, such as whether a response agreed.
    """

    monitor: str
    expected: float
    margin: float
    came: float


class DriftWatch:
    """All monitors, which read the predictions of the rows in order."""

    def __init__(self) -> None:
        self._monitors = {name: DriftMonitor() for name in MONITORED}

    @property
    def evidence(self) -> dict[str, float]:
        """The evidence for drift of each monitor, by its name."""
        return {name: monitor.evidence for name, monitor in self._monitors.items()}

    def observe(self, predictions: Iterable[Prediction]) -> Drift | None:
        """Read the predictions of the next row. Return what has changed if they raise
        an alarm.
        """
        drift = None
        for prediction in predictions:
            name = prediction.monitor
            is_alarm = self._monitors[name].observe(
                prediction.expected,
                prediction.came,
                margin=prediction.margin,
                lower_only=name == "separation",
            )
            if is_alarm and drift is None:
                drift = _SHOWS[name]
        return drift


def separation(
    answers: Sequence[int | None], scores: npt.NDArray[np.float64]
) -> Iterator[float]:
    """Yield the AUROC of scores: responses with the leading answer, by counts, against
    the others.

    Votes are not weighed; else the scores would choose the leader that they are
    compared with. Nothing is yielded if several answers lead, or if one of the groups
    has no score.

    Args:
        answers: answers to one question, equal numbers for equal answers; None for no
            vote.
        scores: the score of each response, perhaps followed by others; NaN for no
            score.
    """
    votes = Counter(answer for answer in answers if answer is not None).most_common(2)
    if len(votes) < 2 or votes[0][1] == votes[1][1]:
        return
    leader = votes[0][0]
    leading: list[float] = []
    rest: list[float] = []
    # Scores of responses after the decision may follow.
    for answer, score in zip(answers, scores.tolist(), strict=False):
        if answer is not None and not math.isnan(score):
            group = leading if answer == leader else rest
            group.append(score)
    if leading and rest:
        wins = sum((high > low) + (high == low) / 2 for high in leading for low in rest)
        yield wins / (len(leading) * len(rest))


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of the next questions under a calibration.

    Attributes:
        rule: the agreement rule, which tells how likely a further response agrees.
        row: the row of the scores that it reads; None for none.
        n: the questions that it was learned from.
        separation: mean of :func:`separation` and its margin; None if unknown.
    """

    rule: StoppingRule
    row: int | None
    n: int
    separation: tuple[float, float] | None

    def predictions(
        self,
        answers: Sequence[int | None],
        scores: npt.NDArray[np.float64],
        decided: int,
        answer: int | None,
    ) -> Iterator[Prediction]:
        """Yield the predictions about a question, with what came.

        Two of its responses show agreement: the second vote, and the first one after
        the decision. Votes between them are left out, because they decide how often
        sampling goes on, and because votes on one question are not independent.

        Args:
            answers: in launch order; equal numbers for equal answers, None for no vote.
            scores: shape (measures, responses).
            decided: responses that the decision rests on.
            answer: the winning answer.
        """
        responses = responses_of(
            answers, None if self.row is None else scores[self.row]
        )
        second = 1
        # The first vote leads until the second one.
        while second <= len(answers) and answers[second - 1] is None:
            second += 1
        if second < min(decided, len(answers)):
            leading = answers[second - 1]
            following = answers[second]
            yield from self._of_next("going on", responses[:second], leading, following)
        if decided < len(answers) and answer is not None:
            following = answers[decided]
            yield from self._of_next("audits", responses[:decided], answer, following)
        if self.separation is not None and self.row is not None:
            for came in separation(answers[:decided], scores[self.row]):
                yield Prediction("separation", *self.separation, came)

    def _of_next(
        self,
        monitor: str,
        responses: Sequence[Response],
        leading: int | None,
        following: int | None,
    ) -> Iterator[Prediction]:
        # The rule tells how likely the next vote agrees, and not whether one comes.
        if following is None:
            return
        decision = self.rule(responses)
        # A leader that another rule chose is not predicted.
        if decision.agrees is None or decision.answer != str(leading):
            return
        expected = decision.agrees
        error = math.sqrt(expected * (1 - expected) / self.n)
        margin = max(_LEAST_MARGIN, _ERRORS * error)
        yield Prediction(monitor, expected, margin, float(following == leading))


def responses_of(
    answers: Sequence[int | None], scores: npt.NDArray[np.float64] | None
) -> list[Response]:
    """Return the responses of a row as a rule reads them.

    Args:
        answers: in launch order; equal numbers for equal answers, None for no vote.
        scores: the score of each response, NaN for none; None for no scores.
    """
    responses = []
    for index, answer in enumerate(answers):
        text = None if answer is None else str(answer)
        score = None
        if scores is not None and math.isfinite(scores[index]):
            score = float(scores[index])
        responses.append(Response(text, score))
    return responses


def mean_separation(separations: Sequence[float]) -> tuple[float, float] | None:
    """Return the mean of :func:`separation` over questions and its margin; None for too
    few questions.
    """
    if len(separations) < _FEWEST_SEPARATIONS:
        return None
    error = float(np.std(separations, ddof=1)) / math.sqrt(len(separations))
    return float(np.mean(separations)), max(_LEAST_SEPARATION_MARGIN, _ERRORS * error)
