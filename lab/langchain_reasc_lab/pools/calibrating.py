"""Calibrate on a pool of recorded responses, with their scores under any measure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from langchain_reasc.answers import Form, ending_in, kind_of
from langchain_reasc.calibration import (
    READ_SCORES,
    Calibration,
    Floats,
    Observation,
    Selection,
    calibrate_mixture,
    can_be_compared,
    candidate_measures,
    default_measure,
    fit,
    numbered,
    select_among,
    with_expectation,
)
from langchain_reasc.exceptions import (
    CalibrationDataError,
    ConfidenceError,
    ConfigurationError,
    LogprobsUnavailable,
    PoolError,
)
from langchain_reasc.method.confidence import SCORES, SPAN_SCORES, Measure, Spans
from langchain_reasc.method.decision import joined
from langchain_reasc.method.stopping import DEFAULT_BUDGET, Response
from langchain_reasc.method.token_signals import SIGNALS
from langchain_reasc.models.fingerprint import Fingerprint, answer_name
from langchain_reasc_lab.pools.pool import Pool
from langchain_reasc_lab.pools.reading import extractor_of
from langchain_reasc_lab.pools.store import PoolResponse

__all__ = [
    "RECORDED",
    "MeasureSpec",
    "PoolScores",
    "calibrate_by_agreement_on",
    "calibrate_mixture_on",
    "calibrate_offline_on",
    "calibrate_on_pool",
]

RECORDED: Final = "recorded"
"""The name of the scores that a pool itself carries."""
MeasureSpec = Measure | Literal["recorded", "auto"]
"""A measure, the scores that the pool itself carries, or the choice of a measure on the
calibration split.
"""
_CALLS: Final = ("tool_calls", "tool_use", "function_call")
"""How a response with tool calls ends; if it has no answer, they were refused."""
Pairs = Sequence[tuple[int, int]]
"""(question, response) by their indices in a pool."""


class PoolScores:
    """The scores of a pool's responses under each measure, and what a stopping rule
    sees of them.

    Args:
        pool: recorded responses.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._responses = [
            response for question in pool.questions for response in question.responses
        ]
        self._flat: dict[
            Measure | str, Floats
        ] = {}  # of all responses, one question after the other
        self._scores: dict[Measure | str, list[list[float | None]]] = {}
        self._candidates: list[Measure] = []
        self._extract = extractor_of(pool.metadata)
        self._forms: dict[int, dict[str, Form]] = {}

    @property
    def signals(self) -> tuple[str, ...]:
        """The token signals that can be replayed."""
        return self._pool.signals.names if self._pool.signals else ()

    def scores(self, measure: Measure | str) -> list[list[float | None]]:
        """S(y) of each response of each question, in recorded order; None if there is
        none.

        Raises:
            PoolError: the pool does not carry what the measure needs.
        """
        if measure not in self._scores:
            each = iter(
                [
                    None if score != score else score
                    for score in self._of_all(measure).tolist()
                ]
            )
            self._scores[measure] = [
                list(islice(each, len(one.responses))) for one in self._pool.questions
            ]
        return self._scores[measure]

    def array(self, measure: Measure | str) -> Floats:
        """The same as :meth:`scores`, shape (questions, responses); NaN if there is
        none, or no response.
        """
        return self._shaped(self._of_all(measure), np.nan)

    def _shaped(self, values: npt.NDArray[Any], fill: float) -> npt.NDArray[Any]:
        """Return the values of all responses as an array of shape (questions,
        responses).
        """
        lengths = np.array(
            [len(question.responses) for question in self._pool.questions]
        )
        held = np.full((lengths.size, lengths.max()), fill, dtype=values.dtype)
        held[np.arange(lengths.max()) < lengths[:, None]] = values
        return held

    def responses(self, measure: Measure | str | None) -> list[list[Response]]:
        """Return the responses of each question as a stopping rule sees them; without a
        measure, only answers.
        """
        return [
            [
                self.response(at, number, measure)
                for number in range(len(question.responses))
            ]
            for at, question in enumerate(self._pool.questions)
        ]

    def response(
        self, question: int, number: int, measure: Measure | str | None
    ) -> Response:
        """Return a response as a stopping rule sees it."""
        one = self._pool.questions[question].responses[number]
        score = None if measure is None else self.scores(measure)[question][number]
        response = Response(
            one.answer, score, one.cut_off, kind_of(one.answer), blank=_is_blank(one)
        )
        form = self._forms_of(question).get(one.answer or "")
        return replace(response, key=form.key, weaker=form.weaker) if form else response

    def _forms_of(self, question: int) -> dict[str, Form]:
        """Return answer -> form if some answers to a question are the same, although
        they are written differently.
        """
        # found by others: read as they are
        if "extraction_version" not in self._pool.metadata:
            return {}
        if question not in self._forms:
            answers = {
                response.answer
                for response in self._pool.questions[question].responses
                if response.answer
            }
            forms = {answer: self._extract.form(answer) for answer in answers}
            keys = {form.key for form in forms.values()}
            is_joined = len(keys) < len(forms) or any(
                keys.intersection(form.weaker) for form in forms.values()
            )
            self._forms[question] = forms if is_joined else {}
        return self._forms[question]

    def candidates(self) -> list[Measure]:
        """Every measure of the pool's signals, without windows that are longer than all
        responses.

        Whoever asks for them wants them all: those of a signal are then computed
        together.
        """
        longest = max((one.signal_tokens for one in self._responses), default=0)
        self._candidates = candidate_measures(self.signals, longest=longest)
        return list(self._candidates)

    def read_by_agreement(self) -> list[Measure]:
        """Return the measure that the agreement rule reads by default; none if the pool
        does not have it.
        """
        return [measure for measure in READ_SCORES if measure.signal in self.signals]

    def candidates_of(self, firsts: Pairs) -> list[Measure]:
        """Return the measures among which these (question, response) pairs, and no
        others, choose.

        Raises:
            CalibrationDataError: too few of the responses are right, or wrong, to
                compare measures.
            PoolError: the pool has no token signals.
        """
        if self._pool.signals is None:
            raise PoolError(
                f"{self._pool.path} has no token signals; only its recorded scores can be replayed"
            )
        questions = self._pool.questions
        given = [questions[question].responses[at] for question, at in firsts]
        carrying = [one for one in given if one.signal_tokens]
        if not carrying:
            raise CalibrationDataError("no calibration response carries token signals")
        right = sum(bool(one.correct) for one in carrying)
        if not can_be_compared([bool(one.correct) for one in carrying]):
            raise CalibrationDataError(
                f"comparing signals takes at least 5 correct and 5 wrong responses, got {right} correct and "
                f"{len(carrying) - right} wrong; name a signal, or label more questions"
            )
        measures = candidate_measures(
            self.signals, longest=max(one.signal_tokens for one in carrying)
        )
        return measures + _span_measures(
            measures, [one.spans for one in carrying if one.answer is not None]
        )

    def select(self, firsts: Pairs, *, seed: int) -> Selection:
        """Choose a measure on these (question, response) pairs alone; errors as of
        :meth:`candidates_of`.
        """
        measures, questions = self.candidates_of(firsts), self._pool.questions
        carrying = [
            pair
            for pair in firsts
            if questions[pair[0]].responses[pair[1]].signal_tokens
        ]
        right = [
            bool(questions[question].responses[at].correct) for question, at in carrying
        ]
        rows, columns = zip(*carrying, strict=True)
        return select_among(
            measures,
            np.array([self.array(one)[rows, columns] for one in measures]),
            right,
            seed=seed,
        )

    def unscored(self, measure: Measure | str) -> int:
        """Responses that vote without a score."""
        pairs = zip(self._responses, self._of_all(measure), strict=True)
        return sum(
            response.answer is not None and score != score for response, score in pairs
        )

    def shorter_than(self, window: int) -> float:
        """Share of the responses that have fewer tokens than a window; their windowed
        scores are plain means.
        """
        shorter = [one.signal_tokens < window for one in self._responses]
        return float(np.mean(shorter)) if self._pool.signals else 0.0

    def _of_all(self, measure: Measure | str) -> Floats:
        """The scores of all responses, one question after the other; NaN if there is
        none.

        Those of a measure are computed with those of the candidates of its signal,
        which is read once, part by part.
        """
        if measure not in self._flat:
            if not isinstance(measure, Measure):
                self._flat[measure] = self._recorded()
            elif measure.of_span:
                self._flat[measure] = self._scores_of_spans(measure)
            else:
                together = [
                    one
                    for one in self._candidates
                    if one.signal == measure.signal and one not in self._flat
                ]
                some = list(dict.fromkeys([measure, *together]))
                parts = self._parts(measure.signal)
                scored = [
                    [_scores_of_all(one, values, lengths) for one in some]
                    for values, lengths in parts
                ]
                self._flat |= zip(
                    some, map(np.concatenate, zip(*scored, strict=True)), strict=True
                )
        return self._flat[measure]

    def _recorded(self) -> Floats:
        if not self._pool.has_scores:
            raise PoolError(
                f"{self._pool.path} has no recorded scores; choose a signal it has, or record it again"
            )
        return np.array([one.score for one in self._responses], dtype=np.float64)

    def _parts(
        self, signal: str
    ) -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
        """Yield the values of a signal, one response after the other, with the tokens
        of each.
        """
        if (signals := self._pool.signals) is None or signal not in self.signals:
            held = (
                ", ".join(self.signals)
                or "none; record it with `reasc record` to have them"
            )
            raise PoolError(
                f"{self._pool.path} has no {signal!r} signal (it has: {held})"
            )
        return signals.each(signal, [question.id for question in self._pool.questions])

    def _scores_of_spans(self, measure: Measure) -> Floats:
        parts = self._parts(measure.signal)
        if all(getattr(one.spans, measure.score) is None for one in self._responses):
            raise PoolError(
                f"{self._pool.path} does not say which tokens are the {measure.score!r}, because an earlier version "
                "recorded it or its answers were found again since; record it anew to have them"
            )
        tokens = (
            one
            for values, lengths in parts
            for one in np.split(values, lengths.cumsum()[:-1])
        )
        return np.array(
            [
                _score(measure, of, one.spans)
                for of, one in zip(tokens, self._responses, strict=True)
            ]
        )


