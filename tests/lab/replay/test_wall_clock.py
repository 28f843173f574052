"""Launches and latency by hand, and launches against live runs."""

from typing import Any

import numpy as np
import pytest
from langchain_reasc_lab.replay import wall_clock
from runnable.conftest import AsyncRunner, Runner
from runnable.fakes import Reply, Scripted, calibration

from langchain_reasc import ReASCRunnable
from langchain_reasc.method import ASC


def one(times: Any, needed: int, concurrency: int, **options: Any) -> tuple[int, float, float]:
    """Samples launched, latency, tokens: ten tokens a second."""
    clock = wall_clock([times], [10 * np.array(times)], [needed], concurrency=concurrency, **options)
    return int(clock.launched[0]), float(clock.latency[0]), float(clock.tokens[0])


BY_HAND: dict[str, list[tuple[Any, ...]]] = {
    "one at a time is a sum": [([3, 1, 2, 5], 3, 1, {}, (3, 6, 60)), ([3, 1, 2, 5], 1, 1, {}, (1, 3, 30))],
    "a wave takes as long as its slowest": [
        ([3, 1, 2, 5], 4, 4, {}, (4, 5, 110)),
        ([3, 1, 2, 5, 1, 9, 2, 2], 8, 4, {}, (8, 5 + 9, 250)),
    ],
    # The second wave decides after its first response, at 1; of the one that takes 9, a ninth has been generated.
    "the decision cuts off the rest": [([3, 1, 2, 5, 1, 9, 2, 1], 5, 4, {}, (8, 5 + 1, 110 + 10 + 10 + 10 + 10))],
    # The second has ended long before the first; the decision waits for the first.
    "decided in launch order": [([6, 1, 9], 2, 3, {}, (3, 6, 60 + 10 + 60))],
    "a batch that runs to its end": [([3, 1, 2, 5, 1, 9, 2, 1], 5, 4, {"cut_off": False}, (8, 5 + 9, 240))],
    "the first alone": [
        ([3, 1, 2, 5, 1], 1, 4, {"alone": True}, (1, 3, 30)),
        ([3, 1, 2, 5, 1], 2, 4, {"alone": True}, (5, 3 + 1, 30 + 4 * 10)),
    ],
    "no wave goes beyond the budget": [
        ([3, 1, 2, 0, 0], 3, 16, {"lengths": [3]}, (3, 3, 60)),
        ([3, 1, 2, 0, 0], 1, 16, {"lengths": [1]}, (1, 3, 30)),
    ],
    "responses without any time cost none": [([0, 0], 1, 2, {}, (2, 0, 0))],
}


@pytest.mark.parametrize("name", BY_HAND)
def test_launches_latency_and_tokens_by_hand(name: str) -> None:
    for times, needed, concurrency, options, expected in BY_HAND[name]:
        assert one(times, needed, concurrency, **options) == expected


@pytest.mark.parametrize(
    ("runner", "concurrency", "alone"), [(Runner(), 1, False), (AsyncRunner(), 4, False), (Runner(), 4, True)]
)
def test_a_live_run_launches_no_more(runner: Any, concurrency: int, alone: bool) -> None:
    model = Scripted(script=lambda _, index: Reply(f"the answer is {'11211111'[index]}"))  # ASC stops after seven: 6-1
    # Scores below the mean weigh as one vote, and do not reach the gate: it decides like ASC, and launches like ReASC.
    rule: dict[str, Any] = {"calibration": calibration(mean=1.0, gate=2.0)} if alone else {"rule": ASC()}
    result = runner.solve(ReASCRunnable(model=model, concurrency=concurrency, max_samples=8, **rule), "question")
    expected = wall_clock([[1] * 8], [[4] * 8], [7], concurrency=concurrency, alone=alone)
    assert result.decision.samples == len(model.log.calls) == 7 <= expected.launched[0]
