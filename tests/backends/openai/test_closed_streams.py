"""Whether a server stops when a stream is closed is seen at the server, or said not to be known."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_reasc_openai import closed_streams
from langchain_reasc_openai.closed_streams import stops_when_cut_off
from langchain_reasc_openai.server import Server
from servers import fake_server
from servers.chat_wire import Refused
from servers.exchange import Exchange


@dataclass
class Worker:
    """Streams words at a pace. ``tells`` names its way to tell of its work: vllm, late, slots, slots and metrics."""

    tells: str | None = None
    goes_on: bool = False
    pace: float = 0.002
    stale: bool = False
    ends_after: int = 10_000
    running: int = 0
    generated: int = 0
    asked: list[int] = field(default_factory=list)

    def page(self, path: str) -> str | None:
        running = max(self.running, int(self.stale))
        if path == "/slots" and self.tells in ("slots", "slots and metrics"):
            return json.dumps([{"id": 0, "is_processing": running > 0}])
        if path != "/metrics" or self.tells in (None, "slots"):
            return None
        if self.tells == "slots and metrics":
            done = self.generated if not self.running else 0
            return f"llamacpp:tokens_predicted_total {done}\nllamacpp:requests_processing {running}\n"
        if self.tells == "late":
            return "sglang:num_running_reqs 0.0\n"
        labels = '{engine="0",model_name="a"}'
        running_line = f"# TYPE x gauge\nvllm:num_requests_running{labels} {running}.0\n"
        return f"{running_line}vllm:generation_tokens_total{labels} {self.generated}\n"

    async def get(self, exchange: Exchange) -> None:
        if (text := self.page(exchange.path)) is None:
            raise Refused("not found", 404)
        await exchange.reply(200, text)

    async def __call__(self, exchange: Exchange) -> None:
        tokens = exchange.body["max_tokens"]
        self.asked.append(tokens)
        self.running += 1
        try:
            await self.work(min(tokens, self.ends_after), exchange)
        finally:
            self.running -= 1

    async def work(self, tokens: int, exchange: Exchange) -> None:
        due = time.monotonic()
        for _ in range(tokens):
            due += self.pace
            if (early := due - time.monotonic()) > 0.0:
                await asyncio.sleep(early)
            self.generated += 1
            if exchange.gone.is_set() and not self.goes_on:
                return
            if not exchange.gone.is_set():
                with suppress(OSError):
                    await exchange.token("word ")


@contextmanager
def serving(worker: Worker) -> Iterator[Server]:
    with fake_server.serving(worker, get=worker.get) as served, Server(served.url) as server:
        yield server


def body(tokens: int, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [], "max_tokens": tokens, **more}


def asked(worker: Worker) -> tuple[bool | None, str]:
    with serving(worker) as server:
        return stops_when_cut_off(server, body, {})


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_streams, "_WATCHED", 0.6)
    monkeypatch.setattr(closed_streams, "_QUIET", 0.3)


@pytest.mark.parametrize("tells", ["vllm", "slots", "slots and metrics"])
def test_a_server_that_tells_of_its_work_is_seen_to_stop(tells: str) -> None:
    worker = Worker(tells, pace=0.01)  # on a busy machine, too, it is seen to stop long before its end
    assert asked(worker) == (True, "")
    assert worker.generated < 300 and sum(worker.asked) <= 512


NOT_KNOWN = "whether the server stops when a stream is closed is not known: "
GOES_ON = "saves time and no tokens"


@pytest.mark.parametrize(
    ("worker", "stops", "notice"),
    [
        (Worker("vllm", goes_on=True), False, GOES_ON),
        (Worker("slots", goes_on=True), False, GOES_ON),
        (Worker("slots and metrics", goes_on=True, pace=0.0005), False, GOES_ON),  # it is over while it is watched
        (Worker("slots", goes_on=True, pace=0.0005), None, "generates too fast"),  # and tells no tokens
        (Worker("vllm", stale=True), True, ""),  # its number is known to stay up: vllm-project/vllm#22545
        (Worker("slots", stale=True), None, "busy with other requests"),
        (Worker("late"), None, "comes late"),
        (Worker(), None, "tells nothing of its work"),
        (Worker("vllm", ends_after=3), None, "ended by itself"),
    ],
)
def test_what_is_seen_or_not_is_said(worker: Worker, stops: bool | None, notice: str) -> None:
    found, said = asked(worker)
    assert found is stops
    assert (notice in said) if notice else said == ""
    assert said.startswith(NOT_KNOWN) is (stops is None)


def test_others_that_are_served_make_it_unknown() -> None:
    with serving(Worker("vllm")) as server, server.stream(body(3000)):
        stops, notice = stops_when_cut_off(server, body, {})
    assert stops is None and "busy with other requests" in notice


def test_a_server_that_is_gone_makes_it_unknown() -> None:
    with serving(Worker()) as server:
        pass
    stops, notice = stops_when_cut_off(Server(server.url), body, {})
    assert stops is None and "no server at" in notice
