"""An event loop in which ReASC is made, and used for the first time in a process, goes on meanwhile."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import StructuredTool
from runnable.fakes import saying

from agents.acting import ASKED, Telling, acting, agent_of
from langchain_reasc import ChatReASC, ReASCMiddleware, ReASCRunnable
from langchain_reasc.answers import free_text
from langchain_reasc.calibration import Observation, ObservationStore, candidate_measures
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.fingerprint import Fingerprint

PATH = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])  # where the tests' modules are
SCRIPT = """
import asyncio, gc, sys, threading, time
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from agents.acting import ASKED, acting, get_weather
from langchain_reasc import Online, ReASCMiddleware

opened = []

def hear(event, arguments):
    if event == "open" and watching and threading.current_thread() is threading.main_thread():
        name = str(arguments[0])
        if ".py" not in name and not name.endswith(".so"):  # what LangChain imports late
            opened.append(arguments[0])

watching = False
sys.addaudithook(hear)

async def main(state):
    global watching
    beats = []

    async def beat():
        while True:
            beats.append(time.thread_time())
            await asyncio.sleep(0.0005)

    beating = asyncio.create_task(beat())
    await asyncio.sleep(0.01)
    watching = True
    votes = ReASCMiddleware(calibration=Online(state=state), allow_fingerprint_mismatch=True, max_samples=24)
    agent = create_agent(acting(), [get_weather], middleware=[votes])  # which makes a chat model for each call
    await asyncio.sleep(0.01)
    await agent.ainvoke({"messages": [HumanMessage(ASKED)]})
    await asyncio.sleep(0.01)
    beating.cancel()
    watching = False
    assert not opened, opened
    assert "scipy.special" in sys.modules
    print(max(after - before for before, after in zip(beats, beats[1:])))

gc.disable()  # what it takes depends on all that the process has imported
asyncio.run(main(sys.argv[1]))
"""


async def _get_weather(city: str) -> str:
    return f"sunny in {city}"


GET_WEATHER = StructuredTool.from_function(coroutine=_get_weather, name="get_weather", description="The weather.")
ONLINE: dict[str, Any] = {"calibration": "online", "allow_fingerprint_mismatch": True}
WAYS: dict[str, Callable[[], Any]] = {
    "middleware": lambda: agent_of(acting(), ReASCMiddleware(max_run_tokens=1000), tools=[GET_WEATHER]),
    "middleware that learns": lambda: agent_of(acting(), ReASCMiddleware(**ONLINE), tools=[GET_WEATHER]),
    "chat model": lambda: agent_of(ChatReASC(model=acting()), tools=[GET_WEATHER]),
    "chat model that learns": lambda: agent_of(ChatReASC(model=acting(), **ONLINE), tools=[GET_WEATHER]),
    "runnable": lambda: ReASCRunnable(model=saying("1")),
    "runnable with a mixture": lambda: ReASCRunnable(
        model=Telling(script=saying("1").script), calibration="mixture", confidence=Measure("top_k", "mean")
    ),
    "free text": lambda: ReASCRunnable(model=saying("1"), answer=free_text(same=lambda one, other: one == other)),
}


@pytest.mark.parametrize("make", WAYS.values(), ids=list(WAYS))
def test_nothing_waits_for_the_default_pool(make: Callable[[], Any]) -> None:
    """Synchronous tools may keep all of its threads."""
    done = threading.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        tool = loop.run_in_executor(None, done.wait)
        made = make()
        asked = ASKED if isinstance(made, ReASCRunnable) else {"messages": [HumanMessage(ASKED)]}
        try:
            for _ in range(2):
                await asyncio.wait_for(made.ainvoke(asked), timeout=100)
        finally:
            done.set()
            await tool

    asyncio.run(main())


@pytest.mark.full
def test_the_loop_goes_on(tmp_path: Path) -> None:
    state = tmp_path / "state.sqlite"
    measures, store = candidate_measures(["top_k", "neg_entropy"]), ObservationStore.create(state)
    split = Observation((0, 1) * 8, np.full((len(measures), 16), 0.5), decided=16, answer=0)  # whose rule looks ahead
    with store.transaction():
        for _ in range(512):
            store.append(split, measures)
        store.describe(Fingerprint(), {})
    store.close()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(state)],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"PYTHONPATH": PATH},
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.06, "seconds that the loop was held, of its thread's own time"