def _is_blank(response: PoolResponse) -> bool:
    """Return whether a response is complete and states no answer. If its ending is
    unknown, it counts as complete.
    """
    reason = response.finish_reason
    if response.answer is not None or response.cut_off or reason in _CALLS:
        return False
    return ending_in({"finish_reason": reason}) == "whole"


def _span_measures(
    candidates: Sequence[Measure], spans: Sequence[Spans]
) -> list[Measure]:
    """Return scores of the candidates' signals over the spans that all responses that
    vote have.
    """
    scores = [
        score
        for score in SPAN_SCORES
        if spans and all(getattr(span, score) is not None for span in spans)
    ]
    signals = {one.signal for one in candidates}
    return [
        Measure(signal, score)
        for signal in SIGNALS
        if signal in signals
        for score in scores
    ]


def _scores_of_all(
    measure: Measure, values: npt.NDArray[np.float32], lengths: npt.NDArray[np.int64]
) -> Floats:
    """Return the score of each response, whose tokens' values stand one after the
    other; NaN if there is none.

    Those of one length are scored together, to the same bits as each alone.
    """
    scores, starts = np.full(lengths.size, np.nan), lengths.cumsum() - lengths
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        tokens = values[starts[rows, None] + np.arange(length)].astype(np.float64)
        finite = np.isfinite(tokens).all(axis=1)
        scores[rows[finite]] = SCORES[measure.score](tokens[finite], measure.window)
    return scores


