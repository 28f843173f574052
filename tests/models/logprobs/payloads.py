"""One response of three tokens in the shape of every provider: what their clients put into ``response_metadata``."""

from types import SimpleNamespace
from typing import Any

from langchain_core.messages import AIMessage

TEXT = "It is 7"
TOKENS = ("It", " is", " 7")
CHOSEN = (-0.5, -2.0, -0.25)
RANKED = ((-0.5, -1.5), (-1.0, -2.0), (-0.25, -1.75))
WORDS = (("It", "The"), (" was", " is"), (" 7", " 8"))

Row = list[Any] | None


def ranked(at: int) -> list[tuple[str, float]]:
    return list(zip(WORDS[at], RANKED[at], strict=True))


def entries(*, names: tuple[str, str] = ("logprob", "top_logprobs")) -> list[dict[str, Any]]:
    logprob, top = names
    return [
        {"token": token, logprob: chosen, top: [{"token": word, logprob: p} for word, p in ranked(at)]}
        for at, (token, chosen) in enumerate(zip(TOKENS, CHOSEN, strict=True))
    ]


def arrays() -> dict[str, Any]:
    return {
        "tokens": list(TOKENS),
        "token_logprobs": list(CHOSEN),
        "top_logprobs": [dict(ranked(at)) for at in range(3)],
    }


def gemini(logprob: str, chosen: str, top: str) -> dict[str, Any]:
    return {
        chosen: [{"token": token, logprob: p, "tokenId": 1} for token, p in zip(TOKENS, CHOSEN, strict=True)],
        top: [{"candidates": [{"token": word, logprob: p} for word, p in ranked(at)]} for at in range(3)],
    }


def objects() -> list[Any]:
    """Tokens as ollama's client gives them: attributes, and no dict."""
    return [
        SimpleNamespace(**{**one, "top_logprobs": [SimpleNamespace(**other) for other in one["top_logprobs"]]})
        for one in entries()
    ]


SHAPES: dict[str, dict[str, Any]] = {
    "OpenAI chat": {"logprobs": {"content": entries(), "refusal": None}},
    "OpenAI chat, a refusal": {"logprobs": {"content": None, "refusal": entries()}},
    "OpenAI chat, as objects": {"logprobs": SimpleNamespace(content=objects(), refusal=None)},
    "Fireworks chat": {
        "logprobs": {
            "content": [one | {"sampling_logprob": -9.0, "token_id": 1, "text_offset": 0} for one in entries()]
        }
    },
    "completions arrays": {"logprobs": arrays() | {"text_offset": [0, 2, 5]}},
    "Together": {"logprobs": {"content": None, "token_ids": [1, 2, 3], **arrays()}},
    "ChatOllama": {"logprobs": objects()},
    "a flat list of dicts": {"logprobs": entries()},
    "ChatVertexAI": {"logprobs_result": entries(), "avg_logprobs": -0.9},
    "Gemini, camel case": {"logprobs_result": gemini("logProbability", "chosenCandidates", "topCandidates")},
    "Gemini, snake case": {"logprobsResult": gemini("log_probability", "chosen_candidates", "top_candidates")},
}


def message(*tokens: tuple[Any, Row], text: str = "", **metadata: Any) -> AIMessage:
    """A response in OpenAI's shape: for each token its logprob and its alternatives' (None: the key is missing)."""
    content = [
        {"token": "x", "logprob": chosen}
        | ({} if row is None else {"top_logprobs": [{"token": f"y{at}", "logprob": p} for at, p in enumerate(row)]})
        for chosen, row in tokens
    ]
    return AIMessage(text or "x" * len(tokens), response_metadata={"logprobs": {"content": content}, **metadata})


def sound(n: int) -> list[tuple[Any, Row]]:
    return [(-0.5, [-0.5, -1.5]) for _ in range(n)]
