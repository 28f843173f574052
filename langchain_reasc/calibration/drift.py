"""Drift: whether responses still agree with one another as often as was learned."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

__all__ = ["AgreementRates", "DriftMonitor", "NextResponse", "next_responses"]

_SHIFTS: Final = (0.06, 0.15, 0.35, 0.6)
_LEAST_MARGIN: Final = 0.02
_PRIOR: Final = 4  # responses that the average of all counts for


class DriftMonitor:
    """Raises an alarm when what is observed has left what was predicted, in either direction.

    Every prediction p is compared with one outcome x (0 or 1). Under the null hypothesis P(x = 1) lies within
    ``margin`` of p, whatever came before. Against "it is lower", with q = p - margin, the likelihood ratio of
    Bernoulli(q (1 - s)) to Bernoulli(q) is a bet whose expected factor is at most 1 under the null hypothesis: a
    betting martingale (Waudby-Smith & Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 2024),
    which by Ville's inequality ever exceeds 1/α with a probability of α at most, whenever one looks. "It is higher" is
    the mirror image. Since a change may come at any time, the bets begun at all times are added up, R ← (R + 1) ·
    factor (Shiryaev-Roberts), and averaged over the shifts s: an e-detector (Shin, Ramdas & Rinaldo, arXiv 2203.03532).
    An alarm at R ≥ ``run_length`` comes, while nothing has changed, after ``run_length`` observations or more on
    average, and within the first t with a probability of t / ``run_length`` at most.

    Args:
        run_length: observations between false alarms, on average and at least; also where every prediction is wrong by
            the whole margin.
        margin: how far a prediction may be from the truth without that being drift.
        state: the :attr:`state` of a monitor to go on from.
    """

    def __init__(self, *, run_length: float = 5_000, margin: float = 0.05, state: Sequence[float] = ()) -> None:
        self._run_length, self._margin = run_length, margin
        self._detectors = list(state) if len(state) == 2 * len(_SHIFTS) else [0.0] * 2 * len(_SHIFTS)

    @property
    def state(self) -> tuple[float, ...]:
        """R of each bet: lower by each shift, then higher."""
        return tuple(self._detectors)

    def observe(self, predicted: float, agreed: bool, *, margin: float | None = None) -> bool:
        """Compare a prediction with its outcome. Return True for an alarm, after which the monitor begins anew.

        Args:
            predicted: the probability that the next response agrees with the leader.
            agreed: whether it did.
            margin: of this prediction, in place of the monitor's.
        """
        margin = self._margin if margin is None else margin
        lower = _factors(predicted - margin, agreed)
        higher = _factors(1 - predicted - margin, not agreed)
        self._detectors = [(one + 1) * by for one, by in zip(self._detectors, [*lower, *higher], strict=True)]
        if sum(self._detectors) / len(self._detectors) < self._run_length:
            return False
        self._detectors = [0.0] * len(self._detectors)
        return True


def _factors(expected: float, happened: bool) -> list[float]:
    """Return what bets on something rarer than expected gain: nothing where it is not expected anyway."""
    if expected <= 0:
        return [1.0] * len(_SHIFTS)
    expected = min(expected, 1 - 1e-9)  # or what should never happen would be worth infinity
    return [1 - shift if happened else (1 - expected * (1 - shift)) / (1 - expected) for shift in _SHIFTS]


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
        margin = max(_LEAST_MARGIN, 1.5 * math.sqrt(shrunk * (1 - shrunk) / seen))
        return (self._agreed[case] + _PRIOR * mean) / (self._seen[case] + _PRIOR), margin
