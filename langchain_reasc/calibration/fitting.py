"""``fit``: the one function that makes a calibration from rows; ``with_expectation``
adds what to expect of it.

How answers agree, and what scores tell of it, sets the agreement rule
(:mod:`~langchain_reasc.method.agreement`). This needs no label. The rule promises
agreement with the majority of the whole budget, which is wrong if wrong answers agree.

Labels only add: the probability that an answer is right, and a veto on scores that do
not tell right responses from wrong ones. The paper's rule, Algorithm 1 on labelled
first responses, is made if it is asked for, or if each question has one response.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np

from langchain_reasc.calibration.agreement_fit import fit_agreement
from langchain_reasc.calibration.algorithm1 import calibrate_first_responses
from langchain_reasc.calibration.auroc import (
    auroc_per_question,
    judged_votes,
    mean_auroc,
)
from langchain_reasc.calibration.calibration import Calibration
from langchain_reasc.calibration.observations import Observation
from langchain_reasc.calibration.parts import Expectation, Gate
from langchain_reasc.calibration.promises import correctness_curve
from langchain_reasc.calibration.selection import (
    Selection,
    can_be_compared,
    default_measure,
    select_among,
)
from langchain_reasc.calibration.stored_rule import RuleBlock
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.agreement import Prior, likelihoods
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.decision import Response
from langchain_reasc.method.horizon import FiniteHorizon
from langchain_reasc.method.stopping import DEFAULT_BUDGET, Cap, StoppingRule, decide
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.fingerprint import Fingerprint

__all__ = [
    "DEFAULT_AGREEMENT",
    "READ_SCORES",
    "SCORED_AGREEMENT",
    "fit",
    "with_expectation",
]

DEFAULT_AGREEMENT: Final = 0.975
"""θ if only answers count: the lowest that costs at most 0.3 points on any kind of
simulated pools.
"""
SCORED_AGREEMENT: Final = 0.95
"""θ with scores, of twice the budget, up to 24 responses."""
READ_SCORES: Final = (Measure(VERBALIZED, "mean"), Measure("token_logprob", "mean"))
"""The measures that the agreement rule reads: the first one that responses have."""
# Questions of one kind of request, from which on its scores are learned separately.
_FEWEST_OF_KIND: Final = 64
# Share of labelled questions that Algorithm 1 needs.
_LABELLED: Final = 0.5


def fit(
    observations: Iterable[Observation],
    measures: Sequence[Measure] = (),
    *,
    method: Literal["paper"] | None = None,
    budget: int = DEFAULT_BUDGET,
    threshold: float | None = None,
    p_target: float = 0.9,
    provenance: Mapping[str, Mapping[str, int | None]] | None = None,
    fingerprint: Fingerprint | None = None,
    seed: int = 0,
    explained: bool = True,
    whole: Calibration | None = None,
) -> Calibration:
    """Make a calibration from rows.

    With one response to each question, nothing shows how responses agree. If half of
    the questions or more have labels, Algorithm 1 then decides, as far as its data
    support it.

    Args:
        observations: the questions, each sampled until sampling stopped; at least 16.
        measures: the measure of each row of ``scores``; empty to learn only from
            answers.
        method: ``"paper"`` for Algorithm 1 on labelled first responses.
        budget: responses to a question at most.
        threshold: θ, the probability at which sampling stops; None for 0.95 with
            scores, and 0.975 without.
        p_target: accuracy asked of what the gate of Algorithm 1 accepts.
        provenance: signal -> its ``top_k`` and ``vocabulary_size``; stored.
        fingerprint: the model, sampling and prompt; stored.
        seed: the seed of folds.
        explained: whether to compute the promise and P(correct), which no decision
            needs.
        whole: the calibration of all kinds of request, if these questions are of one
            kind. The prior is then shrunk towards its prior, and fewer than 64
            questions take everything else from it.

    Raises:
        CalibrationDataError: fewer than 2 questions with an answer, labels that
            determine no Algorithm 1 if that was asked for, or scores of another number
            of measures.
    """
    rows = _checked(observations, len(measures))
    voted = _voted(rows)
    # A rare kind of request borrows all but its prior.
    if whole and whole.rule_ and len(voted) < _FEWEST_OF_KIND:
        return _with_own_prior(whole, whole.rule_, voted, measures, budget)
    sources = provenance or {}
    recorded = {"p_target": p_target, "fingerprint": fingerprint or Fingerprint()}
    several = sum(len(question.answers) > 1 for question in voted)
    labelled = _labelled(rows)
    if method == "paper" or (labelled and several < 2):
        return _by_algorithm1(labelled, measures, seed, sources, **recorded)
    if len(voted) < 2:
        raise CalibrationDataError(
            f"{len(voted)} of {len(rows)} questions have an answer; 16 are enough to "
            "begin"
        )
    row, untrusted = _scores_to_read(voted, measures)
    towards = whole.rule_.agreement_prior if whole and whole.rule_ else None
    prior, scores = fit_agreement(voted, row, budget=budget, towards=towards)
    if scores is None:
        untrusted = untrusted or "the scores are too few, or all equal"
        row = None
    if threshold is None:
        threshold = DEFAULT_AGREEMENT if scores is None else SCORED_AGREEMENT
    measure = None if row is None else measures[row]
    calibration = Calibration.now(
        measure,
        None if row is None else _finite_scores(voted, row),
        method="consensus",
        n=len(voted),
        gate=Gate(
            threshold=None, closed_because="the agreement rule decides, which has none"
        ),
        rule=RuleBlock.agreement(prior, threshold, scores),
        untrusted=untrusted,
        accuracy=_accuracy(labelled),
        **(sources.get(measure.signal, {}) if measure else {}),
        **recorded,
    )
    if not explained:
        return calibration
    rule = calibration.rule(budget=budget)
    promises = {
        "guarantee": (
            f"learned from {len(voted)} questions by agreement, which is not "
            "correctness"
        ),
        "p_correct": correctness_curve(rule, voted, row),
    }
    return calibration.model_copy(update=promises)


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


def _scores_to_read(
    questions: Sequence[Observation], measures: Sequence[Measure]
) -> tuple[int | None, str | None]:
    """Return the row of the scores that the agreement rule reads, or why it reads none.

    Labels refuse scores that tell right responses from wrong ones to the same question
    worse than chance, 95 % sure.
    """
    by_preference = [measure for measure in READ_SCORES if measure in measures]
    by_preference += [measure for measure in measures if measure not in READ_SCORES]
    for measure in by_preference:
        row = measures.index(measure)
        if any(np.isfinite(question.scores[row]).any() for question in questions):
            break
    else:
        return None, "there are no scores"
    within = mean_auroc(auroc_per_question(judged_votes(questions, row))[0])
    if within is not None and within.high < 0.5:
        return None, f"{measure} is higher for wrong responses where labels are known"
    return row, None


def _finite_scores(questions: Iterable[Observation], row: int) -> Any:
    scores = np.concatenate([question.scores[row] for question in questions])
    return scores[np.isfinite(scores)]


def _labelled(rows: Sequence[Observation]) -> list[Observation]:
    """Return the questions whose first response has a label; none if these are too few.

    Reported outcomes are not labels, because they are reported for a biased choice of
    questions.
    """
    labelled = [row for row in rows if row.right and row.right[0] is not None]
    if len(labelled) < _LABELLED * len(rows):
        return []
    return labelled


def _accuracy(labelled: Sequence[Observation]) -> float | None:
    """Return the share of right first responses; None without labels."""
    if not labelled:
        return None
    return float(np.mean([bool(row.right[0]) for row in labelled]))


def _by_algorithm1(
    labelled: Sequence[Observation],
    measures: Sequence[Measure],
    seed: int,
    provenance: Mapping[str, Mapping[str, int | None]],
    **options: Any,
) -> Calibration:
    """Run Algorithm 1 on the first responses, by the measure that labels choose.

    Raises:
        CalibrationDataError: the labels determine no calibration.
    """
    if not labelled:
        raise CalibrationDataError(
            "fewer than half of the questions have a label, and the paper's rule needs "
            "them"
        )
    measures, labelled = _with_distinct_scores(measures, labelled)
    if not measures:
        raise CalibrationDataError(
            "there are no scores, and first responses teach nothing without them; ask "
            "each question more than once (max_samples=...)"
        )
    selection = _selected(labelled, measures, seed)
    if selection is not None:
        measure = selection.measure
    else:
        measure = default_measure({candidate.signal for candidate in measures})
        # The paper's may be left out, as a measure without any score is.
        if measure not in measures:
            measure = measures[0]
    _, rows = _with_measures([measures.index(measure)], measures, labelled)
    return calibrate_first_responses(
        rows,
        measure,
        **(selection.evidence if selection else {}),
        **provenance.get(measure.signal, {}),
        **options,
    )


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


def _with_own_prior(
    whole: Calibration,
    rule: RuleBlock,
    questions: Sequence[Observation],
    measures: Sequence[Measure],
    budget: int,
) -> Calibration:
    """Return the calibration of all kinds of request with the prior of these questions,
    and without its guarantee.

    Args:
        whole: the calibration of all kinds.
        rule: its rule.
        questions: questions of one kind, with an answer.
        measures: the measure of each row of their scores.
        budget: responses to a question at most.
    """
    if len(questions) < 2:
        raise CalibrationDataError(
            f"{len(questions)} questions have an answer; 16 are enough to begin"
        )
    scores = None if rule.scores is None else rule.scores.model()
    row = None if whole.measure is None else measures.index(whole.measure)
    prior, _ = fit_agreement(
        questions, row, budget=budget, towards=rule.agreement_prior, fixed=scores
    )
    changes = {
        "rule_": rule.with_prior(prior),
        "n": len(questions),
        "guarantee": None,
    }
    return whole.model_copy(update=changes)


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
        rule = calibration.rule(budget=budget)
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
