"""Malicious clients and upstreams get an error or are disconnected, and others are served meanwhile."""

import asyncio
import gzip
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from langchain_reasc_server.reading import Bodies
from servers.exchange import Answer, Exchange

from .serving import HELLO, KEY, TOOL, Front, Said, eventually, front

pytestmark = pytest.mark.full

JSON = "application/json"


@pytest.fixture(scope="module")
def server() -> Iterator[Front]:
    with front(Said(), connections=20) as made:
        yield made


@contextmanager
def connected(server: Front, sent: bytes = b"", buffer: int = 0) -> Iterator[socket.socket]:
    host, port = server.url.removeprefix("http://").removesuffix("/v1").split(":")
    with socket.socket() as client:
        if buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        client.settimeout(10)
        client.connect((host, int(port)))
        client.sendall(sent)
        yield client


def read_to_end(client: socket.socket) -> bytes:
    """Return everything until the server closes the connection."""
    got = b""
    try:
        while part := client.recv(65536):
            got += part
    except ConnectionResetError:
        pass
    return got


POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n"
BODY = json.dumps({"model": "tiny", "messages": HELLO}).encode()
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
NO_HTTP: dict[str, bytes] = {
    "two ways to say where it ends": POST
    + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/admin HTTP/1.1\r\nhost: a\r\n\r\n",
    "two lengths": POST + b"content-length: 3\r\ncontent-length: 30\r\n\r\n{}",
    "a length below 0": POST + b"content-length: -3\r\n\r\n{}",
    "a length in hexadecimal": POST + b"content-length: 0x3\r\n\r\n{}",
    "another transfer encoding": POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": POST + b"content-length : 3\r\n\r\n{}",
    "no size of a chunk": CHUNKED + b"zz\r\n{}\r\n",
    "no host": b"POST /v1/chat/completions HTTP/1.1\r\n\r\n",
    "many headers": POST + b"a:b\r\n" * 40_000 + b"\r\n",
    "a line without end": POST + b"a: " + b"b" * 300_000,
    "TLS": bytes.fromhex("16030100a5010000a10303") + b"\r\n" * 3,
    "nothing that is known": b"\x00\xff\r\n\r\n",
}


