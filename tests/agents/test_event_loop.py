"""An event loop in which ReASC is made, and used for the first time in a process, goes on meanwhile."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from langchain_reasc.calibration import (
    ConsensusCalibrator,
    Fingerprint,
    Observed,
    OnlineStore,
    calibrate_consensus,
    candidate_measures,
)

PATH = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])  # where the tests' modules are
SCRIPT = """
import asyncio, gc, sys, threading, time
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from agents.acting import ASKED, acting, get_weather
from langchain_reasc import ReASCMiddleware

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
    votes = ReASCMiddleware(
        calibration="online", online_state=state, allow_fingerprint_mismatch=True, max_samples=24, worth=10
    )
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


def test_the_loop_goes_on(tmp_path: Path) -> None:
    state = tmp_path / "state.sqlite"
    measures, store = candidate_measures(["top_k", "neg_entropy"]), OnlineStore.create(state)
    calibration = calibrate_consensus([Observed((0, 1) * 8, np.empty((0, 16)))] * 2)  # whose rule looks ahead
    with store.transaction():
        for _ in range(512):
            store.add(Observed((0, 1) * 8, np.full((len(measures), 16), 0.5), decided=16, answer=0), measures)
        learned = ConsensusCalibrator().state().model_copy(update={"seen": 512})
        store.set_learned(Fingerprint(), learned, lambda kind: calibration)
    store.close()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(state)],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"PYTHONPATH": PATH},
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.03, "seconds that the loop was held, of its thread's own time"
