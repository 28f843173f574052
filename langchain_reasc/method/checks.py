"""What the parameters of stopping rules must be, and what becomes of a response without a score."""

from numbers import Integral

from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.evidence import Standardizer

__all__ = ["check_budget", "check_on_missing", "check_probability", "check_statistics", "missing_score"]


def check_probability(name: str, value: float) -> None:
    """Refuse what is no probability between one half, which no votes at all give already, and one."""
    if not 0.5 < value < 1.0:
        raise ConfigurationError(f"{name} is a probability above 0.5 and below 1, got {value}")


def check_budget(samples: int) -> None:
    """Refuse a budget that is no whole number of at least one response."""
    if not isinstance(samples, Integral) or samples < 1:
        raise ConfigurationError(f"a budget is a whole number of at least 1 sample, got {samples}")


def check_statistics(statistics: Standardizer) -> None:
    """Refuse statistics that standardize nothing."""
    if not statistics.std > 0:
        raise ConfigurationError(f"σ must be above zero, got {statistics.std}")


def check_on_missing(value: str) -> None:
    """Refuse what is neither of the two ways to take a response without a score."""
    if value not in ("error", "count"):
        raise ConfigurationError(f"on_missing_confidence is 'error' or 'count', got {value!r}")


def missing_score() -> LogprobsUnavailable:
    """Build the error for a response without a score, where ``on_missing_confidence`` is ``"error"``."""
    return LogprobsUnavailable(
        "a response has no confidence score; make the model return logprobs, or accept plain counting with "
        "on_missing_confidence='count'"
    )
