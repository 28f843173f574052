"""Calibrating on a pool of recorded responses, and their scores under any measure."""

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from langchain_reasc.answers import kind_of
from langchain_reasc.calibration import (
    AUROC,
    Calibration,
    Fingerprint,
    Selection,
    answer_name,
    auroc_within,
    calibrate_mixture,
    calibrate_offline,
    can_be_compared,
    candidate_measures,
    default_measure,
    select_measure,
    with_p_correct,
)
from langchain_reasc.exceptions import (
    CalibrationDataError,
    ConfidenceError,
    ConfigurationError,
    LogprobsUnavailable,
    PoolError,
)
from langchain_reasc.method.confidence import SCORES, Measure, Spans
from langchain_reasc.method.stopping import Response
from langchain_reasc.pools import Pool

__all__ = [
    "RECORDED",
    "MeasureSpec",
    "PoolScores",
    "calibrate_mixture_on",
    "calibrate_offline_on",
    "calibrate_on_pool",
    "recorded_measure",
]

RECORDED: Final = "recorded"
_VALUES_AT_ONCE = 1 << 22  # so that memory stays small
MeasureSpec = Measure | Literal["recorded", "auto"]
"""A measure, the scores that the pool itself carries, or the choice of a measure on the calibration split."""


class PoolScores:
    """What decisions on a pool need to know of its responses, under each measure.

    Args:
        pool: recorded responses.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._scores: dict[Measure | str, list[list[float | None]]] = {}
        self._arrays: dict[Measure | str, npt.NDArray[np.float64]] = {}
        self._flat: dict[Measure, npt.NDArray[np.float64]] = {}  # of all responses, one question after the other
        self._wanted: Sequence[Measure] = ()

    @property
    def signals(self) -> tuple[str, ...]:
        """The token signals that can be replayed."""
        return self._pool.signals.names if self._pool.signals else ()

    def scores(self, measure: Measure | str) -> list[list[float | None]]:
        """S(y) of each response of each question, in recorded order; None where there is none.

        Raises:
            PoolError: the pool does not carry what the measure needs.
        """
        if measure not in self._scores:
            if not isinstance(measure, Measure):
                self._scores[measure] = self._recorded()
            elif measure.of_span:
                self._scores[measure] = self._scored_by_span(measure)
            else:
                each = iter([None if math.isnan(score) else score for score in self._scored(measure).tolist()])
                self._scores[measure] = [list(islice(each, len(one.responses))) for one in self._pool.questions]
        return self._scores[measure]

    def array(self, measure: Measure | str) -> npt.NDArray[np.float64]:
        """The same as :meth:`scores`, shape (questions, responses); NaN where there is none, or no response."""
        if measure not in self._arrays:
            lengths = np.array([len(question.responses) for question in self._pool.questions])
            if (lengths == lengths[0]).all():  # the same memory
                self._arrays[measure] = self._of_all(measure).reshape(lengths.size, -1)
                return self._arrays[measure]
            held = np.full((lengths.size, lengths.max()), np.nan)
            held[np.arange(lengths.max()) < lengths[:, None]] = self._of_all(measure)
            self._arrays[measure] = held
        return self._arrays[measure]

    def _of_all(self, measure: Measure | str) -> npt.NDArray[np.float64]:
        """The scores of all responses, one question after the other; NaN where there is none."""
        if isinstance(measure, Measure) and not measure.of_span:
            return self._scored(measure)
        return np.array([np.nan if score is None else score for row in self.scores(measure) for score in row])

    def responses(self, measure: Measure | str | None) -> list[list[Response]]:
        """What a stopping rule sees of each question; without a measure, answers alone."""
        return [self.responses_to(question, measure) for question in range(len(self._pool.questions))]

    def responses_to(self, question: int, measure: Measure | str | None) -> list[Response]:
        """The same of one question, by its index; they are made anew each time, as few are ever asked for."""
        given = self._pool.questions[question].responses
        scores: Sequence[float | None] = [None] * len(given) if measure is None else self.scores(measure)[question]
        each = zip(given, scores, strict=True)
        return [Response(one.answer, score, one.cut_off, kind_of(one.answer)) for one, score in each]

    def candidates(self) -> list[Measure]:
        """Every measure of the pool's signals, without windows that are longer than all responses.

        Whoever asks for them wants them all: those of a signal are then computed together.
        """
        lengths = (
            [max(self._pool.signals.lengths(one.id)) for one in self._pool.questions] if self._pool.signals else []
        )
        self._wanted = candidate_measures(self.signals, longest=max(lengths, default=0))
        return list(self._wanted)

    def select(self, firsts: Sequence[tuple[int, int]], *, seed: int) -> Selection:
        """Choose a measure on the given (question, response) pairs alone.

        Raises:
            CalibrationDataError: too few correct or wrong responses to compare signals.
        """
        if (signals := self._pool.signals) is None:
            raise PoolError(f"{self._pool.path} has no token signals; only its recorded scores can be replayed")
        questions = self._pool.questions
        carrying = [(question, at) for question, at in firsts if questions[question].responses[at].signal_tokens]
        if not carrying:
            raise CalibrationDataError("no calibration response carries token signals")
        given = [questions[question].responses[at] for question, at in carrying]
        return select_measure(
            (signals.of(questions[question].id)[at] for question, at in carrying),  # read one after the other
            [bool(one.correct) for one in given],
            spans=[None if one.answer is None else one.spans for one in given],
            signals=signals.names,
            longest=max(one.signal_tokens for one in given),
            seed=seed,
        )

    def unscored(self, measure: Measure | str) -> int:
        """Responses that vote without a score."""
        rows = zip(self._pool.questions, self.scores(measure), strict=True)
        pairs = (pair for question, row in rows for pair in zip(question.responses, row, strict=True))
        return sum(response.answer is not None and score is None for response, score in pairs)

    def shorter_than(self, window: int) -> float:
        """Share of the responses that have fewer tokens than a window; their windowed scores are plain means."""
        if self._pool.signals is None:
            return 0.0
        lengths = np.concatenate([self._pool.signals.lengths(question.id) for question in self._pool.questions])
        return float((lengths < window).mean())

    def _scored(self, measure: Measure) -> npt.NDArray[np.float64]:
        """The scores of all responses, one question after the other; NaN where there is none."""
        self._check(measure)
        assert self._pool.signals is not None
        if measure not in self._flat:
            self._score_together([*dict.fromkeys([measure, *self._wanted])], measure.signal)
        return self._flat[measure]

    def _score_together(self, measures: Sequence[Measure], signal: str) -> None:
        """Score by all of these measures that are of one signal, which is read from its file once, a part at a time."""
        assert self._pool.signals is not None
        some = [one for one in measures if one.signal == signal and not one.of_span and one not in self._flat]
        ids = [question.id for question in self._pool.questions]
        parts = [
            [_scores_of_all(one, values, lengths) for one in some]
            for values, lengths in self._pool.signals.each(signal, ids)
        ]
        self._flat |= {one: np.concatenate(held) for one, held in zip(some, zip(*parts, strict=True), strict=True)}

    def _check(self, measure: Measure) -> None:
        if measure.signal not in self.signals:
            held = ", ".join(self.signals) or "none; record it with `reasc record` to have them"
            raise PoolError(f"{self._pool.path} has no {measure.signal!r} signal (it has: {held})")

    def _scored_by_span(self, measure: Measure) -> list[list[float | None]]:
        self._check(measure)
        spans = [[response.spans for response in question.responses] for question in self._pool.questions]
        if all(getattr(one, measure.score) is None for row in spans for one in row):
            raise PoolError(
                f"{self._pool.path} does not say which tokens are the {measure.score!r}, because an earlier version "
                "recorded it or its answers were found again since; record it anew to have them"
            )
        assert self._pool.signals is not None
        every = iter([one for row in spans for one in row])
        scores: list[float | None] = []
        for values, lengths in self._pool.signals.each(measure.signal, [one.id for one in self._pool.questions]):
            for tokens in np.split(values, lengths.cumsum()[:-1]):
                scores.append(_score(measure, {measure.signal: tokens}, next(every)))
        each = iter(scores)
        return [list(islice(each, len(row))) for row in spans]

    def _recorded(self) -> list[list[float | None]]:
        if not self._pool.has_scores:
            raise PoolError(f"{self._pool.path} has no recorded scores; choose a signal it has, or record it again")
        return [[response.score for response in question.responses] for question in self._pool.questions]


def _scores_of_all(
    measure: Measure, values: npt.NDArray[np.float32], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """The score of each response, whose tokens' values stand one after the other; NaN where there is none.

    Those of one length are scored together, to the same bits as each alone.
    """
    scores, starts = np.full(lengths.size, np.nan), lengths.cumsum() - lengths
    for length in np.unique(lengths[lengths > 0]).tolist():
        of_length = np.flatnonzero(lengths == length)
        for rows in np.array_split(of_length, 1 + of_length.size * length // _VALUES_AT_ONCE):
            tokens = values[starts[rows, None] + np.arange(length)].astype(np.float64)
            finite = np.isfinite(tokens).all(axis=1)
            scores[rows[finite]] = SCORES[measure.score](tokens[finite], measure.window)
    return scores


def _score(measure: Measure, signals: Mapping[str, npt.ArrayLike], spans: Spans) -> float | None:
    try:
        return measure(signals, spans)
    except (ConfidenceError, LogprobsUnavailable):  # an empty response, or one without log-probabilities or the span
        return None


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
