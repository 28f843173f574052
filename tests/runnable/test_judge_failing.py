"""A comparison of answers that fails, or never ends, costs only itself."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from langchain_reasc import ReASCRunnable
from langchain_reasc.answers import free_text

from .conftest import await_no_sampling_threads, cancelled
from .fakes import Reply, Scripted, saying
from .judges import city, distinct, judging


def test_a_judge_that_fails_each_second_time_costs_those_comparisons(runner: Any) -> None:
    calls = []

    def says(same: bool) -> Reply:
        calls.append(same)
        return Reply("yes", error=None if len(calls) % 2 else ConnectionError("down"))

    reasc = ReASCRunnable(model=saying(*distinct(4)), answer=free_text(judge=judging(city, says)), max_samples=4)
    result = runner.solve(reasc, "q")
    assert result.decision.evidence == {"Paris 0": 3.0, "Paris 2": 1.0}
    assert result.notices[1:] == (
        "1 of 3 comparisons of answers by judge(judge) failed, and count as not the same; the first: "
        "ConnectionError('down')",
    )
    assert result.failures == ()


def test_after_three_failures_in_a_row_a_judge_is_left_alone(runner: Any) -> None:
    judge = judging(city, lambda same: Reply("", error=ConnectionError("down")))
    result = runner.solve(ReASCRunnable(model=saying(*distinct(8)), answer=free_text(judge=judge), max_samples=8), "q")
    assert len(judge.log.calls) == 3
    assert len(result.decision.evidence) == 8
    assert result.notices[-1].startswith("28 of 28 comparisons of answers by judge(judge) failed")


@pytest.mark.parametrize(
    "reply",
    [
        AIMessage("", tool_calls=[{"name": "compare", "args": {"same": True}, "id": "1"}]),
        AIMessage(""),
        AIMessage("Hm, hard to say."),
        AIMessage("Yes", additional_kwargs={"refusal": "I cannot compare these"}),
        AIMessage("Yes", response_metadata={"finish_reason": "content_filter"}),
        "yes",
        None,
    ],
)
def test_what_is_no_verdict_means_not_the_same(runner: Any, reply: Any) -> None:
    judged: list[str] = []

    def judge(prompt: str) -> Any:
        judged.append(prompt)
        return reply

    extract = free_text(judge=RunnableLambda(judge))
    result = runner.solve(ReASCRunnable(model=saying(*distinct(4)), answer=extract, max_samples=4), "q")
    assert len(result.decision.evidence) == 4
    [_, notice] = result.notices
    assert notice.startswith("6 of 6 comparisons of answers by judge(RunnableLambda) failed")
    # A judge that cannot tell of one pair may of the next; one that gives no message never will.
    said, calls = ("neither yes nor no", 6) if isinstance(reply, AIMessage) else ("must give an AIMessage", 3)
    assert said in notice and len(judged) == calls


def test_a_function_that_raises_costs_those_comparisons_and_is_asked_again(runner: Any) -> None:
    def same(first: str, second: str) -> bool:
        return int(first) == int(second.removesuffix(" of them"))

    model = saying(*map(Reply, ("4", "four", "five", "six", "seven", "4 of them")))
    result = runner.solve(ReASCRunnable(model=model, answer=free_text(same=same), max_samples=6), "q")
    assert result.decision.evidence["4"] == 2.0
    assert "10 of 11 comparisons of answers by same(same) failed" in result.notices[-1]
    assert "ValueError" in result.notices[-1]


@pytest.fixture
def silent(never: threading.Event) -> Iterator[Scripted]:
    """A judge that says nothing, and for which nobody may wait."""
    begun = time.monotonic()
    yield judging(city, lambda same: Reply("yes", opens=never))
    assert time.monotonic() - begun < 5


def test_a_judge_that_hangs_is_waited_for_as_long_as_it_may_take(runner: Any, silent: Scripted) -> None:
    extract = free_text(judge=silent, timeout=0.1)
    result = runner.solve(ReASCRunnable(model=saying(*distinct(4)), answer=extract, max_samples=4), "q")
    assert len(result.decision.evidence) == 4 and len(silent.log.calls) == 3
    assert "TimeoutError('no result within 0.1 s')" in result.notices[-1]


def test_the_question_s_time_ends_comparing_too(runner: Any, silent: Scripted) -> None:
    reasc = ReASCRunnable(model=saying(*distinct(4)), answer=free_text(judge=silent), max_samples=8, timeout=0.3)
    result = runner.solve(reasc, "q")
    assert (result.decision.reason, len(silent.log.calls)) == ("timeout", 1)
    assert len(result.decision.evidence) == 4


def test_a_task_that_is_cancelled_does_not_wait_for_the_judge(silent: Scripted, never: threading.Event) -> None:
    reasc = ReASCRunnable(model=saying(*distinct(4)), answer=free_text(judge=silent))
    cancelled(lambda: reasc.ainvoke("q"), lambda: bool(silent.log.calls))
    assert len(silent.log.calls) == 1
    never.set()
    await_no_sampling_threads()


def test_a_batch_that_is_given_up_does_not_wait_for_the_judge(runner: Any, never: threading.Event) -> None:
    judged = threading.Event()

    def says(same: bool) -> Reply:
        judged.set()
        return Reply("yes", opens=never)

    def script(question: str, index: int) -> Reply:
        if question == "fails":
            return Reply("", error=ValueError("bad"), opens=judged)
        return Reply(f"Paris {index}")

    reasc = ReASCRunnable(model=Scripted(script=script), answer=free_text(judge=judging(city, says)))
    begun = time.monotonic()
    with pytest.raises(Exception, match="all 4 samples failed"):
        runner.batch(reasc, ["q", "fails"])
    assert time.monotonic() - begun < 5
