"""What a server of OpenAI's chat API says: n choices, whole or streamed, with logprobs and usage where asked for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .exchange import Exchange

__all__ = ["DONE", "PROMPT_TOKENS", "Calling", "Chat", "Refused", "Request", "words_of"]

PROMPT_TOKENS: Final = 7
DONE: Final = "[DONE]"
Request = dict[str, Any]


class Refused(Exception):
    """Raised while a request is answered, it becomes an HTTP error."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text, each with the space before it: its tokens."""
    first, *others = text.split() or [""]
    return (first, *(f" {word}" for word in others))


@dataclass
class Chat:
    """``POST /chat/completions`` (https://platform.openai.com/docs/api-reference/chat).

    Those below it say what differs: each method is a part of the reply. ``logprob`` is that of every token and of all
    its alternatives, so that top_k is its negative (None: there are no logprobs). With ``counts`` a stream ends with
    its usage, where that was asked for.
    """

    words: Sequence[str] = ("it", " is", " 42")
    logprob: float | None = -0.1
    counts: bool = True

    async def __call__(self, exchange: "Exchange") -> None:
        """Reply to a request."""
        self.check(exchange.path, exchange.body)
        named = {"model": exchange.body.get("model")}
        if exchange.body.get("stream"):
            await exchange.stream(event | named for event in self.events(exchange.body, exchange.at))
            await exchange.stream([DONE])
        else:
            await exchange.reply(200, self.whole(exchange.body, exchange.at) | named)

    def check(self, path: str, request: Request) -> None:
        """Raises :class:`Refused` where the request is not what the server takes."""
        if not path.partition("?")[0].endswith("/chat/completions"):
            raise Refused(f"no such endpoint: {path}", 404)

    def whole(self, request: Request, at: int = 0) -> Any:
        """The document of an unstreamed reply to the request that came as number ``at``."""
        said = self.said(request, at)
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": "".join(words)},
                "finish_reason": "stop",
                "logprobs": self.logprobs(words, request),
            }
            for index, words in enumerate(said)
        ]
        return self.document("chat.completion", choices=choices, usage=self.usage(said))

    def events(self, request: Request, at: int = 0) -> Iterator[Any]:
        """The events of a streamed one."""
        said = self.said(request, at)
        for index, words in enumerate(said):
            for place, word in enumerate(words):
                yield self.token(word, request, place=place, index=index)
            yield self.last(index, said)
        if self.counts and (request.get("stream_options") or {}).get("include_usage"):
            yield self.chunk(choices=[], usage=self.usage(said))

    def said(self, request: Request, at: int) -> list[Sequence[str]]:
        """The tokens of each choice."""
        return [self.words] * (request.get("n") or 1)

    def token(self, word: str, request: Request, *, place: int = 0, index: int = 0) -> Any:
        """The event of one token."""
        delta = {"role": "assistant", "content": word}
        choice = {"index": index, "delta": delta, "finish_reason": None, **self.beside(word, request, place)}
        return self.chunk(choices=[choice])

    def beside(self, word: str, request: Request, place: int) -> dict[str, Any]:
        """What stands beside a token in its event."""
        return {"logprobs": self.logprobs([word], request, place)}

    def last(self, index: int, said: Sequence[Sequence[str]]) -> Any:
        """The event that ends a choice."""
        return self.chunk(choices=[{"index": index, "delta": {}, "logprobs": None, "finish_reason": "stop"}])

    def logprobs(self, words: Sequence[str], request: Request, first: int = 0) -> Any:
        """Those of the tokens from place ``first`` on."""
        if self.logprob is None or not request.get("logprobs"):
            return None
        k = self.alternatives_of(request)
        return {"content": [self.entry(word, place, k) for place, word in enumerate(words, first)], "refusal": None}

    def alternatives_of(self, request: Request) -> int:
        return int(request.get("top_logprobs") or 0) if request.get("logprobs") else 0

    def entry(self, word: str, place: int, k: int) -> dict[str, Any]:
        """A token, and the k likeliest in its place."""
        chosen, *ranked = (self.listed(*one) for one in self.ranked(word, place, k))
        return {**chosen, "top_logprobs": ranked}

    def ranked(self, word: str, place: int, k: int) -> list[tuple[str, float]]:
        """The token, and then its k alternatives, each with its log-probability."""
        assert self.logprob is not None
        return [(word, self.logprob)] * (1 + k)

    def listed(self, word: str, logprob: float) -> dict[str, Any]:
        return {"token": word, "logprob": logprob, "bytes": None}

    def usage(self, said: Sequence[Sequence[str]]) -> dict[str, int]:
        output = sum(map(len, said))
        return {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": output, "total_tokens": PROMPT_TOKENS + output}

    def chunk(self, **fields: Any) -> Any:
        return self.document("chat.completion.chunk", **fields)

    def document(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {"id": "c", "object": kind, "created": 1, "model": "gpt-test", **fields}


@dataclass
class Calling(Chat):
    """Calls tools, each a name and its arguments, which are sent as they stand and may be no JSON.

    ``calls`` says what the request that came as number ``at`` is answered with; where a tool has answered, and where
    nothing is called, that is the words.
    """

    calls: Callable[[int], Sequence[tuple[str, str]]] = lambda at: ()
    finish: str = "tool_calls"

    def called(self, request: Request, at: int) -> list[dict[str, Any]]:
        if request["messages"][-1]["role"] == "tool":
            return []
        return [
            {
                "index": place,
                "id": f"call-{at}-{place}",
                "type": "function",
                "function": {"name": name, "arguments": args},
            }
            for place, (name, args) in enumerate(self.calls(at))
        ]

    def whole(self, request: Request, at: int = 0) -> Any:
        said = super().whole(request, at)
        if called := self.called(request, at):
            message = {"role": "assistant", "content": None, "tool_calls": called}
            said["choices"][0] |= {"message": message, "finish_reason": self.finish}
        return said

    def events(self, request: Request, at: int = 0) -> Iterator[Any]:
        """The arguments come in pieces of a few characters."""
        if not (called := self.called(request, at)):
            yield from super().events(request, at)
            return
        for call in called:
            arguments = call["function"]["arguments"]
            yield self.delta(tool_calls=[{**call, "function": {**call["function"], "arguments": ""}}])
            for begin in range(0, len(arguments), 5):
                piece = {"index": call["index"], "function": {"arguments": arguments[begin : begin + 5]}}
                yield self.delta(tool_calls=[piece])
        yield self.chunk(choices=[{"index": 0, "delta": {}, "logprobs": None, "finish_reason": self.finish}])
        yield self.chunk(choices=[], usage=self.usage([self.words]))

    def delta(self, **fields: Any) -> Any:
        return self.chunk(choices=[{"index": 0, "delta": {"role": "assistant", **fields}, "finish_reason": None}])
