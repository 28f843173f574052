"""Calibration without labels: what agrees with the other responses to its question is taken to be right.

Two things are learned from questions that were answered by counting votes. How answers agree sets the prior of the
agreement rule (:mod:`~langchain_reasc.method.agreement`). And a measure of confidence is trusted where it tells the
responses that agree with the majority of the *others* from those that do not, within a question too: then votes weigh
by it. What is promised is agreement with the majority of the whole budget. Where wrong answers agree, that is wrong.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.answer_prior import counts_of, fit_prior
from langchain_reasc.calibration.promise import promise
from langchain_reasc.calibration.schema import AUROC, Calibration, Fingerprint, Gate, RejectedMeasure, RuleBlock
from langchain_reasc.calibration.separation import Judged, pooled, resampled, within
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.odds import PointOdds
from langchain_reasc.method.stopping import DEFAULT_BUDGET

__all__ = ["DEFAULT_AGREEMENT", "Observed", "calibrate_consensus", "consensus"]

DEFAULT_AGREEMENT: Final = 0.975  # θ: the lowest that costs 0.3 points at most on any kind of simulated pools
_VOTE_THRESHOLD: Final = 0.98  # at which weighted votes are sufficient
_TRUSTED: Final = 0.70  # within questions, the lower bound of the AUROC from which on a measure weighs votes
_LEVEL: Final = 0.10  # of that bound
_FEWEST: Final = 6  # questions with agreeing and other responses, below which nothing can be told within them
_KNOTS: Final = 33

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Observed:
    """One question, as sampling left it. No text is kept.

    Attributes:
        answers: in launch order; equal numbers for equal answers, None for a response without one.
        scores: shape (measures, responses), S(y) by each candidate measure; NaN where there is none.
        right: whether each response is right, where that is known; () where no label is.
        counted: whether votes were counted when it was sampled (ASC, or a budget), so that its answer shows what
            counting says.
    """

    answers: tuple[int | None, ...]
    scores: Floats
    right: tuple[bool | None, ...] = ()
    counted: bool = True


def consensus(answers: Sequence[int | None]) -> list[bool | None]:
    """Whether each response gives the answer that most of the others give; None where that cannot be told.

    It cannot of a response without an answer, of one without others, and where it is one of several leading answers.
    """
    return [_agrees(at, answers) for at in range(len(answers))]


def calibrate_consensus(
    questions: Sequence[Observed],
    *,
    measures: Sequence[Measure] = (),
    budget: int = DEFAULT_BUDGET,
    threshold: float = DEFAULT_AGREEMENT,
    made_of: Mapping[str, Mapping[str, int | None]] | None = None,
    fingerprint: Fingerprint | None = None,
    explained: bool = True,
    seed: int = 0,
) -> Calibration:
    """Learn the agreement rule from questions without labels; labels that are known count in place of consensus.

    Args:
        questions: what was sampled, each up to where counting votes stopped; 32 are enough to begin with.
        measures: the candidates that ``scores`` are of; none learns from answers alone.
        budget: responses to a question at most.
        threshold: θ, the probability at which the whole budget would hardly answer otherwise.
        made_of: signal -> ``top_k`` and ``vocabulary_size`` that it was made of; recorded.
        fingerprint: what was measured.
        explained: whether an interval and what is promised are worked out, for people; no decision needs them.
        seed: the seed of the resampled bounds.

    Raises:
        CalibrationDataError: fewer than 2 questions with an answer, or scores of another number of measures.
    """
    voted = [one for one in questions if any(answer is not None for answer in one.answers)]
    if len(voted) < 2:
        raise CalibrationDataError(f"{len(voted)} of {len(questions)} questions have an answer; 32 are enough to begin")
    for one in voted:
        if one.scores.shape != (len(measures), len(one.answers)):
            raise CalibrationDataError(
                f"scores of shape {one.scores.shape} for {len(measures)} measures of {len(one.answers)} responses"
            )
    prior = fit_prior([counts_of(one.answers) for one in voted])
    trust = _Trust.of(voted, measures, seed, explained=explained)
    measured = trust.recorded(made_of or {}) if trust.measure else _COUNTED
    rule = RuleBlock.agreement(
        threshold=threshold, prior=prior, odds=trust.odds if trust.measure else None, vote_threshold=_VOTE_THRESHOLD
    )
    made = Calibration.now(
        method="consensus",
        n=len(voted),
        gate=Gate(threshold=None, closed_because="the agreement rule decides, which has no gate"),
        rule=rule,
        untrusted=trust.why_not,
        fingerprint=fingerprint or Fingerprint(),
        **measured,
    )
    if not explained:
        return made
    chosen = list(measures).index(trust.measure) if trust.measure else None
    return made.model_copy(update={"guarantee": promise(made.rule(budget=budget), voted, chosen)})


_COUNTED: Final[Mapping[str, Any]] = dict.fromkeys(("signal", "score", "window", "mean", "std"))


@dataclass(frozen=True, slots=True)
class _Trust:
    """Which measure is trusted, or why none is."""

    measure: Measure | None = None
    why_not: str | None = None
    scores: Floats | None = None  # those that the odds were found on
    odds: PointOdds | None = None
    auroc: AUROC | None = None
    within: AUROC | None = None
    rejected: tuple[RejectedMeasure, ...] = ()

    @classmethod
    def of(cls, questions: Sequence[Observed], measures: Sequence[Measure], seed: int, *, explained: bool) -> "_Trust":
        known, judged = _judged(questions, measures)
        if not known:
            return cls(why_not="no measure has a score of every response" if measures else "there are no scores")
        if not judged.both:
            return cls(why_not="all responses agree, or none do: there is nothing to tell apart")
        aurocs, rng = pooled(judged), np.random.default_rng(seed)
        best = int(np.argmax(aurocs))
        each = within(judged)[best]
        if each.size < _FEWEST:
            return cls(why_not=f"only {each.size} questions have answers that differ; {_FEWEST} show more")
        bound = resampled(each, rng, level=_LEVEL)
        if bound < _TRUSTED:
            return cls(
                why_not=f"{known[best]} tells agreeing responses from others within a question with an AUROC of "
                f"{each.mean():.2f}, and of {bound:.2f} at least (90 %), where {_TRUSTED:.2f} is wanted"
            )
        high = resampled(each, rng, level=1 - _LEVEL)
        scores = judged.scores[best]
        return cls(
            measure=known[best],
            scores=scores,
            odds=_odds(scores, judged.right),
            auroc=_interval(judged, best, rng) if explained else None,
            within=AUROC(value=float(each.mean()), low=bound, high=high),
            rejected=_rejected(known, aurocs, best),
        )

    def recorded(self, made_of: Mapping[str, Mapping[str, int | None]]) -> dict[str, Any]:
        assert self.measure is not None and self.scores is not None
        return {
            "signal": self.measure.signal,
            "score": self.measure.score,
            "window": self.measure.window,
            "mean": float(self.scores.mean()),
            "std": float(self.scores.std()),
            "auroc": self.auroc,
            "within": self.within,
            "rejected": self.rejected,
            **made_of.get(self.measure.signal, {}),
        }


def _agrees(at: int, answers: Sequence[int | None]) -> bool | None:
    own, others = answers[at], [answer for place, answer in enumerate(answers) if place != at and answer is not None]
    if own is None or not others:
        return None
    counts = [others.count(answer) for answer in set(others)]
    if others.count(own) < max(counts):
        return False
    return True if counts.count(max(counts)) == 1 else None


def _judged(questions: Sequence[Observed], measures: Sequence[Measure]) -> tuple[list[Measure], Judged]:
    """The responses that agree or do not, and the measures that score every one of them."""
    rows = [
        (number, at, right)
        for number, one in enumerate(questions)
        for at, right in enumerate(_labels(one))
        if right is not None
    ]
    question = np.array([number for number, _, _ in rows], dtype=np.intp)
    right = np.array([right for *_, right in rows], dtype=bool)
    scores = np.array([questions[number].scores[:, at] for number, at, _ in rows]).reshape(len(rows), len(measures)).T
    whole = np.isfinite(scores).all(axis=1) if rows else np.zeros(len(measures), dtype=bool)
    spread = whole & (np.ptp(scores, axis=1) > 0) if rows else whole
    known = [measure for measure, usable in zip(measures, spread, strict=True) if usable]
    return known, Judged(question, right, scores[spread])


def _labels(one: Observed) -> list[bool | None]:
    """Consensus, but for the responses of which it is known whether they are right."""
    agreeing = consensus(one.answers)
    if not one.right:
        return agreeing
    voting = [answer is not None for answer in one.answers]
    told = zip(one.right, agreeing, voting, strict=True)
    return [(right if right is not None else agrees) if votes else None for right, agrees, votes in told]


def _odds(scores: Floats, right: npt.NDArray[np.bool_]) -> PointOdds:
    """Log-odds by a logistic regression on normal scores, as points at quantiles of the scores."""
    from scipy.special import logit
    from sklearn.linear_model import LogisticRegression

    knots = np.unique(np.quantile(scores, np.linspace(0, 1, _KNOTS)))
    fit = LogisticRegression(C=10.0).fit(_normal(scores, scores)[:, None], right)
    values = fit.decision_function(_normal(knots, scores)[:, None])
    points = tuple(zip(knots.tolist(), values.tolist(), strict=True))
    return PointOdds(points, average=float(logit(right.mean())))


def _normal(values: Floats, reference: Floats) -> Floats:
    """Normal scores: the normal deviates of the values' ranks among the reference, ties in the middle."""
    from scipy.stats import norm

    ordered = np.sort(reference)
    rank = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2
    return np.asarray(norm.ppf(np.clip((rank + 0.5) / (reference.size + 1), 0.002, 0.998)))


