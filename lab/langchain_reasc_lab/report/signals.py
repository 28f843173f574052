"""Tables on scores: separation of right from wrong responses, and mixture components."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

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
from langchain_reasc_lab.pools import RECORDED
from langchain_reasc_lab.replay.bootstrap import Estimate, exact_of_alike
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import (
    Block,
    Cell,
    Column,
    Table,
    listed,
    table_of,
)

SCORE_OF_PAPER: Final = "bottom_group"
WINDOWS: Final = (8, 16, 32, 64, 128, 256, 512, 768)
BINS: Final = 5
_COMPONENTS: Final = (1, 2, 3, 4)
_SCORES: Final = (
    "mean",
    "tail_group",
    "average_group",
    "bottom_group",
    "lowest_group",
    *SPAN_SCORES,
)
_AUROC: Final = Column(
    "AUROC",
    ".3f",
    "How often a right response scores higher than a wrong one, over the responses to "
    "all questions; its interval knows that responses to one question are alike.",
)

Booleans = npt.NDArray[np.bool_]


def signal_measures(study: Study, score: str, window: int) -> list[Measure | str]:
    """Return a score of each signal that the pool has; of a pool with scores alone,
    these.

    ``kl_uniform`` is left out where ``self_certainty`` is there: it is the same less a
    constant.

    Raises:
        PoolError: it has neither.
    """
    if names := study.scores.signals:
        left_out = (
            {VERBALIZED, "kl_uniform"} if "self_certainty" in names else {VERBALIZED}
        )
        stated = (
            [Measure(VERBALIZED, "mean")]
            if VERBALIZED in names and score == "mean"
            else []
        )
        return [
            *(Measure(name, score, window) for name in names if name not in left_out),
            *stated,
        ]
    if study.pool.has_scores:
        return [RECORDED] if score == SCORE_OF_PAPER else []
    raise PoolError(
        f"{study.pool.path} has neither token signals nor recorded scores; record it "
        "with `reasc record`"
    )


def chosen(study: Study) -> Measure | str:
    """Return the one measure that a table is about.

    It is the one that was asked for; of ``"auto"`` the one that is chosen on the
    calibration questions of the first arrangement, and where these cannot tell, the
    paper's score of the first signal.

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
        return study.scores.select(
            split.firsts(split.calibration), seed=study.settings.methods.seed
        ).measure
    except CalibrationDataError:
        return measures[0]


def window_for(study: Study) -> int:
    """Return the window asked for, or the longest up to the paper's that at least half
    of the responses fill.
    """
    if isinstance(study.measure, Measure) and study.measure.windowed:
        return study.measure.window
    usual = [window for window in reversed(WINDOWS) if window <= DEFAULT_WINDOW]
    return next(
        (window for window in usual if study.scores.shorter_than(window) <= 0.5),
        usual[-1],
    )


def judged(
    study: Study, measure: Measure | str, *, voting: bool = False
) -> Judged | None:
    """Return the responses that have a score, with their scores; None if none of them
    is right, or none wrong.

    Args:
        study: the pool.
        measure: how responses are scored.
        voting: whether only those with an answer count.

    Raises:
        PoolError: all responses are right, or all are wrong.
    """
    right = _right(study)
    question: list[int] = []
    scores: list[float] = []
    votes: list[bool] = []
    for number, (row, recorded) in enumerate(
        zip(study.scores.array(measure), study.pool.questions, strict=True)
    ):
        question += [number] * len(recorded.responses)
        scores += row[: len(recorded.responses)].tolist()
        votes += [response.answer is not None for response in recorded.responses]
    counted = np.isfinite(scores)
    if voting:
        counted &= np.array(votes)
    scored = Judged(
        np.array(question)[counted], right[counted], np.array([scores])[:, counted]
    )
    return scored if scored.both else None


def _right(study: Study) -> Booleans:
    """Return whether each response is right, one question after the other.

    Raises:
        PoolError: all are right, or all are wrong.
    """
    right = np.array(
        [
            bool(response.correct)
            for question in study.pool.questions
            for response in question.responses
        ],
        dtype=bool,
    )
    if right.all() or not right.any():
        what = "right" if right.size and right.all() else "wrong"
        raise PoolError(
            f"all {right.size} responses are {what}, so that nothing tells right from "
            "wrong"
        )
    return right


def components(studies: Sequence[Study]) -> Table:
    """Return AIC and BIC of mixtures of one to four components."""
    columns = [
        Column("Signal"),
        Column("By", "", "The criterion: Akaike's or the Bayesian one."),
        *(Column(f"k = {count}", ".1f") for count in _COMPONENTS),
        Column("Lowest", ".0f", "Components at which the criterion is lowest."),
    ]
    general = (
        "k is the number of components; lower is better. A difference of 2 or less "
        "between two criteria is no evidence for either. That two components describe "
        "the scores better than one does not say that they are the right and the wrong "
        "responses."
    )
    return table_of(studies, columns, _components, notes=[general])