def _score(measure: Measure, tokens: npt.NDArray[np.float32], spans: Any) -> float:
    try:
        return measure({measure.signal: tokens}, spans)
    except (
        ConfidenceError,
        LogprobsUnavailable,
    ):  # an empty response, or one without log-probabilities or the span
        return np.nan


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
    """Algorithm 1 on recorded responses, with what guards it.

    Args:
        pool: recorded responses.
        scores: the scores of the same pool.
        firsts: (question, response) pairs, one per calibration question; those without
            a score are left out.
        spec: the measure; ``"auto"`` chooses it on these pairs alone.
        further: pairs of other responses to these questions; with the first ones, they
            show whether the score separates right from wrong within a question.
        p_target: accuracy asked of what the gate accepts.
        seed: the seed of the folds.

    Raises:
        CalibrationDataError: the responses do not determine a calibration, or a choice
            of measure.
        PoolError: the pool lacks what the measure needs.
    """
    if spec == "auto":
        measures: Sequence[Measure] = scores.candidates_of(firsts)
        arrays = [scores.array(measure) for measure in measures]
    else:
        measures, arrays = [_known_measure(pool, spec)], [scores.array(spec)]
    return _fitted(
        pool,
        scores,
        _by_question([*firsts, *further]),
        measures,
        arrays,
        method="paper",
        p_target=p_target,
        seed=seed,
        explained=False,
    )