def _interval(judged: Judged, best: int, rng: np.random.Generator) -> AUROC:
    """AUROC of all responses, with a 95 % interval over questions."""
    one = Judged(judged.question, judged.right, judged.scores[best : best + 1])
    numbers = np.unique(judged.question)
    places = [np.flatnonzero(judged.question == number) for number in numbers]
    drawn = []
    for _ in range(200):
        at = np.concatenate([places[i] for i in rng.integers(0, len(places), len(places))])
        again = Judged(one.question[at], one.right[at], one.scores[:, at])
        if again.both:
            drawn.append(float(pooled(again)[0]))
    low, high = np.quantile(drawn, [0.025, 0.975]) if drawn else (0.0, 1.0)
    return AUROC(value=float(pooled(one)[0]), low=float(low), high=float(high))


def _rejected(known: Sequence[Measure], aurocs: Floats, best: int) -> tuple[RejectedMeasure, ...]:
    """The best measure of each other signal."""
    shown: dict[str, int] = {}
    for at in np.argsort(-aurocs, kind="stable").tolist():
        if at != best and known[at].signal != known[best].signal:
            shown.setdefault(known[at].signal, at)
    return tuple(
        RejectedMeasure(
            signal=known[at].signal,
            score=known[at].score,
            window=known[at].window,
            auroc=float(aurocs[at]),
            behind=float(aurocs[best] - aurocs[at]),
        )
        for at in shown.values()
    )