def _components(study: Study) -> Block:
    measures: list[Measure | str] = [study.measure] if study.measure else []
    if study.measure in (None, "auto"):
        measures = signal_measures(study, SCORE_OF_PAPER, window_for(study))
    rows: list[Sequence[Cell]] = []
    notes: list[str] = []
    sizes: dict[str, int] = {}
    for measure in measures:
        first = study.scores.array(measure)[:, 0]
        try:
            scores = checked_scores(
                first[np.isfinite(first)], study.settings.methods.p_target
            )
        except CalibrationDataError as error:
            notes.append(
                f"{study.name}, {measure}: no row, because {str(error).rstrip('.')}."
            )
            continue
        if scores.size < FEWEST_FOR_MIXTURE:
            raise PoolError(
                f"{scores.size} first responses with a score are too few for mixtures"
            )
        sizes[str(measure)] = scores.size
        fit = fit_mixture(scores, _COMPONENTS, study.settings.methods.seed)
        for criterion, values in (("AIC", fit.aic), ("BIC", fit.bic)):
            lowest = min(values, key=values.__getitem__)
            rows.append(
                (
                    _names(measure)[0],
                    criterion,
                    *(values[k] for k in _COMPONENTS),
                    lowest,
                )
            )
        notes += [
            f"{study.name}, {measure}: {note}." for note in _mixture_notes(scores, fit)
        ]
    if not rows:
        raise PoolError(
            "no first responses of it have scores to which mixtures can be fitted"
        )
    return rows, [*notes, *_sizes(study, sizes)]


def _sizes(study: Study, sizes: dict[str, int]) -> list[str]:
    if len(set(sizes.values())) == 1:
        return [
            (
                f"{study.name}: {next(iter(sizes.values()))} first responses with a score "
                f"by {listed(list(sizes))}."
            )
        ]
    return [
        f"{study.name}, {measure}: {size} first responses with a score."
        for measure, size in sizes.items()
    ]


def _mixture_notes(scores: Floats, fit: Mixture) -> Iterator[str]:
    if fit.one_group:
        yield fit.one_group
    if not fit.converged:
        yield "the mixture of two components did not converge"
    posterior = posterior_upper(np.sort(scores), fit)
    if share := float((posterior < np.maximum.accumulate(posterior) - 1e-9).mean()):
        yield (
            f"the mixture's posterior is not monotone: {share:.1%} of the scores are "
            "taken for less surely right than some lower score is (standard deviations "
            f"{fit.stds[0]:.3g} below and {fit.stds[1]:.3g} above)"
        )


def separation(studies: Sequence[Study]) -> Table:
    """Return AUROC and gap of every score of every signal."""
    columns = [
        Column("Signal"),
        Column("Score"),
        _AUROC,
        Column(
            "Gap",
            ".3g",
            (
                "Mean score of right responses minus that of wrong ones, in the signal's "
                "own unit."
            ),
        ),
        Column(
            "Gap/SD",
            ".2f",
            "The same in pooled standard deviations, which can be compared.",
        ),
        Column(
            "Within",
            ".3f",
            "AUROC among those responses to one question that have an answer, the "
            "mean over questions: only this says what weights on votes can do.",
        ),
    ]
    in_the_paper = (
        "mean is the paper's response-level self-certainty, tail_group its tail group "
        "confidence, average_group its average group confidence, and bottom_group its "
        "bottom 10 % group confidence, where the signal is self_certainty. kl_uniform, "
        "which is self_certainty less a constant, has no rows beside it."
    )
    return table_of(studies, columns, _separation, notes=[in_the_paper])


def _separation(study: Study) -> Block:
    right, width = _right(study), window_for(study)
    candidates = [
        measure for score in _SCORES for measure in signal_measures(study, score, width)
    ]
    measures: list[Measure | str] = []
    notes: dict[str, None] = {}
    for measure in candidates:
        try:
            study.scores.array(measure)
            measures.append(measure)
        except PoolError as error:
            notes[f"{study.name}: no row for some scores, because {error}."] = None
    rows: list[Sequence[Cell]] = []
    signals = [_names(measure)[0] for measure in measures]
    for measure in sorted(
        measures, key=lambda measure: signals.index(_names(measure)[0])
    ):
        voting = judged(study, measure, voting=True)
        within = mean_auroc(auroc_per_question(voting)[0]) if voting else None
        rows.append(
            (*_names(measure), *_separations(study, measure), _estimate(within))
        )
    mixed = 0
    for question in study.pool.questions:
        mixed += len({bool(response.correct) for response in question.responses}) > 1
    summary = (
        f"{study.name}: {right.sum()} right and {(~right).sum()} wrong responses; "
        f"{mixed} of {len(study.pool.questions)} questions have both. Groups are of "
        f"{width} tokens, which {study.scores.shorter_than(width):.0%} of the "
        "responses do not fill."
    )
    return rows, [*notes, summary]


