"""Samples, and questions, that take too long: they cost themselves, and what has ended decides."""

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_reasc_backend.bridge import AsyncStream
from runnable.fakes import Reply, Scripted, Unforeseen, saying

from langchain_reasc import ReASCRunnable
from langchain_reasc.answers import free_text, message_extractor
from langchain_reasc.exceptions import SampleTimeout
from langchain_reasc.sampling import QuestionClock
from sampling.test_parallel import Parallel, parallel

pytestmark = pytest.mark.full

SOON = 0.5  # seconds; on a busy machine too, what does not hang must end by then


def hanging(never: threading.Event, *indices: int) -> Scripted:
    slow = Reply("it is 42", opens=never, wait_at=2)
    return Scripted(script=lambda question, index: slow if index in indices else Reply("it is 42"))


def solved(runner: Any, never: threading.Event, model: Scripted, config: Any = None, **options: Any) -> Any:
    try:
        return runner.solve(ReASCRunnable(model=model, **options), "q", config)
    finally:
        never.set()


def test_a_sample_that_takes_too_long_costs_only_itself(runner: Any, never: threading.Event) -> None:
    result = solved(runner, never, hanging(never, 1), sample_timeout=SOON, concurrency=3)
    assert [response.status for response in result.responses][:4] == ["complete", "failed", "complete", "complete"]
    assert (result.answer, result.decision.reason) == ("42", "agreement")
    [error] = result.failures
    assert isinstance(error, SampleTimeout)
    assert isinstance(error, TimeoutError)
    assert f"sample_timeout={SOON:g} s" in str(error)
    assert result.responses[1].message.text == "it is"  # paid for, so kept


def test_models_that_sample_in_parallel_are_cancelled(runner: Any, never: threading.Event, runs: Any) -> None:
    result = solved(runner, never, parallel(blocks=[2]), {"callbacks": [runs]}, sample_timeout=SOON, concurrency=3)
    assert [response.status for response in result.responses][:3] == ["complete", "complete", "failed"]
    assert isinstance(result.failures[0], SampleTimeout)
    assert result.responses[2].message.text == "it is 1"
    assert "error" in {runs.ended[run_id] for run_id in runs.of("model")}


def deaf(model: Scripted) -> Any:
    """A step that no cut-off and no cancellation ends."""

    async def invoke(prompt: Any, config: Any) -> Any:
        running = asyncio.ensure_future(model.ainvoke(prompt, config))
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(running)
        return running.result()

    return RunnableLambda(lambda prompt, config: model.invoke(prompt, config), invoke)