def calibrate_by_agreement_on(
    pool: Pool,
    scores: PoolScores,
    pairs: Pairs,
    spec: MeasureSpec,
    *,
    explained: bool = False,
    seed: int = 0,
) -> Calibration:
    """Learn the agreement rule from recorded responses; labels only add P(correct).

    Args:
        pool: recorded responses.
        scores: the scores of the same pool.
        pairs: (question, response) pairs.
        spec: the measure; ``"auto"`` is what a live run reads, if the pool has it.
        explained: whether to add what the rule promises, how likely an answer is right,
            and what to expect.
        seed: the seed of what is expected.

    Raises:
        CalibrationDataError: the responses do not determine a calibration.
        PoolError: the pool lacks what the measure needs.
    """
    if spec == "auto":
        measures: Sequence[Measure] = scores.read_by_agreement()
        arrays = [scores.array(measure) for measure in measures]
    else:
        measures, arrays = [_known_measure(pool, spec)], [scores.array(spec)]
    numbers = _by_question(pairs)
    return _fitted(
        pool, scores, numbers, measures, arrays, seed=seed, explained=explained
    )


def _by_question(pairs: Pairs) -> dict[int, list[int]]:
    numbers: dict[int, list[int]] = {}
    for question, number in pairs:
        numbers.setdefault(question, []).append(number)
    return numbers


def _fitted(
    pool: Pool,
    scores: PoolScores,
    numbers: Mapping[int, Sequence[int]],
    measures: Sequence[Measure],
    arrays: Sequence[Floats],
    *,
    explained: bool = True,
    **options: Any,
) -> Calibration:
    """Calibrate on these responses to each question, with their scores by each measure."""
    info = {one.signal: _provenance(pool, one) for one in measures}
    rows = [
        _observation(pool, scores, question, some, arrays)
        for question, some in numbers.items()
    ]
    calibration = fit(
        rows,
        measures,
        provenance={
            signal: {name: one[name] for name in ("top_k", "vocabulary_size")}
            for signal, one in info.items()
        },
        fingerprint=_provenance(pool, measures[0] if measures else Measure())[
            "fingerprint"
        ],
        explained=explained,
        **options,
    )
    if not explained:
        return calibration
    drawn = [
        pool.questions[question].responses[number]
        for question, some in numbers.items()
        for number in some
    ]
    cut_off = sum(one.answer is None and one.cut_off for one in drawn) / len(drawn)
    return with_expectation(
        calibration, rows, measures, budget=DEFAULT_BUDGET, cut_off=cut_off
    )


def _observation(
    pool: Pool,
    scores: PoolScores,
    question: int,
    numbers: Sequence[int],
    arrays: Sequence[Floats],
) -> Observation:
    """Return these responses to a question, with their labels and their scores by each
    measure.
    """
    votes = joined([scores.response(question, number, None) for number in numbers])
    responses = [pool.questions[question].responses[number] for number in numbers]
    is_labelled = any(one.correct is not None for one in responses)
    return Observation(
        numbered([vote.answer for vote in votes]),
        np.array([values[question, list(numbers)] for values in arrays]).reshape(
            len(arrays), len(numbers)
        ),
        right=tuple(bool(one.correct) for one in responses) if is_labelled else (),
    )


def calibrate_mixture_on(
    pool: Pool,
    scores: PoolScores,
    firsts: Pairs,
    measure: Measure | str,
    *,
    p_target: float = 0.9,
    seed: int = 0,
) -> Calibration:
    """Algorithm 2 on recorded responses; arguments and errors as
    :func:`calibrate_offline_on`, labels unused.
    """
    held = scores.scores(measure)
    known = _known_measure(pool, measure)
    return calibrate_mixture(
        [
            score
            for question, number in firsts
            if (score := held[question][number]) is not None
        ],
        measure=known,
        p_target=p_target,
        components=(
            1,
            2,
        ),  # more would take most of a replay's time, and nobody reads of them
        seed=seed,
        **_provenance(pool, known),
    )


