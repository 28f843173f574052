"""The wire formats of the providers, as their API references and their own client packages give them."""

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


class Ollama:
    """``POST /api/chat`` (https://docs.ollama.com/api/chat; ollama, ``_types.py``): lines of JSON, options apart."""

    known = frozenset({"model", "messages", "tools", "stream", "format", "options", "keep_alive", "think"}) | {
        "logprobs",
        "top_logprobs",
    }

    def __call__(self, path: str, request: Request) -> Reply:
        if path != "/api/chat":
            raise Refused(f"no such endpoint: {path}", 404)
        if unknown := request.keys() - self.known:
            raise Refused(f"unknown fields {sorted(unknown)}")
        if (request.get("top_logprobs") or 0) > 20:
            raise Refused("top_logprobs must be between 0 and 20")
        return Reply(self.lines(request), "lines")

    def lines(self, request: Request) -> Iterator[Any]:
        for place, text in enumerate(TOKENS):
            entry = {
                "token": text,
                "logprob": chosen(place),
                "bytes": list(text.encode()),
                "top_logprobs": [
                    {"token": f"<{rank}>", "logprob": logprob, "bytes": [1]}
                    for rank, logprob in enumerate(alternatives(request.get("top_logprobs") or 0))
                ],
            }
            found = {"logprobs": [entry]} if request.get("logprobs") else {}
            yield self.line({"role": "assistant", "content": text}, done=False, **found)
        yield self.line(
            {"role": "assistant", "content": ""},
            done=True,
            done_reason="stop",
            total_duration=5,
            prompt_eval_count=PROMPT_TOKENS,
            eval_count=len(TOKENS),
        )

    def line(self, message: dict[str, str], **fields: Any) -> dict[str, Any]:
        return {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": message, **fields}


class Gemini:
    """``generateContent`` (https://ai.google.dev/api/generate-content): logprobs stand in ``logprobsResult``."""

    def __call__(self, path: str, request: Request) -> Reply:
        _, _, method = path.partition("?")[0].rpartition(":")
        wanted = bool(request.get("generationConfig", {}).get("responseLogprobs"))
        if method == "streamGenerateContent":
            return Reply(self.events(wanted), "sse")
        if method != "generateContent":
            raise Refused(f"no such endpoint: {path}", 404)
        n = request.get("generationConfig", {}).get("candidateCount") or 1
        whole = [self.candidate("".join(TOKENS), range(4), wanted) | {"index": at} for at in range(n)]
        return Reply([{"candidates": whole, "usageMetadata": self.usage(n), "modelVersion": "m"}])

    def events(self, wanted: bool) -> Iterator[Any]:
        for place, text in enumerate(TOKENS):
            last = place == len(TOKENS) - 1
            found = self.candidate(text, range(place, place + 1), wanted, last=last)
            yield {"candidates": [found], "modelVersion": "m", **({"usageMetadata": self.usage(1)} if last else {})}

    def candidate(self, text: str, places: range, wanted: bool, *, last: bool = True) -> dict[str, Any]:
        entries = [{"token": TOKENS[place], "logProbability": chosen(place)} for place in places]
        found = {"avgLogprobs": -0.5, "logprobsResult": {"chosenCandidates": entries}} if wanted else {}
        ends = {"finishReason": "STOP"} if last else {}
        return {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **ends, **found}

    def usage(self, n: int) -> dict[str, int]:
        output = len(TOKENS) * n
        return {
            "promptTokenCount": PROMPT_TOKENS,
            "candidatesTokenCount": output,
            "totalTokenCount": PROMPT_TOKENS + output,
        }


class Anthropic:
    """``POST /v1/messages`` (https://docs.claude.com/en/api/messages): no logprobs, no seed, no n."""

    known = frozenset({"model", "messages", "max_tokens", "temperature", "top_p", "top_k", "stream", "stop_sequences"})

    def __call__(self, path: str, request: Request) -> Reply:
        if path != "/v1/messages":
            raise Refused(f"no such endpoint: {path}", 404)
        if unknown := request.keys() - self.known:
            raise Refused(f"{sorted(unknown)}: Extra inputs are not permitted")
        assert request.get("stream")
        return Reply(self.events(), "events")

    def events(self) -> Iterator[Any]:
        usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": 0}
        message = {"id": "m-1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
        yield {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}}
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        for text in TOKENS:
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        yield {"type": "content_block_stop", "index": 0}
        ending = {"stop_reason": "end_turn", "stop_sequence": None}
        usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": len(TOKENS)}  # cumulative
        yield {"type": "message_delta", "delta": ending, "usage": usage}
        yield {"type": "message_stop"}
