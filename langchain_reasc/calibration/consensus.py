"""Calibration without labels: a response that agrees with the others to its question is taken to be right.

Two things are learned from questions that were answered by counting votes. How answers agree sets the prior of the
agreement rule (:mod:`~langchain_reasc.method.agreement`). And a measure of confidence is trusted where it separates the
responses that agree with the majority of the *others* from those that do not, within a question too: then votes weigh
by it. What is promised is agreement with the majority of the whole budget. Where wrong answers agree, that is wrong.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.auroc import (
    Booleans,
    Floats,
    Judged,
    auroc_of,
    auroc_per_question,
    auroc_with_interval,
)
from langchain_reasc.calibration.correctness import agreement_with_rest, fit_support_curve
from langchain_reasc.calibration.record import AUROC, Calibration, Fingerprint, Gate, RuleBlock, SupportCurve
from langchain_reasc.calibration.selection import rejected_measure
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.agreement import Prior, default_components, likelihoods
from langchain_reasc.method.bayesian_vote import PointOdds
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.decision import Response
from langchain_reasc.method.stopping import ASC, DEFAULT_BUDGET, Cap, StoppingRule, decide

__all__ = [
    "DEFAULT_AGREEMENT",
    "MadeOf",
    "Observed",
    "agrees_with_majority",
    "calibrate_consensus",
    "calibrate_observed",
    "fit_prior",
]

DEFAULT_AGREEMENT: Final = 0.975  # θ: the lowest that costs 0.3 points at most on any kind of simulated pools
_VOTE_THRESHOLD: Final = 0.99  # of weighted votes; at .985 scores that follow agreement cost over 0.3 points
_LONG_ENOUGH: Final = 4  # responses, so that each half of them has a vote to agree with
_ENOUGH_DECISIONS: Final = 16  # from which on the probability of further agreement is recorded
_MOST_ALTERNATIVES: Final = 5.0
_PAIRS: Final = 4.0  # of agreeing wrong responses, before any was seen
_PSEUDO_QUESTIONS: Final = 8.0  # what the uniform mixture counts, so that a few questions rule nothing out
_ROUNDS: Final = 100
_TRUSTED: Final = 0.70  # within questions, the lower bound of the AUROC from which on a measure weighs votes
_LEVEL: Final = 0.10  # of that bound
_RESAMPLES: Final = 2000
_FEWEST: Final = 6  # questions with agreeing and other responses that an AUROC within questions needs
_FEWEST_LABELLED: Final = 5  # questions with right and wrong responses by their labels, which then may refuse a measure
_KNOTS: Final = 33

MadeOf = dict[str, dict[str, int | None]]
"""Signal -> the ``top_k`` and ``vocabulary_size`` that its scores are made of."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One question, as sampling left it. No text is kept.

    Attributes:
        answers: in launch order; equal numbers for equal answers, None for a response without one.
        scores: shape (measures, responses), S(y) by each candidate measure; NaN where there is none.
        right: whether each response is right, where that is known; () without a label.
        counted: whether votes were counted when it was sampled (ASC, or a budget), so that its answer shows what
            counting says.
    """

    answers: tuple[int | None, ...]
    scores: npt.NDArray[np.float64]
    right: tuple[bool | None, ...] = ()
    counted: bool = True

    @property
    def labelled(self) -> list[bool | None]:
        """Whether each response that votes is right, by its label alone."""
        right = self.right or (None,) * len(self.answers)
        return [known if answer is not None else None for known, answer in zip(right, self.answers, strict=True)]

    @property
    def judged(self) -> list[bool | None]:
        """Whether each response is right by its label, or else by the consensus of the others."""
        pairs = zip(self.labelled, agrees_with_majority(self.answers), strict=True)
        return [agrees if known is None else known for known, agrees in pairs]

    def responses(self, measure: int | None) -> list[Response]:
        """Return what a rule reads, scored by the measure of this number; None scores none."""
        scores = np.full(len(self.answers), np.nan) if measure is None else self.scores[measure]
        return [
            Response(None if answer is None else str(answer), float(score) if np.isfinite(score) else None)
            for answer, score in zip(self.answers, scores, strict=True)
        ]


def agrees_with_majority(answers: Sequence[int | None]) -> list[bool | None]:
    """Return whether each response gives the answer that most of the others give.

    None for a response without an answer, without others, or with one of several leading answers.
    """
    agrees: list[bool | None] = []
    for at, own in enumerate(answers):
        others = Counter(answer for place, answer in enumerate(answers) if place != at and answer is not None)
        most = max(others.values(), default=0)
        leading = [answer for answer, count in others.items() if count == most]
        unknown = own is None or not others or (own in leading and len(leading) > 1)
        agrees.append(None if unknown else own in leading)
    return agrees


def calibrate_consensus(
    questions: Sequence[Observed],
    *,
    measures: Sequence[Measure] = (),
    budget: int = DEFAULT_BUDGET,
    threshold: float = DEFAULT_AGREEMENT,
    made_of: Mapping[str, Mapping[str, int | None]] | None = None,
    fingerprint: Fingerprint | None = None,
    seed: int = 0,
    explained: bool = True,
) -> Calibration:
    """Learn the agreement rule from questions without labels; labels that are known count in place of consensus.

    Args:
        questions: what was sampled, each up to where counting votes stopped; 32 are enough to begin with.
        measures: the candidates that ``scores`` are of; without any, only answers are learned from.
        budget: responses to a question at most.
        threshold: θ, the probability that the whole budget would give the same answer at which sampling stops.
        made_of: signal -> ``top_k`` and ``vocabulary_size`` that it was made of; recorded.
        fingerprint: what was measured.
        seed: the seed of the resampled bounds.
        explained: whether to also compute the AUROC's interval, the promise, and P(agree); no decision needs them.

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
    prior = fit_prior([[answer for answer in one.answers if answer is not None] for one in voted])
    measure, odds, fields = _trusted_measure(voted, measures, seed, explained=explained)
    block = RuleBlock.agreement(
        threshold=threshold, prior=prior, odds=odds, vote_threshold=_VOTE_THRESHOLD, alternatives=_alternatives(voted)
    )
    calibration = Calibration.now(
        method="consensus",
        n=len(voted),
        gate=Gate(threshold=None, closed_because="the agreement rule decides, which has no gate"),
        rule=block,
        fingerprint=fingerprint or Fingerprint(),
        **fields,
        **((made_of or {}).get(measure.signal, {}) if measure else {}),
    )
    if not explained:
        return calibration
    rule = calibration.rule(budget=budget, on_missing_confidence="count")
    row = None if measure is None else list(measures).index(measure)
    found = {"guarantee": _promise(rule, voted, row), "p_agree": _p_agree(rule, voted, row)}
    return calibration.model_copy(update=found)