@pytest.mark.parametrize(
    ("hangs", "status", "failures"),
    [(1, "failed", [SampleTimeout]), (4, "cancelled", [])],
    ids=["before the decision", "after it"],
)
def test_what_does_not_end_is_left_behind(
    runner: Any, never: threading.Event, hangs: int, status: str, failures: list[type], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langchain_reasc.sampling.drawing._GRACE", 0.1)
    ends = threading.Timer(2.5, never.set)  # by itself, as an event loop that is closed waits for it
    ends.start()
    model = deaf(hanging(never, hangs))
    result = solved(runner, never, model, rule=Unforeseen(), concurrency=hangs + 1, sample_timeout=SOON)
    ends.cancel()
    assert (result.answer, result.responses[hangs].status) == ("42", status)
    assert [type(error) for error in result.failures] == failures


@pytest.mark.sync_only  # an async step that swallows its cancellation is waited for
def test_a_question_returns_soon_after_its_time_though_its_samples_do_not_end(
    runner: Any, never: threading.Event
) -> None:
    begun = time.monotonic()
    with pytest.raises(SampleTimeout):
        solved(runner, never, deaf(hanging(never, *range(16))), timeout=SOON)
    assert time.monotonic() - begun < 10  # the samples would hang for longer


@pytest.mark.parametrize("limit", [{}, {"timeout": SOON}], ids=["no limit", "timeout"])
@pytest.mark.parametrize("kind", [lambda find: find, message_extractor], ids=["text", "message"])
def test_a_function_that_finds_answers_holds_no_event_loop(kind: Any, limit: dict[str, float]) -> None:
    loop_ran: list[bool] = []

    async def main() -> Any:
        loop = asyncio.get_running_loop()

        def find(response: Any) -> str:
            ran = threading.Event()
            loop.call_soon_threadsafe(ran.set)
            loop_ran.append(ran.wait(10))  # for ever, where the loop waits for this function
            if limit and len(loop_ran) == 2:
                time.sleep(2 * SOON)
            return "42"

        return await ReASCRunnable(model=saying("42"), answer=kind(find), **limit).asolve("q")

    result = asyncio.run(main())
    assert all(loop_ran)
    assert result.decision.reason == ("timeout" if limit else "agreement")
    assert result.answer == "42"


@pytest.mark.parametrize("slow", ["a function", "a comparison"])
def test_to_find_answers_takes_no_longer_than_the_question_may(runner: Any, never: threading.Event, slow: str) -> None:
    finds: dict[str, Any] = {
        "a function": lambda _: never.wait(20),
        "a comparison": free_text(same=lambda *_: never.wait(20)),
    }
    model = Scripted(script=lambda question, index: Reply(str(index)))
    begun = time.monotonic()
    result = solved(runner, never, model, answer=finds[slow], timeout=SOON)
    assert time.monotonic() - begun < 10
    assert result.decision.reason == ("unanswered" if slow == "a function" else "timeout")  # by four without a vote


class SlowToBegin(Parallel):
    """Samples in parallel, once it has loaded: for as long as nobody sets the event."""

    never: Any

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        self.never.wait(20)
        return super().sample(*args, **kwargs)

    def asample(self, *args: Any, **kwargs: Any) -> Any:
        return AsyncStream[Any](asyncio.Event().wait)  # type: ignore[arg-type]


def test_a_model_that_does_not_begin_in_time_costs_only_the_time(
    runner: Any, never: threading.Event, runs: Any
) -> None:
    model = SlowToBegin(script=None, loses=set(), fails=set(), blocks=set(), streams=[], never=never)
    begun = time.monotonic()
    with pytest.raises(SampleTimeout, match=rf"timeout={SOON} s"):
        solved(runner, never, model, {"callbacks": [runs]}, timeout=SOON)
    assert time.monotonic() - begun < 10
    assert set(runs.ended.values()) == {"error"}


BACKTRACKS = r"regex:(?:a|aa)+: (\d+)"


def test_a_pattern_that_backtracks_for_ever_finds_nothing_and_holds_no_event_loop() -> None:
    model = Scripted(script=lambda question, index: Reply("a" * 80 if index == 1 else "aa: 42"))
    reasc = ReASCRunnable(model=model, answer=BACKTRACKS)

    async def main() -> tuple[Any, float]:
        longest, solving = 0.0, asyncio.create_task(reasc.asolve("q"))
        while not solving.done():
            begun = time.thread_time()
            await asyncio.sleep(0.01)
            longest = max(longest, time.thread_time() - begun)
        return solving.result(), longest

    result, longest = asyncio.run(main())
    assert result.answer == "42"
    assert any("not found in time (1)" in notice for notice in result.notices)
    assert longest < 0.5  # of the loop's own time, where the pattern is stopped after a second


def test_the_shorter_limit_holds() -> None:
    now = iter([0.0, 1.0, 8.0, 8.0, 12.0, 12.0])
    clock = QuestionClock(question=10, sample=5, clock=lambda: next(now))
    first, second = clock.wave(), clock.wave()
    assert first is not None
    assert second is not None
    assert (first.seconds, second.seconds) == (5, 2)
    assert not clock.over
    assert clock.over
    assert QuestionClock(question=None, sample=None).wave() is None
