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
    ranks_among,
)
from langchain_reasc.calibration.observations import Observation, agrees_with_majority
from langchain_reasc.calibration.parts import AUROC
from langchain_reasc.calibration.selection import rejected_measures
from langchain_reasc.method.bayesian_vote import PointOdds
from langchain_reasc.method.confidence import Measure

__all__ = ["Trusted", "alternatives", "trusted_measure"]

_MOST_ALTERNATIVES: Final = 5.0
_PAIRS: Final = 4.0  # prior pairs of agreeing wrong responses
# Lower bound of the AUROC within questions that a measure needs to weigh votes.
_TRUSTED: Final = 0.70
_LEVEL: Final = 0.10  # level of that bound
_RESAMPLES: Final = 2000
# Questions with agreeing and other responses, needed for an AUROC within questions.
_FEWEST: Final = 6
# Questions with right and wrong responses, from which on labels may refuse a measure.
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

    def untrusted(reason: str) -> Trusted:
        return Trusted({"untrusted": reason})

    if not measures:
        return untrusted("there are no scores")
    agrees = [agrees_with_majority(question.answers) for question in questions]
    rows, judged = _judged(questions, len(measures), agrees)
    if not rows:
        return untrusted("no measure has a score of every response")
    if not judged.both:
        return untrusted(
            "all responses agree, or none do: there is nothing to tell apart"
        )
    candidates = _not_refuted(questions, len(measures), rows)
    if not candidates.any():
        return untrusted(
            "no measure tells right responses from wrong ones where labels are known"
        )
    aurocs = auroc_of(judged.scores[:, judged.right], judged.scores[:, ~judged.right])
    best = int(np.argmax(np.where(candidates, aurocs, -1.0)))
    scoring = [measures[row] for row in rows]
    measure = scoring[best]
    scores = judged.scores[best]
    per_question = auroc_per_question(judged)[best]
    if per_question.size < _FEWEST:
        return untrusted(
            f"only {per_question.size} questions have answers that differ; {_FEWEST} "
            "show more"
        )
    within = _resampled_mean(per_question, seed)
    if within.low < _TRUSTED:
        return untrusted(
            f"{measure} tells agreeing responses from others within a question with an "
            f"AUROC of {within.value:.2f}, and of {within.low:.2f} at least (90 %), "
            f"where {_TRUSTED:.2f} is needed"
        )
    auroc = None
    if explained:
        auroc = auroc_with_interval(scores, judged.right, judged.question)
    of_other_signals = [
        candidate for candidate in scoring if candidate.signal != measure.signal
    ]
    fields = {
        "auroc": auroc,
        "within": within,
        "rejected": rejected_measures(scoring, aurocs, best, of_other_signals),
    }
    return Trusted(fields, measure, rows[best], scores, _odds(scores, judged.right))


def _resampled_mean(aurocs: Floats, seed: int) -> AUROC:
    """Return the mean AUROC of several questions, with one-sided 90 % bounds by
    resampling questions.
    """
    rng = np.random.default_rng(seed)

    def bound(level: float) -> float:
        resamples = rng.integers(0, aurocs.size, (_RESAMPLES, aurocs.size))
        return float(np.quantile(aurocs[resamples].mean(axis=1), level))

    low = bound(_LEVEL)
    return AUROC(value=float(aurocs.mean()), low=low, high=bound(1 - _LEVEL))


def _judged(
    questions: Sequence[Observation],
    measures: int,
    labels: Sequence[Sequence[bool | None]],
) -> tuple[list[int], Judged]:
    """Return the measures that score every labelled response, not all the same, and
    these responses.

    Responses without token signals, which no measure scores, are left out.
    """
    numbers: list[int] = []
    right: list[bool] = []
    columns = []
    for number, question in enumerate(questions):
        scored: Booleans = np.any(np.isfinite(question.scores), axis=0)
        for index, label in enumerate(labels[number]):
            if label is not None and scored[index]:
                numbers.append(number)
                right.append(label)
                columns.append(question.scores[:, index])
    scores = np.array(columns).reshape(len(columns), measures).T
    rows = []
    for row, of_measure in enumerate(scores):
        # A measure of equal scores tells nothing apart.
        if len(columns) and np.isfinite(of_measure).all() and np.ptp(of_measure) > 0:
            rows.append(row)
    judged = Judged(
        np.array(numbers, dtype=np.intp), np.array(right, dtype=bool), scores[rows]
    )
    return rows, judged


def _not_refuted(
    questions: Sequence[Observation], measures: int, rows: Sequence[int]
) -> Booleans:
    """Return which of these measures separate right from wrong within labelled
    questions; all if these are too few.
    """
    labels = [question.known for question in questions]
    labelled_rows, labelled = _judged(questions, measures, labels)
    aurocs = auroc_per_question(labelled)
    if not labelled_rows or aurocs.shape[1] < _FEWEST_LABELLED:
        return np.ones(len(rows), dtype=bool)
    separating = np.array(labelled_rows)[aurocs.mean(axis=1) > 0.5]
    return np.isin(rows, separating)


def _odds(scores: Floats, right: Booleans) -> PointOdds:
    """Log-odds by a logistic regression on normal scores, as points at quantiles of the
    scores.
    """
    from scipy.special import logit
    from sklearn.linear_model import LogisticRegression

    knots = np.unique(np.quantile(scores, np.linspace(0, 1, _KNOTS)))
    fit = LogisticRegression(C=10.0).fit(_normal(scores, scores)[:, None], right)
    # Rule of succession; separated classes would give infinity.
    nearest = float(logit(1 / (right.size + 2)))
    values = fit.decision_function(_normal(knots, scores)[:, None])
    values = np.clip(values, nearest, -nearest)
    points = tuple(zip(knots.tolist(), values.tolist(), strict=True))
    return PointOdds(points, average=float(logit(right.mean())))


def _normal(values: Floats, reference: Floats) -> Floats:
    """Normal scores: the normal deviates of the values' ranks among the reference, ties
    in the middle.
    """
    from scipy.stats import norm

    share = (ranks_among(reference, values) + 0.5) / (reference.size + 1)
    return np.asarray(norm.ppf(np.clip(share, 0.002, 0.998)))


def alternatives(questions: Sequence[Observation]) -> float:
    """Return K, how many wrong answers a wrong response chooses from: 1 / P(two wrong
    responses agree), at most 5.

    Responses without the leading answer count as wrong. If there are hardly any, they
    are assumed to agree, because a larger K lets fewer responses decide.
    """
    pairs = same = 0
    for question in questions:
        votes = Counter(answer for answer in question.answers if answer is not None)
        wrong = [count for _, count in votes.most_common()[1:]]
        pairs += sum(wrong) * (sum(wrong) - 1) // 2
        same += sum(count * (count - 1) // 2 for count in wrong)
    return min(_MOST_ALTERNATIVES, (pairs + _PAIRS) / (same + _PAIRS))
