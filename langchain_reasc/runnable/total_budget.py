"""Spend one budget over all inputs of a batch: choose which of them is sampled next."""

import math
from typing import NamedTuple

from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc.method.decision import Decision
from langchain_reasc.method.horizon import most_gain_first

# in which as many samples are drawn as there are inputs; with fewer, too many go where
# they do no good
_ROUNDS = 8


class Sampled(NamedTuple):
    """An input that was sampled: its decision so far, samples and tokens; no decision
    once it is answered or failed.
    """

    decision: Decision | None
    launched: int
    remaining: int
    tokens: int


class TotalBudget:
    """Tokens or samples that all inputs of a call share.

    Each input is sampled once; then, round after round, those are that gain most (see
    :mod:`langchain_reasc.method.horizon`), one sample each. Tokens in flight may exceed
    the budget.

    Args:
        tokens: prompt and generated tokens that all inputs may cost together; None for
            any number.
        samples: samples, failed ones too, that all may take; None for any number.
        inputs: how many inputs share them.
        together: samples of a round at most; None for an eighth of the inputs.
        concurrency: inputs that are sampled first, to learn what a sample costs, where
            tokens count.

    Raises:
        ConfigurationError: not even a sample, or a token, for each input.
    """

    def __init__(
        self,
        tokens: int | None,
        samples: int | None,
        *,
        inputs: int,
        together: int | None,
        concurrency: int,
    ) -> None:
        for name, limit in (("total_samples", samples), ("total_tokens", tokens)):
            if limit is not None and limit < inputs:
                raise ConfigurationError(
                    f"{name}={limit} is not enough for {inputs} inputs, each of which "
                    "takes one sample at least"
                )
        self._tokens = tokens
        self._samples = samples
        self._inputs = inputs
        self.waiting = range(inputs)
        self._together = together or max(concurrency, math.ceil(inputs / _ROUNDS))
        self._concurrency = concurrency
        self._states: dict[int, Sampled] = {}

    def note_sample(self, index: int, state: Sampled) -> None:
        """Take note of a sample of an input."""
        self._states[index] = state

    def next_inputs(self) -> list[int]:
        """Return the inputs to sample now, once each; none when the budget is spent, or
        no sample would help.
        """
        if not self.waiting:
            return self._most_gain_first()
        count = self._inputs
        if self._tokens is not None:
            count = self._concurrency
            if self._launched:
                remaining = max(0, self._tokens - self._spent)
                count = int(remaining // self._cost)
        indices = list(self.waiting[:count])
        self.waiting = self.waiting[count:]
        return indices

    def error_unsampled(self) -> SamplingError:
        """Return the error of an input that was not even sampled once."""
        return SamplingError(
            f"not answered: of total_tokens={self._tokens}, {self._spent} are spent "
            f"and {len(self.waiting)} of {self._inputs} inputs have not been sampled "
            f"once, at about {self._cost:.0f} tokens each; allow more, or give fewer "
            "inputs"
        )

    def _most_gain_first(self) -> list[int]:
        samples = math.inf
        if self._samples is not None:
            samples = self._samples - self._launched
        tokens = math.inf
        if self._tokens is not None:
            tokens = self._tokens - self._spent
        indices: list[int] = []
        decisions: list[Decision] = []
        horizons: list[int] = []
        costs: list[float] = []
        for index, state in sorted(self._states.items()):
            if state.decision is None:
                continue
            cost = self._cost_of(state)
            indices.append(index)
            decisions.append(state.decision)
            horizons.append(int(min(state.remaining, samples, tokens / cost)))
            costs.append(cost)
        chosen: list[int] = []
        for place in most_gain_first(decisions, horizons, costs):
            if len(chosen) < min(samples, self._together) and costs[place] <= tokens:
                chosen.append(indices[place])
                tokens -= costs[place]
        return chosen

    def _cost_of(self, state: Sampled) -> float:
        """Return what a further sample of an input is expected to cost: tokens where
        they count, else 1.
        """
        if self._tokens is None:
            return 1.0  # so that the most gain comes first, whatever it costs
        if not state.tokens:
            return self._cost
        return state.tokens / state.launched

    @property
    def _launched(self) -> int:
        return sum(state.launched for state in self._states.values())

    @property
    def _spent(self) -> int:
        return sum(state.tokens for state in self._states.values())

    @property
    def _cost(self) -> float:
        """Tokens of a sample, so far."""
        return max(1.0, self._spent / max(1, self._launched))
