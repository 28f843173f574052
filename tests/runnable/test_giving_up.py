"""Calls that end early, whoever ends them: nobody waits, nothing more is paid for, and no run stays open."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sampling.test_tracing import Runs

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import SampleTimeout, SamplingError

from .fakes import TOP_K, Reply, Scripted

TESTS = Path(__file__).parents[1]


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What a hanging sample waits for; at the end it comes after all, so that no thread stays behind."""
    event = threading.Event()
    yield event
    event.set()


def scripted(never: threading.Event, hangs: Any) -> Scripted:
    def script(question: str, index: int) -> Reply:
        return Reply("it is 1", -1.0 - 0.1 * len(question), opens=never if hangs(question, index) else None, wait_at=1)

    return Scripted(script=script)


def test_a_failing_input_cuts_off_what_runs_beside_it(runner: Any, never: threading.Event) -> None:
    def script(question: str, index: int) -> Reply:
        return Reply("", error=ValueError("bad")) if question == "bad" else Reply("it is 1", opens=never, wait_at=1)

    runs, begun = Runs(), time.monotonic()
    with pytest.raises(SamplingError, match="bad"):
        runner.batch(ReASCRunnable(model=Scripted(script=script)), ["slow", "bad", "slow"], {"callbacks": [runs]})
    assert time.monotonic() - begun < 5
    assert runs.runs.keys() == runs.ended.keys()


def test_a_time_limit_ends_the_runs_of_samples_that_hang(runner: Any, never: threading.Event) -> None:
    runs = Runs()
    reasc = ReASCRunnable(model=scripted(never, lambda q, index: index == 1), sample_timeout=0.3, concurrency=3)
    result = runner.solve(reasc, "q", {"callbacks": [runs]})
    assert isinstance(result.failures[0], SampleTimeout)
    assert not never.is_set()  # the sample still hangs, and its run has ended all the same
    assert runs.runs.keys() == runs.ended.keys()


def test_the_time_of_a_question_runs_once_in_an_mixture_batch(runner: Any, never: threading.Event) -> None:
    """The first sample takes most of it, and every other hangs."""

    class SlowFirst(Scripted):
        def _begin(self, messages: Any) -> Any:
            reply, key = super()._begin(messages)
            return reply, key

    model = SlowFirst(script=lambda q, index: Reply("it is 1", -1.0 - len(q), opens=None if index == 0 else never))
    delays = {"sync": lambda: time.sleep(1.0)}
    original = model.script

    def script(question: str, index: int) -> Reply:
        if index == 0:
            delays["sync"]()
        return original(question, index)

    model = SlowFirst(script=script)
    reasc = ReASCRunnable(model=model, calibration="mixture", measure=TOP_K, timeout=1.5, max_samples=4)
    begun = time.monotonic()
    [message] = runner.batch(reasc, ["a"])
    assert time.monotonic() - begun < 2.2, "the time of the first sample counts"
    assert message.response_metadata["reasc"]["reason"] == "timeout"


@pytest.mark.parametrize("calibrated", [None, "online", "mixture"])
def test_no_more_than_k_samples_are_in_flight(runner: Any, calibrated: Any) -> None:
    model = Scripted(script=lambda q, index: Reply(f"it is {index}", -1.0 - index))
    reasc = ReASCRunnable(
        model=model, concurrency=8, max_samples=9, calibration=calibrated, measure=TOP_K if calibrated else None
    )
    runner.batch(reasc, ["q"] * 6, {"max_concurrency": 3})
    assert model.log.most_live <= 3
    assert len(model.log.calls) == 6 * 9


def test_first_samples_of_an_mixture_batch_are_below_their_inputs_runs(runner: Any) -> None:
    runs = Runs()
    model = Scripted(script=lambda q, index: Reply("it is 1", -1.0 - index))
    reasc = ReASCRunnable(model=model, calibration="mixture", measure=TOP_K)
    runner.batch(reasc, ["a", "b", "c"], {"callbacks": [runs]})
    above = runs.of("chain").keys()
    assert len(above) == 3
    assert {run["parent_run_id"] for run in runs.of("model").values()} == set(above)
    assert runs.runs.keys() == runs.ended.keys()


