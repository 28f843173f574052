"""The state that ``calibration="online"`` learns, without threads and files; and the drift test that resets it.

Drift is that responses no longer agree with one another as often as was learned.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Final, NamedTuple, Self

import numpy as np

from langchain_reasc.calibration import consensus
from langchain_reasc.calibration.online_state import MadeOf, Observed, ObservedQuestion, OnlineState
from langchain_reasc.calibration.record import Calibration, Fingerprint
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET, decide

__all__ = [
    "GROWTH",
    "KEPT",
    "MINIMUM",
    "AgreementRates",
    "ConsensusLearner",
    "DriftMonitor",
    "NextResponse",
    "next_responses",
]

MINIMUM: Final = 32
KEPT: Final = 512
GROWTH: Final = 1.25
_SHIFTS: Final = (0.06, 0.15, 0.35, 0.6)
_LEAST_MARGIN: Final = 0.02
_RUN_LENGTH: Final = 5_000  # observations between false alarms, on average and at least
_PRIOR_RESPONSES: Final = 4  # that the average of all counts for
Fit = tuple[Calibration | None, "AgreementRates", int]
"""The calibration of the questions seen (None: they determine none), how often the next response agrees, and how many
questions there were."""


class ConsensusLearner:
    """Learns from the last 512 questions, anew each time their number has grown by a quarter.

    Args:
        measures: candidates for the measure, a row of scores each.
        budget: responses to a question at most.
        minimum: questions before the first calibration.
        fingerprint: what is measured.
        seed: the seed of everything random in a calibration.
    """

    def __init__(
        self,
        measures: Sequence[Measure],
        *,
        budget: int = DEFAULT_BUDGET,
        minimum: int = MINIMUM,
        fingerprint: Fingerprint | None = None,
        seed: int = 0,
    ) -> None:
        self.measures, self.minimum, self.fingerprint = tuple(measures), minimum, fingerprint or Fingerprint()
        self._budget, self._seed = budget, seed
        self.alarms = 0
        self._begin()

    def _begin(self) -> None:
        self._questions: deque[Observed] = deque(maxlen=KEPT)
        self.made_of: MadeOf = {}
        self.seen = self._fitted = 0
        self.calibration: Calibration | None = None
        self._rates: AgreementRates | None = None
        self._monitors = {decided: DriftMonitor() for decided in (False, True)}

    def observe(self, question: Observed) -> bool:
        """Learn from a question. Return True where what was learned no longer holds, and all is forgotten."""
        if self.calibration and not question.counted:
            following = next_responses(question.answers, question.decided, question.answer)
            if any([self._is_drift(response) for response in following]):
                self._begin()
                self.alarms += 1
                return True
        self._questions.append(question)
        self.seen += 1
        return False

    @property
    def due(self) -> bool:
        """Whether it is time to calibrate."""
        return self.seen >= max(self.minimum, math.ceil(GROWTH * self._fitted))

    def fit(self) -> Fit:
        """Calibrate on the questions seen. It changes nothing, and may take seconds."""
        questions, seen = list(self._questions), self.seen
        try:
            calibration = consensus.calibrate_consensus(
                questions,
                self.measures,
                budget=self._budget,
                made_of=self.made_of,
                fingerprint=self.fingerprint,
                seed=self._seed,
            )
        except CalibrationDataError:
            return None, AgreementRates(()), seen  # nothing to learn from these yet
        return calibration, AgreementRates(self._replay(questions, calibration)), seen

    def adopt(self, fit: Fit) -> None:
        """Use the calibration made of the questions."""
        self.calibration, self._rates, self._fitted = fit

    def postpone(self) -> None:
        """Calibrate no sooner than after a quarter more questions: it failed on these."""
        self._fitted = self.seen

    def state(self) -> OnlineState:
        """Return all that it has learned."""
        scored = [np.isfinite(question.scores).any(axis=1) for question in self._questions]
        rows = np.flatnonzero(np.any(scored, axis=0)).tolist() if scored else []
        return OnlineState(
            fingerprint=self.fingerprint,
            measures=tuple((one.signal, one.score, one.window) for one in (self.measures[row] for row in rows)),
            made_of=self.made_of,
            seen=self.seen,
            fitted=self._fitted,
            alarms=self.alarms,
            drift=tuple(monitor.state for monitor in self._monitors.values()),
            calibration=self.calibration,
            questions=tuple(ObservedQuestion.of(question, rows) for question in self._questions),
        )

    def restore(self, state: OnlineState) -> None:
        """Go on from a state. Scores by measures that are no candidates here are left out."""
        self._begin()
        known = {measure: row for row, measure in enumerate(self.measures)}
        rows = [known.get(Measure(*measure)) for measure in state.measures]
        self._questions.extend(one.observed(rows, len(self.measures)) for one in state.questions)
        self.made_of = {signal: dict(made) for signal, made in state.made_of.items()}
        self.seen, self._fitted, self.alarms = state.seen, state.fitted, state.alarms
        self.calibration = state.calibration
        self._monitors |= {
            decided: DriftMonitor(state=kept) for decided, kept in zip(self._monitors, state.drift, strict=False)
        }

    def merged(self, others: OnlineState | None, own: Iterable[Observed]) -> Self:
        """Return a learner of what others have learned, and then of these questions; the later calibration of both.

        Scores of these questions whose signal is made of another k or V there are left out.
        """
        together = copy(self)
        together._begin()
        if others is not None:
            together.restore(others)
        if together._fitted < self._fitted:
            together.calibration, together._rates, together._fitted = self.calibration, self._rates, self._fitted
        together.made_of = {**self.made_of, **together.made_of}
        differs = [together.made_of.get(one.signal) != self.made_of.get(one.signal) for one in self.measures]
        for question in own:
            scores = np.where(np.array(differs)[:, None], np.nan, question.scores)
            together.observe(replace(question, scores=scores))
        return together

    def _is_drift(self, response: "NextResponse") -> bool:
        if self._rates is None and self.calibration:  # which was read from a file
            self._rates = AgreementRates(self._replay(self._questions, self.calibration))
        if self._rates is None or (predicted := self._rates.predict(response)) is None:
            return False
        probability, margin = predicted
        return self._monitors[response.decided].observe(probability, response.agreed, margin=margin)

    def _replay(self, questions: Iterable[Observed], calibration: Calibration) -> Iterator["NextResponse"]:
        """Yield what the questions show of agreement before and after the decision of this calibration's rule."""
        rule = calibration.rule(on_missing_confidence="count", budget=self._budget)
        measure = calibration.measure
        row = self.measures.index(measure) if measure in self.measures else None
        for question in questions:
            decision = decide(rule, question.responses(row))
            answer = None if decision.answer is None else int(decision.answer)
            yield from next_responses(question.answers, decision.samples, answer)


