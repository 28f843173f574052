"""What a report can hold: tables and figures by name, each made from the pools that are studied.

To add a table, write a function that takes the studies and returns a :class:`~.parts.Table`, under the decorator
:func:`table`, and import its module in :data:`_MODULES`; a figure likewise, under :func:`figure`. Every renderer and
``reasc report --only NAME`` then know it. What a pool cannot tell, the function raises as a
:class:`~langchain_reasc.exceptions.ReASCError`; the report then says so where the table would stand.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

from langchain_reasc_lab.report.parts import Figure, Table

if TYPE_CHECKING:
    from langchain_reasc_lab.report.study import Study

__all__ = ["Entry", "contents", "figure", "table"]

_MODULES: Final[tuple[str, ...]] = (
    *("comparisons", "replayed", "stages", "acceptance", "controls", "sensitivity", "calibration_sizes", "sweeps"),
    *("components", "separation", "histogram", "bins", "latency", "token_text"),
)
"""Those whose functions make tables and figures, in the order of a report."""

Maker = Callable[[Sequence["Study"]], Any]
Function = TypeVar("Function", bound=Maker)


@dataclass(frozen=True, slots=True)
class Entry:
    """A table or a figure that can be made.

    Attributes:
        name: what ``--only`` calls it.
        title: its heading.
        paper: where the paper has it, such as ``"Table 2"``; empty where it has none.
        kind: which of the two it is.
        make: makes it from the studies, one for each pool.
    """

    name: str
    title: str
    paper: str
    kind: type[Table] | type[Figure]
    make: Maker


_ENTRIES: dict[str, Entry] = {}


def contents() -> dict[str, Entry]:
    """All tables and figures, by name, in the order of a report."""
    for module in _MODULES:
        importlib.import_module(f"langchain_reasc_lab.report.{module}")
    order = {f"langchain_reasc_lab.report.{module}": at for at, module in enumerate(_MODULES)}
    return dict(sorted(_ENTRIES.items(), key=lambda named: order.get(named[1].make.__module__, len(order))))


def table(name: str, title: str, *, paper: str = "") -> Callable[[Function], Function]:
    """Decorate the function that makes a table."""
    return _entered(name, title, paper, Table)


def figure(name: str, title: str, *, paper: str = "") -> Callable[[Function], Function]:
    """Decorate the function that makes a figure, or several: one for each pool."""
    return _entered(name, title, paper, Figure)


def _entered(name: str, title: str, paper: str, kind: type[Table] | type[Figure]) -> Callable[[Function], Function]:
    def enter(function: Function) -> Function:
        _ENTRIES[name] = Entry(name, title, paper, kind, _once(name, function))
        return function

    return enter


def _once(name: str, function: Maker) -> Maker:
    """The same, computed once for the same studies: a figure is drawn from a table that is shown as well."""

    @wraps(function)
    def make(studies: Sequence["Study"]) -> Any:
        kept = studies[0].made if studies else {}
        then, made = kept.get(name, ((), None))
        if len(then) != len(studies) or any(one is not other for one, other in zip(then, studies, strict=True)):
            made = function(studies)
            kept[name] = tuple(studies), made
        return made

    return make
