"""All stopping rules by name, as calibration files name them with their parameters."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib.metadata import entry_points
from typing import Any, Final

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.bayesian_vote import BayesianVote
from langchain_reasc.method.evidence import Standardizer
from langchain_reasc.method.horizon import CannotCatchUp, FiniteHorizon
from langchain_reasc.method.odds import LogisticOdds
from langchain_reasc.method.stopping import ASC, ESC, Cap, ReASC, StoppingRule

__all__ = ["rule_named", "rules"]

_OWN: Final = (Cap, ASC, ESC, ReASC, FiniteHorizon, CannotCatchUp, BayesianVote)


def rules() -> dict[str, type[StoppingRule]]:
    """All stopping rules by name, with those that packages register as entry points (``langchain_reasc.rules``)."""
    registered = (entry.load() for entry in entry_points(group="langchain_reasc.rules"))
    return {rule.called: rule for rule in (*_OWN, *registered)}


_NESTED: Final[dict[str, type[Any]]] = {"statistics": Standardizer, "odds": LogisticOdds}
"""Parameters that are given by the parameters of their own."""


def rule_named(name: str, parameters: Mapping[str, object] | None = None) -> StoppingRule:
    """The rule of that name with these parameters; those that are not given have their defaults.

    Args:
        name: a key of :func:`rules`.
        parameters: name -> value. A rule's ``statistics`` are given one by one, as ``mean``, ``std`` and ``scale``; its
            ``odds`` as these with ``slope`` and ``intercept``.

    Raises:
        ConfigurationError: no rule or parameter is called that, one is missing, or a value is not allowed.
    """
    known = {rule.called: rule for rule in _OWN}
    known = known if name in known else rules()
    if name not in known:
        raise ConfigurationError(f"no stopping rule is called {name!r}; there are {', '.join(known)}")
    rule, given = known[name], dict(parameters or {})
    needed = _parameters(rule)
    if unknown := given.keys() - needed.keys():
        known = ", ".join(needed) or "none"
        raise ConfigurationError(f"the rule {name} has no parameter {_listed(unknown)}; it has {known}")
    if missing := {one for one, required in needed.items() if required} - given.keys():
        raise ConfigurationError(f"the rule {name} needs the parameter {_listed(missing)}")
    try:
        return _made(rule, given)  # type: ignore[no-any-return]
    except TypeError as error:  # a value that cannot be compared with a number
        raise ConfigurationError(f"the rule {name} cannot have {_shown(given)}: {error}") from error


def _parameters(rule: type[Any]) -> dict[str, bool]:
    """Parameter -> whether it must be given."""
    found: dict[str, bool] = {}
    for one in fields(rule):
        if one.name in _NESTED:
            found |= _parameters(_NESTED[one.name])
        else:
            found[one.name] = one.default is MISSING and one.default_factory is MISSING
    return found


def _made(kind: type[Any], given: Mapping[str, Any]) -> Any:
    """A rule, or what it is made of, from those of the parameters that are its own."""
    own = {one.name for one in fields(kind)}
    parts = {name: _made(_NESTED[name], given) for name in own & _NESTED.keys()}
    return kind(**parts, **{name: value for name, value in given.items() if name in own})


def _listed(names: set[str]) -> str:
    return ", ".join(map(repr, sorted(names)))


def _shown(given: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given.items())
