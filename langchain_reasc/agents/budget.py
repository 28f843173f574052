"""What the model calls of an agent's run may cost together, and what they have cost so far."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, TypedDict

from langchain_reasc.exceptions import ConfigurationError

__all__ = ["Ledger", "RunBudget", "Spent", "Unsettled", "added"]

_REMEMBERED: Final = 1024  # model calls that failed and were not made again


class Spent(TypedDict, total=False):
    """What has been spent, as plain data: it is kept in the agent's state, and so in every checkpoint.

    Attributes:
        tokens: prompt and generated tokens of all samples.
        samples: samples launched.
        seconds: how long the model calls took.
    """

    tokens: int
    samples: int
    seconds: float


def added(before: Spent, more: Spent) -> Spent:
    """The reducer of the agent's state: the model calls of parallel branches add up."""
    return Spent(
        tokens=before.get("tokens", 0) + more.get("tokens", 0),
        samples=before.get("samples", 0) + more.get("samples", 0),
        seconds=before.get("seconds", 0.0) + more.get("seconds", 0.0),
    )


@dataclass(frozen=True, kw_only=True)
class RunBudget:
    """What a run may spend, or has left; None where there is no limit.

    Attributes:
        tokens: prompt and generated tokens.
        samples: samples launched.
        seconds: seconds in model calls.
    """

    tokens: int | None = None
    samples: int | None = None
    seconds: float | None = None

    def checked(self) -> "RunBudget":
        """Itself.

        Raises:
            ConfigurationError: a limit is no number above zero.
        """
        for field in fields(self):
            limit, whole = getattr(self, field.name), field.name != "seconds"
            if limit is None:
                continue
            fits = isinstance(limit, int if whole else int | float) and not isinstance(limit, bool)
            if not fits or not limit > 0:
                kind = "a whole number" if whole else "a number"
                raise ConfigurationError(f"max_run_{field.name} must be {kind} above 0, or None, got {limit!r}")
        return self

    def __str__(self) -> str:
        limits = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ", ".join(f"max_run_{name}={limit:g}" for name, limit in limits if limit is not None)

    @property
    def unlimited(self) -> bool:
        """Whether anything may be spent."""
        return self == RunBudget()

    @property
    def gone(self) -> bool:
        """Whether nothing more may be spent."""
        return any(left is not None and left <= 0 for left in (self.tokens, self.samples, self.seconds))

    def left(self, spent: Spent) -> "RunBudget":
        """What is left of it."""
        return RunBudget(
            tokens=None if self.tokens is None else self.tokens - spent.get("tokens", 0),
            samples=None if self.samples is None else self.samples - spent.get("samples", 0),
            seconds=None if self.seconds is None else self.seconds - spent.get("seconds", 0.0),
        )

    def within(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options of a model call that keep it within the budget.

        A step of an agent needs one response, even if only to see that it must not act. So where nothing is left, the
        call takes one sample. How much evidence is sufficient does not depend on what is left.

        Args:
            options: the options that were given.
        """
        if self.gone:
            return {**options, "sample_budget": 1}
        limits = {"sample_budget": self.samples, "token_budget": self.tokens, "time_budget": self.seconds}
        least = {
            name: limit if options.get(name) is None else min(options[name], limit)
            for name, limit in limits.items()
            if limit is not None
        }
        return {**options, **least}


class Ledger:
    """What is spent on one model call of an agent, tries that failed too.

    Samples and tokens are reported by the model, also where the call fails; the clock runs around it all.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._begun = clock, clock()
        self._tokens = self._samples = 0
        self._lock = threading.Lock()

    def book(self, tokens: int, samples: int) -> None:
        """Add what the model tells of one of its calls."""
        with self._lock:
            self._tokens += tokens
            self._samples += samples

    @property
    def spent(self) -> Spent:
        """What has been spent up to now."""
        return Spent(tokens=self._tokens, samples=self._samples, seconds=self._clock() - self._begun)


class Unsettled:
    """What failed model calls have cost, until the same step of the agent succeeds.

    LangGraph throws away what a failed step would have written to the state. The step may be made again: by a
    middleware outside, by a retry policy, or when the run is taken up from its checkpoint. It then settles this, too.
    """

    def __init__(self) -> None:
        self._spent: dict[str, Spent] = {}
        self._lock = threading.Lock()

    def keep(self, task: str, spent: Spent) -> None:
        """Keep what a failed try of a step has cost; of the oldest steps that never succeeded it is forgotten."""
        with self._lock:
            self._spent[task] = added(self._spent.pop(task, Spent()), spent)
            if len(self._spent) > _REMEMBERED:
                del self._spent[next(iter(self._spent))]

    def of(self, task: str) -> Spent:
        """What the failed tries of a step have cost."""
        return self._spent.get(task, Spent())

    def settle(self, task: str) -> Spent:
        """The same, and forget it."""
        with self._lock:
            return self._spent.pop(task, Spent())
