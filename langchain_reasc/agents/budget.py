"""The budget of an agent's run: what it has cost so far, and what is left."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final, NotRequired, TypedDict

from langchain_reasc.exceptions import ConfigurationError, missing_extra
from langchain_reasc.runnable.question import CallBudget, SpendingListener

try:
    from langchain.agents.middleware.types import (
        AgentMiddleware,
        AgentState,
        PrivateStateAttr,
    )
    from langgraph.runtime import Runtime
    from langgraph.types import Overwrite
except ImportError as error:
    raise missing_extra("agents", "langchain") from error

_REMEMBERED: Final = 1024  # steps of agents that failed and were not made again


class Spent(TypedDict, total=False):
    """The cost so far, as plain data, because the agent's state (and so every
    checkpoint) contains it.

    Attributes:
        tokens: prompt and generated tokens of all samples.
        samples: samples launched.
        seconds: the time of the model calls.
    """

    tokens: int
    samples: int
    seconds: float


def added(before: Spent, more: Spent) -> Spent:
    """Add up the costs of parallel branches. This is the reducer of the agent's state."""
    return Spent(
        tokens=before.get("tokens", 0) + more.get("tokens", 0),
        samples=before.get("samples", 0) + more.get("samples", 0),
        seconds=before.get("seconds", 0.0) + more.get("seconds", 0.0),
    )


class SpendingState(AgentState[Any]):
    """The agent's state, with the cost of the model calls of a run so far."""

    reasc_spent: NotRequired[Annotated[Spent, PrivateStateAttr, added]]


class RunBudget:
    """The budget of an agent's run.

    Args:
        limits: ``tokens``, ``samples`` and ``seconds`` -> the limit; None for no limit.

    Raises:
        ConfigurationError: a limit is not a number above zero.
    """

    def __init__(self, **limits: float | None) -> None:
        self.limits = {
            name: limit for name, limit in limits.items() if limit is not None
        }
        for name, limit in self.limits.items():
            kind = "a whole number"
            is_number = isinstance(limit, int)
            if name == "seconds":
                kind = "a number"
                is_number = isinstance(limit, int | float)
            # Python's booleans are whole numbers.
            if not is_number or isinstance(limit, bool) or not limit > 0:
                raise ConfigurationError(
                    f"max_run_{name} must be {kind} above 0, or None, got {limit!r}"
                )

    def __str__(self) -> str:
        return ", ".join(
            f"max_run_{name}={limit:g}" for name, limit in self.limits.items()
        )

    def left(self, spent: Mapping[str, Any]) -> dict[str, float]:
        """Return the rest of each limit."""
        return {name: limit - spent.get(name, 0) for name, limit in self.limits.items()}

    def is_spent(self, spent: Mapping[str, Any]) -> bool:
        """Return whether nothing more may be spent."""
        return any(limit <= 0 for limit in self.left(spent).values())

    def call_budget(
        self, spent: Mapping[str, Any], on_spent: SpendingListener
    ) -> CallBudget:
        """Return the limits for the next model call.

        A step of an agent needs at least one response, so if nothing is left, the call
        takes one sample. The evidence that is sufficient does not depend on the rest of
        the budget.
        """
        if self.is_spent(spent):
            return CallBudget(samples=1, on_spent=on_spent)
        limits: dict[str, Any] = self.left(spent)
        return CallBudget(**limits, on_spent=on_spent)


class Ledger:
    """The costs of failed tries of an agent's steps, until the same step succeeds.

    LangGraph discards what a failed step would have written to the state. The step may
    be repeated: by an outer middleware, by a retry policy, or when the run is resumed
    from its checkpoint. It is then charged for earlier tries.
    """

    def __init__(self) -> None:
        self._failed: dict[str, Spent] = {}
        self._lock = threading.Lock()

    @contextmanager
    def account(self, task: str) -> Iterator[Spent]:
        """Keep the account of one try of a step, which starts with the cost of earlier
        tries.

        If the try fails, its account is kept for the next try. If too many steps never
        succeed, the oldest is forgotten. With an empty ``task`` nothing is kept.
        """
        start = time.monotonic()
        spent = self._failed.pop(task, Spent())
        try:
            yield spent
        except BaseException:
            if task:
                self.add_cost(spent, seconds=time.monotonic() - start)
                with self._lock:
                    self._failed[task] = spent
                    if len(self._failed) > _REMEMBERED:
                        del self._failed[next(iter(self._failed))]
            raise
        self.add_cost(spent, seconds=time.monotonic() - start)

    def add_cost(
        self, spent: Spent, tokens: int = 0, samples: int = 0, seconds: float = 0.0
    ) -> None:
        """Add to an account what a call of the model has cost, or how long it took."""
        with self._lock:
            spent.update(
                added(spent, Spent(tokens=tokens, samples=samples, seconds=seconds))
            )


class ResetsBudget(AgentMiddleware[SpendingState, Any, Any]):
    """The hooks of a :class:`ReASCMiddleware` with a budget for a run."""

    def before_agent(
        self, state: SpendingState, runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        """Reset the budget for a new run; a resumed run does not call this."""
        if not state.get("reasc_spent"):
            return None
        # A plain update would go through the reducer, which adds.
        return {"reasc_spent": Overwrite(Spent())}

    async def abefore_agent(
        self, state: SpendingState, runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        """The asynchronous :meth:`before_agent`."""
        return self.before_agent(state, runtime)