@pytest.mark.parametrize("case", NO_HTTP)
def test_what_is_not_http_gets_one_error_and_reaches_nobody(server: Front, case: str) -> None:
    before = len(server.upstream.exchanges)
    with connected(server, NO_HTTP[case]) as client:
        head, _, body = read_to_end(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and b"HTTP/1.1" not in body
    assert len(server.upstream.exchanges) == before
    assert server.chat().status_code == 200


@pytest.mark.parametrize("fields", [{}, {"tools": [TOOL]}])
@pytest.mark.parametrize(
    ("value", "status"), [("Müller".encode(), 200), (b"M\xfcller", 200), (b"a\x1bb", 400), (b"\x7f", 400)]
)
def test_headers_may_hold_any_character_but_no_control_characters(
    server: Front, value: bytes, status: int, fields: dict[str, object]
) -> None:
    body = json.dumps({"model": "tiny", "messages": HELLO, **fields}).encode()
    head = POST + b"connection: close\r\nx-title: " + value + b"\r\ncontent-length: %d\r\n\r\n" % len(body)
    with connected(server, head + body) as client:
        assert read_to_end(client).startswith(b"HTTP/1.1 %d " % status)
    if status == 200 and not fields:
        assert server.upstream.headers[-1]["x-title"].encode("latin-1").decode() == "Müller"


def test_further_connections_get_an_error_while_too_many_are_open(server: Front) -> None:
    assert server.chat().status_code == 200  # on a connection that is kept open
    with ExitStack() as stack:
        for _ in range(18):
            stack.enter_context(connected(server))
        with connected(server, b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n") as client:
            assert client.recv(99).startswith(b"HTTP/1.1 503 ")
    assert eventually(lambda: httpx.get(server.url.replace("/v1", "/health/live")).status_code == 200)


async def endless(exchange: Exchange) -> None:
    """Write long words until the client has gone."""
    await exchange.begin_stream()
    while not exchange.gone.is_set():
        await exchange.token("on " * 10_000)


def test_who_does_not_read_holds_the_upstream_back() -> None:
    body = json.dumps({"model": "tiny", "messages": HELLO, "stream": True}).encode()
    asked = POST + b"content-length: %d\r\n\r\n" % len(body) + body
    with front(endless) as server:
        with connected(server, asked, buffer=4096):
            assert eventually(lambda: bool(server.upstream.exchanges))
            [exchange] = server.upstream.exchanges

            def is_held_back() -> bool:
                before = exchange.sent
                return not eventually(lambda: exchange.sent > before, 0.3)

            assert eventually(is_held_back, 10) and exchange.sent < 1000, "what kernels keep, and no more"
            assert not exchange.gone.is_set()
            assert server.http.get(server.url + "/models").status_code == 200
        assert eventually(exchange.gone.is_set)
        assert eventually(lambda: 'status="499"' in server.http.get(server.url.replace("/v1", "/metrics")).text), (
            "it counts as one who has left"
        )


def test_who_reads_slowly_gets_all_of_it() -> None:
    async def long(exchange: Exchange) -> None:
        await exchange.reply(200, {"said": "x" * 3_000_000})

    asked = POST + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY
    with front(long) as server, connected(server, asked, buffer=65536) as client:
        got = 0
        while part := client.recv(200_000):
            got += len(part)
            eventually(lambda: False, 0.02)
        assert got > 3_000_000


def test_ten_megabytes_pass_as_they_are(server: Front) -> None:
    said = [{"role": "user", "content": "word " * 2_000_000}]
    assert server.post({"model": "tiny", "messages": said}).status_code == 200
    assert server.upstream.requests[-1]["messages"] == said


@pytest.mark.parametrize("answer", ["regex:(a|a)*$", "regex", "json:" + "a" * 1000])
@pytest.mark.parametrize("by_header", [False, True])
def test_clients_give_no_patterns(server: Front, answer: str, by_header: bool) -> None:
    before = len(server.upstream.exchanges)
    options: dict[str, Any] = {"headers": {"x-reasc-answer": answer}} if by_header else {}
    fields = {} if by_header else {"reasc": {"answer": answer}}
    reply = server.post({"model": "tiny", "messages": HELLO, **fields}, **options)
    assert reply.status_code == 400 and "answer" in reply.json()["error"]["message"]
    assert len(server.upstream.exchanges) == before


def test_the_operator_gives_a_pattern() -> None:
    with front(Said(), votes={"answer": "regex:is (.*)"}) as server:
        assert server.chat().json()["reasc"]["votes"].keys() == {"42"}


def test_thousands_of_messages_are_voted_on_as_they_are(server: Front) -> None:
    said = HELLO * 5000
    assert server.post({"model": "tiny", "messages": said, "tools": [TOOL]}).json()["reasc"]["samples"] > 1
    assert server.upstream.requests[-1]["messages"] == said


def test_bodies_are_bounded_together_too() -> None:
    with front(Said(), bodies=Bodies(1000)) as server, ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(connected(server, POST + b"content-length: 1000\r\n\r\n" + b" " * 990))
        assert eventually(lambda: server.gateway.bodies.held == 50 * 990)
        refused = server.post({"model": "tiny", "messages": HELLO, "pad": "x" * 800})
        assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "requests_too_large"
        stack.close()
        assert eventually(lambda: server.gateway.bodies.held == 0)
        assert server.chat().status_code == 200


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
def test_bodies_that_are_voted_on_are_bounded_together(path: str, streamed: bool) -> None:
    may_answer = threading.Event()

    async def waits(exchange: Exchange) -> None:
        while not (may_answer.is_set() or exchange.gone.is_set()):
            await asyncio.sleep(0.01)
        await Said()(exchange)

    asked = {"model": "tiny", "messages": HELLO, "input": HELLO, "tools": [], "stream": streamed, "pad": "x" * 4000}
    votes = {"answer": "number", "max_samples": 2}
    with front(waits, bodies=Bodies(10_000, most_voted=13_000), votes=votes) as server, ThreadPoolExecutor() as pool:
        bodies = server.gateway.bodies
        waiting = [pool.submit(server.post, asked, path) for _ in range(3)]
        assert eventually(lambda: len(server.upstream.requests) == 6)
        assert bodies.voted == bodies.held > 12_000
        refused = server.post(asked, path)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        error = refused.json()["error"]
        assert error["code"] == "votes_too_large" and "13,000" in error["message"]
        passed = pool.submit(server.post, {**asked, "temperature": 0}, path)
        assert eventually(lambda: len(server.upstream.requests) == 7), "what is not voted on is not refused"
        may_answer.set()
        assert {one.result().status_code for one in [*waiting, passed]} == {200}
        assert eventually(lambda: bodies.voted == bodies.held == 0)
        assert server.post(asked, path).status_code == 200


def test_a_client_that_leaves_a_vote_frees_its_bytes() -> None:
    with front(endless, votes={"answer": "number"}) as server:
        body = json.dumps({"messages": HELLO}).encode()
        head = POST + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        with connected(server, head + body):
            assert eventually(lambda: server.gateway.bodies.voted == len(body))
        assert eventually(lambda: server.gateway.bodies.voted == 0)


def test_no_sample_is_much_longer_than_its_request() -> None:
    text = "äöü 你好 🙂" * 1000
    with front(Said(), votes={"answer": "number", "max_samples": 3}) as server:
        asked = {"model": "tiny", "messages": [{"role": "user", "content": text + "\ud800"}]}
        for body in (json.dumps(asked), json.dumps({"messages": HELLO, "pad": text}, ensure_ascii=False)):
            server.upstream.exchanges.clear()
            assert server.post(body.encode()).status_code == 200
            for exchange in server.upstream.exchanges:
                assert int(exchange.headers["content-length"]) < 200 + len(body.encode())


def test_who_asks_without_a_key_cannot_make_the_upstream_busy() -> None:
    with front(Said(), admission={"keys": ("one",)}) as server:
        ready = server.url.replace("/v1", "/health/ready")
        assert {server.http.get(ready).status_code for _ in range(30)} == {200}
        assert 1 <= len(server.upstream.gets) < 10


def compressed(status: int, text: str, kind: str = JSON) -> Answer:
    """Compress a reply although the client did not ask for it."""
    body = gzip.compress(text.encode())
    head = (
        f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-encoding: gzip\r\ncontent-length: {len(body)}\r\n\r\n"
    )

    async def reply(exchange: Exchange) -> None:
        exchange.writer.write(head.encode() + body)
        await exchange.writer.drain()

    return reply


def test_a_compressed_reply_is_passed_on_without_unpacking_it() -> None:
    text = json.dumps({"choices": "x" * 10_000_000})
    with (
        front(compressed(200, text)) as server,
        server.http.stream(
            "POST", f"{server.url}/chat/completions", content=BODY, headers={"content-type": JSON}
        ) as reply,
    ):
        assert reply.headers["content-encoding"] == "gzip"
        assert gzip.decompress(b"".join(reply.iter_raw())) == text.encode()


@pytest.mark.parametrize("fields", [{}, {"tools": [TOOL]}, {"tools": [TOOL], "stream": True}])
def test_what_must_be_read_is_refused_where_it_is_compressed(fields: dict[str, object]) -> None:
    status = 500 if not fields else 200
    with front(compressed(status, f"the key {KEY} is wrong")) as server:
        reply = server.chat(**fields)
        assert reply.status_code == 502 and reply.json()["error"]["code"] == "upstream_error"
        assert KEY not in reply.text


NO_REPLY: dict[str, bytes] = {
    "a status that there is not": b"HTTP/1.1 600 X\r\ncontent-length: 0\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 X\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    "no HTTP": b"hello\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 2\r\n\r\n{}",
    "no size of a chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    "no more than a head": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 3\r\n\r\n",
}


@pytest.mark.parametrize("fields", [{}, {"tools": [TOOL]}, {"tools": [TOOL], "stream": True}])
@pytest.mark.parametrize("case", NO_REPLY)
def test_an_upstream_that_answers_nonsense_is_a_bad_gateway(case: str, fields: dict[str, object]) -> None:
    async def answer(exchange: Exchange) -> None:
        exchange.writer.write(NO_REPLY[case])

    with front(answer) as server:
        reply = server.chat(**fields)
        assert reply.status_code == 502 and reply.json()["error"]["type"] == "server_error"
