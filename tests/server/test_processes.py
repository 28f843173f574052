"""How the processes of ``reasc serve`` write their log, stop, reload and end."""

import asyncio
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import numpy as np
import pytest
from servers.chat_wire import DONE, Chat
from servers.exchange import Exchange
from servers.fake_server import Served, serving

from langchain_reasc.calibration import Observation, fit, save_calibration
from langchain_reasc.models.fingerprint import Fingerprint

from .serving import HELLO, SHAPE, TOOL, Said, eventually, models
from .test_command import HANGS, _counted, _started, process

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="workers are looked up in /proc"),
]
VOTED: Any = {"model": "tiny", "messages": HELLO, "tools": [TOOL], "reasc": {"max_samples": 2}}
PASSED: Any = {"model": "tiny", "messages": HELLO, "temperature": 0}
MANY = 2_560
"""More lines than a pipe and the queue of each of two processes can hold."""


def started_with(workers: int, started: Any, url: str) -> None:
    if workers > 1:
        _started(started.pid, url)


async def ask_often(url: str, count: int, ask: Callable[[aiohttp.ClientSession], Any]) -> None:
    """Send requests on 64 connections."""

    async def ask_some() -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as client:
            for _ in range(count // 64):
                await ask(client)

    async with asyncio.TaskGroup() as group:
        for _ in range(64):
            group.create_task(ask_some())


def fill_log(url: str, count: int) -> None:
    """Send requests that are logged in some 480 bytes each."""

    async def ask(client: aiohttp.ClientSession) -> None:
        async with client.get(f"{url}/{'y' * 300}", headers={"x-request-id": "x" * 190}) as reply:
            assert reply.status == 404

    asyncio.run(ask_often(url, count, ask))


@pytest.fixture
def upstream() -> Iterator[Served]:
    with serving(Said(), get=models) as served:
        yield served


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_requests_are_answered_while_nobody_reads_the_log_and_each_line_is_written_or_counted(
    upstream: Served, workers: int, log_format: str
) -> None:
    options = ("--url", upstream.root, "--preset", "generic", "--workers", str(workers), "--log-format", log_format)
    with process(*options) as (url, started):
        started_with(workers, started, url)
        fill_log(url, MANY)
        dropped = round(_counted(url, "reasc_log_lines_dropped_total"))
        assert 0 < dropped < MANY
        started.terminate()
        _, log = started.communicate(timeout=60)
        assert started.returncode == 0
    said = [int(count.replace(",", "")) for count in re.findall(r"^([\d,]+) lines of the log", log, re.MULTILINE)]
    assert sum(said) == dropped and len(said) <= workers
    assert log.count("y" * 100) == MANY - dropped


WRITERS = {
    "uvicorn": "raise RuntimeError('y' * 400)",
    "a library's log": "import logging; logging.getLogger('library').warning('y' * 400)",
    "a library's warning": "import warnings; warnings.simplefilter('always'); warnings.warn('y' * 400)",
    "a library's print": "import sys; print('y' * 400, file=sys.stderr)",
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("writer", WRITERS)
def test_what_others_write_holds_no_request_up(upstream: Served, workers: int, writer: str, tmp_path: Path) -> None:
    fault = f"async def write(*_):\n {WRITERS[writer]}\n from starlette.responses import Response\n return Response()\n"
    (tmp_path / "fault.py").write_text(f"{fault}from langchain_reasc_server import app\napp.Gateway._status = write")
    serves = "any(name in str(sys.orig_argv) for name in ('spawn_main', 'langchain_reasc_server.command'))"
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nif {serves}: import fault")
    options = ("--url", upstream.root, "--preset", "generic", "--no-learning", "--log", "none")
    with process(*options, "--workers", str(workers), path=str(tmp_path)) as (url, started):
        started_with(workers, started, url)

        async def ask(client: aiohttp.ClientSession) -> None:
            async with client.get(url.removesuffix("v1")) as reply:
                assert reply.status in (200, 500)

        asyncio.run(ask_often(url, 384, ask))
        started.terminate()
        assert started.communicate(timeout=60)[1].count("y" * 400) >= 384
        assert started.returncode == 0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("is_read", [True, False])
def test_a_stop_writes_the_lines_that_wait_and_waits_for_no_reader(
    upstream: Served, workers: int, is_read: bool
) -> None:
    options = ("--url", upstream.root, "--preset", "generic", "--workers", str(workers))
    with process(*options) as (url, started):
        started_with(workers, started, url)

        fill_log(url, 384)  # three times as much as the pipe holds
        started.terminate()
        if is_read:
            assert started.communicate(timeout=60)[1].count("y" * 100) == 384
        assert started.wait(30) == 0


@pytest.mark.parametrize(("workers", "told"), [(1, "TERM"), (1, "INT"), (2, "TERM"), (2, "INT"), (2, "HUP")])
def test_requests_that_outlast_a_stop_are_told_so_and_logged(workers: int, told: str) -> None:
    async def hangs(exchange: Exchange) -> None:
        await exchange.hang()

    bodies = [body for body in (VOTED, PASSED) for _ in range(5)]
    with serving(hangs, get=models) as upstream, ThreadPoolExecutor(len(bodies)) as threads:
        options = ("--url", upstream.root, "--preset", "generic", "--shutdown", "1", "--no-learning")
        with process(*options, "--workers", str(workers)) as (url, started):
            started_with(workers, started, url)
            asking = [threads.submit(httpx.post, f"{url}/chat/completions", json=body, timeout=60) for body in bodies]
            assert eventually(lambda: _counted(url, "reasc_requests_running") == len(bodies), 30)
            started.send_signal(signal.Signals[f"SIG{told}"])
            replies = [one.result() for one in asking]
            started.terminate()
            _, log = started.communicate(timeout=60)
    assert [(reply.status_code, reply.json()["error"]["code"]) for reply in replies] == [(503, "stopped")] * len(bodies)
    assert log.count(" 503 seconds=") == log.count("error=stopped") == len(bodies)


def test_workers_end_when_their_supervisor_is_killed_and_give_up_the_port(upstream: Served) -> None:
    options = ("--url", upstream.root, "--preset", "generic", "--no-learning", "--workers", "2", "--shutdown", "1")
    with process(*options) as (url, started):
        workers = _started(started.pid, url)
        started.kill()
        started.wait()
        try:
            assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 20)
            with socket.socket() as listening:
                listening.bind(("127.0.0.1", int(url.split(":")[2].split("/")[0])))
        finally:
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def write_calibration(path: Path, **fingerprint: str) -> None:
    questions = [Observation((0, 0, 0, at % 3), np.empty((0, 4))) for at in range(40)]
    save_calibration(fit(questions, fingerprint=Fingerprint(**fingerprint)), path)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_sighup_reads_the_files_again_and_disturbs_no_request(workers: int, tmp_path: Path) -> None:
    async def in_a_while(exchange: Exchange) -> None:
        await asyncio.sleep(2 if exchange.body["messages"][-1]["content"] == "slow" else 0)
        await Said()(exchange)

    keys, calibration = tmp_path / "keys", tmp_path / "calibration.json"
    keys.write_text("sk-mine\nsk-old\n")
    write_calibration(calibration)

    def status(key: str, text: str = "fast", **fields: Any) -> int:
        body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "tools": [TOOL], **fields}
        headers = {"authorization": f"Bearer {key}"}
        return httpx.post(f"{url}/chat/completions", json=body, headers=headers, timeout=60).status_code

    offered = {"reasc": {"calibration": "mine", "answer": "number"}, "tools": []}
    with serving(in_a_while, get=models) as upstream, ThreadPoolExecutor(1) as threads:
        options = ("--url", upstream.root, "--preset", "generic", "--keys", str(keys), "--offer", f"mine={calibration}")
        with process(*options, "--workers", str(workers)) as (url, started):
            started_with(workers, started, url)
            assert (status("sk-mine"), status("sk-old"), status("sk-new")) == (200, 200, 401)
            assert status("sk-mine", **offered) == 200
            asking = threads.submit(status, "sk-mine", "slow")
            keys.write_text("sk-mine\nsk-new\n")
            write_calibration(calibration, prompt_sha256="0" * 64)
            started.send_signal(signal.SIGHUP)
            assert eventually(lambda: status("sk-new") == 200, 60) and eventually(lambda: status("sk-old") == 401, 60)
            assert eventually(lambda: status("sk-mine", **offered) == 400, 60)
            assert asking.result() == 200
            keys.unlink()
            started.send_signal(signal.SIGHUP)
            started.send_signal(signal.SIGHUP)
            time.sleep(2)
            assert status("sk-mine") == 200, "what cannot be read changes nothing"
            started.terminate()
            assert str(keys) in started.communicate(timeout=60)[1] and started.returncode == 0


