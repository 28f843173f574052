"""How a call runs: which thread tells handlers what, what a model sees of its caller, and how a call is given up."""

import asyncio
import contextvars
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler

import langchain_reasc as lr
from langchain_reasc import ChatReASC, ReASCRunnable

from .conftest import Runner, assert_no_threads
from .fakes import KINDS, LOCAL, USER, Reply, Runs, Scripted, Whole, saying, thread_kind
from .setting import ONE, book, booking, calibration

Golden = Callable[..., None]
CALLED: dict[str, Callable[[Any], Any]] = {
    "runnable": lambda model: ReASCRunnable(model=model, max_samples=2, **ONE),
    "chat": lambda model: ChatReASC(model=model, max_samples=2, **ONE).bind_tools([book]),
}


class AsyncRuns(AsyncCallbackHandler):
    """The events that a handler is told of whose methods are coroutines."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
        self.events.append(f"chain start in {thread_kind()}")

    async def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        self.events.append(f"model start in {thread_kind()}")

    async def on_llm_end(self, *args: Any, **kwargs: Any) -> None:
        self.events.append(f"model end in {thread_kind()}")

    async def on_chain_end(self, *args: Any, **kwargs: Any) -> None:
        self.events.append(f"chain end in {thread_kind()}")


@pytest.mark.parametrize("called", CALLED)
@pytest.mark.parametrize("kind", ["both", "sync-only", "whole"])
@pytest.mark.parametrize("handler", ["inline", "threaded", "awaited"])
def test_callbacks(called: str, kind: str, handler: str, run: Runner, golden: Golden) -> None:
    """Every event in order, with the kind of thread it came in."""
    told_to: Any = AsyncRuns() if handler == "awaited" else Runs(inline=handler == "inline")
    model = saying(booking("Rome"), kind=KINDS[kind])
    run(CALLED[called](model), "invoke", "q", {"callbacks": [told_to]})
    counted = [f"{event} x{len(list(same))}" for event, same in _grouped(told_to.events)]
    golden(counted, run.mode)


def _grouped(events: list[str]) -> Iterator[tuple[str, list[str]]]:
    return ((key, list(same)) for key, same in groupby(events))


@pytest.mark.parametrize("kind", ["both", "sync-only", "whole"])
@pytest.mark.parametrize("called", CALLED)
@pytest.mark.parametrize("method", ["invoke", "batch", "stream"])
def test_what_a_model_sees_of_its_caller(kind: str, called: str, method: str, run: Runner, golden: Golden) -> None:
    """The caller's context variable, its thread-local, and the kind of thread."""
    model = saying(booking("Rome"), kind=KINDS[kind])
    LOCAL.value = "the caller's"
    try:
        context = contextvars.copy_context()
        context.run(USER.set, "ada")
        context.run(run, CALLED[called](model), method, ["q"] if method == "batch" else "q")
    finally:
        del LOCAL.value
    golden([list(one) for one in model.told], run.mode)


def test_contexts_of_samples_are_their_own(run: Runner) -> None:
    """What a sample sets in its context, neither its caller nor another sample sees."""

    def script(question: str, index: int) -> Reply:
        assert USER.get() == "nobody"
        USER.set(f"sample {index}")
        return Reply()

    assert run(ReASCRunnable(model=Scripted(script=script), rule=lr.Cap(4)), "solve", "q").failures == ()
    assert USER.get() == "nobody"


class Silent(Whole):
    """Blocks its thread, or waits in the loop, and says nothing at all until it is let go; counts who is inside."""

    letting_go: Any = None
    inside: Any = None

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        self.inside.append(1)
        self.letting_go.wait(120)
        return super()._generate(*args, **kwargs)

    async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
        self.inside.append(1)
        while not self.letting_go.is_set():
            await asyncio.sleep(0.002)
        return await super()._agenerate(*args, **kwargs)


@pytest.fixture
def silent() -> Iterator[Silent]:
    model = Silent(script=lambda question, index: Reply(), letting_go=threading.Event(), inside=[])
    yield model
    model.letting_go.set()


def stalling(question: str, index: int) -> Reply:
    return Reply("the answer is", stall_at=2)


