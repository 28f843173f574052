"""The example with FastAPI, served in this process by uvicorn, as its readers reach it."""

import json
import runpy
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from runnable.fakes import Reply, Scripted

from langchain_reasc import ReASCRunnable

EXAMPLES = Path(__file__).parents[2] / "examples"
EASY = "How much is 6 times 7?"
Event = tuple[str, dict[str, Any]]


@dataclass
class Served:
    """An application at an address."""

    url: str

    @contextmanager
    def asking(self, question: str) -> Iterator[Iterator[Event]]:
        """The events of a question, as they come; leaving the block closes the connection."""
        with (
            httpx.Client(timeout=100) as client,
            client.stream("POST", f"{self.url}/answers", json={"question": question}) as answer,
        ):
            assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
            yield events(answer.iter_lines())

    def answers(self, question: str) -> list[Event]:
        with self.asking(question) as told:
            return list(told)

    @staticmethod
    def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
        ends = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < ends, "it never came to hold"
            time.sleep(0.01)


def events(lines: Iterator[str]) -> Iterator[Event]:
    name = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def gated() -> Scripted:
    """A model whose every sample waits before it ends until ``opens`` of any of them is set."""
    opens = threading.Event()
    return Scripted(script=lambda question, index: Reply(opens=opens, wait_at=3))


@cache
def example() -> dict[str, Any]:
    """What the example defines."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return runpy.run_path(str(EXAMPLES / "fastapi_stream.py"))
    finally:
        sys.path.remove(str(EXAMPLES))


@contextmanager
def served(reasc: ReASCRunnable, **options: Any) -> Iterator[Served]:
    config = uvicorn.Config(example()["application"](reasc, **options), port=0, log_level="critical")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        Served.wait_until(lambda: server.started or not thread.is_alive())
        yield Served(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
        assert not thread.is_alive()
