"""Calls that end early, whoever ends them: nobody waits, nothing more is paid for, and no run stays open."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import SampleTimeout, SamplingError

from .conftest import cancelled
from .fakes import TOP_K, Reply, Scripted


def scripted(never: threading.Event, hangs: Any) -> Scripted:
    def script(question: str, index: int) -> Reply:
        return Reply("it is 1", -1.0 - 0.1 * len(question), opens=never if hangs(question, index) else None, wait_at=1)

    return Scripted(script=script)


def test_a_failing_input_cuts_off_what_runs_beside_it(runner: Any, never: threading.Event, runs: Any) -> None:
    def script(question: str, index: int) -> Reply:
        return Reply("", error=ValueError("bad")) if question == "bad" else Reply("it is 1", opens=never, wait_at=1)

    begun = time.monotonic()
    with pytest.raises(SamplingError, match="bad"):
        runner.batch(ReASCRunnable(model=Scripted(script=script)), ["slow", "bad", "slow"], {"callbacks": [runs]})
    assert time.monotonic() - begun < 5


def test_a_time_limit_ends_the_runs_of_samples_that_hang(runner: Any, never: threading.Event, runs: Any) -> None:
    reasc = ReASCRunnable(model=scripted(never, lambda q, index: index == 1), sample_timeout=0.3, concurrency=3)
    result = runner.solve(reasc, "q", {"callbacks": [runs]})
    assert isinstance(result.failures[0], SampleTimeout)
    assert runs.runs.keys() == runs.ended.keys() and not never.is_set()  # its run has ended, though it still hangs


def test_the_time_of_a_question_runs_once_in_a_mixture_batch(runner: Any, never: threading.Event) -> None:
    """The first sample takes most of it, and every other hangs."""

    def script(question: str, index: int) -> Reply:
        time.sleep(0 if index else 1.0)
        return Reply("it is 1", -1.0 - len(question), opens=never if index else None)

    model = Scripted(script=script)
    reasc = ReASCRunnable(model=model, calibration="mixture", measure=TOP_K, timeout=1.5, max_samples=4)
    begun = time.monotonic()
    [account] = runner.accounts(reasc, ["a"])
    assert time.monotonic() - begun < 2.2, "the time of the first sample counts"
    assert account["reason"] == "timeout"


@pytest.mark.parametrize("call", ["abatch", "mixture abatch"])
def test_cancelling_leaves_no_run_open(call: str, never: threading.Event, runs: Any) -> None:
    model = scripted(never, lambda q, index: True)
    # The first samples of a mixture are drawn before anything is decided.
    learning: Any = {"calibration": "mixture", "measure": TOP_K} if "mixture" in call else {}
    inputs, config = [f"q{at}" for at in range(16)], {"callbacks": [runs]}

    reasc: Any = ReASCRunnable(model=model, concurrency=16, **learning)
    cancelled(lambda: reasc.abatch(inputs, config), lambda: sum(model.log.tokens.values()) >= 16)
    assert len(runs.of("model")) >= 16
    assert {runs.ended[run_id] for run_id in runs.of("model")} == {"end"}


class Deaf(Scripted):
    """Sample 4 goes on for half a minute, and does not hear that it is cancelled."""

    async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if self._begin(messages)[1][1] != 4:
            async for chunk in super()._astream(messages, *args, **kwargs):
                yield chunk
            return
        ends = time.monotonic() + 30
        while time.monotonic() < ends:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
            yield ChatGenerationChunk(message=AIMessageChunk(content="and so on"))


def solved_by_the_deaf(**options: Any) -> Any:
    deaf = Deaf(script=lambda question, index: Reply("it is 42"))
    return asyncio.run(ReASCRunnable(model=deaf, **options).asolve("q"))


def test_the_decision_ends_the_sample_all_the_same() -> None:
    result = solved_by_the_deaf(concurrency=5)
    assert (result.answer, result.decision.samples, result.responses[4].status) == ("42", 4, "cancelled")


def test_its_time_limit_ends_it_all_the_same() -> None:
    result = solved_by_the_deaf(concurrency=5, sample_timeout=0.2, confidence=0.97)  # five agreeing answers
    assert (result.answer, result.decision.samples) == ("42", 5)
    assert isinstance(result.responses[4].error, SampleTimeout)
