"""All stopping rules by name, as calibration files name them with their parameters."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Final

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.bayesian_vote import BayesianVote
from langchain_reasc.method.evidence import Standardizer
from langchain_reasc.method.horizon import CannotCatchUp, FiniteHorizon
from langchain_reasc.method.others import CGES, CISC, DeepConfFilter, DistriVoting, LAggregated, MajorityCertificate
from langchain_reasc.method.stopping import ASC, ESC, Cap, ReASC, StoppingRule

__all__ = ["RULES", "rule_named"]

RULES: Final[dict[str, type[StoppingRule]]] = {
    rule.called: rule
    for rule in (
        Cap,
        ASC,
        ESC,
        ReASC,
        FiniteHorizon,
        CannotCatchUp,
        BayesianVote,
        CGES,
        LAggregated,
        MajorityCertificate,
        CISC,
        DeepConfFilter,
        DistriVoting,
    )
}
"""What accounts call a rule -> the rule."""

_STATISTICS: Final = "statistics"


def rule_named(name: str, parameters: Mapping[str, object] | None = None) -> StoppingRule:
    """The rule of that name with these parameters; those that are not given have their defaults.

    Args:
        name: a key of :data:`RULES`.
        parameters: name -> value. A rule's ``statistics`` are given one by one, as ``mean``, ``std`` and ``scale``.

    Raises:
        ConfigurationError: no rule or parameter is called that, one is missing, or a value is not allowed.
    """
    if name not in RULES:
        raise ConfigurationError(f"no stopping rule is called {name!r}; there are {', '.join(RULES)}")
    rule, given = RULES[name], dict(parameters or {})
    needed = _parameters(rule)
    if unknown := given.keys() - needed.keys():
        known = ", ".join(needed) or "none"
        raise ConfigurationError(f"the rule {name} has no parameter {_listed(unknown)}; it has {known}")
    if missing := {one for one, required in needed.items() if required} - given.keys():
        raise ConfigurationError(f"the rule {name} needs the parameter {_listed(missing)}")
    try:
        return rule(**_with_statistics(rule, given))
    except TypeError as error:  # a value that cannot be compared with a number
        raise ConfigurationError(f"the rule {name} cannot have {_shown(given)}: {error}") from error


def _parameters(rule: type[Any]) -> dict[str, bool]:
    """Parameter -> whether it must be given."""
    found: dict[str, bool] = {}
    for one in fields(rule):
        if one.name == _STATISTICS:
            found |= _parameters(Standardizer)
        else:
            found[one.name] = one.default is MISSING and one.default_factory is MISSING
    return found


def _with_statistics(rule: type[Any], given: dict[str, Any]) -> dict[str, Any]:
    if _STATISTICS not in (one.name for one in fields(rule)):
        return given
    own = [one.name for one in fields(Standardizer)]
    rest = {name: value for name, value in given.items() if name not in own}
    return {_STATISTICS: Standardizer(**{name: given[name] for name in own if name in given}), **rest}


def _listed(names: set[str]) -> str:
    return ", ".join(map(repr, sorted(names)))


def _shown(given: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given.items())
