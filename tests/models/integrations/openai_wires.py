"""The wire formats of the providers that speak OpenAI's, each with its differences.

Every response says "the answer is 42" in four tokens. The alternatives at each place have probability 1/2, 1/4,
1/8 and so on; the model takes the first and the second of them in turn.
"""

import math
from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any

from servers.chat_wire import Chat, Refused, Request, words_of

TOKENS = words_of("the answer is 42")


def alternatives(k: int) -> list[float]:
    """The log-probabilities of the k likeliest tokens."""
    return [math.log(0.5) * (rank + 1) for rank in range(k)]


def chosen(place: int) -> float:
    return alternatives(2)[place % 2]


class OpenAI(Chat):
    """OpenAI's own, and those who copy it."""

    most_alternatives = 20
    most_choices = 128
    allowed: frozenset[str] | None = None  # None: unknown fields are ignored
    has_logprobs = True

    def __init__(self) -> None:
        super().__init__(TOKENS)

    def check(self, path: str, request: Request) -> None:
        super().check(path, request)
        if self.allowed is not None and (unknown := request.keys() - self.allowed):
            raise Refused(f"extra fields not permitted: {sorted(unknown)}", 422)
        if not self.has_logprobs and (request.get("logprobs") or request.get("top_logprobs")):
            raise Refused("logprobs is not supported with this model")
        if self.alternatives_of(request) > self.most_alternatives:
            raise Refused(f"top_logprobs must be at most {self.most_alternatives}")
        if (request.get("n") or 1) > self.most_choices:
            raise Refused(f"n must be at most {self.most_choices}")

    def ranked(self, word: str, place: int, k: int) -> list[tuple[str, float]]:
        return [(word, chosen(place)), *((f"<{rank}>", logprob) for rank, logprob in enumerate(alternatives(k)))]

    def listed(self, word: str, logprob: float) -> dict[str, Any]:
        return {**super().listed(word, logprob), "bytes": list(word.encode())}


class DeepSeek(OpenAI):
    """https://api-docs.deepseek.com/api/create-chat-completion: knows no n."""

    most_choices = 1


class XAI(OpenAI):
    """xai-sdk, ``chat.py``: top_logprobs is "an integer between 0 and 8"."""

    most_alternatives = 8


class Fireworks(OpenAI):
    """fireworks-ai, ``completion_create_params.py``: top_logprobs 0 to 5, n 1 to 128; entries carry ids and offsets."""

    most_alternatives = 5

    def listed(self, word: str, logprob: float) -> dict[str, Any]:
        return {**super().listed(word, logprob), "token_id": 1, "text_offset": 0}

    def entry(self, word: str, place: int, k: int) -> dict[str, Any]:
        return {**super().entry(word, place, k), "sampling_logprob": 0.0}


class OpenRouter(OpenAI):
    """openrouter, ``chatrequest.py``: knows no n; the client insists on a ``system_fingerprint``."""

    most_choices = 1

    def document(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {**super().document(kind, **fields), "system_fingerprint": None}


class Together(OpenAI):
    """https://docs.together.ai/docs/inference/chat/logprobs: ``logprobs`` is a number; entries as OpenAI's."""

    def check(self, path: str, request: Request) -> None:
        if isinstance(request.get("logprobs"), bool):
            raise Refused("logprobs must be an integer between 0 and 20", 422)
        super().check(path, request)

    def alternatives_of(self, request: Request) -> int:
        return int(request.get("logprobs") or 0)

    def beside(self, word: str, request: Request, place: int) -> dict[str, Any]:
        """together, ``chat_completion_chunk.py``: a chunk's logprobs is one float, its alternatives stand beside it."""
        if not request.get("logprobs"):
            return {}
        ranked = zip(ascii_lowercase, alternatives(self.alternatives_of(request)), strict=False)
        return {"logprobs": chosen(place), "top_logprobs": dict(ranked)}


class Groq(OpenAI):
    """groq, ``completion_create_params.py``: logprobs "not yet supported by any of our models", "only n=1"."""

    has_logprobs = False
    most_choices = 1

    def last(self, index: int, said: Sequence[Sequence[str]]) -> Any:
        return super().last(index, said) | {"x_groq": {"id": "x", "usage": self.usage(said)}}


class Mistral(OpenAI):
    """https://docs.mistral.ai/api: no logprobs, ``random_seed``, and no unknown field."""

    allowed = frozenset(
        {"model", "messages", "temperature", "top_p", "max_tokens", "stream", "stop", "random_seed"}
    ) | {"response_format", "tools", "tool_choice", "presence_penalty", "frequency_penalty", "n", "safe_prompt"}

    def last(self, index: int, said: Sequence[Sequence[str]]) -> Any:
        return super().last(index, said) | {"usage": self.usage(said)}
