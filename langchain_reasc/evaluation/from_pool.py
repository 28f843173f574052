"""Calibrating on recorded first responses, offline or online."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from langchain_reasc.calibration import (
    AUROC,
    Calibration,
    Fingerprint,
    answer_name,
    auroc_within,
    calibrate_mixture,
    calibrate_offline,
    fit_support_curve,
)
from langchain_reasc.evaluation.scoring import MeasureSpec, PoolScores
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.correctness import support
from langchain_reasc.method.stopping import decide
from langchain_reasc.pools.pool import Pool

__all__ = ["calibrate_mixture_on", "calibrate_offline_on", "recorded_measure", "with_correctness"]

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


def with_correctness(
    pool: Pool, scores: PoolScores, questions: Sequence[int], calibration: Calibration, measure: Measure | str
) -> Calibration:
    """The calibration, with P(correct) of what its rule decides on labelled questions with several responses each.

    The gate and the statistics come from the first responses to the same questions, so that it is a little too good.

    Args:
        pool: recorded responses.
        scores: the scores of the same pool.
        questions: indices of the questions to decide; those with a single response are left out.
        calibration: made on the same pool.
        measure: how it scores responses.

    Returns:
        The calibration as it was where fewer than 2 questions tell.
    """
    rule = calibration.rule(on_missing_confidence="count")
    told: list[tuple[float, bool]] = []
    for at in questions:
        recorded = pool.questions[at].responses
        decision = decide(rule, scores.responses_to(at, measure))
        share = support(decision)
        if len(recorded) > 1 and share is not None:
            told.append((share, any(one.correct for one in recorded if one.answer == decision.answer)))
    if len(told) < 2:
        return calibration
    shares, right = zip(*told, strict=True)
    return calibration.model_copy(update={"p_correct": fit_support_curve(shares, right, rule=rule.name)})


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
