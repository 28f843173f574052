"""Tables on scores: how well they tell right responses from wrong ones, and into which groups they fall."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibrating import RECORDED
from langchain_reasc.calibration import (
    AUROC,
    FEWEST_FOR_MIXTURE,
    Floats,
    Judged,
    Mixture,
    auroc_per_question,
    auroc_with_interval,
    checked_scores,
    fit_mixture,
    mean_auroc,
    posterior_upper,
)
from langchain_reasc.exceptions import CalibrationDataError, PoolError
from langchain_reasc.method.confidence import DEFAULT_WINDOW, SPAN_SCORES, Measure
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc_lab.replay.bootstrap import exact
from langchain_reasc_lab.replay.metrics import Estimate
from langchain_reasc_lab.report.report import table
from langchain_reasc_lab.report.rows import Block, table_of
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import Cell, Column, Table, listed, percent

SCORE_OF_PAPER: Final = "bottom_group"
_WINDOWS: Final = (DEFAULT_WINDOW, 64, 32, 16, 8)


@dataclass(frozen=True, slots=True)
class Responses:
    """The responses of a pool, one after the other.

    Attributes:
        question: shape (n,), to which question each belongs.
        right: shape (n,), whether it is right.
        votes: shape (n,), whether it has an answer.
    """

    question: npt.NDArray[np.intp]
    right: npt.NDArray[np.bool_]
    votes: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, study: Study) -> "Responses":
        """Those of the study's pool.

        Raises:
            PoolError: all are right, or all are wrong.
        """
        questions = study.pool.questions
        number = np.repeat(np.arange(len(questions)), [len(one.responses) for one in questions])
        each = [response for one in questions for response in one.responses]
        right = np.array([bool(one.correct) for one in each], dtype=bool)
        if right.all() or not right.any():
            what = "right" if right.size and right.all() else "wrong"
            raise PoolError(f"all {right.size} responses are {what}, so that nothing tells right from wrong")
        return cls(number, right, np.array([one.answer is not None for one in each], dtype=bool))


def signal_measures(study: Study, score: str, window: int) -> list[Measure | str]:
    """A score of each signal that the pool has; of a pool with scores alone, these.

    ``kl_uniform`` is left out where ``self_certainty`` is there: it is the same less a constant.

    Raises:
        PoolError: it has neither.
    """
    if study.scores.signals:
        same = {VERBALIZED, "kl_uniform"} if "self_certainty" in study.scores.signals else {VERBALIZED}
        of_tokens = [signal for signal in study.scores.signals if signal not in same]
        stated = [Measure(VERBALIZED, "mean")] if VERBALIZED in study.scores.signals and score == "mean" else []
        return [*(Measure(signal, score, window) for signal in of_tokens), *stated]
    if study.pool.has_scores:
        return [RECORDED] if score == SCORE_OF_PAPER else []
    raise PoolError(f"{study.pool.path} has neither token signals nor recorded scores; record it with `reasc record`")


def chosen(study: Study) -> Measure | str:
    """The one measure that a table is about.

    It is the one that was asked for; of ``"auto"`` the one that is chosen on the calibration questions of the first
    arrangement, and where these cannot tell, the paper's score of the first signal.

    Raises:
        PoolError: the pool has no scores.
    """
    measures = signal_measures(study, SCORE_OF_PAPER, window_for(study))
    if study.measure is not None and study.measure != "auto":
        return study.measure
    if study.measure is None or not study.scores.signals:
        return measures[0]
    split = study.splits[0]
    try:
        return study.scores.select(split.firsts(split.calibration), seed=study.settings.methods.seed).measure
    except CalibrationDataError:
        return measures[0]


def window_for(study: Study) -> int:
    """The window that was asked for, or else the longest up to the paper's that at least half of the responses fill."""
    if isinstance(study.measure, Measure) and study.measure.windowed:
        return study.measure.window
    return next((window for window in _WINDOWS if study.scores.shorter_than(window) <= 0.5), _WINDOWS[-1])


def longest_response(study: Study) -> int:
    """Tokens of the longest response that has signals; 0 where none has."""
    signals = study.pool.signals
    return max((int(max(signals.lengths(one.id))) for one in study.pool.questions), default=0) if signals else 0


