"""Ctrl-C in the middle of endless samples, or of a silent judge: the process ends at once, with a KeyboardInterrupt."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

SCRIPT = """
import asyncio
import os
import threading
from langchain_reasc import ReASCRunnable
from langchain_reasc.answers import free_text
from runnable.fakes import Reply, Scripted

class Announcing(Scripted):
    def _begin(self, messages):
        os.write(1, b"drawing\\n")  # whole lines, from several threads at once
        return super()._begin(messages)

reasc = ReASCRunnable(model=Announcing(script=lambda question, index: Reply("a", endless=True)))
judge = Announcing(script=lambda question, index: Reply("yes", opens=threading.Event()))
judged = ReASCRunnable(model=Scripted(script=lambda question, index: Reply(str(index))), answer=free_text(judge=judge))
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""
CALLS = {
    "sync": 'reasc.invoke("q")',
    "async": 'asyncio.run(reasc.ainvoke("q"))',
    "sync judge": 'judged.invoke("q")',
    "async judge": 'asyncio.run(judged.ainvoke("q"))',
}


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
@pytest.mark.parametrize(
    "call", [pytest.param(call, id=name, marks=[pytest.mark.slow] * ("judge" in name)) for name, call in CALLS.items()]
)
def test_an_interrupt_ends_streams_and_threads_promptly(call: str) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(call=call)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "drawing\n"
        time.sleep(0.3)  # an event loop that is just about to wait notices a signal only after its next event
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert time.monotonic() - sent < 10
    assert "interrupted" in out
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT


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

model = Slow(script=lambda question, index: Reply("a 42", endless=index > 0))
print(ReASCRunnable(model=model, max_samples=2, sample_timeout=0.3).solve("q").answer)
"""


def test_a_process_that_ends_waits_a_moment_for_samples_that_were_given_up() -> None:
    """Python before 3.14 may abort around a daemon thread that is in compiled code, and pydantic's is."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n[]\n", "")
