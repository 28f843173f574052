"""Which measure of confidence deserves that votes weigh by it, found without labels or with a few."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.observed import Observed
from langchain_reasc.calibration.schema import AUROC, RejectedMeasure
from langchain_reasc.calibration.separation import Judged, pooled, resampled, within
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.odds import PointOdds

__all__ = ["Trust"]

_TRUSTED: Final = 0.70  # within questions, the lower bound of the AUROC from which on a measure weighs votes
_LEVEL: Final = 0.10  # of that bound
_FEWEST: Final = 6  # questions with agreeing and other responses, below which nothing can be told within them
_FEWEST_LABELLED: Final = 5  # questions with right and wrong responses by their labels, which then may refuse a measure
_KNOTS: Final = 33
_NOT_MEASURED: Final[Mapping[str, Any]] = dict.fromkeys(("signal", "score", "window", "mean", "std"))

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trust:
    """A measure that is trusted, or why none is.

    Attributes:
        measure: the measure; None where none is trusted.
        why_not: why none is.
        scores: shape (n,), the scores that the odds were found on.
        odds: of a response being right, by its score.
        auroc: of responses that agree against others; None where it was not asked for.
        within: the same between responses to one question, averaged over questions.
        rejected: the best measure of each other signal.
    """

    measure: Measure | None = None
    why_not: str | None = None
    scores: Floats | None = None
    odds: PointOdds | None = None
    auroc: AUROC | None = None
    within: AUROC | None = None
    rejected: tuple[RejectedMeasure, ...] = ()

    @classmethod
    def of(
        cls, questions: Sequence[Observed], measures: Sequence[Measure], seed: int, *, explained: bool = True
    ) -> "Trust":
        """Trust the measure that tells agreeing responses from others best, where it does within questions, too.

        Where labels are known they count in place of consensus. Where five labelled questions or more have right and
        wrong responses, no measure is trusted that does not tell these apart.

        Args:
            questions: what was sampled.
            measures: the candidates that their scores are of.
            seed: of what is drawn again.
            explained: whether the interval of ``auroc`` is worked out.
        """
        known, judged = _judged(questions, measures, [one.judged for one in questions])
        if not known:
            return cls(why_not="no measure has a score of every response" if measures else "there are no scores")
        if not judged.both:
            return cls(why_not="all responses agree, or none do: there is nothing to tell apart")
        candidates = _not_refuted(questions, measures, known)
        if not candidates.any():
            return cls(why_not="no measure tells right responses from wrong ones where labels are known")
        aurocs, rng = pooled(judged), np.random.default_rng(seed)
        best = int(np.argmax(np.where(candidates, aurocs, -1.0)))
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
        """What a calibration records of it.

        Args:
            made_of: signal -> ``top_k`` and ``vocabulary_size``.
        """
        if self.measure is None or self.scores is None:
            return {**_NOT_MEASURED, "untrusted": self.why_not}
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


def _judged(
    questions: Sequence[Observed], measures: Sequence[Measure], labels: Sequence[Sequence[bool | None]]
) -> tuple[list[Measure], Judged]:
    """The responses that are right or wrong by these labels, and the measures that score every one of them."""
    rows = [
        (number, at, right)
        for number, labelled in enumerate(labels)
        for at, right in enumerate(labelled)
        if right is not None
    ]
    question = np.array([number for number, _, _ in rows], dtype=np.intp)
    right = np.array([right for *_, right in rows], dtype=bool)
    scores = np.array([questions[number].scores[:, at] for number, at, _ in rows]).reshape(len(rows), len(measures)).T
    whole = np.isfinite(scores).all(axis=1) if rows else np.zeros(len(measures), dtype=bool)
    spread = whole & (np.ptp(scores, axis=1) > 0) if rows else whole
    known = [measure for measure, usable in zip(measures, spread, strict=True) if usable]
    return known, Judged(question, right, scores[spread])


def _not_refuted(
    questions: Sequence[Observed], measures: Sequence[Measure], known: Sequence[Measure]
) -> npt.NDArray[np.bool_]:
    """Which of the known measures tell right from wrong within labelled questions, where there are enough of these."""
    having, labelled = _judged(questions, measures, [one.told for one in questions])
    each = within(labelled) if having else np.empty((0, 0))
    if each.shape[1] < _FEWEST_LABELLED:
        return np.ones(len(known), dtype=bool)
    telling = {measure for measure, own in zip(having, each.mean(axis=1), strict=True) if own > 0.5}
    return np.array([measure in telling for measure in known])


def _odds(scores: Floats, right: npt.NDArray[np.bool_]) -> PointOdds:
    """Log-odds by a logistic regression on normal scores, as points at quantiles of the scores."""
    from scipy.special import logit
    from sklearn.linear_model import LogisticRegression

    knots = np.unique(np.quantile(scores, np.linspace(0, 1, _KNOTS)))
    fit = LogisticRegression(C=10.0).fit(_normal(scores, scores)[:, None], right)
    nearest = float(logit(1 / (right.size + 2)))  # the rule of succession: separated classes would make it infinite
    values = np.clip(fit.decision_function(_normal(knots, scores)[:, None]), nearest, -nearest)
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
