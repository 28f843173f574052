"""One behaviour, two ways to call it: every test with a ``runner`` runs synchronously and in an event loop."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple

import pytest
from sampling.tracers import Runs

from langchain_reasc import acalibrate, calibrate
from langchain_reasc.calibration import Observation, learner
from langchain_reasc.concurrency import EVENT_LOOP, THREADS, Concurrency
from langchain_reasc.sampling import Wave, samples
from langchain_reasc.threads import blocking

from .fakes import TIMEOUT, calibration


def _method(name: str) -> Callable[..., Any]:
    def called(self: "Runner", runnable: Any, *args: Any, **kwargs: Any) -> Any:
        return self.call(getattr(runnable, f"a{name}" if self.is_async else name), *args, **kwargs)

    return called


class Runner:
    """Calls methods of what it is given: ``runner.invoke(reasc, "q")`` is ``reasc.invoke("q")``; streams are read."""

    is_async = False
    io: Concurrency = THREADS
    invoke, solve, batch, batch_as_completed, stream, record_outcome = map(
        _method, ("invoke", "solve", "batch", "batch_as_completed", "stream", "record_outcome")
    )

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        given = function(*args, **kwargs)
        return list(given) if isinstance(given, Iterator) else given

    def account(self, runnable: Any, *args: Any, **kwargs: Any) -> Any:
        """What the message says of the decision, which is JSON."""
        told = self.invoke(runnable, *args, **kwargs).response_metadata["reasc"]
        assert json.loads(json.dumps(told)) == told
        return told

    def accounts(self, runnable: Any, *args: Any, **kwargs: Any) -> Any:
        """The same of a batch."""
        return [message.response_metadata["reasc"] for message in self.batch(runnable, *args, **kwargs)]

    def calibrate(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(acalibrate if self.is_async else calibrate, *args, **kwargs)

    def wave(self, wave: Wave, then: Any = lambda sample: None) -> Any:
        async def all_drawn() -> list[Any]:
            found = []
            async for sample in samples(replace(wave, io=self.io)):
                found.append(sample)
                then(sample)
            return found

        return self.run(all_drawn())

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        return blocking(main)


class AsyncRunner(Runner):
    """Calls their asynchronous twins, each in an event loop in which no task may be left."""

    is_async = True
    io = EVENT_LOOP

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def called() -> Any:
            given = function(*args, **kwargs)
            return [one async for one in given] if hasattr(given, "__aiter__") else await given

        return self.run(called())

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        return _run(main)


@pytest.fixture(params=[Runner, AsyncRunner], ids=["sync", "async"])
def runner(request: pytest.FixtureRequest) -> Iterator[Any]:
    yield request.param()
    await_no_sampling_threads()


class Fit(NamedTuple):
    """What a calibration was given."""

    questions: list[Observation]
    measures: list[Any]
    options: dict[str, Any]


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[Fit]:
    """All calibrations; the rule that is made of them accepts a first response scoring 2."""
    seen: list[Fit] = []

    def made(questions: Sequence[Observation], measures: Any, **options: Any) -> Any:
        seen.append(Fit([*questions], [*measures], options))
        return calibration(n=max(2, len(questions)), gate=2.0, fingerprint=options.get("fingerprint", {}))

    for module in (learner, import_module("langchain_reasc.runnable.calibrate")):
        monkeypatch.setattr(module, "fit", made)
    return seen


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    caplog.set_level(logging.INFO, "langchain_reasc.calibration.online")
    yield lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.fixture
def runs() -> Iterator[Runs]:
    """What callbacks are told of runs, of which none may stay open."""
    seen = Runs()
    yield seen
    assert seen.runs.keys() == seen.ended.keys(), "a run was left open"


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What a hanging sample waits for; at the end it comes after all, so that no thread stays behind."""
    event = threading.Event()
    yield event
    event.set()


def cancelled(calling: Callable[[], Coroutine[Any, Any, Any]], when: Callable[[], bool]) -> None:
    """Cancel a call once this holds: it ends with that, and leaves no task behind."""

    async def main() -> None:
        task = asyncio.create_task(calling())
        async with asyncio.timeout(TIMEOUT):
            while not when():
                await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    _run(main())


def await_no_sampling_threads(seconds: float = 60) -> None:
    """Pool threads end a moment after their last task; they must end."""
    deadline = time.monotonic() + seconds
    while left := [thread.name for thread in threading.enumerate() if thread.name.startswith("reasc")]:
        assert time.monotonic() < deadline, f"threads left behind: {left}"
        time.sleep(0.002)


def _run(main: Coroutine[Any, Any, Any]) -> Any:
    async def alone() -> Any:
        try:
            return await main
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left behind: {left}"

    return asyncio.run(alone())
