"""The few names that the suite needs and that are not public, in one place: adapt them here, and nothing else."""

from collections.abc import Mapping
from typing import Any

from langchain_reasc_lab import rules

from langchain_reasc.method.bayesian_vote import LogisticOdds
from langchain_reasc.method.evidence import Standardizer
from langchain_reasc.method.fields import ByField

__all__ = ["by_field", "logistic_odds", "other_rules", "statistics", "wait_until_learned"]


def statistics(mean: float, std: float, scale: float = 0.7) -> Any:
    """What a ReASC rule standardizes scores by."""
    return Standardizer(mean, std, scale)


def logistic_odds(mean: float, std: float, slope: float, intercept: float) -> Any:
    """What a BayesianVote weighs by."""
    return LogisticOdds(Standardizer(mean, std), slope, intercept)


def by_field(rule: Any, tolerance: Mapping[str, float]) -> Any:
    """A rule applied to each field of an object."""
    return ByField(rule, tolerance)


def other_rules() -> dict[str, Any]:
    """The rules of other people, by the name that accounts call them by."""
    made = [
        rules.CGES(logistic_odds(1.0, 0.5, 2.0, 0.5)),
        rules.LAggregated(((0.8, 0.2), (0.5, 0.3, 0.2))),
        rules.MajorityCertificate(),
        rules.CITE(),
        rules.SPRT(0.6, 0.05, 0.1),
        rules.AheadBy(2),
        rules.CISC(),
        rules.DeepConfFilter(),
        rules.DistriVoting(),
    ]
    return {rule.name: rule for rule in made}


def wait_until_learned(reasc: Any, *, keep: bool = True) -> None:
    """Wait until a runnable that learns online has learned from all that it has answered; keep that in its file."""
    assert reasc.calibrator.wait(20)
    if keep:
        reasc.calibrator.save()
