"""Calibrating on recorded first responses, offline or online."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from langchain_reasc.calibrating.pool_scores import MeasureSpec, PoolScores
from langchain_reasc.calibration import (
    AUROC,
    Calibration,
    Fingerprint,
    answer_name,
    auroc_within,
    calibrate_mixture,
    calibrate_offline,
    can_be_compared,
    default_measure,
    with_p_correct,
)
from langchain_reasc.exceptions import ConfigurationError, PoolError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.pools import Pool

__all__ = ["calibrate_mixture_on", "calibrate_offline_on", "calibrate_on_pool", "recorded_measure"]

Pairs = Sequence[tuple[int, int]]


def calibrate_offline_on(
    pool: Pool,
    scores: PoolScores,
    firsts: Pairs,
    spec: MeasureSpec,
    *,
    further: Pairs = (),
    p_target: float = 0.9,
    seed: int = 0,
) -> Calibration:
    """Algorithm 1 on recorded responses.

    Args:
        pool: recorded responses.
        scores: the scores of the same pool.
        firsts: (question, response) pairs, one per calibration question; those without a score are left out.
        spec: the measure; ``"auto"`` chooses it on these pairs alone.
        further: pairs of other responses to these questions; with the first ones, they show whether the score separates
            right from wrong within a question.
        p_target: accuracy asked of what the gate accepts.
        seed: the seed of the folds.

    Raises:
        CalibrationDataError: the responses do not determine a calibration, or a choice of measure.
        PoolError: the pool lacks what the measure needs.
    """
    selection = scores.select(firsts, seed=seed) if spec == "auto" else None
    measure = selection.measure if selection else spec
    held = scores.scores(measure)
    labelled = [
        (score, pool.questions[question].responses[response].correct)
        for question, response in firsts
        if (score := held[question][response]) is not None
    ]
    named = _named(pool, measure)
    return calibrate_offline(
        [score for score, _ in labelled],
        [bool(correct) for _, correct in labelled],
        measure=named,
        p_target=p_target,
        rejected=selection.rejected if selection else (),
        cross_validated=selection.cross_validated if selection else None,
        within=_within(pool, scores.scores(measure), (*firsts, *further)) if further else None,
        **_provenance(pool, named),
    )


def calibrate_mixture_on(
    pool: Pool, scores: PoolScores, firsts: Pairs, measure: Measure | str, *, p_target: float = 0.9, seed: int = 0
) -> Calibration:
    """Algorithm 2 on recorded responses; arguments and errors as :func:`calibrate_offline_on`, labels unused."""
    held = scores.scores(measure)
    firsts_held = [held[question][response] for question, response in firsts]
    named = _named(pool, measure)
    return calibrate_mixture(
        [score for score in firsts_held if score is not None],
        measure=named,
        p_target=p_target,
        components=(1, 2),  # more would take most of a replay's time, and nobody reads of them
        seed=seed,
        **_provenance(pool, named),
    )


def _within(pool: Pool, scores: Sequence[Sequence[float | None]], pairs: Pairs) -> AUROC | None:
    """How well the scores separate the votes of one question; a response without an answer has no vote to weigh."""
    votes: dict[int, list[tuple[float, bool]]] = {}
    for question, response in pairs:
        given, score = pool.questions[question].responses[response], scores[question][response]
        if given.answer is not None and score is not None:
            votes.setdefault(question, []).append((score, bool(given.correct)))
    return auroc_within(
        [[score for score, _ in cast] for cast in votes.values()],
        [[right for _, right in cast] for cast in votes.values()],
    )


def calibrate_on_pool(
    pool: Pool, spec: MeasureSpec, *, p_target: float = 0.9, seed: int = 0, only: set[str] | None = None
) -> Calibration:
    """Calibrate on the first responses of a pool's questions, and on all where there are several.

    Where it holds others beside, these show whether the confidence separates the responses to one question, and how
    likely an answer is right.

    Args:
        pool: recorded responses.
        spec: the measure; ``"auto"`` chooses it, or where too few are right, or wrong, takes the paper's score.
        p_target: accuracy asked of what the gate accepts.
        seed: the seed of the folds.
        only: ids of the questions to calibrate on; None for all.

    Raises:
        CalibrationDataError: the responses do not determine a calibration.
        PoolError: the pool's own scores are to be used, but it does not say how they were made.
    """
    if spec == "recorded" and recorded_measure(pool) is None:
        raise PoolError(
            f"{pool.path} does not say how its scores were made, so nothing could use a calibration on them; its "
            'metadata needs "measure": {"signal": ..., "score": ..., "window": ...}'
        )
    scores = PoolScores(pool)
    firsts = [(at, 0) for at, question in enumerate(pool.questions) if only is None or question.id in only]
    further = [(at, n) for at, _ in firsts for n in range(1, len(pool.questions[at].responses))]
    if spec == "auto" and not can_be_compared([bool(pool.questions[at].responses[0].correct) for at, _ in firsts]):
        spec = default_measure(scores.signals)
    calibration = calibrate_offline_on(pool, scores, firsts, spec, further=further, p_target=p_target, seed=seed)
    measure = calibration.measure if spec == "auto" else spec
    assert measure is not None  # Algorithm 1 has one
    graded = (
        [
            (response, bool(one.correct))
            for response, one in zip(scores.responses_to(at, measure), pool.questions[at].responses, strict=True)
        ]
        for at, _ in firsts
    )
    return with_p_correct(calibration, graded)


def recorded_measure(pool: Pool) -> Measure | None:
    """How the pool's own scores were made, where its metadata says so."""
    described = pool.metadata.get("measure")
    try:
        return Measure(**described) if isinstance(described, dict) else None
    except (TypeError, ConfigurationError):
        return None


def _named(pool: Pool, measure: Measure | str) -> Measure:
    """The measure behind recorded scores; where nobody knows, the paper's name stands in (replay never shows it)."""
    return measure if isinstance(measure, Measure) else recorded_measure(pool) or Measure()


def _provenance(pool: Pool, measure: Measure) -> dict[str, Any]:
    """What the recorder knew of the model, as far as the measure depends on it, for the calibration's own record."""
    info = pool.metadata.get("signals_info")
    known = info if isinstance(info, dict) else {}
    try:
        fingerprint = Fingerprint.model_validate(pool.metadata.get("fingerprint") or {})
    except ValidationError:  # a pool made by others
        fingerprint = Fingerprint()
    k = {"top_k": known.get("top_k"), "neg_entropy": known.get("neg_entropy", known.get("vocabulary_size"))}
    return {
        "top_k": k.get(measure.signal),
        "vocabulary_size": known.get("vocabulary_size"),
        "fingerprint": fingerprint.model_copy(update={"answer": _answer(pool.metadata.get("answer"))}),
    }


def _answer(recorded: object) -> str | None:
    """Where answers were found: a name, or ``{"function": name}``; None where the recorder did not say."""
    named = recorded.get("function") if isinstance(recorded, dict) else recorded
    return answer_name(named) if isinstance(named, str) else None
