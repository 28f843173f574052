"""The decision is made in launch order: it does not depend on which sample arrives first."""

import threading
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest

from langchain_reasc import ASC, Cap, ReASC, ReASCRunnable
from langchain_reasc.method import Decision, Response, Standardizer

from .fakes import TOP_K, Reply, Scripted, calibration, saying

ANSWERS = [("7", -0.5), ("8", -3.0), ("7", -1.0), ("9", -2.0), ("8", -3.5)]


def finishing_in(order: tuple[int, ...]) -> Scripted:
    """Sample order[k + 1] says its last word only after order[k] has ended."""
    ended = {index: threading.Event() for index in order}
    before: dict[int, threading.Event | None] = dict(zip(order, [None, *(ended[i] for i in order)], strict=False))

    def script(question: str, index: int) -> Reply:
        answer, logprob = ANSWERS[index]
        return Reply(f"it is {answer}", logprob, opens=before[index], wait_at=2, done=ended[index])

    return Scripted(script=script)


@pytest.mark.parametrize("order", list(permutations(range(5)))[::40], ids=str)
def test_any_order_of_completion_gives_the_same_decision(runner: Any, order: tuple[int, ...]) -> None:
    heard: list[int] = []
    reasc = ReASCRunnable(model=finishing_in(order), calibration=calibration(mean=1.0), max_samples=5, concurrency=5)
    result = runner.solve(reasc, "q", on_response=lambda response, _: heard.append(response.index))
    assert result.answer == "8"
    assert result.decision.samples == len(heard) == 5
    assert heard == [0, 1, 2, 3, 4]
    assert [response.index for response in result.responses] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("concurrency", [1, 3, 16])
def test_concurrency_bounds_the_calls_in_flight_and_changes_no_decision(runner: Any, concurrency: int) -> None:
    answers = [*"1213112111111111"]
    model = Scripted(script=lambda question, index: Reply(f"it is {answers[index]}"))
    result = runner.solve(ReASCRunnable(model=model, concurrency=concurrency), "q")
    assert model.log.most_live <= concurrency
    assert (result.answer, result.decision.samples) == ("1", 9)


class Whole(ASC):
    """A rule that reads answers, and would fail on one that is no number."""

    first_wave = None

    def __call__(self, responses: Sequence[Response]) -> Decision:
        assert all(int(one.answer) for one in responses if one.answer is not None)
        return super().__call__(responses)


@pytest.mark.parametrize(
    ("answers", "options", "launched"),
    [
        ("1", {"concurrency": 16}, 4),
        ("1", {"rule": ASC(0.85)}, 2),
        ("1", {"rule": Cap(6)}, 6),
        ("1211111", {}, 6),
        ("1", {"rule": ReASC(Standardizer(1.0, 1.0), gate=9.0), "confidence": TOP_K}, 2),
        ("1", {"rule": Whole(0.85)}, 4),
    ],
    ids=str,
)
def test_no_more_samples_are_launched_than_decide(
    runner: Any, answers: str, options: dict[str, Any], launched: int
) -> None:
    model = saying(*(Reply(f"it is {answer}", -2.5) for answer in answers))
    result = runner.solve(ReASCRunnable(model=model, **options), "q")
    assert len(result.responses) == launched
    assert result.answer == "1"
