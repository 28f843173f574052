"""Choose the measure of confidence that weighs votes, by how far responses to the same
question agree.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from langchain_reasc.calibration.auroc import (
    Booleans,
    Floats,
    Judged,
    auroc_of,
    auroc_per_question,
    auroc_with_interval,
)
from langchain_reasc.calibration.observations import Observation, agrees_with_majority
from langchain_reasc.calibration.parts import AUROC
from langchain_reasc.calibration.selection import rejected_measures
from langchain_reasc.method.bayesian_vote import PointOdds
from langchain_reasc.method.confidence import Measure

__all__ = ["Trusted", "alternatives", "trusted_measure"]

_MOST_ALTERNATIVES: Final = 5.0
_PAIRS: Final = 4.0  # prior pairs of agreeing wrong responses
# lower bound of the AUROC within questions that a measure needs to weigh votes
_TRUSTED: Final = 0.70
_LEVEL: Final = 0.10  # level of that bound
_RESAMPLES: Final = 2000
# questions with agreeing and other responses, needed for an AUROC within questions
_FEWEST: Final = 6
# questions with right and wrong responses, from which on labels may refuse a measure
_FEWEST_LABELLED: Final = 5
_KNOTS: Final = 33


class Trusted(NamedTuple):
    """The measure that weighs votes, if one deserves it.

    Attributes:
        fields: further fields of the calibration; without a measure, ``untrusted`` says
            why.
        measure: the measure.
        row: its row of scores.
        scores: the scores of the judged responses.
        odds: the odds that a response is right, by its score.
    """

    fields: dict[str, Any]
    measure: Measure | None = None
    row: int | None = None
    scores: Floats | None = None
    odds: PointOdds | None = None


def trusted_measure(
    questions: Sequence[Observation],
    measures: Sequence[Measure],
    seed: int,
    *,
    explained: bool,
) -> Trusted:
    """Choose the measure that separates agreeing responses from others best, if it also
    does so within questions.

    If five or more labelled questions have right and wrong responses, the measure must
    separate these too.
    """

    def untrusted(why: str) -> Trusted:
        return Trusted({"untrusted": why})

    known, judged = _judged(
        questions,
        len(measures),
        [agrees_with_majority(one.answers) for one in questions],
    )
    if not known:
        return untrusted(
            "no measure has a score of every response"
            if measures
            else "there are no scores"
        )
    if not judged.both:
        return untrusted(
            "all responses agree, or none do: there is nothing to tell apart"
        )
    candidates = _not_refuted(questions, len(measures), known)
    if not candidates.any():
        return untrusted(
            "no measure tells right responses from wrong ones where labels are known"
        )
    aurocs = auroc_of(judged.scores[:, judged.right], judged.scores[:, ~judged.right])
    best = int(np.argmax(np.where(candidates, aurocs, -1.0)))
    measure, scores, each = (
        measures[known[best]],
        judged.scores[best],
        auroc_per_question(judged)[best],
    )
    if each.size < _FEWEST:
        return untrusted(
            f"only {each.size} questions have answers that differ; {_FEWEST} show more"
        )
    within = _resampled_mean(each, seed)
    if within.low < _TRUSTED:
        return untrusted(
            f"{measure} tells agreeing responses from others within a question with an "
            f"AUROC of {within.value:.2f}, and of {within.low:.2f} at least (90 %), "
            f"where {_TRUSTED:.2f} is needed"
        )
    named = [measures[at] for at in known]
    fields = {
        "auroc": auroc_with_interval(scores, judged.right, judged.question)
        if explained
        else None,
        "within": within,
        "rejected": rejected_measures(
            named, aurocs, best, [one for one in named if one.signal != measure.signal]
        ),
    }
    return Trusted(fields, measure, known[best], scores, _odds(scores, judged.right))


def _resampled_mean(each: Floats, seed: int) -> AUROC:
    """Return the mean AUROC of several questions, with one-sided 90 % bounds by
    resampling questions.
    """
    rng = np.random.default_rng(seed)
    low, high = (
        float(
            np.quantile(
                each[rng.integers(0, each.size, (_RESAMPLES, each.size))].mean(axis=1),
                level,
            )
        )
        for level in (_LEVEL, 1 - _LEVEL)
    )
    return AUROC(value=float(each.mean()), low=low, high=high)


def _judged(
    questions: Sequence[Observation],
    measures: int,
    labels: Sequence[Sequence[bool | None]],
) -> tuple[list[int], Judged]:
    """Return the measures that score every labelled response, not all the same, and
    these responses.

    Responses without token signals, which no measure scores, are left out.
    """
    scored: list[Booleans] = [
        np.any(np.isfinite(one.scores), axis=0) for one in questions
    ]
    rows = [
        (number, at, right)
        for number, labelled in enumerate(labels)
        for at, right in enumerate(labelled)
        if right is not None and scored[number][at]
    ]
    question = np.array([number for number, _, _ in rows], dtype=np.intp)
    right = np.array([right for *_, right in rows], dtype=bool)
    scores = (
        np.array([questions[number].scores[:, at] for number, at, _ in rows])
        .reshape(len(rows), measures)
        .T
    )
    known = [
        at
        for at, own in enumerate(scores)
        if own.size and np.isfinite(own).all() and np.ptp(own) > 0
    ]
    return known, Judged(question, right, scores[known])


def _not_refuted(
    questions: Sequence[Observation], measures: int, known: Sequence[int]
) -> Booleans:
    """Return which known measures separate right from wrong within labelled questions;
    all if these are too few.
    """
    having, labelled = _judged(questions, measures, [one.known for one in questions])
    each = auroc_per_question(labelled) if having else np.empty((0, 0))
    if each.shape[1] < _FEWEST_LABELLED:
        return np.ones(len(known), dtype=bool)
    separating = {
        at for at, own in zip(having, each.mean(axis=1), strict=True) if own > 0.5
    }
    return np.array([at in separating for at in known])


def _odds(scores: Floats, right: Booleans) -> PointOdds:
    """Log-odds by a logistic regression on normal scores, as points at quantiles of the
    scores.
    """
    from scipy.special import logit
    from sklearn.linear_model import LogisticRegression

    knots = np.unique(np.quantile(scores, np.linspace(0, 1, _KNOTS)))
    fit = LogisticRegression(C=10.0).fit(_normal(scores, scores)[:, None], right)
    nearest = float(
        logit(1 / (right.size + 2))
    )  # rule of succession; separated classes would give infinity
    values = np.clip(
        fit.decision_function(_normal(knots, scores)[:, None]), nearest, -nearest
    )
    points = tuple(zip(knots.tolist(), values.tolist(), strict=True))
    return PointOdds(points, average=float(logit(right.mean())))


def _normal(values: Floats, reference: Floats) -> Floats:
    """Normal scores: the normal deviates of the values' ranks among the reference, ties
    in the middle.
    """
    from scipy.stats import norm

    ordered = np.sort(reference)
    rank = (
        np.searchsorted(ordered, values, "left")
        + np.searchsorted(ordered, values, "right")
    ) / 2
    return np.asarray(
        norm.ppf(np.clip((rank + 0.5) / (reference.size + 1), 0.002, 0.998))
    )


def alternatives(questions: Sequence[Observation]) -> float:
    """Return K, how many wrong answers a wrong response chooses from: 1 / P(two wrong
    responses agree), at most 5.

    Responses without the leading answer count as wrong. If there are hardly any, they
    are assumed to agree, because a larger K lets fewer responses decide.
    """
    pairs = same = 0
    for question in questions:
        given = Counter(
            answer for answer in question.answers if answer is not None
        ).most_common()
        wrong = [count for _, count in given[1:]]
        pairs += sum(wrong) * (sum(wrong) - 1) // 2
        same += sum(count * (count - 1) // 2 for count in wrong)
    return min(_MOST_ALTERNATIVES, (pairs + _PAIRS) / (same + _PAIRS))
