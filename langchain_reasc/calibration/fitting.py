"""``fit``: the one function that makes a calibration of what was asked.

How answers agree sets the prior of the agreement rule (:mod:`~langchain_reasc.method.agreement`). A measure of
confidence is trusted where it separates the responses that agree with the majority of the *others* from those that do
not, within a question too: then votes weigh by it. So far no label is needed; what is promised is agreement with the
majority of the whole budget, and where wrong answers agree, that is wrong.

Labels only add: a gate that accepts a confident first response alone, Algorithm 1 for ``safeguard="paper"``, and how
likely an answer is right.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from langchain_reasc.calibration.observations import Observation
from langchain_reasc.calibration.offline import calibrate_first_responses
from langchain_reasc.calibration.promises import promises_of
from langchain_reasc.calibration.record import Calibration, Fingerprint, Gate, RuleBlock
from langchain_reasc.calibration.selection import Selection, can_be_compared, default_measure, select_among
from langchain_reasc.calibration.trust import Trusted, alternatives, trusted_measure
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.agreement import Prior, default_components, likelihoods
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET

__all__ = ["DEFAULT_AGREEMENT", "fit", "fit_prior"]

DEFAULT_AGREEMENT: Final = 0.975  # θ: the lowest that costs 0.3 points at most on any kind of simulated pools
_WORTH: Final = 10.0  # samples for a point of agreement: at 7, some simulated pools lose over a point
_VOTE_THRESHOLD: Final = 0.993  # of weighted votes; at .99 scores that follow agreement cost over 0.3 points
_PSEUDO_QUESTIONS: Final = 8.0  # what the uniform mixture counts, so that a few questions rule nothing out
_PSEUDO_QUESTIONS_OF_ALL: Final = 16.0  # what the mixture of all kinds of request counts beside those of one
_FEWEST_OF_KIND: Final = 64  # questions of one kind of request, from which on confidence is learned of it alone
_ROUNDS: Final = 100
_LABELLED: Final = 0.5  # share of the questions that have labels, from which on these choose the measure and set a gate


def fit(
    observations: Iterable[Observation],
    measures: Sequence[Measure] = (),
    *,
    budget: int = DEFAULT_BUDGET,
    threshold: float = DEFAULT_AGREEMENT,
    p_target: float = 0.9,
    made_of: Mapping[str, Mapping[str, int | None]] | None = None,
    fingerprint: Fingerprint | None = None,
    seed: int = 0,
    explained: bool = True,
    whole: Calibration | None = None,
) -> Calibration:
    """Make a calibration of what was asked.

    Where half of the questions or more have labels, these choose the measure, and Algorithm 1 runs on the first
    responses, if they determine it. With one response to each question nothing shows how responses agree; then
    Algorithm 1 decides alone, as far as its data support it.

    Args:
        observations: the questions, each sampled up to where counting votes stopped; 16 are enough to begin with.
        measures: the candidates that ``scores`` are of; without any, only answers are learned from.
        budget: responses to a question at most.
        threshold: θ, the probability that the whole budget would give the same answer at which sampling stops.
        p_target: accuracy asked of what the gate accepts.
        made_of: signal -> ``top_k`` and ``vocabulary_size`` that it was made of; recorded.
        fingerprint: what was measured.
        seed: the seed of folds and of resampled bounds.
        explained: whether to also compute the AUROC's interval, the promise, P(agree) and P(correct); no decision needs
            them.
        whole: what was learned of all kinds of request, where these questions are of one. How their answers agree is
            then sought near to how all do, and fewer than 64 questions take all else from there.

    Raises:
        CalibrationDataError: fewer than 2 questions with an answer, or scores of another number of measures.
    """
    rows = _checked(observations, len(measures))
    voted = [one for one in rows if any(answer is not None for answer in one.answers)]
    if whole and len(voted) < _FEWEST_OF_KIND:
        return _with_own_prior(whole, voted)
    measures, rows = _with_distinct_scores(measures, rows)
    labelled = _labelled(rows)
    selection = _selected(labelled, measures, seed)
    if selection is not None:
        measures, rows = _with_measure(selection.measure, measures, rows)
        labelled = _labelled(rows)
    voted = [one for one in rows if any(answer is not None for answer in one.answers)]
    trusted = trusted_measure(voted, measures, seed, explained=explained)
    recorded: dict[str, Any] = {"made_of": made_of or {}, "fingerprint": fingerprint or Fingerprint()}
    gated = _gated(labelled, measures, trusted, selection, p_target=p_target, **recorded)
    if isinstance(gated, Calibration) and sum(len(one.answers) > 1 for one in voted) < 2:
        return gated
    if len(voted) < 2:
        raise CalibrationDataError(f"{len(voted)} of {len(rows)} questions have an answer; 16 are enough to begin")
    prior = _fitted_prior(voted, whole)
    rule = _rule_block(prior, trusted, voted, threshold)
    if isinstance(gated, Calibration):
        calibration = gated.model_copy(update={"rule_": rule, "untrusted": trusted.fields.get("untrusted")})
    else:
        calibration = _by_agreement(rule, trusted, len(voted), gated, **recorded)
    if not explained:
        return calibration
    return calibration.model_copy(update=promises_of(calibration, prior, voted, trusted.row, budget))


def _checked(observations: Iterable[Observation], measures: int) -> list[Observation]:
    rows = list(observations)
    for one in rows:
        if one.scores.shape != (measures, len(one.answers)):
            raise CalibrationDataError(
                f"scores of shape {one.scores.shape} for {measures} measures of {len(one.answers)} responses"
            )
    if not rows:
        raise CalibrationDataError("there is no question to calibrate on; 16 are enough to begin")
    return rows


def _with_distinct_scores(
    measures: Sequence[Measure], rows: Sequence[Observation]
) -> tuple[list[Measure], list[Observation]]:
    """Leave out measures without any score, and those whose scores equal those of another.

    Windows longer than every response, say, are all the plain mean; the first stands for all.
    """
    every = enumerate(np.concatenate([one.scores for one in rows], axis=1))
    first = {scores.tobytes(): at for at, scores in reversed(list(every)) if np.isfinite(scores).any()}
    kept = sorted(first.values())
    return [measures[at] for at in kept], [replace(one, scores=one.scores[kept]) for one in rows]


def _with_measure(
    measure: Measure, measures: Sequence[Measure], rows: Sequence[Observation]
) -> tuple[list[Measure], list[Observation]]:
    at = measures.index(measure)
    return [measure], [replace(one, scores=one.scores[at : at + 1]) for one in rows]


def _labelled(rows: Sequence[Observation]) -> list[Observation]:
    """Return the questions whose first response has a label; none where these are too few of all.

    Outcomes that somebody told are not labels: they are told of some questions rather than others.
    """
    labelled = [one for one in rows if one.right and one.right[0] is not None]
    return labelled if len(labelled) >= _LABELLED * len(rows) else []


def _selected(labelled: Sequence[Observation], measures: Sequence[Measure], seed: int) -> Selection | None:
    """Choose the measure that separates right from wrong first responses best; None where nothing can be compared."""
    scored = [one for one in labelled if np.isfinite(one.scores[:, 0]).any()]
    right = [bool(one.right[0]) for one in scored]
    if len(measures) < 2 or not can_be_compared(right):
        return None
    scores = np.array([one.scores[:, 0] for one in scored]).T
    known = np.isfinite(scores)
    # A span is of an answer, and its score is judged on responses that have one.
    unanswered = np.array([one.answers[0] is None for one in scored])
    candidates = [at for at, measure in enumerate(measures) if (known[at] | (measure.of_span & unanswered)).all()]
    if not candidates:
        return None
    return select_among([measures[at] for at in candidates], scores[candidates], right, seed=seed)


def _gated(
    labelled: Sequence[Observation],
    measures: Sequence[Measure],
    trusted: Trusted,
    selection: Selection | None,
    *,
    made_of: Mapping[str, Mapping[str, int | None]],
    **options: Any,
) -> Calibration | str:
    """Run Algorithm 1 on the first responses. Return why there is no gate if they do not determine it."""
    if not labelled or not measures:
        return "the agreement rule decides, which has no gate"
    measure = trusted.measure or measures[0]
    if len(measures) > 1 and trusted.measure is None:
        paper = default_measure({one.signal for one in measures})
        measure = paper if paper in measures else measures[0]
    try:
        return calibrate_first_responses(
            _with_measure(measure, measures, labelled)[1],
            measure,
            **(selection.evidence if selection else {}),
            **made_of.get(measure.signal, {}),
            **options,
        )
    except CalibrationDataError as error:
        return str(error)


def _rule_block(prior: Prior, trusted: Trusted, voted: Sequence[Observation], threshold: float) -> RuleBlock:
    parameters = {"threshold": threshold, "worth": _WORTH}
    if trusted.odds is not None:
        parameters |= {"vote_threshold": _VOTE_THRESHOLD, "alternatives": alternatives(voted)}
    return RuleBlock.agreement(prior, trusted.odds, **parameters)


def _by_agreement(
    rule: RuleBlock,
    trusted: Trusted,
    n: int,
    no_gate: str,
    *,
    made_of: Mapping[str, Mapping[str, int | None]],
    fingerprint: Fingerprint,
) -> Calibration:
    """Return a calibration to which labels add no gate."""
    return Calibration.now(
        trusted.measure,
        trusted.scores,
        method="consensus",
        n=n,
        gate=Gate(threshold=None, closed_because=no_gate),
        rule=rule,
        fingerprint=fingerprint,
        **trusted.fields,
        **(made_of.get(trusted.measure.signal, {}) if trusted.measure else {}),
    )


def _with_own_prior(whole: Calibration, questions: Sequence[Observation]) -> Calibration:
    """Return what was learned of all kinds of request, with how the answers to these questions agree.

    What is promised of all, by another prior, is not promised of these.
    """
    if len(questions) < 2:
        raise CalibrationDataError(f"{len(questions)} questions have an answer; 16 are enough to begin")
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
