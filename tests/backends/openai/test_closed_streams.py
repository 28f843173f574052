"""Whether a server stops when a stream is closed is seen at the server, or said not to be known."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
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
    """Streams words at a pace. ``tells`` names its way to tell of its work: vllm, sglang, slots, slots and metrics."""

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
        names = {"vllm": "vllm:num_requests_running", "sglang": "sglang:num_running_reqs"}
        text = f'# TYPE x gauge\n{names[self.tells]}{{engine="0",model_name="a"}} {running}.0\n'
        return text + (f'vllm:generation_tokens_total{{engine="0"}} {self.generated}\n' if self.tells == "vllm" else "")

    async def get(self, exchange: Exchange) -> None:
        if (text := self.page(exchange.path)) is None:
            raise Refused("not found", 404)
        await exchange.reply(200, text)

    async def __call__(self, exchange: Exchange) -> None:
        tokens, streams = exchange.body["max_tokens"], exchange.body.get("stream")
        self.asked.append(tokens)
        self.running += 1
        try:
            await self.work(min(tokens, self.ends_after), exchange, heard=streams)
        finally:
            self.running -= 1
        if not streams:
            await exchange.reply(200, {"choices": [{"message": {"content": "word"}}]})

    async def work(self, tokens: int, exchange: Exchange, *, heard: bool) -> None:
        due = time.monotonic()
        for _ in range(tokens):
            due += self.pace
            if (early := due - time.monotonic()) > 0.0:
                await asyncio.sleep(early)
            self.generated += 1
            if exchange.gone.is_set() and not self.goes_on:
                return
            if heard and not exchange.gone.is_set():
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
    worker = Worker(tells)
    assert asked(worker) == (True, "")
    assert worker.generated < 300 and sum(worker.asked) <= 512


@pytest.mark.parametrize("tells", ["vllm", "slots", "slots and metrics"])
@pytest.mark.parametrize("pace", [0.0005, 0.002])  # it is over, or not, while it is watched
def test_a_server_that_goes_on_is_seen_to(tells: str, pace: float) -> None:
    stops, notice = asked(Worker(tells, goes_on=True, pace=pace))
    if tells == "slots" and pace < 0.001:
        assert stops is None and "generates too fast" in notice  # nothing tells how much it generated
    else:
        assert stops is False and "saves time and no tokens" in notice


def test_a_number_of_running_requests_that_stays_up_is_not_believed() -> None:
    assert asked(Worker("vllm", stale=True)) == (True, "")  # vllm-project/vllm#22545
    stops, notice = asked(Worker("slots", stale=True))
    assert stops is None and "busy with other requests" in notice


def test_a_number_that_comes_late_tells_nothing() -> None:
    worker = Worker("sglang")
    worker.page = lambda path: "sglang:num_running_reqs 0.0\n" if path == "/metrics" else None  # type: ignore[method-assign]
    stops, notice = asked(worker)
    assert stops is None and "comes late" in notice


def test_others_that_are_served_make_it_unknown() -> None:
    with serving(Worker("vllm")) as server, server.stream(body(3000)):
        stops, notice = stops_when_cut_off(server, body, {})
    assert stops is None and "busy with other requests" in notice


@pytest.mark.parametrize(
    ("worker", "why"),
    [
        (Worker(), "tells nothing of its work"),
        (Worker("vllm", ends_after=3), "ended by itself"),
    ],
)
def test_what_cannot_be_told_is_said_with_the_reason(worker: Worker, why: str) -> None:
    stops, notice = asked(worker)
    assert stops is None and notice.startswith("whether the server stops when a stream is closed is not known: ")
    assert why in notice


def test_a_server_that_is_gone_is_an_error_of_this_library() -> None:
    with serving(Worker()) as server:
        pass
    with nullcontext(Server(server.url)) as gone:
        stops, notice = stops_when_cut_off(gone, lambda tokens, **more: {}, {})
    assert stops is None and "no server at" in notice
