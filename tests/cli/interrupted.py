"""A command in a process of its own, which Ctrl-C ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from langchain_reasc_lab.pools import PoolStore

TESTS = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])  # where chat_models is


def interrupted(*arguments: object, begun: Callable[[], bool]) -> str:
    """What is said by a command that Ctrl-C ends once it has begun, with code 130 and no traceback."""
    command = [sys.executable, "-c", "from langchain_reasc.cli import main; main()", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": TESTS}
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    until = time.monotonic() + 600
    while not begun():
        assert running.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=600)
    assert running.returncode == 130 and "Traceback" not in said, said
    return said


def held(path: Path) -> int:
    """How many questions a pool holds; none while it is being made."""
    try:
        return len(PoolStore.open(path).ids())
    except Exception:
        return 0
