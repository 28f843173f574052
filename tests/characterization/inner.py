"""The few names that the suite needs and that are not public, in one place: adapt them here, and nothing else."""

from collections.abc import Mapping
from typing import Any

from langchain_reasc_lab import rules
from langchain_reasc_lab.report.weights import OTHER_WEIGHTS, OtherWeight

from langchain_reasc.method.evidence import Standardizer
from langchain_reasc.method.fields import ByField

__all__ = ["by_field", "other_rules", "other_weights", "statistics", "wait_until_learned"]


def statistics(mean: float, std: float, scale: float = 0.7) -> Any:
    """What a ReASC rule standardizes scores by."""
    return Standardizer(mean, std, scale)


def by_field(rule: Any, tolerance: Mapping[str, float]) -> Any:
    """A rule applied to each field of an object."""
    return ByField(rule, tolerance)


def other_rules() -> dict[str, Any]:
    """The rules of other people, by the name that accounts call them by."""
    made = [rules.CISC(), rules.DeepConfFilter()]
    return {rule.name: rule for rule in made}


def other_weights(rule: Any) -> dict[str, Any]:
    """A ReASC rule with each of the other weights of the paper's appendix."""
    return {formula: OtherWeight.instead_of(rule, formula) for formula in OTHER_WEIGHTS}


def wait_until_learned(reasc: Any, *, keep: bool = True) -> None:
    """Wait until a runnable that learns online has learned from all that it has answered; keep that in its file."""
    assert reasc.calibrator.wait(20)
    if keep:
        reasc.calibrator.save()