def judged(
    study: Study, responses: Responses, measures: Sequence[Measure | str], *, voting: bool = False
) -> Iterator[tuple[Sequence[int], Judged]]:
    """The responses that have a score, with their scores; measures that score the same ones come together.

    Args:
        study: the pool.
        responses: those of the same pool.
        measures: how they are scored.
        voting: whether only those with an answer count.

    Yields:
        Indices of the measures, and the responses that these score: none where they score none right, or none wrong.
    """
    recorded = np.arange(study.scores.array(measures[0]).shape[1]) < np.bincount(responses.question)[:, None]
    scores = np.array([study.scores.array(measure)[recorded] for measure in measures])
    finite = np.isfinite(scores) & (responses.votes if voting else True)
    for mask in np.unique(finite, axis=0):
        same = np.flatnonzero((finite == mask).all(axis=1))
        here = Judged(responses.question[mask], responses.right[mask], scores[same][:, mask])
        if here.both:
            yield same.tolist(), here


_COMPONENTS: Final = (1, 2, 3, 4)


@table("components", "How many Gaussian components first-response scores have", paper="Table 5")
def components(studies: Sequence[Study]) -> Table:
    """AIC and BIC of mixtures of one to four components."""
    columns = [
        Column("Signal"),
        Column("By", "", "The criterion: Akaike's or the Bayesian one."),
        *(
            Column(str(count), ".1f", f"With {count} component{'s' if count > 1 else ''}; lower is better.")
            for count in _COMPONENTS
        ),
        Column("Lowest", ".0f", "Components at which the criterion is lowest."),
    ]
    general = (
        "A difference of 2 or less between two criteria is no evidence for either. That two components describe the "
        "scores better than one does not say that they are the right and the wrong responses."
    )
    return table_of(studies, columns, _components, notes=[general])


def _components(study: Study) -> Block:
    rows: list[Sequence[Cell]] = []
    notes: list[str] = []
    sizes: dict[str, int] = {}
    for measure in _measures(study):
        first = study.scores.array(measure)[:, 0]
        try:
            scores = checked_scores(first[np.isfinite(first)], study.settings.methods.p_target)
        except CalibrationDataError as error:
            notes.append(f"{study.name}, {measure}: no row, because {str(error).rstrip('.')}.")
            continue
        if scores.size < FEWEST_FOR_MIXTURE:
            raise PoolError(f"{scores.size} first responses with a score are too few for mixtures")
        sizes[str(measure)] = scores.size
        fit = fit_mixture(scores, _COMPONENTS, study.settings.methods.seed)
        for criterion, values in (("AIC", fit.aic), ("BIC", fit.bic)):
            lowest = min(values, key=lambda count: values[count])
            signal = measure.signal if isinstance(measure, Measure) else measure
            rows.append((signal, criterion, *(values[k] for k in _COMPONENTS), lowest))
        notes += [f"{study.name}, {measure}: {told}." for told in _mixture_notes(scores, fit)]
    if not rows:
        raise PoolError("no first responses of it have scores to which mixtures can be fitted")
    if len(set(sizes.values())) == 1:
        notes.append(
            f"{study.name}: {next(iter(sizes.values()))} first responses with a score by {listed(list(sizes))}."
        )
    else:
        notes += [f"{study.name}, {measure}: {size} first responses with a score." for measure, size in sizes.items()]
    return rows, notes


def _measures(study: Study) -> list[Measure | str]:
    """The one that was asked for, or else the paper's score of each signal."""
    measure = study.measure
    if measure is None or measure == "auto":
        return signal_measures(study, SCORE_OF_PAPER, window_for(study))
    return [measure]


def _mixture_notes(scores: Floats, fit: Mixture) -> Iterator[str]:
    if fit.one_group:
        yield fit.one_group
    if not fit.converged:
        yield "the mixture of two components did not converge"
    if share := falling(scores, fit):
        yield (
            f"the mixture's posterior is not monotone: {share:.1%} of the scores are taken for less surely right than "
            f"some lower score is (standard deviations {fit.stds[0]:.3g} below and {fit.stds[1]:.3g} above)"
        )


def falling(scores: Floats, mixture: Mixture) -> float:
    """The share of the scores whose posterior of the upper component is below that of some lower score."""
    posterior = posterior_upper(np.sort(scores), mixture)
    return float((posterior < np.maximum.accumulate(posterior) - 1e-9).mean())