def test_a_silent_model_costs_no_more_than_the_timeout(silent: Silent, run: Runner) -> None:
    runs, begun = Runs(), time.monotonic()
    with pytest.raises(TimeoutError):
        run(ReASCRunnable(model=silent, timeout=0.2), "invoke", "q", {"callbacks": [runs]})
    assert time.monotonic() - begun < 60
    runs.assert_closed()
    silent.letting_go.set()


@contextmanager
def interrupt_when(begun: Callable[[], bool]) -> Iterator[None]:
    """Send SIGINT to this process once that holds."""

    def send() -> None:
        while not begun():
            time.sleep(0.005)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sender = threading.Thread(target=send, daemon=True)
    try:
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        sender.join(60)
        signal.signal(signal.SIGINT, before)


def in_a_notebook(called: Callable[[], Any]) -> Any:
    """As a cell of Jupyter calls it: within a running loop, with Python's own handler of SIGINT."""

    async def cell() -> Any:
        return called()

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(cell())
    finally:
        loop.close()


CONFIG: Any = {"max_concurrency": 2}
INTERRUPTED: dict[str, Callable[[Any, Any], Any]] = {
    "script": lambda reasc, config: reasc.invoke("q", config),
    "loop": lambda reasc, config: asyncio.run(reasc.ainvoke("q", config)),
    "notebook": lambda reasc, config: in_a_notebook(lambda: reasc.invoke("q", config)),
    "batch": lambda reasc, config: reasc.batch(["a", "b", "c"], config | CONFIG),
    "batch in a loop": lambda reasc, config: asyncio.run(reasc.abatch(["a", "b", "c"], config | CONFIG)),
    "stream": lambda reasc, config: list(reasc.stream("q", config)),
}


# A chat model's batch() is LangChain's own, which waits for its threads.
OF_CHAT = [(how, ChatReASC) for how in INTERRUPTED if "batch" not in how]


@pytest.mark.parametrize(("how", "face"), [*((how, ReASCRunnable) for how in INTERRUPTED), *OF_CHAT])
def test_ctrl_c(how: str, face: Any) -> None:
    """The call ends at once, no run stays open, no thread stays, and the places in flight are free again."""
    runs, model = Runs(), Scripted(script=stalling)
    begun = time.monotonic()
    with interrupt_when(lambda: bool(model.seen)):
        INTERRUPTED[how](face(model=model), {"callbacks": [runs]})
    assert time.monotonic() - begun < 60
    assert len(model.seen) <= 4, "nothing more is begun"
    runs.assert_closed()
    assert_no_threads()
    model.script = lambda question, index: Reply()
    assert ReASCRunnable(model=model, rule=lr.Cap(3)).invoke("q", CONFIG).text == "the answer is 42"


@pytest.mark.parametrize("how", ["script", "notebook"])
def test_ctrl_c_while_a_model_is_silent(how: str, silent: Silent) -> None:
    runs = Runs()
    with interrupt_when(lambda: bool(silent.inside)):
        INTERRUPTED[how](ReASCRunnable(model=silent), {"callbacks": [runs]})
    silent.letting_go.set()
    runs.assert_closed()
    assert_no_threads()


