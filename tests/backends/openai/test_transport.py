"""Connections: what their errors say, and that a forked process leaves its parent's alone."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from langchain_core.exceptions import ModelConnectionError, ModelTimeoutError
from servers import fake_server
from servers.chat_wire import Chat
from servers.exchange import Exchange

from backends.openai.conftest import model_of
from backends.openai.fake_server import Fake
from backends.openai.loopback import Face, model_at

KEY = "sk-kept-secret"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """A server that sends these bytes and closes the connection; None resets it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65_536)
                    if answer is None:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    else:
                        connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("call", ["invoke", "stream"])
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        None,
        b"hello\r\n\r\n",
        STREAM + b'10\r\ndata: {"choic',
        STREAM + b"zz\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 99_999,
    ],
    ids=["closed", "reset", "not HTTP", "broken off", "no chunk", "long header"],
)
def test_a_lost_connection_is_no_timeout_and_no_error_holds_the_key(
    fake: Fake, face: Face, answer: bytes | None, call: str
) -> None:
    with (
        answering(answer) as url,
        model_of(fake, base_url=url, api_key=KEY, max_retries=0) as model,
        pytest.raises(ModelConnectionError) as raised,
    ):
        face.invoke(model, "q") if call == "invoke" else list(face.stream(model, "q"))
    assert not isinstance(raised.value, ModelTimeoutError)
    error: BaseException | None = raised.value
    while error is not None:
        held = {name: value for name, value in vars(error).items() if name not in ("request", "_request")}
        assert KEY not in f"{error} {error.args} {held}"
        assert "aiohttp" not in type(error).__module__
        error = error.__cause__ or error.__context__


async def malformed(exchange: Exchange) -> None:
    """Send a chunk that is not of HTTP's form in the middle of a stream, and keep the connection."""
    await exchange.begin_stream()
    await exchange.token("half ")
    await asyncio.sleep(0.3)
    exchange.writer.write(b"no size\r\nand no end")
    await exchange.hang()


@pytest.mark.full
def test_a_malformed_chunk_ends_the_wait(fake: Fake, face: Face) -> None:
    with (
        fake_server.serving(malformed) as served,
        model_of(fake, base_url=served.url, api_key=KEY, max_retries=0) as model,
        pytest.raises(ModelConnectionError),
    ):
        list(face.stream(model, "q"))


FORKING = """
import os, sys
from langchain_reasc_openai import ChatOpenAICompatible
model = ChatOpenAICompatible(base_url=sys.argv[1], model="tiny", preset="vllm")

def asked():
    with model.sample("q", n=3) as samples:
        return [model.invoke("q").content, *(message.content for _, message in samples)]

first = asked()
if child := os.fork():
    assert asked() == first  # while the child uses its own
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asked() == first
else:
    assert asked() == first
print("done")
"""


@pytest.mark.full
@pytest.mark.sync_only
def test_a_model_that_was_used_before_a_fork_works_in_both_processes(fake: Fake) -> None:
    # From Python 3.12 on, os.fork warns.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, fake.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (done.stdout.split(), done.stderr, done.returncode) == (["done", "done"], "", 0)


def test_each_request_has_its_own_body_headers_and_cookies(face: Face) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.reply(200, Chat().whole(exchange.body), set_cookie="lane=7; Path=/")

    long = "How much is 17 + 25? " * 50
    with fake_server.serving(answer) as served, model_at(served.url, logprobs=None, top_logprobs=None) as model:
        for question, trace in (("short", "1"), (long, "1"), ("short", "2"), (long, None)):
            face.invoke(model, question, extra_headers={"x-trace": trace} if trace else {})
    assert [one.body["messages"][0]["content"] for one in served.exchanges] == ["short", long, "short", long]
    assert [one.headers.get("x-trace") for one in served.exchanges] == ["1", "1", "2", None]
    assert [one.headers.get("cookie") for one in served.exchanges] == [None, "lane=7", "lane=7", "lane=7"]
