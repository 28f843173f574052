"""Find stopping rules by name and parameters, as ``rule=`` and the command line write
them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from importlib.metadata import entry_points
from typing import Any, Final

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.evidence import Standardizer
from langchain_reasc.method.horizon import CannotCatchUp, FiniteHorizon
from langchain_reasc.method.race import Race
from langchain_reasc.method.stopping import ASC, ESC, Cap, Lead, ReASC, StoppingRule

__all__ = ["rule_from_text", "rule_named", "rules"]

_OWN: Final[dict[str, type[StoppingRule]]] = {
    rule.name: rule
    for rule in (Cap, ASC, ESC, ReASC, FiniteHorizon, CannotCatchUp, Lead, Race)
}


def rules() -> dict[str, type[StoppingRule]]:
    """Return all stopping rules by name, including those that packages register as
    ``langchain_reasc.rules``.
    """
    registered = (entry.load() for entry in entry_points(group="langchain_reasc.rules"))
    return _OWN | {rule.name: rule for rule in registered}


def rule_named(
    name: str, parameters: Mapping[str, object] | None = None
) -> StoppingRule:
    """Return the rule with this name and these parameters; other parameters have their
    defaults.

    Args:
        name: a key of :func:`rules`.
        parameters: name -> value. Instead of ``statistics``, give ``mean``, ``std`` and
            ``scale``.

    Raises:
        ConfigurationError: the rule or a parameter is unknown, a parameter is missing,
            or a value is not allowed.
    """
    classes = _OWN if name in _OWN else rules()
    if name not in classes:
        raise ConfigurationError(
            f"no stopping rule is called {name!r}; there are {', '.join(classes)}"
        )
    rule = classes[name]
    arguments = dict(parameters or {})
    required = _parameters(rule)
    unknown = arguments.keys() - required.keys()
    if unknown:
        listed = ", ".join(required) or "none"
        raise ConfigurationError(
            f"the rule {name} has no parameter {_listed(unknown)}; it has {listed}"
        )
    missing = [
        parameter
        for parameter, is_required in required.items()
        if is_required and parameter not in arguments
    ]
    if missing:
        raise ConfigurationError(
            f"the rule {name} needs the parameter {_listed(missing)}"
        )
    try:
        return _build(rule, arguments)  # type: ignore[no-any-return]
    except TypeError as error:  # a value that cannot be compared with a number
        values = ", ".join(
            f"{parameter}={value!r}" for parameter, value in arguments.items()
        )
        raise ConfigurationError(
            f"the rule {name} cannot have {values}: {error}"
        ) from error


def rule_from_text(text: str, *, budget: int) -> StoppingRule:
    """Parse a rule such as ``"asc"`` or ``"esc:window=3"``.

    Args:
        text: the name, optionally followed by a colon and parameters ``name=value``,
            separated by commas. A value is a number, ``true``, ``false``, ``null`` or a
            text.
        budget: the budget of the rule, if it has a budget and the text does not give
            one.

    Raises:
        ConfigurationError: the rule does not exist, or needs other parameters.
    """
    name, _, listed = text.partition(":")
    classes = _OWN if name in _OWN else rules()
    parameters: dict[str, object] = {}
    if hasattr(classes.get(name), "budget"):
        parameters["budget"] = budget
    assignments = listed.split(",") if listed else []
    try:
        for assignment in assignments:
            parameter, equals, value = assignment.partition("=")
            if not equals:
                raise ConfigurationError(f"{assignment!r} is not name=value")
            parameters[parameter.strip()] = _value_in(value)
        return rule_named(name, parameters)
    except ConfigurationError as error:
        if name not in classes:
            raise
        raise ConfigurationError(
            f"{error}; parameters follow the name, as in esc:window=3"
        ) from None


def _value_in(text: str) -> object:
    """Parse JSON, or else return the text."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text.strip()
    return value


def _parameters(kind: type[Any]) -> dict[str, bool]:
    """Return parameter -> whether it is required. Those of ``statistics`` stand in its
    place.
    """
    parameters: dict[str, bool] = {}
    for field in fields(kind):
        if field.name == "statistics":
            parameters |= _parameters(Standardizer)
        else:
            parameters[field.name] = (
                field.default is MISSING and field.default_factory is MISSING
            )
    return parameters


def _build(rule: type[Any], parameters: Mapping[str, Any]) -> Any:
    """Build a rule. Parameters that are not its own belong to ``statistics``."""
    own_names = {field.name for field in fields(rule)}
    arguments: dict[str, Any] = {}
    statistics: dict[str, Any] = {}
    for name, value in parameters.items():
        target = arguments if name in own_names else statistics
        target[name] = value
    if "statistics" in own_names:
        arguments["statistics"] = Standardizer(**statistics)
    return rule(**arguments)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names)))
