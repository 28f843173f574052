"""The wire formats of the providers that speak OpenAI's, each with its differences."""

from collections.abc import Iterator
from string import ascii_lowercase
from typing import Any

from .wire_server import PROMPT_TOKENS, TOKENS, Refused, Reply, alternatives, chosen

Request = dict[str, Any]


class OpenAI:
    """``POST /chat/completions`` (https://platform.openai.com/docs/api-reference/chat), and those who copy it."""

    most_alternatives = 20
    most_choices = 128
    allowed: frozenset[str] | None = None  # None: unknown fields are ignored
    has_logprobs = True

    def __call__(self, path: str, request: Request) -> Reply:
        if not path.partition("?")[0].endswith("/chat/completions"):
            raise Refused(f"no such endpoint: {path}", 404)
        self.check(request)
        if request.get("stream"):
            return Reply(self.events(request), "sse")
        choices = [self.choice(at, request) for at in range(request.get("n") or 1)]
        return Reply([self.document("chat.completion", choices=choices, usage=self.usage(request))])

    def check(self, request: Request) -> None:
        if self.allowed is not None and (unknown := request.keys() - self.allowed):
            raise Refused(f"extra fields not permitted: {sorted(unknown)}", 422)
        if not self.has_logprobs and (request.get("logprobs") or request.get("top_logprobs")):
            raise Refused("logprobs is not supported with this model")
        if self.alternatives_of(request) > self.most_alternatives:
            raise Refused(f"top_logprobs must be at most {self.most_alternatives}")
        if (request.get("n") or 1) > self.most_choices:
            raise Refused(f"n must be at most {self.most_choices}")

    def alternatives_of(self, request: Request) -> int:
        return int(request.get("top_logprobs") or 0) if request.get("logprobs") else 0

    def wants_logprobs(self, request: Request) -> bool:
        return bool(request.get("logprobs"))

    def entry(self, place: int, k: int) -> dict[str, Any]:
        ranked = [self.token(f"<{rank}>", logprob) for rank, logprob in enumerate(alternatives(k))]
        return {**self.token(TOKENS[place], chosen(place)), "top_logprobs": ranked}

    def token(self, text: str, logprob: float) -> dict[str, Any]:
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    def logprobs(self, places: range, k: int) -> Any:
        return {"content": [self.entry(place, k) for place in places], "refusal": None}

    def choice(self, at: int, request: Request) -> dict[str, Any]:
        found = self.logprobs(range(len(TOKENS)), self.alternatives_of(request))
        return {
            "index": at,
            "message": {"role": "assistant", "content": "".join(TOKENS)},
            "finish_reason": "stop",
            "logprobs": found if self.wants_logprobs(request) else None,
        }

    def events(self, request: Request) -> Iterator[Any]:
        k = self.alternatives_of(request)
        for place, text in enumerate(TOKENS):
            found = self.logprobs(range(place, place + 1), k) if self.wants_logprobs(request) else None
            delta = {"role": "assistant", "content": text}
            choice = {"index": 0, "delta": delta, "logprobs": found, "finish_reason": None}
            yield self.document("chat.completion.chunk", choices=[choice])
        yield from self.ending(request)
        yield "[DONE]"

    def ending(self, request: Request) -> Iterator[Any]:
        last = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": "stop"}
        yield self.document("chat.completion.chunk", choices=[last])
        if (request.get("stream_options") or {}).get("include_usage"):
            yield self.document("chat.completion.chunk", choices=[], usage=self.usage(request))

    def usage(self, request: Request) -> dict[str, int]:
        output = len(TOKENS) * (request.get("n") or 1)
        return {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": output,
            "total_tokens": PROMPT_TOKENS + output,
        }

    def document(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {"id": "c-1", "object": kind, "created": 1, "model": "m", **fields}


class DeepSeek(OpenAI):
    """https://api-docs.deepseek.com/api/create-chat-completion: knows no n."""

    most_choices = 1


class XAI(OpenAI):
    """xai-sdk, ``chat.py``: top_logprobs is "an integer between 0 and 8"."""

    most_alternatives = 8


class Fireworks(OpenAI):
    """fireworks-ai, ``completion_create_params.py``: top_logprobs 0 to 5, n 1 to 128; entries carry ids and offsets."""

    most_alternatives = 5

    def token(self, text: str, logprob: float) -> dict[str, Any]:
        return {**super().token(text, logprob), "token_id": 1, "text_offset": 0}

    def logprobs(self, places: range, k: int) -> Any:
        return {"content": [{**self.entry(place, k), "sampling_logprob": 0.0} for place in places]}


class OpenRouter(OpenAI):
    """openrouter, ``chatrequest.py``: knows no n; the client insists on a ``system_fingerprint``."""

    most_choices = 1

    def document(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {**super().document(kind, **fields), "system_fingerprint": None}


class Together(OpenAI):
    """https://docs.together.ai/docs/inference/chat/logprobs: ``logprobs`` is a number; entries as OpenAI's."""

    def check(self, request: Request) -> None:
        if isinstance(request.get("logprobs"), bool):
            raise Refused("logprobs must be an integer between 0 and 20", 422)
        super().check(request)

    def alternatives_of(self, request: Request) -> int:
        return int(request.get("logprobs") or 0)

    def events(self, request: Request) -> Iterator[Any]:
        """together, ``chat_completion_chunk.py``: a chunk's logprobs is one float, its alternatives stand beside it."""
        for place, text in enumerate(TOKENS):
            choice: dict[str, Any] = {"index": 0, "delta": {"role": "assistant", "content": text}}
            if self.wants_logprobs(request):
                choice["logprobs"] = chosen(place)
                choice["top_logprobs"] = dict(
                    zip(ascii_lowercase, alternatives(self.alternatives_of(request)), strict=False)
                )
            yield self.document("chat.completion.chunk", choices=[choice])
        yield from self.ending(request)
        yield "[DONE]"


class TogetherLegacy(Together):
    """https://docs.together.ai/docs/logprobs, the older page: three lists of equal length, no alternatives."""

    def logprobs(self, places: range, k: int) -> Any:
        return {
            "tokens": [TOKENS[place] for place in places],
            "token_logprobs": [chosen(place) for place in places],
            "token_ids": [1 for _ in places],
        }


class Groq(OpenAI):
    """groq, ``completion_create_params.py``: logprobs "not yet supported by any of our models", "only n=1"."""

    has_logprobs = False
    most_choices = 1

    def ending(self, request: Request) -> Iterator[Any]:
        last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
        yield self.document("chat.completion.chunk", choices=[last], x_groq={"id": "x", "usage": self.usage(request)})


class Mistral(OpenAI):
    """https://docs.mistral.ai/api: no logprobs, ``random_seed``, and no unknown field."""

    allowed = frozenset(
        {"model", "messages", "temperature", "top_p", "max_tokens", "stream", "stop", "random_seed"}
    ) | {"response_format", "tools", "tool_choice", "presence_penalty", "frequency_penalty", "n", "safe_prompt"}

    def ending(self, request: Request) -> Iterator[Any]:
        last = {"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}
        yield self.document("chat.completion.chunk", choices=[last], usage=self.usage(request))