@pytest.mark.parametrize("face", [ReASCRunnable, ChatReASC])
@pytest.mark.parametrize("kind", ["both", "sync-only", "whole"])
def test_cancelling(face: Any, kind: str) -> None:
    """A task that is cancelled ends at once, with its runs; what it held is free again."""
    runs = Runs()
    model = KINDS[kind](script=stalling if kind != "whole" else lambda question, index: Reply(delay=0.1))

    async def main() -> None:
        task = asyncio.create_task(face(model=model).ainvoke("q", {"callbacks": [runs], **CONFIG}))
        while not model.seen:
            await asyncio.sleep(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
        model.script = lambda question, index: Reply()
        assert (await face(model=model).ainvoke("q", CONFIG)).text == "the answer is 42"

    asyncio.run(main())
    runs.assert_closed()
    assert_no_threads()


def test_leaving_a_stream_closes_it(run: Runner) -> None:
    """A stream of text that nobody reads on is closed, and its run ends."""
    runs, model = Runs(), Scripted(script=lambda question, index: Reply("a b c d", stall_at=2))
    chat = ChatReASC(model=model)

    async def aread() -> str:
        chunks = chat.astream("q", {"callbacks": [runs]})
        async for chunk in chunks:
            await chunks.aclose()  # type: ignore[attr-defined]
            return chunk.text
        return ""

    if run.is_async:
        assert asyncio.run(aread()) == "a"
    else:
        chunks = chat.stream("q", {"callbacks": [runs]})
        assert next(chunks).text == "a"
        chunks.close()  # type: ignore[attr-defined]
    gc.collect()
    runs.assert_closed()


class Counting(Scripted):
    """Counts who is inside."""

    live: Any = None

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        with self.live():
            yield from super()._stream(*args, **kwargs)

    async def _astream(self, *args: Any, **kwargs: Any) -> Any:
        with self.live():
            async for chunk in super()._astream(*args, **kwargs):
                yield chunk


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.slow  # asks hundreds of questions
def test_a_soak_of_failures_gives_every_place_back(mode: str) -> None:
    """100 calls, four at a time, of which many fail in mid-wave, with two places for samples."""
    live, most, lock = [0], [0], threading.Lock()

    @contextmanager
    def inside() -> Iterator[None]:
        with lock:
            live[0] += 1
            most[0] = max(most[0], live[0])
        try:
            yield
        finally:
            with lock:
                live[0] -= 1

    def script(question: str, index: int) -> Reply:
        rng = random.Random(f"{question} {index}")
        error = rng.choice([None, None, ValueError("bad"), TimeoutError("slow")])
        return Reply(
            f"so {rng.choice('1123')}", rng.choice([-1.0, -2.0, None]), error=error, delay=rng.choice([0, 0.001])
        )

    def heard(question: str) -> Any:
        def hear(response: Any, decision: Any) -> None:
            if random.Random(f"{question} heard {response.index}").random() < 0.1:
                raise RuntimeError("the listener fails")

        return hear

    model = Counting(script=script, live=inside)
    counting = ReASCRunnable(model=model, max_samples=5, on_undecided="raise")
    scored = ReASCRunnable(
        model=model, max_samples=5, calibration=calibration(), rule=calibration().as_in_paper().rule()
    )
    questions = [f"q{at}" for at in range(100)]

    def outcome(error: Exception | None) -> str:
        return "decided" if error is None else type(error).__name__

    def one(question: str) -> str:
        try:
            (scored if question.endswith("7") else counting).solve(question, CONFIG, on_response=heard(question))
        except Exception as error:
            return outcome(error)
        return outcome(None)

    async def all_of_them() -> list[str]:
        at_once = asyncio.Semaphore(4)

        async def aone(question: str) -> str:
            async with at_once:
                try:
                    reasc = scored if question.endswith("7") else counting
                    await reasc.asolve(question, CONFIG, on_response=heard(question))
                except Exception as error:
                    return outcome(error)
                return outcome(None)

        return await asyncio.gather(*map(aone, questions))

    with ThreadPoolExecutor(4) as threads:
        outcomes = asyncio.run(all_of_them()) if mode == "async" else list(threads.map(one, questions))
    # A wave is as large as there are places, and what it begins with may fail: the numbers differ by one or two.
    assert set(outcomes) == {"LogprobsUnavailable", "RuntimeError", "SamplingError", "Undecided", "decided"}
    assert len(outcomes) == 100
    assert (live, most) == ([0], [2])
    most[0], model.script = 0, lambda question, index: Reply(delay=0.02)
    Runner(mode)(ReASCRunnable(model=model, rule=lr.Cap(2), max_samples=2), "invoke", "q", CONFIG)
    assert most == [2], "both places are free again"
    assert_no_threads()


def test_how_many_samples_are_launched(run: Runner, golden: Golden) -> None:
    """By gate, concurrency and budget: samples decided on, and samples launched."""
    measured: Any = {"calibration": calibration(), "rule": calibration().as_in_paper().rule()}
    seen = {}
    for concurrency in (1, 2, 5):
        for name, options in {"open gate": measured, "counted": {}, "six at most": {"max_samples": 6}}.items():
            model = saying(*(Reply(f"so {answer}", -0.8) for answer in "12131411111"))
            result = run(ReASCRunnable(model=model, concurrency=concurrency, **options), "solve", "q")
            seen[f"{name}, {concurrency} at once"] = [result.decision.samples, len(result.responses)]
            assert sorted(index for _, index in model.seen) == list(range(len(result.responses)))
    golden(seen)
