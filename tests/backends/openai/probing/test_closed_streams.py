"""Whether a server stops when a stream is closed is seen at the server, or said not to be known."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from langchain_reasc_openai.probing import closed_streams
from langchain_reasc_openai.probing.asking import Server
from langchain_reasc_openai.probing.closed_streams import stops_when_cut_off


@dataclass
class Worker:
    """Streams words at a pace. ``tells`` names its way to tell of its work: vllm, sglang, slots, slots and metrics."""

    tells: str | None = None
    goes_on: bool = False
    at_once: int = 8
    pace: float = 0.002
    stale: bool = False
    ends_after: int = 10_000
    running: int = 0
    generated: int = 0
    asked: list[int] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.turns = threading.Semaphore(self.at_once)

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

    def work(self, tokens: int, say: Any) -> None:
        heard = True
        with self.turns:
            with self.lock:
                self.running += 1
            try:
                for _ in range(min(tokens, self.ends_after)):
                    time.sleep(self.pace)
                    self.generated += 1
                    try:
                        heard and say("word ")
                    except OSError:
                        heard = False
                        if not self.goes_on:
                            return
            finally:
                with self.lock:
                    self.running -= 1


@contextmanager
def serving(worker: Worker) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = worker.page(self.path)
            self._reply(200 if text is not None else 404, (text or "{}").encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            worker.asked.append(body["max_tokens"])
            if body.get("stream"):
                self.send_response(200)
                self.end_headers()
                worker.work(body["max_tokens"], self._say)
                return
            worker.work(body["max_tokens"], lambda word: None)
            self._reply(200, b'{"choices": [{"message": {"content": "word"}}]}')

        def _say(self, word: str) -> None:
            event = {"choices": [{"index": 0, "delta": {"content": word}}]}
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

        def _reply(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
    try:
        with Server(f"http://127.0.0.1:{listening.server_port}/v1") as server:
            yield server
    finally:
        listening.shutdown()
        listening.server_close()


def asked(worker: Worker) -> tuple[bool | None, str]:
    def body(tokens: int, **more: Any) -> dict[str, Any]:
        return {"model": "m", "messages": [], "max_tokens": tokens, **more}

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
    worker = Worker("vllm")
    threading.Thread(target=worker.work, args=(3000, lambda word: None), daemon=True).start()
    stops, notice = asked(worker)
    assert stops is None and "busy with other requests" in notice


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_silent_server_that_answers_one_at_a_time_is_timed(goes_on: bool) -> None:
    worker = Worker(goes_on=goes_on, at_once=1, pace=0.02)
    stops, notice = asked(worker)
    assert stops is not goes_on and ("no tokens" in notice) is goes_on
    assert sorted(worker.asked) == [1, 1, 1, 512]


@pytest.mark.parametrize(
    ("worker", "why"),
    [
        (Worker(), "generates too fast"),
        (Worker(pace=0.02), "answers several requests at once"),
        (Worker(ends_after=3), "ended by itself"),
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
