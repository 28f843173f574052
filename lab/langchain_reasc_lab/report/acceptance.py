"""How many questions Stage 1 answers from one response, against the size of the model, across pools."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from langchain_reasc.exceptions import PoolError
from langchain_reasc_lab.replay.bootstrap import Bootstrap
from langchain_reasc_lab.replay.methods import MIXTURE, OFFLINE
from langchain_reasc_lab.replay.metrics import Estimate, Row
from langchain_reasc_lab.replay.plots import COLOURS, MARKERS, empty_figure, legend_below
from langchain_reasc_lab.report.contents import figure
from langchain_reasc_lab.report.drawing import svg
from langchain_reasc_lab.report.parameters import parameters_of
from langchain_reasc_lab.report.parts import Figure
from langchain_reasc_lab.report.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn

__all__ = ["acceptance"]

_METHODS: Final = (OFFLINE, MIXTURE)


@dataclass(frozen=True, slots=True)
class _Accepted:
    pool: str
    parameters: float | None
    shares: dict[str, Estimate]


@figure("acceptance", "Questions that the gate answers from one response", paper="Figure 4")
def acceptance(studies: Sequence[Study]) -> Figure:
    """Against the number of parameters where every pool's model tells it and they differ, else pool by pool."""
    held = [_accepted(study, alone=len(studies) == 1) for study in studies]
    sized = len({one.parameters for one in held} - {None}) > 1 and all(one.parameters for one in held)
    if sized:
        size = ["Sizes are what each pool says, or the name of its model; what --parameters says is not used here."]
    elif len(held) > 1:
        size = ["By pool, because the pools do not all tell the size of their models, or it is the same."]
    else:
        size = ["Pools of several models, named one after the other, are drawn against the size of the model."]
    html = svg(lambda: _drawn(held, sized=sized), "acceptance", "Share of questions accepted in Stage 1")
    notes = [
        "Whether the gate accepts more than it should, the accuracy of what it accepted says: see the table stage1.",
        *size,
    ]
    return Figure(html, " ".join(_words(one) for one in held), notes=notes)


def _accepted(study: Study, *, alone: bool) -> _Accepted:
    if study.measure is None:
        raise PoolError(f"{study.pool.path} has no scores or token signals, and a gate needs them")
    shares = {row.method: _share(row, study.settings.seed) for row in study.rows if row.method in _METHODS}
    if not shares:
        raise PoolError(str(study.uncalibrated or f"nothing could be calibrated on {study.pool.path}"))
    asked, told = study.settings.parameters if alone else None, parameters_of(study.pool.metadata)
    return _Accepted(study.name, asked or (told.count if told else None), shares)


def _share(row: Row, seed: int) -> Estimate:
    """The share with its interval over questions, as the table ``stage1`` has it."""
    return Bootstrap({"gated": row.outcomes.column("gated")}, row.outcomes.tested, seed=seed).share("gated")


def _words(one: _Accepted) -> str:
    size = "" if one.parameters is None else f" ({one.parameters / 1e9:.3g} billion parameters)"
    told = ", ".join(
        f"{100 * share.value:.1f} % [{100 * share.low:.1f}, {100 * share.high:.1f}] by {method}"
        for method, share in one.shares.items()
    )
    return f"{one.pool}{size}: {told} of the questions are answered from one response."


def _drawn(held: Sequence[_Accepted], *, sized: bool) -> "Drawn":
    drawn = empty_figure(5.2, 3.6 if sized else 1.2 + 0.7 * len(held))
    axes = drawn.subplots()
    for number, method in enumerate(_METHODS):
        shown = [one for one in held if method in one.shares]
        if not shown:
            continue
        if sized:
            shown = sorted(shown, key=lambda one: one.parameters or 0)
            _points(axes, shown, method, number)
        else:
            _bars(axes, held, method, number)
    if sized:
        axes.set_xscale("log")
        axes.set_xlabel("parameters (billions)")
        axes.set_ylabel("accepted (%)")
        axes.set_ylim(0, 100)
    else:
        axes.set_yticks(range(len(held)), [one.pool for one in held])
        axes.invert_yaxis()
        axes.set_xlabel("accepted (%)")
        axes.set_xlim(0, 100)
    axes.grid(alpha=0.25)
    legend_below(drawn)
    return drawn


def _points(axes: "Axes", shown: Sequence[_Accepted], method: str, number: int) -> None:
    sizes = [(one.parameters or 0) / 1e9 for one in shown]
    shares = [one.shares[method] for one in shown]
    values = [100 * share.value for share in shares]
    axes.errorbar(
        sizes, values, yerr=_errors(shares), fmt=MARKERS[number], color=COLOURS[number], elinewidth=0.8, label=method
    )
    if number == 0:
        for x, y, one in zip(sizes, values, shown, strict=True):
            axes.annotate(one.pool, (x, y), xytext=(6, 6), textcoords="offset points", fontsize=7)


def _bars(axes: "Axes", held: Sequence[_Accepted], method: str, number: int) -> None:
    there = [(at, one.shares[method]) for at, one in enumerate(held) if method in one.shares]
    places = [at + 0.35 * (number - 0.5) for at, _ in there]
    shares = [share for _, share in there]
    values = [100 * share.value for share in shares]
    axes.barh(places, values, 0.32, xerr=_errors(shares), color=COLOURS[number], ecolor="0.5", label=method)


def _errors(shares: Sequence[Estimate]) -> list[list[float]]:
    below = [max(0.0, 100 * (share.value - share.low)) for share in shares]
    above = [max(0.0, 100 * (share.high - share.value)) for share in shares]
    return [below, above]
