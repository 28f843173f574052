"""A loopback server that speaks the wire format of one provider, and refuses what that provider refuses.

Every response says "the answer is 42" in four tokens. The alternatives at each place have probability 1/2, 1/4,
1/8 and so on; the model takes the first and the second of them in turn.
"""

import json
import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKENS = ("the", " answer", " is", " 42")
PROMPT_TOKENS = 7


def alternatives(k: int) -> list[float]:
    """The log-probabilities of the k likeliest tokens."""
    return [math.log(0.5) * (rank + 1) for rank in range(k)]


def chosen(place: int) -> float:
    return alternatives(2)[place % 2]


class Refused(Exception):
    """The provider answers with an HTTP error."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Reply:
    """What goes over the wire: server-sent events, lines, or one JSON document."""

    documents: Iterator[Any] | list[Any]
    kind: str = "json"

    def encoded(self) -> Iterator[bytes]:
        for document in self.documents:
            text = document if isinstance(document, str) else json.dumps(document)
            if self.kind == "events":
                yield f"event: {document['type']}\n".encode()
            yield f"data: {text}\n\n".encode() if self.kind in ("sse", "events") else f"{text}\n".encode()

    @property
    def content_type(self) -> str:
        events = "text/event-stream"
        return {"sse": events, "events": events, "lines": "application/x-ndjson"}.get(self.kind, "application/json")


@dataclass
class Served:
    """A running server: where it is, and what it was asked."""

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)


@contextmanager
def serving(wire: Callable[[str, dict[str, Any]], Reply]) -> Iterator[Served]:
    """A server that answers with ``wire(path, request)``."""
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(Reply([{"object": "list", "data": []}]), 200)

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with served.lock:
                served.requests.append(request)
                served.paths.append(self.path)
            try:
                self._send(wire(self.path, request), 200)
            except Refused as error:
                self._send(Reply([{"error": {"message": str(error), "type": "invalid_request_error"}}]), error.status)

        def _send(self, reply: Reply, status: int) -> None:
            body = b"".join(reply.encoded())
            self.send_response(status)
            self.send_header("content-type", reply.content_type)
            self.send_header("content-length", str(len(body)))
            self.send_header("connection", "close")  # no handler waits for a client that is gone
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64  # connections made at once

        def handle_error(self, *args: Any) -> None:
            if not isinstance(sys.exception(), ConnectionError):  # a client may hang up after the last event
                super().handle_error(*args)

    server = Server(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