class DriftMonitor:
    """Raises an alarm when what is observed has left what was predicted, in either direction.

    Every prediction p is compared with one outcome x (0 or 1). Under the null hypothesis P(x = 1) lies within
    ``margin`` of p, whatever came before. Against "it is lower", with q = p - margin, the likelihood ratio of
    Bernoulli(q (1 - s)) to Bernoulli(q) is a bet whose expected factor is at most 1 under the null hypothesis: a
    betting martingale (Waudby-Smith & Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 2024),
    which by Ville's inequality ever exceeds 1/α with a probability of α at most, whenever one looks. "It is higher" is
    the mirror image. Since a change may come at any time, the bets begun at all times are added up, R ← (R + 1) ·
    factor (Shiryaev-Roberts), and averaged over the shifts s: an e-detector (Shin, Ramdas & Rinaldo, arXiv 2203.03532).
    An alarm at R ≥ 5,000 comes, while nothing has changed, after 5,000 observations or more on average, and within the
    first t with a probability of t / 5,000 at most; also where every prediction is wrong by the whole margin.

    Args:
        state: the :attr:`state` of a monitor to go on from.
    """

    def __init__(self, *, state: Sequence[float] = ()) -> None:
        self._detectors = list(state) if len(state) == 2 * len(_SHIFTS) else [0.0] * 2 * len(_SHIFTS)

    @property
    def state(self) -> tuple[float, ...]:
        """R of each bet: lower by each shift, then higher."""
        return tuple(self._detectors)

    def observe(self, predicted: float, agreed: bool, *, margin: float = 0.05) -> bool:
        """Compare a prediction with its outcome. Return True for an alarm, after which the monitor begins anew.

        Args:
            predicted: the probability that the next response agrees with the leader.
            agreed: whether it did.
            margin: how far the prediction may be from the truth without that being drift.
        """
        lower = _factors(predicted - margin, agreed)
        higher = _factors(1 - predicted - margin, not agreed)
        self._detectors = [(one + 1) * by for one, by in zip(self._detectors, [*lower, *higher], strict=True)]
        if sum(self._detectors) / len(self._detectors) < _RUN_LENGTH:
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
        probability = (self._agreed[case] + _PRIOR_RESPONSES * mean) / (self._seen[case] + _PRIOR_RESPONSES)
        return probability, margin
