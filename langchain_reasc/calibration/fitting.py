"""``fit``: the one function that makes a calibration from rows; ``with_expectation``
adds what to expect of it.

How answers agree sets the prior of the agreement rule
(:mod:`~langchain_reasc.method.agreement`). A measure of confidence weighs votes if it
separates the responses that agree with the majority of the *others* from those that do
not, also within a question. This needs no label. It promises agreement with the
majority of the whole budget, which is wrong if wrong answers agree.

Labels only add: a gate that accepts a confident first response alone, the paper's
Algorithm 1 for :meth:`~.calibration.Calibration.as_in_paper`, and the probability that
an answer is right.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from langchain_reasc.calibration.algorithm1 import calibrate_first_responses
from langchain_reasc.calibration.calibration import Calibration
from langchain_reasc.calibration.observations import Observation
from langchain_reasc.calibration.parts import Expectation, Gate
from langchain_reasc.calibration.promises import promises_of
from langchain_reasc.calibration.selection import (
    Selection,
    can_be_compared,
    default_measure,
    select_among,
)
from langchain_reasc.calibration.signal_trust import (
    Trusted,
    alternatives,
    trusted_measure,
)
from langchain_reasc.calibration.stored_rule import RuleBlock
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.agreement import Prior, default_components, likelihoods
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.decision import Response
from langchain_reasc.method.horizon import FiniteHorizon
from langchain_reasc.method.stopping import DEFAULT_BUDGET, Cap, StoppingRule, decide
from langchain_reasc.models.fingerprint import Fingerprint

__all__ = ["DEFAULT_AGREEMENT", "fit", "fit_prior", "with_expectation"]

DEFAULT_AGREEMENT: Final = 0.975
"""θ of a calibration without labels: the lowest that costs at most 0.3 points on any
kind of simulated pools.
"""
# Of weighted votes. At 0.99, scores that follow agreement cost over 0.3 points.
_VOTE_THRESHOLD: Final = 0.993
# Weight of the uniform mixture, so that a few questions rule nothing out.
_PSEUDO_QUESTIONS: Final = 8.0
# Weight of the mixture of all kinds of request in that of one kind.
_PSEUDO_QUESTIONS_OF_ALL: Final = 16.0
# Questions of one kind of request, from which on its confidence is learned separately.
_FEWEST_OF_KIND: Final = 64
_ROUNDS: Final = 100
# Share of labelled questions, from which on labels choose the measure and set a gate.
_LABELLED: Final = 0.5


def fit(
    observations: Iterable[Observation],
    measures: Sequence[Measure] = (),
    *,
    budget: int = DEFAULT_BUDGET,
    threshold: float = DEFAULT_AGREEMENT,
    p_target: float = 0.9,
    provenance: Mapping[str, Mapping[str, int | None]] | None = None,
    fingerprint: Fingerprint | None = None,
    seed: int = 0,
    explained: bool = True,
    whole: Calibration | None = None,
) -> Calibration:
    """Make a calibration from rows.

    If half of the questions or more have labels, these choose the measure, and
    Algorithm 1 runs on the first responses, if they determine it. With one response to
    each question, nothing shows how responses agree; then Algorithm 1 decides alone, as
    far as its data support it.

    Args:
        observations: the questions, each sampled until counting votes stopped; at least
            16.
        measures: the measure of each row of ``scores``; empty to learn only from
            answers.
        budget: responses to a question at most.
        threshold: θ, the probability that the whole budget would give the same answer
            at which sampling stops.
        p_target: accuracy asked of what the gate accepts.
        provenance: signal -> its ``top_k`` and ``vocabulary_size``; stored.
        fingerprint: the model, sampling and prompt; stored.
        seed: the seed of folds and of resampled bounds.
        explained: whether to compute the AUROC's interval, the promise, P(agree) and
            P(correct), which no decision needs.
        whole: the calibration of all kinds of request, if these questions are of one
            kind. The prior is then shrunk towards its prior, and fewer than 64
            questions take everything else from it.

    Raises:
        CalibrationDataError: fewer than 2 questions with an answer, or scores of
            another number of measures.
    """
    rows = _checked(observations, len(measures))
    voted = _voted(rows)
    # A rare kind of request borrows all but its prior.
    if whole and len(voted) < _FEWEST_OF_KIND:
        return _with_own_prior(whole, voted)
    measures, rows = _with_distinct_scores(measures, rows)
    labelled = _labelled(rows)
    selection = _selected(labelled, measures, seed)
    if selection is not None:
        index = measures.index(selection.measure)
        measures, rows = _with_measures([index], measures, rows)
        labelled = _labelled(rows)
    voted = _voted(rows)
    trusted = trusted_measure(voted, measures, seed, explained=explained)
    recorded: dict[str, Any] = {
        "provenance": provenance or {},
        "fingerprint": fingerprint or Fingerprint(),
    }
    gated = _gated(
        labelled, measures, trusted, selection, p_target=p_target, **recorded
    )
    several = sum(len(question.answers) > 1 for question in voted)
    # With one response to each question, nothing shows how they agree.
    if isinstance(gated, Calibration) and several < 2:
        return gated
    if len(voted) < 2:
        raise CalibrationDataError(
            f"{len(voted)} of {len(rows)} questions have an answer; 16 are enough to "
            "begin"
        )
    prior = _fitted_prior(voted, whole)
    rule = _rule_block(prior, trusted, voted, threshold)
    if isinstance(gated, Calibration):
        calibration = gated.model_copy(
            update={"rule_": rule, "untrusted": trusted.fields.get("untrusted")}
        )
    else:
        calibration = _by_agreement(rule, trusted, len(voted), gated, **recorded)
    if not explained:
        return calibration
    return calibration.model_copy(
        update=promises_of(calibration, prior, voted, trusted.row, budget)
    )


def _checked(observations: Iterable[Observation], measures: int) -> list[Observation]:
    rows = list(observations)
    for row in rows:
        if row.scores.shape != (measures, len(row.answers)):
            raise CalibrationDataError(
                f"scores of shape {row.scores.shape} for {measures} measures of "
                f"{len(row.answers)} responses"
            )
    if not rows:
        raise CalibrationDataError(
            "there is no question to calibrate on; 16 are enough to begin"
        )
    return rows


def _voted(rows: Iterable[Observation]) -> list[Observation]:
    """Return the questions with an answer."""
    return [row for row in rows if not {*row.answers} <= {None}]


def _with_distinct_scores(
    measures: Sequence[Measure], rows: Sequence[Observation]
) -> tuple[list[Measure], list[Observation]]:
    """Leave out measures without any score, and those whose scores equal those of
    another.

    For example, all windows longer than every response give the plain mean; the first
    one is kept.
    """
    distinct: dict[bytes, int] = {}
    for index, scores in enumerate(
        np.concatenate([row.scores for row in rows], axis=1)
    ):
        if np.isfinite(scores).any():
            distinct.setdefault(scores.tobytes(), index)
    return _with_measures(list(distinct.values()), measures, rows)


def _with_measures(
    indices: list[int], measures: Sequence[Measure], rows: Sequence[Observation]
) -> tuple[list[Measure], list[Observation]]:
    """Keep the measures with these indices, and their scores."""
    chosen = [measures[index] for index in indices]
    return chosen, [replace(row, scores=row.scores[indices]) for row in rows]


def _labelled(rows: Sequence[Observation]) -> list[Observation]:
    """Return the questions whose first response has a label; none if these are too few.

    Reported outcomes are not labels, because they are reported for a biased choice of
    questions.
    """
    labelled = [row for row in rows if row.right and row.right[0] is not None]
    if len(labelled) < _LABELLED * len(rows):
        return []
    return labelled


def _selected(
    labelled: Sequence[Observation], measures: Sequence[Measure], seed: int
) -> Selection | None:
    """Choose the measure that separates right from wrong first responses best; None if
    nothing can be compared.
    """
    scored = [row for row in labelled if np.isfinite(row.scores[:, 0]).any()]
    right = [bool(row.right[0]) for row in scored]
    if len(measures) < 2 or not can_be_compared(right):
        return None
    scores = np.array([row.scores[:, 0] for row in scored]).T
    # A score over the answer's tokens is judged on the responses that have an answer.
    of_span = np.array([measure.of_span for measure in measures])
    unanswered = np.array([row.answers[0] is None for row in scored])
    # A measure without a score of each response cannot be compared.
    can_score = (np.isfinite(scores) | np.outer(of_span, unanswered)).all(axis=1)
    candidates = np.flatnonzero(can_score).tolist()
    if not candidates:
        return None
    compared = [measures[index] for index in candidates]
    return select_among(compared, scores[candidates], right, seed=seed)


def _gated(
    labelled: Sequence[Observation],
    measures: Sequence[Measure],
    trusted: Trusted,
    selection: Selection | None,
    *,
    provenance: Mapping[str, Mapping[str, int | None]],
    **options: Any,
) -> Calibration | str:
    """Run Algorithm 1 on the first responses. Return why there is no gate if they do
    not determine it.
    """
    if not labelled or not measures:
        return "the agreement rule decides, which has no gate"
    measure = trusted.measure or measures[0]
    if len(measures) > 1 and trusted.measure is None:
        paper = default_measure({candidate.signal for candidate in measures})
        # The paper's may be left out, as a measure without any score is.
        if paper in measures:
            measure = paper
    _, rows = _with_measures([measures.index(measure)], measures, labelled)
    try:
        return calibrate_first_responses(
            rows,
            measure,
            **(selection.evidence if selection else {}),
            **provenance.get(measure.signal, {}),
            **options,
        )
    except CalibrationDataError as error:
        return str(error)


def _rule_block(
    prior: Prior, trusted: Trusted, voted: Sequence[Observation], threshold: float
) -> RuleBlock:
    parameters = {"threshold": threshold}
    if trusted.odds is not None:
        parameters |= {
            "vote_threshold": _VOTE_THRESHOLD,
            "alternatives": alternatives(voted),
        }
    return RuleBlock.agreement(prior, trusted.odds, **parameters)


def _by_agreement(
    rule: RuleBlock,
    trusted: Trusted,
    n: int,
    no_gate: str,
    *,
    provenance: Mapping[str, Mapping[str, int | None]],
    fingerprint: Fingerprint,
) -> Calibration:
    """Return a calibration without a gate."""
    source: Mapping[str, int | None] = {}
    if trusted.measure is not None:
        source = provenance.get(trusted.measure.signal, {})
    return Calibration.now(
        trusted.measure,
        trusted.scores,
        method="consensus",
        n=n,
        gate=Gate(threshold=None, closed_because=no_gate),
        rule=rule,
        fingerprint=fingerprint,
        **trusted.fields,
        **source,
    )


def _with_own_prior(
    whole: Calibration, questions: Sequence[Observation]
) -> Calibration:
    """Return the calibration of all kinds of request with the prior of these questions,
    and without its guarantee.
    """
    if len(questions) < 2:
        raise CalibrationDataError(
            f"{len(questions)} questions have an answer; 16 are enough to begin"
        )
    assert whole.rule_ is not None
    prior = _fitted_prior(questions, whole)
    changes = {
        "rule_": whole.rule_.with_prior(prior),
        "n": len(questions),
        "guarantee": None,
    }
    return whole.model_copy(update=changes)


def _fitted_prior(questions: Sequence[Observation], whole: Calibration | None) -> Prior:
    towards = None
    if whole and whole.rule_:
        towards = whole.rule_.agreement_prior
    return fit_prior([question.answers for question in questions], towards)


def fit_prior(
    answers: Sequence[Iterable[int | str | None]], towards: Prior | None = None
) -> Prior:
    """Return the weights of the default components that make these answers most
    probable, by expectation-maximisation.

    If sampling stopped by how answers agreed, that cancels out. If it also stopped by
    confidence, it does not: sampling went on when confidence was low, so the prior
    expects too little agreement, and a few more samples are drawn.

    Args:
        answers: for each question, one number or text per response, equal for equal
            answers; None for no answer.
        towards: the prior that few questions are shrunk towards; None for a uniform
            one.
    """
    grid = default_components()
    counts: Counter[tuple[int, ...]] = Counter()
    for of_question in answers:
        votes = Counter(answer for answer in of_question if answer is not None)
        counts[tuple(sorted(votes.values(), reverse=True))] += 1
    # Questions without a vote show no agreement.
    del counts[()]
    if towards is None:
        before = np.full(len(grid), 1 / len(grid))
        pseudo = _PSEUDO_QUESTIONS
    else:
        before = np.array(towards.weights)
        pseudo = _PSEUDO_QUESTIONS_OF_ALL
    weights = before
    if counts:
        distinct = sorted(counts, key=str)
        times = np.array([counts[case] for case in distinct])
        likely = likelihoods(distinct, grid)
        for _ in range(_ROUNDS):
            joint = likely * weights
            belongs = joint / joint.sum(axis=1, keepdims=True)
            weights = (times @ belongs + pseudo * before) / (counts.total() + pseudo)
    return Prior(grid, tuple((weights / weights.sum()).tolist()))


def with_expectation(
    calibration: Calibration,
    questions: Sequence[Observation],
    measures: Sequence[Measure],
    *,
    budget: int,
    cut_off: float | None = None,
    seed: int = 0,
) -> Calibration:
    """Return the calibration with what to expect of it.

    The rule decides on the questions that it was fitted on. Where they have too few
    responses, further ones are drawn as the calibration expects them, without a score.

    Args:
        calibration: the calibration.
        questions: the questions that it was fitted on.
        measures: the measure of each row of their scores.
        budget: responses to a question at most.
        cut_off: share of the responses that were cut off before their answer; None if
            unknown.
        seed: the seed of further responses.
    """
    answers = [answer for question in questions for answer in question.answers]
    voted = _voted(questions)
    several = any(len(question.answers) > 1 for question in voted)
    samples = uncalibrated = None
    if calibration.rule_ is not None and several:
        prior = calibration.rule_.agreement_prior
        rng = np.random.default_rng(seed)
        measure = calibration.measure
        row = measures.index(measure) if measure in measures else None
        complete = []
        for question in voted:
            further = _further(prior, question.answers, budget, rng)
            complete.append([*question.responses(row), *further])
        rule = calibration.rule(budget=budget, on_missing_confidence="count")
        samples = _mean_samples(rule, complete, budget)
        uncalibrated = _mean_samples(FiniteHorizon(0.97, budget), complete, budget)
    expected = Expectation(
        samples=samples,
        uncalibrated=uncalibrated,
        budget=budget,
        unanswered=answers.count(None) / max(1, len(answers)),
        cut_off=cut_off,
        all_equal=several and all(map(_is_unanimous, voted)),
    )
    return calibration.model_copy(update={"expected": expected})


def _is_unanimous(question: Observation) -> bool:
    return len({*question.answers} - {None}) == 1


def _mean_samples(
    rule: StoppingRule, questions: Sequence[Sequence[Response]], budget: int
) -> float:
    capped = rule | Cap(budget)
    return float(np.mean([decide(capped, question).samples for question in questions]))


def _further(
    prior: Prior, answers: Sequence[int | None], budget: int, rng: np.random.Generator
) -> list[Response]:
    """Draw further responses to a question, by the process of the prior that its
    answers make likely.
    """
    votes = Counter(str(answer) for answer in answers if answer is not None)
    counts = tuple(sorted(votes.values(), reverse=True))
    weights = likelihoods([counts], prior.components)[0] * np.array(prior.weights)
    discount, concentration = prior.components[
        rng.choice(len(weights), p=weights / weights.sum())
    ]
    responses = []
    for number in range(len(answers), budget):
        names = list(votes)
        weight = np.array([votes[name] - discount for name in names])
        shares = weight / (votes.total() + concentration)
        index = int(np.searchsorted(shares.cumsum(), rng.random()))
        # The last share is that of an answer that nobody gave yet.
        answer = names[index] if index < len(names) else f"new {number}"
        votes[answer] += 1
        responses.append(Response(answer))
    return responses
