"""Waves and latency: by hand, and once against live runs whose samples take their time."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from langchain_reasc_lab.replay import wall_clock
from pydantic import Field
from runnable.conftest import AsyncRunner, Runner
from runnable.fakes import Reply, Scripted, calibration

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import ASC

TICK = 0.01
TIMES = np.array([5, 4, 7, 4, 4, 5, 4, 40])  # tokens, a tick each
ANSWERS = ["1", "1", "2", "1", "1", "1", "1", "1"]  # ASC stops after seven: 6-1


def one(times: Any, needed: int, concurrency: int, **options: Any) -> tuple[int, int, float, float]:
    """Waves, samples launched, latency, tokens: ten tokens a second."""
    clock = wall_clock([times], [10 * np.array(times)], [needed], concurrency=concurrency, **options)
    return int(clock.waves[0]), int(clock.launched[0]), float(clock.latency[0]), float(clock.tokens[0])


BY_HAND: dict[str, list[tuple[Any, ...]]] = {
    "one at a time is a sum": [([3, 1, 2, 5], 3, 1, {}, (3, 3, 6, 60)), ([3, 1, 2, 5], 1, 1, {}, (1, 1, 3, 30))],
    "a wave takes as long as its slowest": [
        ([3, 1, 2, 5], 4, 4, {}, (1, 4, 5, 110)),
        ([3, 1, 2, 5, 1, 9, 2, 2], 8, 4, {}, (2, 8, 5 + 9, 250)),
    ],
    # The second wave decides after its first response, at 1; of the one that takes 9, a ninth has been generated.
    "the decision cuts off the rest": [([3, 1, 2, 5, 1, 9, 2, 1], 5, 4, {}, (2, 8, 5 + 1, 110 + 10 + 10 + 10 + 10))],
    # The second has ended long before the first; the decision waits for the first.
    "decided in launch order": [([6, 1, 9], 2, 3, {}, (1, 3, 6, 60 + 10 + 60))],
    "a batch that runs to its end": [([3, 1, 2, 5, 1, 9, 2, 1], 5, 4, {"cut_off": False}, (2, 8, 5 + 9, 240))],
    "the first alone": [
        ([3, 1, 2, 5, 1], 1, 4, {"alone": True}, (1, 1, 3, 30)),
        ([3, 1, 2, 5, 1], 2, 4, {"alone": True}, (2, 5, 3 + 1, 30 + 4 * 10)),
    ],
    "no wave goes beyond the budget": [
        ([3, 1, 2, 0, 0], 3, 16, {"lengths": [3]}, (1, 3, 3, 60)),
        ([3, 1, 2, 0, 0], 1, 16, {"lengths": [1]}, (1, 1, 3, 30)),
    ],
    "an audit is one more and is waited for": [
        ([3, 1, 2, 5], 2, 1, {"audited": True}, (3, 3, 3 + 1 + 2, 60)),
        ([3, 1, 2, 5], 4, 4, {"audited": True}, (1, 4, 5, 110)),  # nothing is left to launch
        ([3, 1, 2, 5], 2, 2, {"audited": [True]}, (2, 3, 3 + 2, 60)),
    ],
    "responses without any time cost none": [([0, 0], 1, 2, {}, (1, 2, 0, 0))],
}


@pytest.mark.parametrize("name", BY_HAND)
def test_waves_launches_latency_and_tokens_by_hand(name: str) -> None:
    for times, needed, concurrency, options, expected in BY_HAND[name]:
        assert one(times, needed, concurrency, **options) == expected


def test_what_cannot_be() -> None:
    with pytest.raises(ConfigurationError, match="concurrency is 1 sample at once or more, got 0"):
        one([1, 2], 1, 0)
    with pytest.raises(ConfigurationError, match="question 0 has 2 responses, and its decision cannot rest on 3"):
        one([1, 2], 3, 1)
    with pytest.raises(ConfigurationError, match="cannot rest on 0 of them"):
        one([1, 2], 0, 1)


class Sleeping(Scripted):
    """Takes a tick for each token, or longer on a busy machine; what it took is kept."""

    seconds: Any = Field(default_factory=dict)

    def _stream(self, messages: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        begun = time.perf_counter()
        for chunk in super()._stream(messages, *args, **kwargs):
            time.sleep(TICK if chunk.message.content else 0)
            yield chunk
        self.seconds[self._begin(messages)[1]] = time.perf_counter() - begun

    async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        begun = time.perf_counter()
        async for chunk in super()._astream(messages, *args, **kwargs):
            await asyncio.sleep(TICK if chunk.message.content else 0)
            yield chunk
        self.seconds[self._begin(messages)[1]] = time.perf_counter() - begun

    def taken(self, question: str) -> list[float]:
        """What each sample took; those that did not end, at the rate of the others."""
        held = {index: seconds for (asked, index), seconds in self.seconds.items() if asked == question}
        tick = sum(held.values()) / sum(int(TIMES[index]) for index in held)
        return [held.get(index, tick * tokens) for index, tokens in enumerate(TIMES.tolist())]


@pytest.mark.parametrize(
    ("runner", "concurrency", "alone"), [(Runner(), 1, False), (AsyncRunner(), 4, False), (Runner(), 4, True)]
)
def test_a_live_run_takes_as_long(runner: Any, concurrency: int, alone: bool) -> None:
    """Of the eighth response, which takes 40 ticks, neither the time nor most tokens are spent."""
    replies = [Reply("so " * (n - 4) + f"the answer is {a}") for n, a in zip(TIMES.tolist(), ANSWERS, strict=True)]
    model = Sleeping(script=lambda _, index: replies[index])
    # Scores below the mean weigh as one vote, and do not reach the gate: it decides like ASC, and launches like ReASC.
    rule: dict[str, Any] = {"calibration": calibration(mean=1.0, gate=2.0)} if alone else {"rule": ASC()}
    reasc = ReASCRunnable(model=model, concurrency=concurrency, max_samples=8, **rule)
    beyond = np.inf
    for question in map(str, range(5)):  # the first warms up; a busy machine may come between
        model.log.calls.clear()
        begun = time.perf_counter()
        result = runner.solve(reasc, question)
        took = time.perf_counter() - begun
        expected = wall_clock([model.taken(question)], [TIMES], [7], concurrency=concurrency, alone=alone)
        assert result.decision.samples == 7
        assert len(model.log.calls) == expected.launched[0]
        assert took >= 0.95 * expected.latency[0]
        beyond = min(beyond, (took - float(expected.latency[0])) / TICK)
        if beyond < 10 and abs(result.usage.output_tokens - expected.tokens[0]) <= 6:
            return
    pytest.fail(f"it took {beyond:.1f} ticks more than it should; to wait for the eighth takes 35 more")
