"""Calls that end early, whoever ends them: nobody waits, nothing more is paid for, and no run stays open."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

from langchain_reasc import ASC, ReASCRunnable
from langchain_reasc.exceptions import SampleTimeout, SamplingError
from langchain_reasc.sampling import QuestionClock

from .conftest import cancelled
from .fakes import TOP_K, Reply, Scripted, Unforeseen

posix = pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
PATH = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])  # where the tests' modules are


def interrupted(script: str, *, seconds: float) -> str:
    """Output of a process that is interrupted as it draws, and must end within these seconds."""
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + script
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": PATH},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "drawing\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert err.rstrip().endswith("KeyboardInterrupt")
    return out


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


@pytest.mark.full
@posix
def test_an_interrupt_ends_a_batch_of_a_model_in_this_process() -> None:
    out = interrupted(LOCAL, seconds=100)
    assert int(out.split("calls ")[1].split()[0]) <= 32 * 4, "nothing more is begun"


LEAVING = """
import atexit
import threading
import time
atexit.register(lambda: print([thread.name for thread in threading.enumerate() if thread.name.startswith("reasc")]))
from langchain_reasc import ReASCRunnable
from runnable.fakes import Reply, Scripted

class Slow(Scripted):
    def _chunk(self, reply, token, key):
        time.sleep(0.9 if reply.endless else 0)
        return super()._chunk(reply, token, key)

model = Slow(script=lambda question, index: Reply("it is 42", endless=index > 0))
print(ReASCRunnable(model=model, max_samples=2, sample_timeout=1.5).solve("q").answer)
"""


@pytest.mark.full
def test_a_process_that_ends_waits_a_moment_for_samples_that_were_given_up() -> None:
    """Python before 3.14 may abort around a daemon thread that is in compiled code, and pydantic's is."""
    environment = os.environ | {"PYTHONPATH": PATH}
    done = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, env=environment, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n[]\n", "")


UNREAD = """
import atexit, threading, time
from langchain_reasc import ReASCRunnable
from runnable.fakes import Reply, Scripted

drawing = [threading.Event() for _ in range(3)]

def batch(at):
    def script(question, index):
        if question == "endless":
            drawing[at].set()
        return Reply("a 42", endless=question == "endless")

    return ReASCRunnable(model=Scripted(script=script), max_samples=2)

questions = ["quick", "endless"]
outcomes = batch(0).batch_as_completed(questions)  # read in part
print(next(outcomes)[0])
for at, options in ((1, {}), (2, {"total_samples": 4})):
    threading.Thread(target=batch(at).batch, args=[questions], kwargs=options, daemon=True).start()
assert all(event.wait(30) for event in drawing)
ends = time.monotonic()
atexit.register(lambda: print("waited", time.monotonic() - ends))
"""


@pytest.mark.full
def test_a_process_that_ends_waits_for_no_batch_that_nobody_reads() -> None:
    environment = os.environ | {"PYTHONPATH": PATH}
    script = [sys.executable, "-c", UNREAD]
    done = subprocess.run(script, stdout=subprocess.PIPE, text=True, env=environment, timeout=600)
    assert done.returncode == 0
    assert float(done.stdout.split("waited")[1]) < 30


def test_a_batch_that_is_cancelled_leaves_no_coroutine_behind() -> None:
    """Of many inputs most wait for their place when Ctrl-C comes; none of them was begun."""
    model = Scripted(script=lambda question, index: Reply("a", endless=True))
    reasc = ReASCRunnable(model=model)

    async def interrupted_batch() -> None:
        asking = asyncio.ensure_future(reasc.abatch(["?"] * 20, {"max_concurrency": 2}))
        while model.log.live < 2:
            await asyncio.sleep(0.001)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asyncio.run(interrupted_batch())
        gc.collect()
    assert not [str(one.message) for one in warned if "never awaited" in str(one.message)]


def test_a_failing_input_cuts_off_what_runs_beside_it(runner: Any, never: threading.Event, runs: Any) -> None:
    def script(question: str, index: int) -> Reply:
        return Reply("", error=ValueError("bad")) if question == "bad" else Reply("it is 1", opens=never, wait_at=1)

    begun = time.monotonic()
    with pytest.raises(SamplingError, match="bad"):
        runner.batch(ReASCRunnable(model=Scripted(script=script)), ["slow", "bad", "slow"], {"callbacks": [runs]})
    assert time.monotonic() - begun < 30


@pytest.mark.sync_only
def test_the_time_of_a_question_runs_once_in_a_mixture_batch(
    runner: Any, never: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the clock of the question, the first sample takes nearly all of it; every other hangs."""
    ahead = [0.0]
    clock = partial(QuestionClock, clock=lambda: time.monotonic() + ahead[0])
    monkeypatch.setattr("langchain_reasc.runnable.request.QuestionClock", clock)

    def script(question: str, index: int) -> Reply:
        if index == 0:
            ahead[0] = 999.5
        return Reply("it is 1", -1.0 - len(question), opens=never if index else None)

    options: dict[str, Any] = {"calibration": "mixture", "confidence": TOP_K, "timeout": 1000.0, "max_samples": 4}
    [account] = runner.accounts(ReASCRunnable(model=Scripted(script=script), **options), ["a"])
    assert account["reason"] == "timeout"


def test_cancelling_the_first_samples_of_a_batch_leaves_no_run_open(never: threading.Event, runs: Any) -> None:
    model = Scripted(script=lambda question, index: Reply("it is 1", -1.0, opens=never, wait_at=1))
    reasc = ReASCRunnable(model=model, concurrency=16, calibration="mixture", confidence=TOP_K)
    inputs = [f"q{at}" for at in range(16)]
    cancelled(lambda: reasc.abatch(inputs, {"callbacks": [runs]}), lambda: sum(model.log.tokens.values()) >= 16)
    assert len(runs.of("model")) >= 16
    assert {runs.ended[run_id] for run_id in runs.of("model")} == {"end"}


class Deaf(Scripted):
    """Sample 4 goes on for two minutes, and does not hear that it is cancelled."""

    async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if self._begin(messages)[1][1] != 4:
            async for chunk in super()._astream(messages, *args, **kwargs):
                yield chunk
            return
        ends = time.monotonic() + 120
        while time.monotonic() < ends:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
            yield ChatGenerationChunk(message=AIMessageChunk(content="and so on"))


@pytest.mark.parametrize("timed", [False, True], ids=["decision", "time limit"])
def test_what_does_not_hear_that_it_is_cancelled_ends_all_the_same(timed: bool) -> None:
    options: dict[str, Any] = {"sample_timeout": 1.0, "rule": ASC(0.97)} if timed else {"rule": Unforeseen()}
    deaf = Deaf(script=lambda question, index: Reply("it is 42"))
    result = asyncio.run(ReASCRunnable(model=deaf, concurrency=5, **options).asolve("q"))
    assert (result.answer, result.decision.samples) == ("42", 5 if timed else 4)
    last = result.responses[4]
    assert isinstance(last.error, SampleTimeout) if timed else last.status == "cancelled"