def calibrate_observed(questions: Sequence[Observed], measures: Sequence[Measure], **options: Any) -> Calibration:
    """Calibrate by consensus, without measures that no response has, or whose scores equal those of another.

    Args:
        questions: with scores of shape (measures, responses).
        measures: the candidates.
        options: those of :func:`calibrate_consensus`.

    Raises:
        CalibrationDataError: the questions determine no calibration.
    """
    scores = np.concatenate([question.scores for question in questions], axis=1)
    # By the first of them: windows that are longer than every response are all the plain mean.
    first = {row.tobytes(): at for at, row in reversed(list(enumerate(scores))) if np.isfinite(row).any()}
    rows = sorted(first.values())
    kept = [replace(question, scores=question.scores[rows]) for question in questions]
    return calibrate_consensus(kept, measures=[measures[row] for row in rows], **options)


def fit_prior(answers: Sequence[Iterable[int]]) -> Prior:
    """Return the weights of the default components that make these answers most probable, by expectation-maximisation.

    Whether sampling went on may have depended on how answers agreed: that cancels, as it says nothing beyond them.

    Args:
        answers: of each question, one number per response, equal for equal answers. Questions without any say nothing.
    """
    grid = default_components()
    counts = Counter(tuple(sorted(Counter(one).values(), reverse=True)) for one in answers)
    del counts[()]
    weights = np.full(len(grid), 1 / len(grid))
    if counts:
        distinct = sorted(counts, key=str)
        times = np.array([counts[one] for one in distinct])
        likely = likelihoods(distinct, grid)
        for _ in range(_ROUNDS):
            joint = likely * weights
            belongs = joint / joint.sum(axis=1, keepdims=True)
            weights = (times @ belongs + _PSEUDO_QUESTIONS / len(grid)) / (counts.total() + _PSEUDO_QUESTIONS)
    return Prior(grid, tuple((weights / weights.sum()).tolist()))


