"""A loopback server that answers as one kind of OpenAI-compatible server does, with gaps where it is told so."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OPENAI_FIELDS = {
    *("messages", "model", "n", "stream", "stream_options", "logprobs", "top_logprobs", "seed", "temperature", "top_p"),
    *("stop", "max_tokens", "max_completion_tokens", "presence_penalty", "frequency_penalty", "tools", "tool_choice"),
    *("response_format", "logit_bias", "parallel_tool_calls"),
}


@dataclass
class Fake:
    """What the server has.

    ``k`` None: no logprobs; ``extra`` come beside them. ``takes`` are the parameters beyond OpenAI's that it reads.
    """

    owner: str = "vllm"
    software: str = "uvicorn"
    models: tuple[str, ...] = ("tiny",)
    meta: dict[str, Any] | None = None
    native: dict[str, Any] = field(default_factory=lambda: {"/version": {"version": "0.11.0"}})
    k: int | None = 20
    refuses_k: bool = True
    extra: int = 0
    n: bool = True
    streams: bool = True
    streams_logprobs: bool = True
    streams_usage: bool = True
    seed: str = "counts"
    takes: tuple[str, ...] = ("top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos")
    strict: bool = False
    limit: str = "both"
    key: str | None = None
    status: int = 200
    turns_busy: tuple[int, int] | None = None
    words: tuple[str, ...] = ("So", " it", " is", " \\boxed{4}")
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def refusal(self, request: dict[str, Any]) -> str | None:
        """Why a request is refused."""
        if request["model"] not in self.models:
            return f"The model `{request['model']}` does not exist"
        other = "max_tokens" if self.limit == "max_completion_tokens" else "max_completion_tokens"
        if self.strict and self.limit != "both" and other in request:
            return f"Unsupported parameter: '{other}'. Use '{self.limit}' instead."
        for name, value in request.items():
            if name in OPENAI_FIELDS:
                continue
            if name not in self.takes and self.strict:
                return f"Unrecognized request argument supplied: {name}"
            if name in self.takes and isinstance(value, dict):
                return f"{name}: Input should be a valid number"
        if self.k is not None and self.refuses_k and request.get("top_logprobs", 0) > self.k:
            return f"top_logprobs must be at most {self.k}"
        if not self.streams and request.get("stream"):
            return "streaming is not supported"
        return None

    def text(self, request: dict[str, Any], index: int, at: int) -> list[str]:
        words = list(self.words)
        if self.seed == "counts" and "seed" in request:
            words[0] = f"So{request['seed'] + index}"
        elif self.seed == "ignored":
            words[0] = f"So{at}"
        return words[: request.get("max_tokens") or request.get("max_completion_tokens") or len(words)]

    def token(self, word: str, request: dict[str, Any]) -> dict[str, Any]:
        k = min(self.k or 0, request.get("top_logprobs") or 0) + self.extra
        top = [{"token": word, "logprob": -0.1, "bytes": None}]
        top += [{"token": f"w{i}", "logprob": -3.0 - i, "bytes": None} for i in range(1, k)]
        return {"token": word, "logprob": -0.1, "bytes": list(word.encode()), "top_logprobs": top[:k]}

    def logprobs(self, words: list[str], request: dict[str, Any]) -> dict[str, Any] | None:
        if self.k is None or not request.get("logprobs"):
            return None
        return {"content": [self.token(word, request) for word in words]}

    def usage(self, tokens: int) -> dict[str, int]:
        return {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}


def whole(fake: Fake, request: dict[str, Any], at: int) -> dict[str, Any]:
    count = request.get("n", 1) if fake.n else 1
    texts = [fake.text(request, index, at) for index in range(count)]
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": "".join(words)},
            "logprobs": fake.logprobs(words, request),
            "finish_reason": "stop",
        }
        for index, words in enumerate(texts)
    ]
    usage = fake.usage(sum(map(len, texts)))
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": request["model"],
        "choices": choices,
        "usage": usage,
    }


def events(fake: Fake, request: dict[str, Any], at: int) -> Iterator[dict[str, Any]]:
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": request["model"]}
    texts = [fake.text(request, index, at) for index in range(request.get("n", 1) if fake.n else 1)]
    for index, words in enumerate(texts):
        for word in words:
            logprobs = fake.logprobs([word], request) if fake.streams_logprobs else None
            choice = {"index": index, "delta": {"role": "assistant", "content": word}, "logprobs": logprobs}
            yield {**base, "choices": [{**choice, "finish_reason": None}]}
        yield {**base, "choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]}
    if fake.streams_usage and (request.get("stream_options") or {}).get("include_usage"):
        yield {**base, "choices": [], "usage": fake.usage(sum(map(len, texts)))}


@contextmanager
def serving(fake: Fake) -> Iterator[Fake]:
    """Serve it on loopback; ``fake.url`` is its base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version, sys_version = fake.software, ""
        wbufsize = -1  # head and body in one packet, or each answer waits 40 ms for an acknowledgement

        def do_GET(self) -> None:
            fake.gets.append(self.path)
            if not self._allowed():
                return
            if self.path == "/v1/models":
                row = {"object": "model", "owned_by": fake.owner, **({"meta": fake.meta} if fake.meta else {})}
                rows = [{"id": name, **row} for name in fake.models]
                self._json(200, {"object": "list", "data": rows})
            elif self.path in fake.native:
                self._json(200, fake.native[self.path])
            else:
                self._json(404, {"error": {"message": "Not Found"}})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if not self._allowed():
                return
            with fake.lock:
                at = len(fake.requests)
                fake.requests.append(request)
                fake.headers.append({name.lower(): value for name, value in self.headers.items()})
            if fake.turns_busy and at >= fake.turns_busy[0]:
                self._json(fake.turns_busy[1], {"error": {"message": "too many requests"}})
            elif fake.status != 200:
                self._json(fake.status, {"error": {"message": "out of order"}})
            elif refusal := fake.refusal(request):
                self._json(404 if "does not exist" in refusal else 400, {"error": {"message": refusal}})
            elif request.get("stream"):
                self._stream(request, at)
            else:
                self._json(200, whole(fake, request, at))

        def _allowed(self) -> bool:
            given = self.headers.get("authorization")
            if fake.key is None or given == f"Bearer {fake.key}":
                return True
            self._json(401, {"error": {"message": f"Incorrect API key provided; quoted: {given}"}})
            return False

        def _stream(self, request: dict[str, Any], at: int) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for event in events(fake, request, at):
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

        def _json(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def vllm(**changes: Any) -> Fake:
    return Fake(**changes)


def sglang(**changes: Any) -> Fake:
    return Fake(owner="sglang", native={"/get_server_info": {"version": "0.5.4"}}, **changes)


def llama_server(**changes: Any) -> Fake:
    native = {"/props": {"build_info": "b6900-abc"}}
    takes = ("top_k", "min_p", "typical_p", "repeat_penalty", "ignore_eos")
    return Fake("llamacpp", "llama.cpp", native=native, k=100, takes=takes, **changes)


def ollama(**changes: Any) -> Fake:
    return Fake(
        "library", native={"/api/version": {"version": "0.13.5"}}, n=False, takes=(), limit="max_tokens", **changes
    )


def lm_studio(**changes: Any) -> Fake:
    rows = [{"id": "tiny", "object": "model", "compatibility_type": "gguf", "state": "loaded"}]
    native = {"/api/v0/models": {"object": "list", "data": rows}}
    takes = ("top_k", "repeat_penalty")
    return Fake("organization_owner", "", native=native, k=None, n=False, takes=takes, **changes)