def window(studies: Sequence[Study]) -> Table:
    """Return AUROC of the paper's score of each signal, by its window."""
    columns = [
        Column("Signal"),
        Column("Window", ".0f", "Tokens per group."),
        _AUROC,
        Column(
            "Shorter %",
            ".1f",
            (
                "Responses with fewer tokens than the window: their score is the plain "
                "mean."
            ),
        ),
    ]
    return table_of(studies, columns, _windows, notes=())


def _windows(study: Study) -> Block:
    _right(study)
    signals, questions = study.pool.signals, study.pool.questions
    longest = 0
    if signals:
        longest = max(
            (int(max(signals.lengths(question.id))) for question in questions),
            default=0,
        )
    if not longest:
        raise PoolError(
            "it has no token signals, without which a score cannot be made anew with "
            "another window"
        )
    # one beyond the longest response, whose score is the plain mean
    widths = WINDOWS[: sum(width < longest for width in WINDOWS) + 1]
    notes = []
    if len(widths) < len(WINDOWS):
        notes.append(
            f"{study.name}: its longest response has {longest} tokens; with "
            f"{widths[-1]} and more, the score is the plain mean of every response."
        )
    rows: list[Sequence[Cell]] = []
    for measure in signal_measures(study, SCORE_OF_PAPER, WINDOWS[0]):
        signal = _names(measure)[0]
        for width in widths:
            auroc, *_ = _separations(study, Measure(signal, SCORE_OF_PAPER, width))
            rows.append((signal, width, auroc, 100 * study.scores.shorter_than(width)))
    return rows, notes


def _separations(study: Study, measure: Measure | str) -> tuple[Cell, Cell, Cell]:
    """Return AUROC, gap, and gap in standard deviations; nothing if the measure scores
    one kind alone.
    """
    scored = judged(study, measure)
    if scored is None:
        return None, None, None
    [scores] = scored.scores
    return _estimate(auroc_with_interval(scores, scored.right, scored.question)), *_gap(
        scores, scored.right
    )


def _gap(scores: Floats, right: Booleans) -> tuple[float, float | None]:
    above, below = scores[right], scores[~right]
    gap = float(above.mean() - below.mean())
    squares = above.size * float(above.var()) + below.size * float(below.var())
    if above.size + below.size < 3 or squares == 0:
        return gap, None
    return gap, gap / math.sqrt(squares / (above.size + below.size - 2))


def _names(measure: Measure | str) -> tuple[str, str]:
    return (
        (measure.signal, measure.score)
        if isinstance(measure, Measure)
        else (measure, "as recorded")
    )


def _estimate(auroc: AUROC | None) -> Estimate | None:
    return None if auroc is None else Estimate(auroc.value, auroc.low, auroc.high)


def bins(studies: Sequence[Study]) -> Table:
    """Return accuracy within five bins of each kind."""
    columns = [
        Column(
            "Bins",
            "",
            (
                "Quantile: a fifth of the responses in each. Equal width: a fifth of the "
                "scores' range each."
            ),
        ),
        Column("Bin", ".0f", "From the least confident on."),
        Column("From", ".3g"),
        Column("To", ".3g"),
        Column("Responses", ".0f"),
        Column(
            "Accuracy %",
            ".1f",
            (
                "Share of right responses; its interval knows that those to one question "
                "are alike."
            ),
        ),
    ]
    general = (
        "The paper calls its bins quantiles, but its ranges are equally wide. The "
        "intervals are Clopper and Pearson's, for as many independent responses as "
        "vary like these (Korn and Graubard)."
    )
    return table_of(studies, columns, _bins, notes=[general])


def edges(scores: Floats, kind: str) -> Floats:
    """Return the bounds of the bins, shape (6,); a score on a bound belongs to the bin
    above it.
    """
    if kind == "quantile":
        return np.quantile(scores, np.linspace(0, 1, BINS + 1))
    return np.linspace(scores.min(), scores.max(), BINS + 1)


def _bins(study: Study) -> Block:
    measure = chosen(study)
    scored = judged(study, measure)
    if scored is None:
        raise PoolError(
            f"the responses that have a score by {measure} are all right, or all wrong"
        )
    [scores] = scored.scores
    if scores.min() == scores.max():
        raise PoolError(f"all its scores by {measure} are {scores[0]:g}")
    rows: list[Sequence[Cell]] = []
    notes = []
    for kind in ("quantile", "equal width"):
        bounds = edges(scores, kind)
        number = np.searchsorted(bounds[1:-1], scores, side="right")
        accuracies = []
        for at in range(BINS):
            in_bin = number == at
            accuracy = None
            if in_bin.any():
                accuracy = exact_of_alike(
                    scored.right[in_bin], scored.question[in_bin]
                ).percent
                accuracies.append(accuracy.value)
            rows.append(
                (
                    kind,
                    at + 1,
                    float(bounds[at]),
                    float(bounds[at + 1]),
                    int(in_bin.sum()),
                    accuracy,
                )
            )
        rises = all(low < high for low, high in pairwise(accuracies))
        notes.append(
            f"{study.name}, {kind}: by {measure}, accuracy "
            f"{'rises' if rises else 'does not rise'} from bin to bin."
        )
    return rows, notes
