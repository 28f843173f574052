"""Wire formats of providers that do not speak OpenAI's, as their API references and client packages give them."""

from collections.abc import Iterator
from typing import Any, ClassVar

from servers.chat_wire import PROMPT_TOKENS, Refused, Request
from servers.exchange import Exchange

from .openai_wires import TOKENS, alternatives, chosen


class Ollama:
    """``POST /api/chat`` (https://docs.ollama.com/api/chat; ollama, ``_types.py``): lines of JSON, options apart."""

    known = frozenset({"model", "messages", "tools", "stream", "format", "options", "keep_alive", "think"}) | {
        "logprobs",
        "top_logprobs",
    }

    async def __call__(self, exchange: Exchange) -> None:
        request = exchange.body
        if exchange.path != "/api/chat":
            raise Refused(f"no such endpoint: {exchange.path}", 404)
        if unknown := request.keys() - self.known:
            raise Refused(f"unknown fields {sorted(unknown)}")
        if (request.get("top_logprobs") or 0) > 20:
            raise Refused("top_logprobs must be between 0 and 20")
        await exchange.stream(self.lines(request), "application/x-ndjson")

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

    async def __call__(self, exchange: Exchange) -> None:
        _, _, method = exchange.path.partition("?")[0].rpartition(":")
        config = exchange.body.get("generationConfig", {})
        wanted = int(config.get("logprobs") or 0) if config.get("responseLogprobs") else None
        if (wanted or 0) > 20:
            raise Refused("logprobs must be at most 20")
        if method == "streamGenerateContent":
            await exchange.stream(self.events(wanted))
            return
        if method != "generateContent":
            raise Refused(f"no such endpoint: {exchange.path}", 404)
        n = config.get("candidateCount") or 1
        whole = [self.candidate("".join(TOKENS), range(4), wanted) | {"index": at} for at in range(n)]
        await exchange.reply(200, {"candidates": whole, "usageMetadata": self.usage(n), "modelVersion": "m"})

    def events(self, wanted: int | None) -> Iterator[Any]:
        for place, text in enumerate(TOKENS):
            last = place == len(TOKENS) - 1
            found = self.candidate(text, range(place, place + 1), wanted, last=last)
            yield {"candidates": [found], "modelVersion": "m", **({"usageMetadata": self.usage(1)} if last else {})}

    def candidate(self, text: str, places: range, wanted: int | None, *, last: bool = True) -> dict[str, Any]:
        entries = [{"token": TOKENS[place], "logProbability": chosen(place)} for place in places]
        ranked = [{"token": f"<{at}>", "logProbability": value} for at, value in enumerate(alternatives(wanted or 0))]
        result = {"chosenCandidates": entries, "topCandidates": [{"candidates": ranked} for _ in places]}
        found = {"avgLogprobs": -0.5, "logprobsResult": result} if wanted is not None else {}
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

    message: ClassVar[dict[str, Any]] = {
        "id": "m-1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    known = frozenset({"model", "messages", "max_tokens", "temperature", "top_p", "top_k", "stream", "stop_sequences"})

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.path != "/v1/messages":
            raise Refused(f"no such endpoint: {exchange.path}", 404)
        if unknown := exchange.body.keys() - self.known:
            raise Refused(f"{sorted(unknown)}: Extra inputs are not permitted")
        if exchange.body.get("stream"):
            await exchange.stream(self.events())
            return
        usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": len(TOKENS)}
        content = [{"type": "text", "text": "".join(TOKENS)}]
        await exchange.reply(200, {**self.message, "content": content, "stop_reason": "end_turn", "usage": usage})

    def events(self) -> Iterator[Any]:
        usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": 0}
        yield {"type": "message_start", "message": {**self.message, "usage": usage}}
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        for text in TOKENS:
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        yield {"type": "content_block_stop", "index": 0}
        ending = {"stop_reason": "end_turn", "stop_sequence": None}
        usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": len(TOKENS)}  # cumulative
        yield {"type": "message_delta", "delta": ending, "usage": usage}
        yield {"type": "message_stop"}
