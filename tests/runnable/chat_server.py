"""A loopback server that speaks OpenAI's streaming chat API, with logprobs."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .fakes import PROMPT_TOKENS, Script, openai_token


@dataclass
class ChatServer:
    """Answers request i to a question with ``script(question, i)``."""

    script: Script
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def take(self, request: dict[str, Any], headers: dict[str, str]) -> Any:
        question = request["messages"][-1]["content"]
        with self.lock:
            index = sum(earlier["messages"][-1]["content"] == question for earlier in self.requests)
            self.requests.append(request)
            self.headers.append(headers)
        return self.script(question, index)


@contextmanager
def chat_server(script: Script) -> Iterator[ChatServer]:
    served = ChatServer(script)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            assert self.path == "/v1/chat/completions"
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            reply = served.take(request, {name.lower(): value for name, value in self.headers.items()})
            if reply.error:
                self.send_error(400, str(reply.error))
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for event in events(reply, request):
                self.wfile.write(f"data: {event}\n\n".encode())
            self.close_connection = True

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def events(reply: Any, request: dict[str, Any]) -> Iterator[str]:
    tokens = list(reply.tokens())
    for token in tokens:
        logprobs = None
        if request.get("logprobs") and reply.logprob is not None:
            logprobs = {"content": [openai_token(token, reply.logprob, request["top_logprobs"])], "refusal": None}
        yield chunk(choices=[{"index": 0, "delta": {"role": "assistant", "content": token}, "logprobs": logprobs}])
    yield chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
    if request.get("stream_options", {}).get("include_usage"):
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": len(tokens)}
        yield chunk(choices=[], usage={**usage, "total_tokens": PROMPT_TOKENS + len(tokens)})
    yield "[DONE]"


def chunk(**fields: Any) -> str:
    return json.dumps({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-test", **fields})