@pytest.mark.parametrize("call", ["ainvoke", "abatch", "online abatch"])
def test_cancelling_leaves_no_run_open(call: str, never: threading.Event) -> None:
    runs, model = Runs(), scripted(never, lambda q, index: True)

    async def main() -> None:
        reasc = ReASCRunnable(model=model, concurrency=16)
        if call == "online abatch":  # whose first samples are drawn before anything is decided
            reasc = ReASCRunnable(model=model, concurrency=16, calibration="mixture", measure=TOP_K)
        inputs, config = [f"q{at}" for at in range(16)], {"callbacks": [runs]}
        task = asyncio.ensure_future(
            reasc.ainvoke("q", config) if call == "ainvoke" else reasc.abatch(inputs, config)  # type: ignore[arg-type]
        )
        while sum(model.log.tokens.values()) < 16:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert len(runs.of("model")) >= 16
    assert runs.runs.keys() == runs.ended.keys()
    assert {runs.ended[run_id] for run_id in runs.of("model")} == {"end"}


@pytest.mark.parametrize("streams", [True, False])
def test_a_whole_response_that_nobody_waits_for_ends_its_run(streams: bool, never: threading.Event) -> None:
    """Cancelling LangChain's `ainvoke` alone would leave it open for ever."""
    runs, model = Runs(), scripted(never, lambda q, index: True)
    model.disable_streaming = not streams

    async def main() -> None:
        task = asyncio.create_task(ReASCRunnable(model=model).ainvoke("q", {"callbacks": [runs]}))
        while len(model.log.calls) < 4:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert len(runs.of("model")) == 4
    assert runs.runs.keys() == runs.ended.keys()


STREAMS = """
import os
from langchain_reasc import ReASCRunnable
from runnable.fakes import Reply, Scripted

class Announcing(Scripted):
    def _begin(self, messages):
        os.write(1, b"drawing\\n")
        return super()._begin(messages)

model = Announcing(script=lambda question, index: Reply("a", endless=True))
try:
    ReASCRunnable(model=model).batch([str(i) for i in range(64)], {"max_concurrency": 4})
finally:
    os.write(1, f"calls {len(model.log.calls)}\\n".encode())
"""
LOCAL = """
import os
from langchain_core.callbacks import BaseCallbackHandler
from langchain_reasc import ReASCRunnable
from langchain_reasc_llama_cpp import ChatLlamaCpp

class Announcing(BaseCallbackHandler):
    calls = 0
    def on_chat_model_start(self, *args, **kwargs):
        self.calls += 1
        os.write(1, b"drawing\\n")

seen = Announcing()
model = ChatLlamaCpp(max_tokens=900, temperature=3.0, top_k=0, top_p=1.0)
try:
    ReASCRunnable(model=model).batch([f"How many are {i} cups?" for i in range(64)], {"callbacks": [seen]})
finally:
    os.write(1, f"calls {seen.calls}\\n".encode())
"""


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
@pytest.mark.parametrize(("script", "most"), [(STREAMS, 4), (LOCAL, 32 * 4)], ids=["streams", "local"])
def test_an_interrupt_ends_a_batch(script: str, most: int) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + script
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "drawing\n"
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert time.monotonic() - sent < 30
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert int(out.split("calls ")[1].split()[0]) <= most, "nothing more is begun"


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_an_interrupt_among_first_samples_leaves_no_run_open(never: threading.Event) -> None:
    runs, model = Runs(), scripted(never, lambda q, index: True)
    reasc = ReASCRunnable(model=model, calibration="mixture", measure=TOP_K)

    def interrupt() -> None:
        while not sum(model.log.tokens.values()):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            reasc.batch([f"q{at}" for at in range(8)], {"callbacks": [runs], "max_concurrency": 3})
    finally:
        signal.signal(signal.SIGINT, before)
    assert runs.of("chain")
    waited_until = time.monotonic() + 10  # a sample that was given up ends its run a moment later, on a busy machine
    while runs.runs.keys() != runs.ended.keys() and time.monotonic() < waited_until:
        time.sleep(0.01)
    assert runs.runs.keys() == runs.ended.keys()
