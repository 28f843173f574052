"""Options that are checked together, once: a copy with another option is a new object, and so is what is unpickled."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import PrivateAttr

from langchain_reasc.calibration import Calibration
from langchain_reasc.complaints import Checked
from langchain_reasc.runnable.solver import Solver

__all__ = ["Recreated"]


class Recreated(Checked):
    """A face of ReASC, made anew of its options whenever it is copied. Two are ``calibrator`` and ``advised``."""

    _learns_of: ClassVar[frozenset[str]] = frozenset({"model", "calibration", "measure", "online_state"})
    """Options with which what ``"online"`` or ``"mixture"`` has learned goes."""
    _solver: Solver = PrivateAttr()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other options, checked like a new one. It shares the model and what has been learned."""
        changed = dict(update or {})
        kept = self.model_fields_set | {"calibrator", "advised"}
        if changed.keys() & self._learns_of:
            kept -= {"calibrator"}  # which learned of something else
        return self._recreated({name: getattr(self, name) for name in kept} | changed)

    def _recreated(self, fields: dict[str, Any]) -> Self:
        return type(self)(**fields)

    def __copy__(self) -> Self:
        return self.model_copy()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """A copy that shares the model and what has been learned."""
        return self.model_copy()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the configuration only: what learns starts anew, so save :attr:`learned`, or give ``online_state``."""
        kept = self.model_fields_set - {"calibrator", "advised"}
        return _remade, (type(self), {name: getattr(self, name) for name in kept})

    @property
    def learned(self) -> Calibration | None:
        """The calibration in use: what has been learned so far can be saved, and given to the next process."""
        return self._solver.learned


def _remade(kind: type[Recreated], fields: dict[str, Any]) -> Recreated:
    return kind(**fields)