def calibrate_on_pool(
    pool: Pool,
    spec: MeasureSpec,
    *,
    method: Literal["paper"] | None = None,
    p_target: float = 0.9,
    seed: int = 0,
    only: Sequence[str] | None = None,
) -> Calibration:
    """Calibrate on a pool, as ``calibrate`` does on a model.

    Args:
        pool: recorded responses.
        spec: the measure; ``"auto"`` is what the agreement rule reads by default, and
            for Algorithm 1 the one that labels choose, or where too few are right, or
            wrong, the paper's score.
        method: ``"paper"`` for Algorithm 1, which also decides if each question has one
            response.
        p_target: accuracy asked of what the gate of Algorithm 1 accepts.
        seed: the seed of the folds.
        only: ids of the questions to calibrate on, in the order in which they are put
            into folds, whatever their order in the pool; None for all.

    Raises:
        CalibrationDataError: the responses do not determine a calibration.
        PoolError: the pool's own scores are to be used, but it does not say how they
            were made.
    """
    if spec == "recorded" and _recorded_measure(pool) is None:
        raise PoolError(
            f"{pool.path} does not say how its scores were made, so nothing could use a calibration on them; its "
            'metadata needs "measure": {"signal": ..., "score": ..., "window": ...}'
        )
    scores = PoolScores(pool)
    places = {question.id: at for at, question in enumerate(pool.questions)}
    chosen = [
        (places[id], pool.questions[places[id]].responses)
        for id in only or places
        if id in places
    ]
    is_labelled = any(
        response.correct is not None
        for _, responses in chosen
        for response in responses
    )
    pairs = [
        (place, number)
        for place, responses in chosen
        for number in range(len(responses))
    ]
    has_several = len(pairs) > len(chosen)
    if method is None and (has_several or not is_labelled):
        return calibrate_by_agreement_on(
            pool, scores, pairs, spec, seed=seed, explained=True
        )
    firsts = [(place, 0) for place, _ in chosen]
    right = [bool(responses[0].correct) for _, responses in chosen]
    if spec == "auto" and not can_be_compared(right):
        spec = default_measure(scores.signals)
    further = [pair for pair in pairs if pair[1] > 0]
    return calibrate_offline_on(
        pool, scores, firsts, spec, further=further, p_target=p_target, seed=seed
    )


def _recorded_measure(pool: Pool) -> Measure | None:
    """Return the measure of the pool's own scores, if its metadata has one."""
    described = pool.metadata.get("measure")
    try:
        return Measure(**described) if isinstance(described, dict) else None
    except (TypeError, ConfigurationError):
        return None


def _known_measure(pool: Pool, measure: Measure | str) -> Measure:
    """The measure behind recorded scores; if nobody knows, the paper's name stands in
    (replay never shows it).
    """
    return (
        measure
        if isinstance(measure, Measure)
        else _recorded_measure(pool) or Measure()
    )


def _provenance(pool: Pool, measure: Measure) -> dict[str, Any]:
    """What the recorder knew of the model, as far as the measure depends on it, for the
    calibration's own record.
    """
    info = pool.metadata.get("signals_info")
    known = info if isinstance(info, dict) else {}
    try:
        fingerprint = Fingerprint.model_validate(pool.metadata.get("fingerprint") or {})
    except ValidationError:  # a pool made by others
        fingerprint = Fingerprint()
    answer = pool.metadata.get("answer")  # a name, or {"function": name}
    named = answer.get("function") if isinstance(answer, dict) else answer
    k = {
        "top_k": known.get("top_k"),
        "neg_entropy": known.get("neg_entropy", known.get("vocabulary_size")),
    }
    return {
        "top_k": k.get(measure.signal),
        "vocabulary_size": known.get("vocabulary_size"),
        "fingerprint": fingerprint.model_copy(
            update={"answer": answer_name(named) if isinstance(named, str) else None}
        ),
    }