WINDOWS: Final = (8, 16, 32, 64, 128, 256, 512, 768)
_SCORES: Final = ("mean", "tail_group", "average_group", "bottom_group", "lowest_group", *SPAN_SCORES)
_IN_THE_PAPER: Final = (
    "mean is the paper's response-level self-certainty, tail_group its tail group confidence, average_group its "
    "average group confidence, and bottom_group its bottom 10 % group confidence, where the signal is self_certainty. "
    "kl_uniform, which is self_certainty less a constant, has no rows beside it."
)
_AUROC: Final = Column(
    "AUROC",
    ".3f",
    "How often a right response scores higher than a wrong one, over the responses to all questions; its interval "
    "knows that responses to one question are alike.",
    "high",
)


@table("separation", "Which score tells right responses from wrong ones", paper="Table 8")
def separation(studies: Sequence[Study]) -> Table:
    """AUROC and gap of every score of every signal."""
    columns = [
        Column("Signal"),
        Column("Score"),
        _AUROC,
        Column("Gap", ".3g", "Mean score of right responses minus that of wrong ones, in the signal's own unit."),
        Column("Gap/SD", ".2f", "The same in pooled standard deviations, which can be compared.", "high"),
        Column(
            "Within",
            ".3f",
            "AUROC among those responses to one question that have an answer, the mean over questions: only this says "
            "what weights on votes can do.",
            "high",
        ),
    ]
    return table_of(studies, columns, _separation, notes=[_IN_THE_PAPER])


@table("window", "The window of the bottom 10 % group score", paper="Table 9")
def window(studies: Sequence[Study]) -> Table:
    """AUROC of the paper's score of each signal, by its window."""
    columns = [
        Column("Signal"),
        Column("Window", ".0f", "Tokens per group."),
        _AUROC,
        Column("Shorter %", ".1f", "Responses with fewer tokens than the window: their score is the plain mean."),
    ]
    return table_of(studies, columns, _windows, notes=())


def _separation(study: Study) -> Block:
    responses, width = Responses.of(study), window_for(study)
    measures = [one for score in _SCORES for one in signal_measures(study, score, width)]
    measures, notes = _scorable(study, measures)
    apart, inside = _separations(study, responses, measures), _separations_within(study, responses, measures)
    signals = [_names(measure)[0] for measure in measures]
    nothing: tuple[Cell, ...] = (None, None, None)
    rows = [
        (*_names(measures[at]), *apart.get(at, nothing), inside.get(at))
        for at in sorted(range(len(measures)), key=lambda at: signals.index(signals[at]))
    ]
    right = int(responses.right.sum())
    mixed = np.intersect1d(responses.question[responses.right], responses.question[~responses.right]).size
    notes.append(
        f"{study.name}: {right} right and {responses.right.size - right} wrong responses; {mixed} of "
        f"{len(study.pool.questions)} questions have both. Groups are of {width} tokens, which "
        f"{study.scores.shorter_than(width):.0%} of the responses do not fill."
    )
    return rows, notes


def _windows(study: Study) -> Block:
    responses, longest = Responses.of(study), longest_response(study)
    if not longest:
        raise PoolError("it has no token signals, without which a score cannot be made anew with another window")
    windows = WINDOWS[
        : sum(width < longest for width in WINDOWS) + 1
    ]  # one beyond the longest response: the plain mean
    notes = []
    if len(windows) < len(WINDOWS):
        notes.append(
            f"{study.name}: its longest response has {longest} tokens; with {windows[-1]} and more, the score is the "
            "plain mean of every response."
        )
    rows: list[Sequence[Cell]] = []
    for signal in signal_measures(study, SCORE_OF_PAPER, WINDOWS[0]):
        assert isinstance(signal, Measure)
        apart = _separations(study, responses, [Measure(signal.signal, SCORE_OF_PAPER, width) for width in windows])
        for at, width in enumerate(windows):
            shorter = 100 * study.scores.shorter_than(width)
            rows.append((signal.signal, width, apart[at][0] if at in apart else None, shorter))
    return rows, notes