MODEL, USER = "marker-of-the-model", "marker-of-the-user"
CHAT = Chat()


def replies(message: Any) -> Any:
    """Reply with a whole message, or with a stream of it as one delta."""

    async def answer(exchange: Exchange) -> None:
        choice = {"index": 0, "finish_reason": "stop"}
        if exchange.body.get("stream"):
            await exchange.stream([CHAT.chunk(choices=[{**choice, "delta": message}]), DONE])
        else:
            whole = CHAT.document(
                "chat.completion", choices=[{**choice, "message": message}], usage=CHAT.usage([["a"]])
            )
            await exchange.reply(200, whole)

    return answer


def calls(arguments: str, name: str = "weather") -> Any:
    function = {"name": name, "arguments": arguments}
    return replies(
        {"role": "assistant", "tool_calls": [{"index": 0, "id": "1", "type": "function", "function": function}]}
    )


def writes(text: str, *, begins: bool = True) -> Any:
    """Write to the connection, past the form of HTTP or of a stream that has begun, and close it."""

    async def answer(exchange: Exchange) -> None:
        if begins:
            await exchange.begin_stream()
        exchange.writer.write(text.encode())
        await exchange.cut()

    return answer


async def fails_in_the_stream(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.token(MODEL)
    await exchange.stream([{"error": {"message": MODEL, "type": "test", "code": None}}])


async def no_json(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.write(f"data: {MODEL}\n\n")
    await exchange.cut()


async def refuses_by_quoting(exchange: Exchange) -> None:
    await exchange.refuse(400, f"{MODEL} {exchange.question}")


TELLING = {
    "a text": replies({"role": "assistant", "content": MODEL}),
    "another schema": replies({"role": "assistant", "content": f'{{"other": "{MODEL}"}}'}),
    "half a document": replies({"role": "assistant", "content": f'{{"status": "{MODEL}'}),
    "a call": calls(f'{{"city": "{MODEL}"}}'),
    "half a call": calls(f'{{"city": "{MODEL}'),
    "a call of no tool": calls("{}", MODEL),
    "arguments that are a list": calls(f'["{MODEL}"]'),
    "calls that are a text": replies({"role": "assistant", "tool_calls": MODEL}),
    "content that is an object": replies({"role": "assistant", "content": {"text": MODEL}}),
    "a refusal": refuses_by_quoting,
    "an error in the stream": fails_in_the_stream,
    "no JSON": no_json,
    "a stream that breaks off": writes(f"ff\r\n{MODEL}"),
    "a chunk of no length": writes(f"{MODEL}\r\n{MODEL}"),
    "no HTTP": writes(f"{MODEL}\r\n\r\n", begins=False),
    "a short body": writes(f"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{MODEL}", begins=False),
}
ASKED: tuple[dict[str, Any], ...] = (
    {"tools": [TOOL]},
    {"response_format": SHAPE},
    {"reasc": {"answer": "json:status"}},
    {"temperature": 0},
    {"tools": [{"type": "function", "function": {"name": USER}}]},
)


def test_the_log_holds_nothing_that_a_model_or_a_user_wrote() -> None:
    async def answer(exchange: Exchange) -> None:
        await TELLING[exchange.body["user"]](exchange)

    def ask(case: str, fields: dict[str, Any], stream: bool) -> None:
        messages = [{"role": "user", "content": USER}]
        body = {"model": "tiny", "messages": messages, "user": case, "stream": stream, **fields}
        with suppress(httpx.RemoteProtocolError):
            httpx.post(f"{url}/chat/completions", json=body, timeout=60)

    with serving(answer, get=models) as upstream, ThreadPoolExecutor(16) as threads:
        given = ("--url", upstream.root, "--model", "tiny", "--preset", "vllm", "--no-learning", "--max-samples", "2")
        with process(*given, "--timeout", "5") as (url, started):
            ways = [(case, fields, stream) for case in TELLING for fields in ASKED for stream in (False, True)]
            list(threads.map(ask, *zip(*ways, strict=True)))
            started.terminate()
            _, log = started.communicate(timeout=60)
    assert log.count(" POST /v1/chat/completions ") == len(ways)
    assert [line for line in log.splitlines() if "marker" in line] == []


@pytest.mark.slow  # waits for the watchdog
@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("hangs", HANGS)
def test_a_process_that_hangs_writes_where_and_ends_even_if_nobody_reads(
    hangs: str, is_read: bool, tmp_path: Path
) -> None:
    fault = f"async def hang(*_):\n {HANGS[hangs]}\nfrom langchain_reasc_server import app, processes\n"
    (tmp_path / "fault.py").write_text(f"{fault}processes._STANDS_STILL = 3\napp.Gateway._status = hang")
    serves = "'langchain_reasc_server.command' in str(sys.orig_argv)"
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nif {serves}: import fault")
    options = ("--url", "http://127.0.0.1:9", "--model", "tiny", "--preset", "vllm", "--no-learning")
    with process(*options, path=str(tmp_path)) as (url, started):
        if not is_read:
            fill_log(url, 384)
        with pytest.raises(httpx.HTTPError):
            httpx.get(url.removesuffix("v1"), timeout=30)
        if is_read:
            assert started.stderr is not None and "in hang" in started.stderr.read()
        assert started.wait(20) != 0
