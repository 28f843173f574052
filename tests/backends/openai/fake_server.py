"""A loopback server that answers as one kind of OpenAI-compatible server does, with gaps where it is told so."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from servers import fake_server
from servers.chat_wire import Chat, Refused, Request
from servers.exchange import Exchange

OPENAI_FIELDS = {
    *("messages", "model", "n", "stream", "stream_options", "logprobs", "top_logprobs", "seed", "temperature", "top_p"),
    *("stop", "max_tokens", "max_completion_tokens", "presence_penalty", "frequency_penalty", "tools", "tool_choice"),
    *("response_format", "logit_bias", "parallel_tool_calls"),
}


@dataclass
class Fake(Chat):
    """What the server has.

    ``k`` None: no logprobs; -1: they are refused; ``extra`` come beside them. ``legacy``: in the shape of the older
    completions API. ``takes`` are the parameters beyond OpenAI's that it reads.
    """

    words: Sequence[str] = ("So", " it", " is", " \\boxed{4}")
    owner: str = "vllm"
    software: str = "uvicorn"
    models: tuple[str, ...] = ("tiny",)
    meta: dict[str, Any] | None = None
    native: dict[str, Any] = field(default_factory=lambda: {"/version": {"version": "0.11.0"}})
    k: int | None = 20
    refuses_k: bool = True
    extra: int = 0
    legacy: bool = False
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
    served: fake_server.Served = field(init=False)

    @property
    def url(self) -> str:
        return self.served.url

    @property
    def requests(self) -> list[Request]:
        return self.served.requests

    @property
    def headers(self) -> list[dict[str, str]]:
        return self.served.headers

    @property
    def gets(self) -> list[str]:
        return self.served.gets

    async def __call__(self, exchange: Exchange) -> None:
        self.let_in(exchange)
        if self.turns_busy and exchange.at >= self.turns_busy[0]:
            raise Refused("too many requests", self.turns_busy[1])
        if self.status != 200:
            raise Refused("out of order", self.status)
        await super().__call__(exchange)

    async def get(self, exchange: Exchange) -> None:
        self.let_in(exchange)
        if exchange.path == "/v1/models":
            row = {"object": "model", "owned_by": self.owner, **({"meta": self.meta} if self.meta else {})}
            found: Any = {"object": "list", "data": [{"id": name, **row} for name in self.models]}
        elif (found := self.native.get(exchange.path)) is None:
            raise Refused("Not Found", 404)
        await exchange.reply(200, found, server=self.software)

    def let_in(self, exchange: Exchange) -> None:
        given = exchange.headers.get("authorization")
        if self.key is not None and given != f"Bearer {self.key}":
            raise Refused(f"Incorrect API key provided; quoted: {given}", 401)

    def check(self, path: str, request: Request) -> None:
        if request["model"] not in self.models:
            raise Refused(f"The model `{request['model']}` does not exist", 404)
        other = "max_tokens" if self.limit == "max_completion_tokens" else "max_completion_tokens"
        if self.strict and self.limit != "both" and other in request:
            raise Refused(f"Unsupported parameter: '{other}'. Use '{self.limit}' instead.")
        for name in request.keys() - OPENAI_FIELDS:
            if name not in self.takes and self.strict:
                raise Refused(f"Unrecognized request argument supplied: {name}")
            if name in self.takes and isinstance(request[name], dict):
                raise Refused(f"{name}: Input should be a valid number")
        wants = request.get("top_logprobs", 0 if request.get("logprobs") else -1)
        if self.k is not None and self.refuses_k and wants > self.k:
            raise Refused(f"top_logprobs must be at most {self.k}")
        if not self.streams and request.get("stream"):
            raise Refused("streaming is not supported")

    def said(self, request: Request, at: int) -> list[Sequence[str]]:
        limit = request.get("max_tokens") or request.get("max_completion_tokens") or len(self.words)
        texts: list[Sequence[str]] = []
        for index in range(request.get("n", 1) if self.n else 1):
            first, *others = self.words
            if self.seed == "counts" and "seed" in request:
                first = f"So{request['seed'] + index}"
            elif self.seed == "ignored":
                first = f"So{at}"
            texts.append([first, *others][:limit])
        return texts

    def logprobs(self, words: Sequence[str], request: Request, first: int = 0) -> Any:
        given = None if self.k is None else super().logprobs(words, request, first)
        if given is None or not self.legacy:
            return given
        return {
            "token_logprobs": [token["logprob"] for token in given["content"]],
            "top_logprobs": [
                {one["token"]: one["logprob"] for one in token["top_logprobs"]} for token in given["content"]
            ],
        }

    def ranked(self, word: str, place: int, k: int) -> list[tuple[str, float]]:
        ranked = [(word, -0.1), *((f"w{at}", -3.0 - at) for at in range(1, 1000))]
        return [ranked[0], *ranked[: min(self.k or 0, k) + self.extra]]

    def beside(self, word: str, request: Request, place: int) -> dict[str, Any]:
        return super().beside(word, request, place) if self.streams_logprobs else {}


@contextmanager
def serving(fake: Fake) -> Iterator[Fake]:
    """Serve it on loopback; ``fake.url`` is its base URL."""
    fake.counts = fake.streams_usage
    with fake_server.serving(fake, get=fake.get) as fake.served:
        yield fake


def vllm(**changes: Any) -> Fake:
    return Fake(**changes)


def sglang(**changes: Any) -> Fake:
    return Fake(owner="sglang", native={"/get_server_info": {"version": "0.5.4"}}, **changes)


def llama_server(**changes: Any) -> Fake:
    native = {"/props": {"build_info": "b6900-abc"}}
    takes = ("top_k", "min_p", "typical_p", "repeat_penalty", "ignore_eos")
    return Fake(owner="llamacpp", software="llama.cpp", native=native, k=100, takes=takes, **changes)


def ollama(**changes: Any) -> Fake:
    native = {"/api/version": {"version": "0.13.5"}}
    return Fake(owner="library", native=native, n=False, takes=(), limit="max_tokens", **changes)


def lm_studio(**changes: Any) -> Fake:
    rows = [{"id": "tiny", "object": "model", "compatibility_type": "gguf", "state": "loaded"}]
    native = {"/api/v0/models": {"object": "list", "data": rows}}
    takes = ("top_k", "repeat_penalty")
    return Fake(owner="organization_owner", software="", native=native, k=None, n=False, takes=takes, **changes)