def _alternatives(questions: Sequence[Observed]) -> float:
    """K, how many wrong answers a wrong response chooses from: one over how often two to a question agree, 5 at most.

    Wrong are those whose label says so, or that do not give the leading answer. Where hardly any are seen, all are
    taken to agree: a larger K lets fewer responses decide.
    """
    pairs = same = 0
    for question in questions:
        votes = [pair for pair in zip(question.answers, question.labelled, strict=True) if pair[0] is not None]
        given = Counter(answer for answer, _ in votes)
        leading = max(given, key=given.__getitem__, default=None)
        wrong = Counter(one for one, right in votes if (one != leading if right is None else not right))
        pairs += wrong.total() * (wrong.total() - 1) // 2
        same += sum(n * (n - 1) // 2 for n in wrong.values())
    return min(_MOST_ALTERNATIVES, (pairs + _PAIRS) / (same + _PAIRS))


def _trusted_measure(
    questions: Sequence[Observed], measures: Sequence[Measure], seed: int, *, explained: bool
) -> tuple[Measure | None, PointOdds | None, dict[str, Any]]:
    """Choose the measure that separates agreeing responses from others best, if it does within questions, too.

    Where labels are known they count in place of consensus. Where five labelled questions or more have right and wrong
    responses, no measure is trusted that does not separate these.

    Returns:
        The measure, the odds of a response being right by its score, and the fields of the record; without a trusted
        measure None, None, and the fields that say why.
    """

    def untrusted(why: str) -> tuple[None, None, dict[str, Any]]:
        return None, None, {**dict.fromkeys(("signal", "score", "window", "mean", "std")), "untrusted": why}

    known, judged = _judged(questions, measures, [one.judged for one in questions])
    if not known:
        return untrusted("no measure has a score of every response" if measures else "there are no scores")
    if not judged.both:
        return untrusted("all responses agree, or none do: there is nothing to tell apart")
    candidates = _not_refuted(questions, measures, known)
    if not candidates.any():
        return untrusted("no measure tells right responses from wrong ones where labels are known")
    aurocs = auroc_of(judged.scores[:, judged.right], judged.scores[:, ~judged.right])
    best = int(np.argmax(np.where(candidates, aurocs, -1.0)))
    measure, each = known[best], auroc_per_question(judged)[best]
    if each.size < _FEWEST:
        return untrusted(f"only {each.size} questions have answers that differ; {_FEWEST} show more")
    rng = np.random.default_rng(seed)
    low, high = (
        float(np.quantile(each[rng.integers(0, each.size, (_RESAMPLES, each.size))].mean(axis=1), level))
        for level in (_LEVEL, 1 - _LEVEL)
    )
    if low < _TRUSTED:
        return untrusted(
            f"{measure} tells agreeing responses from others within a question with an AUROC of {each.mean():.2f}, and "
            f"of {low:.2f} at least (90 %), where {_TRUSTED:.2f} is wanted"
        )
    scores = judged.scores[best]
    fields = {
        "signal": measure.signal,
        "score": measure.score,
        "window": measure.window,
        "mean": float(scores.mean()),
        "std": float(scores.std()),
        "auroc": auroc_with_interval(scores, judged.right, judged.question) if explained else None,
        "within": AUROC(value=float(each.mean()), low=low, high=high),
        "rejected": tuple(
            rejected_measure(known[at], aurocs[at], aurocs[best]) for at in _best_of_others(known, aurocs, best)
        ),
    }
    return measure, _odds(scores, judged.right), fields


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


def _not_refuted(questions: Sequence[Observed], measures: Sequence[Measure], known: Sequence[Measure]) -> Booleans:
    """Which of the known measures separate right from wrong within labelled questions, where there are enough."""
    having, labelled = _judged(questions, measures, [one.labelled for one in questions])
    each = auroc_per_question(labelled) if having else np.empty((0, 0))
    if each.shape[1] < _FEWEST_LABELLED:
        return np.ones(len(known), dtype=bool)
    separating = {measure for measure, own in zip(having, each.mean(axis=1), strict=True) if own > 0.5}
    return np.array([measure in separating for measure in known])


def _best_of_others(known: Sequence[Measure], aurocs: Floats, best: int) -> Iterable[int]:
    """The best measure of each other signal."""
    shown: dict[str, int] = {}
    for at in np.argsort(-aurocs, kind="stable").tolist():
        if known[at].signal != known[best].signal:
            shown.setdefault(known[at].signal, at)
    return shown.values()


def _odds(scores: Floats, right: Booleans) -> PointOdds:
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


def _promise(rule: StoppingRule, questions: Sequence[Observed], measure: int | None) -> str:
    """How often the rule answers otherwise than counting votes did, on the questions it was learned from.

    Questions on which votes were sufficient are kept apart from those on which they were split to the end: there, an
    answer of the majority is hardly better than another. Questions that a rule like it cut short are left out.
    """
    from scipy.stats import binomtest

    differs: dict[bool, list[bool]] = {True: [], False: []}  # by whether counted votes were sufficient
    for one in questions:
        if one.counted:
            responses = one.responses(measure)
            counted = decide(ASC() | Cap(len(responses)), responses)
            differs[counted.reason == "evidence"].append(decide(rule, responses).answer != counted.answer)
    decided, split = differs[True], differs[False]
    parts = [f"learned from {len(questions)} questions without labels"]
    if decided:
        interval = binomtest(sum(decided), len(decided), alternative="less").proportion_ci(0.95, method="exact")
        parts.append(
            f"of {len(decided)} on which counted votes are sufficient {sum(decided)} would be answered otherwise, so "
            f"at most {interval.high:.1%} of such questions are (95 %)"
        )
    if split:
        parts.append(f"of {len(split)} on which votes are split to the end, {sum(split)} would")
    return "; ".join([*parts, "agreement is not correctness"])


def _p_agree(rule: StoppingRule, questions: Sequence[Observed], measure: int | None) -> SupportCurve | None:
    """How likely further responses agree; None where too few questions have enough responses.

    Questions that a rule like it cut short are left out: they ended where responses agreed.
    """
    long = [one for one in questions if one.counted and len(one.answers) >= _LONG_ENOUGH]
    pairs = [pair for one in long if (pair := agreement_with_rest(rule, one.responses(measure))) is not None]
    if len(pairs) < _ENOUGH_DECISIONS:
        return None
    supports, agreed = zip(*pairs, strict=True)
    return fit_support_curve(supports, agreed, rule=rule.name)
