"""A loopback server of OpenAI's chat API that does what it is told, right or wrong, to the byte."""

import json
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from runnable.chat_server import chunk, events
from runnable.fakes import Reply

__all__ = ["Behaviour", "Exchange", "FaultServer", "answer", "fault_server"]

JSON = "application/json"
EVENTS = "text/event-stream"
PATIENCE = 60  # seconds after which a hanging reply ends by itself


@dataclass
class Exchange:
    """One request and the means to reply to it.

    Attributes:
        request: its JSON.
        sample: the sample it is for: its seed, where the client counts samples from seed 0.
        attempt: how often the sample was asked for before.
        headers: of the request, their names in lower case.
        gone: set when the server closes; hanging replies wait for it.
    """

    handler: BaseHTTPRequestHandler
    request: dict[str, Any]
    sample: int
    attempt: int
    headers: dict[str, str]
    gone: threading.Event

    def whole(self, status: int, body: str | bytes = b"", *, content_type: str = JSON, **headers: str) -> None:
        """A reply of known length."""
        data = body.encode() if isinstance(body, str) else body
        self._head(status, content_type, {"content-length": str(len(data)), **headers})
        self.handler.wfile.write(data)

    def begin(self, *, content_type: str = EVENTS) -> None:
        """The head of a chunked reply: unlike one that ends with the connection, its end can be missed."""
        self._head(200, content_type, {"transfer-encoding": "chunked"})

    def piece(self, data: bytes) -> None:
        self.handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.handler.wfile.flush()

    def event(self, data: str) -> None:
        self.piece(f"data: {data}\n\n".encode())

    def end(self) -> None:
        self.handler.wfile.write(b"0\r\n\r\n")

    def hang(self) -> None:
        """Say nothing more until the server closes."""
        self.gone.wait(PATIENCE)

    def _head(self, status: int, content_type: str, headers: dict[str, str]) -> None:
        self.handler.send_response(status)
        for name, value in {"content-type": content_type, "connection": "close", **headers}.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()


Behaviour = Callable[[Exchange], None]


def answer(exchange: Exchange, text: str = "it is 42", *, content_type: str = EVENTS) -> None:
    """What a server in good health replies."""
    reply = Reply(text, -1.25)
    if not exchange.request.get("stream"):
        exchange.whole(200, json.dumps(completion(reply, exchange.request)))
        return
    exchange.begin(content_type=content_type)
    for event in events(reply, exchange.request):
        exchange.event(event)
    exchange.end()


def completion(reply: Reply, request: dict[str, Any]) -> dict[str, Any]:
    """The unstreamed reply with the ``n`` choices asked for."""
    parts = [
        json.loads(event)
        for event in events(reply, {**request, "stream_options": {"include_usage": True}})
        if event != "[DONE]"
    ]
    tokens = [part["choices"][0] for part in parts if part["choices"] and part["choices"][0]["delta"]]
    content = [entry for token in tokens for entry in (token["logprobs"] or {"content": []})["content"]]
    message = {"role": "assistant", "content": "".join(token["delta"]["content"] for token in tokens)}
    n = request.get("n") or 1
    choice = {"message": message, "finish_reason": "stop", "logprobs": {"content": content} if content else None}
    usage = parts[-1]["usage"]
    usage["completion_tokens"] *= n
    usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    choices = [{"index": index, **choice} for index in range(n)]
    return json.loads(chunk(choices=choices, usage=usage)) | {"object": "chat.completion"}


@dataclass
class FaultServer:
    """Replies to each request for a completion as ``behave`` says.

    Attributes:
        behave: may be exchanged while the server runs.
        url: base URL for clients.
        exchanges: all that came in, in order of arrival.
    """

    behave: Behaviour
    url: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)
    _asked: Counter[int] = field(default_factory=Counter)
    _lock: Any = field(default_factory=threading.Lock)

    def take(self, handler: BaseHTTPRequestHandler) -> Exchange:
        request = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self._lock:
            sample = request.get("seed") or 0
            exchange = Exchange(handler, request, sample, self._asked[sample], headers, self.gone)
            self._asked[sample] += 1
            self.exchanges.append(exchange)
        return exchange

    def attempts(self, sample: int) -> int:
        """How often a sample was asked for."""
        return self._asked[sample]


@contextmanager
def fault_server(behave: Behaviour, *, tls: ssl.SSLContext | None = None) -> Iterator[FaultServer]:
    """Run one on a free port of 127.0.0.1."""
    served = FaultServer(behave)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.close_connection = True
            if self.path.endswith("/chat/completions"):
                served.behave(served.take(self))
            else:
                self.send_error(404)

        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # clients that hang up are part of the plan

    server = Server(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    served.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield served
    finally:
        served.gone.set()
        server.shutdown()
        server.server_close()
        thread.join()
