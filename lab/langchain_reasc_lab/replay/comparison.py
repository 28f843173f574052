"""Comparing methods on the same arrangements of a pool: what each of them did on every question."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from langchain_reasc.calibrating import MeasureSpec
from langchain_reasc.calibration import Calibration
from langchain_reasc.method.stopping import StoppingRule
from langchain_reasc_lab.replay.arrangement import COLUMNS, Arrangement, Cells, RecordedPool
from langchain_reasc_lab.replay.methods import OFFLINE, SAFEGUARDED, Method, Split, asc_at
from langchain_reasc_lab.replay.risk import Risk, likelihoods, risk_of

__all__ = ["Outcomes", "RowKey", "compare"]

RowKey = tuple[str, MeasureSpec | None]


@dataclass
class Outcomes:
    """What one method did on every question of every shuffle.

    Attributes:
        cells: shape (shuffles, questions, 6), the columns of :data:`COLUMNS`; NaN where a question was not tested.
        p_correct: shape (shuffles, questions), how likely the answer is right, as the labels of the calibration
            questions tell; NaN where a question was not tested, or nothing tells.
        calibrations: those of a method that needs them, one per shuffle.
        problems: why there was none, in shuffles where it counted votes instead.
        rules: the stopping rule of each arrangement; none where it changed along the way.
        confidences: those of ASC that were chosen for what it costs, one per shuffle.
    """

    cells: Cells
    p_correct: Cells
    calibrations: list[Calibration] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    rules: dict[int, StoppingRule] = field(default_factory=dict)
    confidences: list[float] = field(default_factory=list)

    @property
    def chosen(self) -> Counter[str]:
        """Measures of the calibrations, with the number of shuffles that had each."""
        return Counter(str(calibration.measure) for calibration in self.calibrations)

    @cached_property
    def risk(self) -> Risk | None:
        """What P(correct) is worth; None where nothing tells it."""
        return risk_of(self.p_correct, self.column("correct"))

    @property
    def tested(self) -> "np.ndarray[tuple[int, int], np.dtype[np.bool_]]":
        """Shape (shuffles, questions), which questions were tested."""
        return ~np.isnan(self.column("correct"))

    def column(self, name: str) -> Cells:
        """One of :data:`COLUMNS`, shape (shuffles, questions)."""
        return self.cells[:, :, COLUMNS.index(name)]


def compare(
    recorded: RecordedPool,
    splits: Sequence[Split],
    methods_of: Callable[[Split], Iterable[Method]],
    *,
    budget: int,
    equal_cost: Mapping[str, str] | None = None,
    likely: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[RowKey, Outcomes]:
    """Decide on the tested questions of every arrangement by each method, through the function that decides live.

    Args:
        recorded: the pool.
        splits: its arrangements.
        methods_of: the methods that are compared on one of them. A method is known by its name and measure, and
            arrangements in which there is none of that name leave its cells NaN.
        budget: the most responses that any method sees.
        equal_cost: a method's name -> the name of a row of ASC at the confidence at which it costs the same.
        likely: whether to decide on the calibration questions too, from whose labels P(correct) is had.
        on_progress: called with (arrangements done, arrangements).

    Returns:
        (method, measure asked for) -> what it did, in the order in which methods first came.
    """
    found: dict[RowKey, Outcomes] = {}
    for at, split in enumerate(splits):
        tested = Arrangement(recorded, split, split.tested, budget)
        calibrating = Arrangement(recorded, split, split.calibration if likely else (), budget)
        for method in methods_of(split):
            cells = tested.outcome(method)
            _enter(found, len(splits), at, method, cells, _likely(calibrating.outcome(method), cells))
            if equal_cost and (name := equal_cost.get(method.name)):
                spent = float(np.nanmean(cells[:, COLUMNS.index("tokens")]))
                control = asc_at(tested.asc_confidence(spent), name, method.spec, budget)
                cells = tested.outcome(control)
                _enter(found, len(splits), at, control, cells, _likely(calibrating.outcome(control), cells))
        if on_progress:
            on_progress(at + 1, len(splits))
    return found


def _likely(calibrating: Cells, tested: Cells) -> Cells:
    columns = [COLUMNS.index("support"), COLUMNS.index("correct")]
    return likelihoods(calibrating[:, columns], tested[:, columns])


def _enter(
    found: dict[RowKey, Outcomes], arrangements: int, at: int, method: Method, cells: Cells, p_correct: Cells
) -> None:
    # Where the safeguard does not bite, its row repeats the paper's; where it does, its own outcome comes next.
    names = (OFFLINE, SAFEGUARDED) if method.name == OFFLINE else (method.name,)
    for name in names:
        key = (name, method.spec)
        if key not in found:
            empty = np.full((arrangements, *cells.shape), np.nan)
            found[key] = Outcomes(empty, empty[:, :, 0].copy())
        held = found[key]
        held.cells[at], held.p_correct[at] = cells, p_correct
        if method.learns is None:
            held.rules[at] = method.rule
        held.confidences += [method.confidence] if method.confidence is not None else []
        held.problems += [method.problem] if method.problem else []
        held.calibrations += [method.calibration] if method.calibration and name == method.name else []