def _separations(
    study: Study, responses: Responses, measures: Sequence[Measure | str]
) -> dict[int, tuple[Cell, Cell, Cell]]:
    """AUROC, gap, and gap in standard deviations, by the index of the measure; without those that score one kind."""
    return {
        at: (_estimate(auroc_with_interval(scores, here.right, here.question)), *_gap(scores, here.right))
        for same, here in judged(study, responses, measures)
        for at, scores in zip(same, here.scores, strict=True)
    }


def _separations_within(study: Study, responses: Responses, measures: Sequence[Measure | str]) -> dict[int, Cell]:
    """AUROC within questions, by the index of the measure."""
    return {
        at: _estimate(mean_auroc(found))
        for same, here in judged(study, responses, measures, voting=True)
        for at, found in zip(same, auroc_per_question(here), strict=True)
    }


def _gap(scores: Floats, right: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[float, float | None]:
    above, below = scores[right], scores[~right]
    gap = float(above.mean() - below.mean())
    squares = above.size * float(above.var()) + below.size * float(below.var())
    if above.size + below.size < 3 or squares == 0:
        return gap, None
    return gap, gap / math.sqrt(squares / (above.size + below.size - 2))


def _scorable(study: Study, measures: Sequence[Measure | str]) -> tuple[list[Measure | str], list[str]]:
    """Those that the pool can score by, and why it cannot by the others."""
    possible, notes = [], dict[str, None]()
    for measure in measures:
        try:
            study.scores.array(measure)
        except PoolError as error:
            notes[f"{study.name}: no row for some scores, because {error}."] = None
        else:
            possible.append(measure)
    return possible, list(notes)


def _names(measure: Measure | str) -> tuple[str, str]:
    return (measure.signal, measure.score) if isinstance(measure, Measure) else (measure, "as recorded")


def _estimate(auroc: AUROC | None) -> Estimate | None:
    return None if auroc is None else Estimate(auroc.value, auroc.low, auroc.high)


BINS: Final = 5


@table("bins", "Accuracy by confidence", paper="Table 13")
def bins(studies: Sequence[Study]) -> Table:
    """Accuracy within five bins of each kind."""
    columns = [
        Column(
            "Bins", "", "Quantile: a fifth of the responses in each. Equal width: a fifth of the scores' range each."
        ),
        Column("Bin", ".0f", "From the least confident on."),
        Column("From", ".3g"),
        Column("To", ".3g"),
        Column("Responses", ".0f"),
        Column("Accuracy %", ".1f", "Share of right responses, with Clopper and Pearson's exact 95 % interval."),
    ]
    general = (
        "The paper calls its bins quantiles, but its ranges are equally wide. The intervals take responses for "
        "independent; those to one question are not, so that they are somewhat too narrow."
    )
    return table_of(studies, columns, _bins, notes=[general])


def edges(scores: Floats, kind: str) -> Floats:
    """The bounds of the bins, shape (6,); a score on a bound belongs to the bin above it."""
    if kind == "quantile":
        return np.quantile(scores, np.linspace(0, 1, BINS + 1))
    return np.linspace(scores.min(), scores.max(), BINS + 1)


def bin_numbers(scores: Floats, bounds: Floats) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
    """The bin of each score, from 0 on."""
    return np.searchsorted(bounds[1:-1], scores, side="right")


def _bins(study: Study) -> Block:
    measure = chosen(study)
    found = [here for _, here in judged(study, Responses.of(study), [measure])]
    if not found:
        raise PoolError(f"the responses that have a score by {measure} are all right, or all wrong")
    scores, right = found[0].scores[0], found[0].right
    if scores.min() == scores.max():
        raise PoolError(f"all its scores by {measure} are {scores[0]:g}")
    rows: list[Sequence[Cell]] = []
    notes = []
    for kind in ("quantile", "equal width"):
        bounds = edges(scores, kind)
        number = bin_numbers(scores, bounds)
        accuracies = []
        for at in range(BINS):
            here = number == at
            accuracy = percent(exact(int(right[here].sum()), int(here.sum()))) if here.any() else None
            accuracies += [accuracy.value] if accuracy else []
            rows.append((kind, at + 1, float(bounds[at]), float(bounds[at + 1]), int(here.sum()), accuracy))
        rises = all(low < high for low, high in pairwise(accuracies))
        notes.append(
            f"{study.name}, {kind}: by {measure}, accuracy {'rises' if rises else 'does not rise'} from bin to bin."
        )
    return rows, notes
