"""Calibrate without labels: a response that agrees with the others to its question counts as right.

Two things are learned from questions that were answered by counting votes. How answers agree sets the prior of the
agreement rule (:mod:`~langchain_reasc.method.agreement`). And a measure of confidence is trusted where it separates the
responses that agree with the majority of the *others* from those that do not, within a question too: then votes weigh
by it. What is promised is agreement with the majority of the whole budget. Where wrong answers agree, that is wrong.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from langchain_reasc.calibration.correctness import agreement_with_rest, fit_support_curve
from langchain_reasc.calibration.observations import Observation, agrees_with_majority
from langchain_reasc.calibration.record import AUROC, Calibration, Fingerprint, Gate, RuleBlock, SupportCurve
from langchain_reasc.calibration.selection import rejected_measures
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.agreement import Agreement, Prior, default_components, likelihoods
from langchain_reasc.method.bayesian_vote import PointOdds
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.decision import Decision, Response, support
from langchain_reasc.method.stopping import ASC, DEFAULT_BUDGET, Cap, StoppingRule, decide

__all__ = [
    "DEFAULT_AGREEMENT",
    "agreement_by_support",
    "agreement_curve",
    "calibrate_consensus",
    "correctness_by_support",
    "fit_prior",
]

_Statistic = Callable[[Decision], float | None]

DEFAULT_AGREEMENT: Final = 0.975  # θ: the lowest that costs 0.3 points at most on any kind of simulated pools
_WORTH: Final = 10.0  # samples for a point of agreement: at 7, some simulated pools lose over a point
_VOTE_THRESHOLD: Final = 0.993  # of weighted votes; at .99 scores that follow agreement cost over 0.3 points
_LONG_ENOUGH: Final = 4  # responses, so that each half of them has a vote to agree with
_ENOUGH_DECISIONS: Final = 16  # from which on the probability of further agreement is recorded
_MOST_ALTERNATIVES: Final = 5.0
_PAIRS: Final = 4.0  # of agreeing wrong responses, before any was seen
_PSEUDO_QUESTIONS: Final = 8.0  # what the uniform mixture counts, so that a few questions rule nothing out
_PSEUDO_QUESTIONS_OF_ALL: Final = 16.0  # what the mixture of all kinds of request counts beside those of one
_FEWEST_OF_KIND: Final = 64  # questions of one kind of request, from which on confidence is learned of it alone
_ROUNDS: Final = 100
_TRUSTED: Final = 0.70  # within questions, the lower bound of the AUROC from which on a measure weighs votes
_LEVEL: Final = 0.10  # of that bound
_RESAMPLES: Final = 2000
_FEWEST: Final = 6  # questions with agreeing and other responses that an AUROC within questions needs
_FEWEST_LABELLED: Final = 5  # questions with right and wrong responses by their labels, which then may refuse a measure
_FEWEST_KNOWN: Final = 10  # labelled questions that were answered rightly, and wrongly, to tell what a share is worth
_KNOTS: Final = 33


def calibrate_consensus(
    questions: Sequence[Observation],
    measures: Sequence[Measure] = (),
    *,
    budget: int = DEFAULT_BUDGET,
    threshold: float = DEFAULT_AGREEMENT,
    worth: float | None = None,
    made_of: Mapping[str, Mapping[str, int | None]] | None = None,
    fingerprint: Fingerprint | None = None,
    seed: int = 0,
    explained: bool = True,
    whole: Calibration | None = None,
) -> Calibration:
    """Learn the agreement rule from how the responses to each question agree.

    Labels that are known only add. The rule does not depend on them, but no measure is trusted that they refute. Where
    10 answers or more are known to be right, and 10 wrong, the calibration also says how likely an answer is right
    (``p_correct``).

    Args:
        questions: what was sampled, each up to where counting votes stopped; 16 are enough to begin with.
        measures: the candidates that ``scores`` are of; without any, only answers are learned from.
        budget: responses to a question at most.
        threshold: θ, the probability that the whole budget would give the same answer at which sampling stops.
        worth: samples that a question may cost for one more point of agreement, see
            :class:`~langchain_reasc.method.value.ValueStop`; 0 for any number. None for 10.
        made_of: signal -> ``top_k`` and ``vocabulary_size`` that it was made of; recorded.
        fingerprint: what was measured.
        seed: the seed of the resampled bounds.
        explained: whether to also compute the AUROC's interval, the promise, and P(agree); no decision needs them.
        whole: what was learned of all kinds of request, where these questions are of one. How their answers agree is
            then sought near to how all do, and fewer than 64 questions take all else from there.

    Raises:
        CalibrationDataError: fewer than 2 questions with an answer, or scores of another number of measures.
    """
    voted = _with_votes(questions, len(measures))
    if whole and len(voted) < _FEWEST_OF_KIND:
        return _with_own_prior(whole, voted)
    measures, voted = _with_distinct_scores(measures, voted)
    trusted = _trusted_measure(voted, measures, seed, explained=explained)
    prior = _fitted_prior(voted, whole)
    parameters = {"threshold": threshold, "worth": _WORTH if worth is None else worth}
    fields = trusted.fields
    if trusted.odds is not None and trusted.measure is not None:
        parameters |= {"vote_threshold": _VOTE_THRESHOLD, "alternatives": _alternatives(voted)}
        fields = {**fields, **(made_of or {}).get(trusted.measure.signal, {})}
    calibration = Calibration.now(
        trusted.measure,
        trusted.scores,
        method="consensus",
        n=len(voted),
        gate=Gate(threshold=None, closed_because="the agreement rule decides, which has no gate"),
        rule=RuleBlock.agreement(prior, trusted.odds, **parameters),
        fingerprint=fingerprint or Fingerprint(),
        **fields,
    )
    if not explained:
        return calibration
    counts = Agreement(prior, budget=budget)
    return calibration.model_copy(update=_explanation(calibration, counts, voted, trusted.row))


def _explanation(
    calibration: Calibration,
    counts: Agreement,
    questions: Sequence[Observation],
    row: int | None,
) -> dict[str, Any]:
    """Return what a calibration says of its rule: what is promised, and how likely an answer is agreed with, or right.

    Args:
        calibration: what was learned.
        counts: the same rule where votes are counted.
        questions: what it was learned from.
        row: the row of scores that votes are weighed by.
    """
    rule = calibration.rule(budget=counts.budget, on_missing_confidence="count")
    # Questions that a learned rule cut short are left out: they ended where responses agreed.
    counted = [one.responses(row) for one in questions if one.counted]
    prior = counts.prior if row is None else None  # which knows of counts alone
    return {
        "guarantee": _promise(rule, counts, counted, len(questions)),
        "p_agree": _p_agree(rule, questions, row, prior),
        "p_correct": _p_correct(rule, questions, row, prior),
    }


def _with_votes(questions: Sequence[Observation], measures: int) -> list[Observation]:
    """Return the questions that have an answer."""
    for one in questions:
        if one.scores.shape != (measures, len(one.answers)):
            raise CalibrationDataError(
                f"scores of shape {one.scores.shape} for {measures} measures of {len(one.answers)} responses"
            )
    voted = [one for one in questions if any(answer is not None for answer in one.answers)]
    if len(voted) < 2:
        raise CalibrationDataError(f"{len(voted)} of {len(questions)} questions have an answer; 16 are enough to begin")
    return voted


def _with_distinct_scores(
    measures: Sequence[Measure], questions: Sequence[Observation]
) -> tuple[list[Measure], list[Observation]]:
    """Leave out measures without any score, and those whose scores equal those of another.

    Windows longer than every response, say, are all the plain mean; the first stands for all.
    """
    every = enumerate(np.concatenate([one.scores for one in questions], axis=1))
    first = {row.tobytes(): at for at, row in reversed(list(every)) if np.isfinite(row).any()}
    rows = sorted(first.values())
    return [measures[at] for at in rows], [replace(one, scores=one.scores[rows]) for one in questions]


def _with_own_prior(whole: Calibration, questions: Sequence[Observation]) -> Calibration:
    """Return what was learned of all kinds of request, with how the answers to these questions agree.

    What is promised of all, by another prior, is not promised of these.
    """
    assert whole.rule_ is not None
    prior = _fitted_prior(questions, whole)
    own = {"rule_": whole.rule_.with_prior(prior), "n": len(questions), "guarantee": None}
    return whole.model_copy(update=own)


def _fitted_prior(questions: Sequence[Observation], whole: Calibration | None) -> Prior:
    towards = whole.rule_.agreement_prior if whole and whole.rule_ else None
    return fit_prior([one.answers for one in questions], towards)


def fit_prior(answers: Sequence[Iterable[int | str | None]], towards: Prior | None = None) -> Prior:
    """Return the weights of the default components that make these answers most probable, by expectation-maximisation.

    Whether sampling went on may have depended on how answers agreed: that cancels, as it says nothing beyond them.
    Where it depended on confidence too it does not: sampling went on where that was low, so less agreement is expected
    than there is, and a few more samples are drawn.

    Args:
        answers: of each question, one number or text per response, equal for equal answers; None for no answer.
        towards: what a few questions are taken to be like, and the more of them there are, the less; None: anything.
    """
    grid = default_components()
    given = ([answer for answer in one if answer is not None] for one in answers)
    counts = Counter(tuple(sorted(Counter(one).values(), reverse=True)) for one in given)
    del counts[()]
    before = np.full(len(grid), 1 / len(grid)) if towards is None else np.array(towards.weights)
    pseudo = _PSEUDO_QUESTIONS if towards is None else _PSEUDO_QUESTIONS_OF_ALL
    weights = before
    if counts:
        distinct = sorted(counts, key=str)
        times = np.array([counts[one] for one in distinct])
        likely = likelihoods(distinct, grid)
        for _ in range(_ROUNDS):
            joint = likely * weights
            belongs = joint / joint.sum(axis=1, keepdims=True)
            weights = (times @ belongs + pseudo * before) / (counts.total() + pseudo)
    return Prior(grid, tuple((weights / weights.sum()).tolist()))


def _alternatives(questions: Sequence[Observation]) -> float:
    """K, how many wrong answers a wrong response chooses from: one over how often two to a question agree, 5 at most.

    Wrong are those that do not give the leading answer. Where hardly any are seen, all are taken to agree: a larger K
    lets fewer responses decide.
    """
    pairs = same = 0
    for question in questions:
        given = Counter(answer for answer in question.answers if answer is not None).most_common()
        wrong = [count for _, count in given[1:]]
        pairs += sum(wrong) * (sum(wrong) - 1) // 2
        same += sum(count * (count - 1) // 2 for count in wrong)
    return min(_MOST_ALTERNATIVES, (pairs + _PAIRS) / (same + _PAIRS))


class _Trusted(NamedTuple):
    """The measure that votes are weighed by; None where there is none.

    Attributes:
        fields: further fields of the record; without a measure they say why there is none.
        measure: the measure.
        row: its number.
        scores: those of the judged responses.
        odds: of a response being right, by its score.
    """

    fields: dict[str, Any]
    measure: Measure | None = None
    row: int | None = None
    scores: Floats | None = None
    odds: PointOdds | None = None


def _trusted_measure(
    questions: Sequence[Observation], measures: Sequence[Measure], seed: int, *, explained: bool
) -> _Trusted:
    """Choose the measure that separates agreeing responses from others best, if it does within questions, too.

    Where five labelled questions or more have right and wrong responses, no measure is trusted that does not separate
    these.
    """

    def untrusted(why: str) -> _Trusted:
        return _Trusted({"untrusted": why})

    known, judged = _judged(questions, len(measures), [agrees_with_majority(one.answers) for one in questions])
    if not known:
        return untrusted("no measure has a score of every response" if measures else "there are no scores")
    if not judged.both:
        return untrusted("all responses agree, or none do: there is nothing to tell apart")
    candidates = _not_refuted(questions, len(measures), known)
    if not candidates.any():
        return untrusted("no measure tells right responses from wrong ones where labels are known")
    aurocs = auroc_of(judged.scores[:, judged.right], judged.scores[:, ~judged.right])
    best = int(np.argmax(np.where(candidates, aurocs, -1.0)))
    measure, scores, each = measures[known[best]], judged.scores[best], auroc_per_question(judged)[best]
    if each.size < _FEWEST:
        return untrusted(f"only {each.size} questions have answers that differ; {_FEWEST} show more")
    within = _resampled_mean(each, seed)
    if within.low < _TRUSTED:
        return untrusted(
            f"{measure} tells agreeing responses from others within a question with an AUROC of {within.value:.2f}, "
            f"and of {within.low:.2f} at least (90 %), where {_TRUSTED:.2f} is needed"
        )
    named = [measures[at] for at in known]
    fields = {
        "auroc": auroc_with_interval(scores, judged.right, judged.question) if explained else None,
        "within": within,
        "rejected": rejected_measures(named, aurocs, best, [one for one in named if one.signal != measure.signal]),
    }
    return _Trusted(fields, measure, known[best], scores, _odds(scores, judged.right))


def _resampled_mean(each: Floats, seed: int) -> AUROC:
    """Return the mean of the AUROCs of several questions, with bounds of 90 % either way by resampling questions."""
    rng = np.random.default_rng(seed)
    low, high = (
        float(np.quantile(each[rng.integers(0, each.size, (_RESAMPLES, each.size))].mean(axis=1), level))
        for level in (_LEVEL, 1 - _LEVEL)
    )
    return AUROC(value=float(each.mean()), low=low, high=high)


def _judged(
    questions: Sequence[Observation], measures: int, labels: Sequence[Sequence[bool | None]]
) -> tuple[list[int], Judged]:
    """Return the measures that score every response with a label, but not all alike, and these responses.

    Responses that no measure scores are left out: they came without token signals.
    """
    scored: list[Booleans] = [np.any(np.isfinite(one.scores), axis=0) for one in questions]
    rows = [
        (number, at, right)
        for number, labelled in enumerate(labels)
        for at, right in enumerate(labelled)
        if right is not None and scored[number][at]
    ]
    question = np.array([number for number, _, _ in rows], dtype=np.intp)
    right = np.array([right for *_, right in rows], dtype=bool)
    scores = np.array([questions[number].scores[:, at] for number, at, _ in rows]).reshape(len(rows), measures).T
    known = [at for at, own in enumerate(scores) if own.size and np.isfinite(own).all() and np.ptp(own) > 0]
    return known, Judged(question, right, scores[known])


def _not_refuted(questions: Sequence[Observation], measures: int, known: Sequence[int]) -> Booleans:
    """Which of the known measures separate right from wrong within labelled questions, where there are enough."""
    having, labelled = _judged(questions, measures, [one.known for one in questions])
    each = auroc_per_question(labelled) if having else np.empty((0, 0))
    if each.shape[1] < _FEWEST_LABELLED:
        return np.ones(len(known), dtype=bool)
    separating = {at for at, own in zip(having, each.mean(axis=1), strict=True) if own > 0.5}
    return np.array([at in separating for at in known])


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


def _promise(
    rule: StoppingRule,
    counts: Agreement,
    questions: Sequence[Sequence[Response]],
    n: int,
) -> str:
    """Say how often the rule answers otherwise than counting votes did, on the questions it was learned from.

    Where the rule asks for more responses than counting did, its answer is not known. Such a question counts as much as
    the leader is likely to change by the end of the budget, as far as was learned of answers. Else the promise would
    hold only of a rule that stops no later.

    Questions on which votes were sufficient are kept apart from those on which they were split to the end: there, an
    answer of the majority is hardly better than another.
    """
    from scipy.stats import beta

    differs: dict[bool, list[bool]] = {True: [], False: []}  # by whether counted votes were sufficient
    going_on: list[float] = []  # P(the answer changes) where the rule goes on, though counted votes are sufficient
    for responses in questions:
        counted, decision = decide(ASC() | Cap(len(responses)), responses), decide(rule, responses)
        sufficient, otherwise = counted.reason == "evidence", decision.answer != counted.answer
        differs[sufficient].append(otherwise)
        if sufficient and not (otherwise or decision.stop) and len(responses) < counts.budget:
            votes = counts.tally(responses).evidence
            going_on.append(1 - counts.leader_stays(votes, counts.budget - len(responses)))
    decided, split = differs[True], differs[False]
    parts = [f"learned from {n} questions by agreement"]
    if decided:
        others = sum(decided) + sum(going_on)
        high = float(beta.ppf(0.95, others + 1, len(decided) - others)) if others < len(decided) else 1.0
        more = f", and {sum(going_on):.1f} of {len(going_on)} on which it goes on, as far as was learned"
        parts.append(
            f"of {len(decided)} on which counted votes are sufficient {sum(decided)} would be answered otherwise"
            f"{more if going_on else ''}, so at most {high:.1%} of such questions are (95 %)"
        )
    if split:
        parts.append(f"of {len(split)} on which votes are split to the end, {sum(split)} would")
    return "; ".join([*parts, "agreement is not correctness"])


def agreement_by_support(
    rule: StoppingRule, questions: Iterable[Observation], row: int | None, statistic: _Statistic = support
) -> list[tuple[float, bool]]:
    """Return the support of what one half of the responses to a question decide, and whether the other half agree.

    Args:
        rule: what decides.
        questions: those on which a learned rule decided, or that have too few responses, are left out.
        row: the row of scores that votes are weighed by; None for none.
        statistic: what the support of a decision is.
    """
    long = (one.responses(row) for one in questions if one.counted and len(one.answers) >= _LONG_ENOUGH)
    return [pair for responses in long if (pair := agreement_with_rest(rule, responses, statistic)) is not None]


def _p_agree(
    rule: StoppingRule, questions: Sequence[Observation], row: int | None, prior: Prior | None
) -> SupportCurve | None:
    """Return how likely further responses agree; None where too few questions have enough responses."""
    pairs = agreement_by_support(rule, questions, row, _statistic(prior))
    if len(pairs) < _ENOUGH_DECISIONS:
        return None
    return fit_support_curve(*zip(*pairs, strict=True), rule=rule.name, prior=prior)


def agreement_curve(
    calibration: Calibration, measures: Sequence[Measure], questions: Sequence[Observation], *, budget: int
) -> SupportCurve | None:
    """Return how likely further responses agree with what a calibration decides, by the questions with counted votes.

    None where too few of them have enough responses.
    """
    rule = calibration.rule(budget=budget, on_missing_confidence="count")
    row = measures.index(calibration.measure) if calibration.measure in measures else None
    block = calibration.rule_
    return _p_agree(rule, questions, row, block.agreement_prior if block and row is None else None)


def correctness_by_support(
    rule: StoppingRule, questions: Iterable[Observation], row: int | None, statistic: _Statistic = support
) -> list[tuple[float, bool]]:
    """Return the support of each decision of which it is known whether its answer is right, and whether it is.

    Args:
        rule: what decides.
        questions: what was observed.
        row: the row of scores that votes are weighed by; None for none.
        statistic: what the support of a decision is.
    """
    pairs = list[tuple[float, bool]]()
    for question in questions:
        if any(right is not None for right in question.known):
            decision = decide(rule, question.responses(row))
            known = {str(answer): right for answer, right in zip(question.answers, question.known, strict=True)}
            share, right = statistic(decision), known.get(decision.answer or "")
            if share is not None and right is not None:
                pairs.append((share, right))
    return pairs


def _p_correct(
    rule: StoppingRule, questions: Sequence[Observation], row: int | None, prior: Prior | None
) -> SupportCurve | None:
    """Return how likely an answer is right, by the labels that are known; None where too few are, of either kind."""
    pairs = correctness_by_support(rule, questions, row, _statistic(prior))
    of_right = sum(right for _, right in pairs)
    if min(of_right, len(pairs) - of_right) < _FEWEST_KNOWN:
        return None
    return fit_support_curve(*zip(*pairs, strict=True), rule=rule.name, prior=prior)


def _statistic(prior: Prior | None) -> _Statistic:
    return partial(support, share=prior.share) if prior else support
