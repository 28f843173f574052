"""The server in this process, in front of scripted upstreams."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from langchain_reasc_openai import ChatOpenAICompatible, RetryPolicy
from langchain_reasc_server.app import Gateway
from langchain_reasc_server.calls import VotePolicy
from langchain_reasc_server.keys import Admission
from langchain_reasc_server.processes import uvicorn_options
from langchain_reasc_server.proxy import Servers
from langchain_reasc_server.solver import Solver
from servers.chat_wire import Calling, Request
from servers.exchange import Exchange, refuses
from servers.fake_server import Served, serving

HELLO = [{"role": "user", "content": "How much is 40 + 2?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SHAPE = {
    "type": "json_schema",
    "json_schema": {
        "name": "status",
        "schema": {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]},
    },
}
KEY = "sk-upstream-secret"
FAST = RetryPolicy(attempts=2, first_wait=0.01, longest_wait=0.02, sideline=0.05)


@dataclass
class Said(Calling):
    """Say its texts in turn, call the first tool of the request, and add fields that no API has."""

    texts: Sequence[str] = ("it is 42",)
    cities: Sequence[str] = ("Paris",)
    strange: bool = True

    def __post_init__(self) -> None:
        self.calls = lambda at: [("weather", json.dumps({"city": self.cities[at % len(self.cities)]}))]

    def called(self, request: Request, at: int) -> list[dict[str, Any]]:
        return super().called(request, at) if request.get("tools") else []

    def said(self, request: Request, at: int) -> list[Sequence[str]]:
        if request.get("response_format"):
            return [['{"status"', ': "fine"}']] * (request.get("n") or 1)
        words = [f"{word} " for word in self.texts[at % len(self.texts)].split()]
        return [words] * (request.get("n") or 1)

    def document(self, kind: str, **fields: Any) -> dict[str, Any]:
        own = {"system_fingerprint": "fp_1", "x_timing": {"queued": 3}} if self.strange else {}
        return {**super().document(kind, **fields), **own}

    def beside(self, word: str, request: Request, place: int) -> dict[str, Any]:
        return {**super().beside(word, request, place), **({"x_of_choice": [1, 2]} if self.strange else {})}


async def endless(exchange: Exchange) -> None:
    """Write words until the client has gone."""
    await exchange.begin_stream()
    while not exchange.gone.is_set():
        await exchange.token("on ")
        await exchange.writer.drain()
        await asyncio.sleep(0.005)


async def breaks_off(exchange: Exchange) -> None:
    """Break a stream off after a word."""
    await exchange.begin_stream()
    await exchange.token("half ")
    await exchange.cut()


async def models(exchange: Exchange) -> None:
    await exchange.reply(200, {"object": "list", "data": [{"id": "tiny", "object": "model"}]})


@dataclass
class Front:
    """The server and its upstreams."""

    url: str
    upstreams: list[Served]
    gateway: Gateway
    http: httpx.Client = field(init=False)

    @property
    def upstream(self) -> Served:
        return self.upstreams[0]

    def post(self, body: Any, path: str = "/chat/completions", **options: Any) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **options.pop("headers", {})}
        return self.http.post(self.url + path, content=content, headers=headers, **options)

    def chat(self, **fields: Any) -> httpx.Response:
        return self.post({"model": "tiny", "messages": HELLO, **fields})

    def events(self, **fields: Any) -> list[Any]:
        """Return the events of a stream, and everything else in it as text."""
        return events_in(self.chat(stream=True, **fields).text)


def events_in(text: str) -> list[Any]:
    parts = [part for part in text.split("\n\n") if part]
    return [_event(part) for part in parts]


def _event(part: str) -> Any:
    data = part.removeprefix("data: ")
    return json.loads(data) if data.startswith("{") else data


@contextmanager
def front(*answers: Any, served: Any = None, **options: Any) -> Iterator[Front]:
    """Serve in front of upstreams with these answers (None: an upstream that is gone), or in front of ``served``."""
    votes = options.pop("votes", {})
    admission = options.pop("admission", {})
    keys = {key: f"key{number}" for number, key in enumerate(admission.get("keys", ()), 1)}
    pass_keys = options.pop("pass_keys", False)
    fields = {"preset": "vllm", "retry": options.pop("retry", FAST), **options.pop("fields", {})}
    connections = options.pop("connections", 4096)
    larger = options.pop("larger", None)
    listed = options.pop("get", models)
    with ExitStack() as stack:
        upstreams = [_gone() if one is None else stack.enter_context(serving(one, get=listed)) for one in answers]
        if served is None:
            model = stack.enter_context(
                ChatOpenAICompatible(
                    **{"base_url": [one.url for one in upstreams], "model": "tiny", "api_key": KEY, **fields}
                )
            )
            served = Servers(model, pass_keys=pass_keys)
        solver = Solver(served, VotePolicy(**{"calibration": None, **votes}), larger)
        gateway = Gateway(served, solver, Admission(**{**admission, "keys": keys}), **options)
        url = stack.enter_context(listening(gateway.app, **uvicorn_options(connections)))
        made = Front(url, upstreams, gateway)
        made.http = stack.enter_context(httpx.Client(timeout=20))
        yield made


def _gone() -> Served:
    with serving(refuses(404)) as served:
        return served


class PromptServer(uvicorn.Server):
    """Check a hundred times a second, instead of ten, whether to exit."""

    async def main_loop(self) -> None:
        while not self.should_exit:
            await asyncio.sleep(0.01)


@contextmanager
def listening(app: Any, **options: Any) -> Iterator[str]:
    """Serve on loopback in a thread, and yield the base URL."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        config = uvicorn.Config(app, timeout_graceful_shutdown=1, **options)
        server = PromptServer(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="gateway")
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()


def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
