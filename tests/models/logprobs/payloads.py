"""Responses in the shape of every provider: what their clients put into ``response_metadata``."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from langchain_core.messages import AIMessage

TEXT = "It is 7"
TOKENS = ("It", " is", " 7")
CHOSEN = (-0.5, -2.0, -0.25)
RANKED = ((-0.5, -1.5), (-1.0, -2.0), (-0.25, -1.75))
WORDS = (("It", "The"), (" was", " is"), (" 7", " 8"))

Row = list[Any] | None


# A token, its log-probability, and those of the alternatives.
Position = tuple[str, float, Sequence[tuple[str, float]]]
POSITIONS: list[Position] = [
    (token, chosen, list(zip(words, ranked, strict=True)))
    for token, chosen, words, ranked in zip(TOKENS, CHOSEN, WORDS, RANKED, strict=True)
]


def entries(positions: Sequence[Position] = POSITIONS) -> list[dict[str, Any]]:
    """Tokens as OpenAI's chat API gives them."""
    return [
        {"token": token, "logprob": chosen, "top_logprobs": [{"token": word, "logprob": p} for word, p in ranked]}
        for token, chosen, ranked in positions
    ]


def arrays(positions: Sequence[Position] = POSITIONS) -> dict[str, Any]:
    """Tokens as the older completions API gives them."""
    tokens, chosen, ranked = zip(*positions, strict=True)
    return {"tokens": [*tokens], "token_logprobs": [*chosen], "top_logprobs": [dict(row) for row in ranked]}


def gemini(logprob: str, chosen: str, top: str, positions: Sequence[Position] = POSITIONS) -> dict[str, Any]:
    """Tokens as Gemini's API gives them."""
    return {
        chosen: [{"token": token, logprob: p, "tokenId": 1} for token, p, _ in positions],
        top: [{"candidates": [{"token": word, logprob: p} for word, p in ranked]} for _, _, ranked in positions],
    }


def objects(node: Any) -> Any:
    """Tokens as clients give them that build objects of them: attributes, and no dict."""
    if isinstance(node, list):
        return [objects(one) for one in node]
    return SimpleNamespace(**{name: objects(one) for name, one in node.items()}) if isinstance(node, dict) else node


SHAPES: dict[str, dict[str, Any]] = {
    "OpenAI chat": {"logprobs": {"content": entries(), "refusal": None}},
    "OpenAI chat, a refusal": {"logprobs": {"content": None, "refusal": entries()}},
    "OpenAI chat, as objects": {"logprobs": objects({"content": entries(), "refusal": None})},
    "Fireworks chat": {
        "logprobs": {
            "content": [one | {"sampling_logprob": -9.0, "token_id": 1, "text_offset": 0} for one in entries()]
        }
    },
    "completions arrays": {"logprobs": arrays() | {"text_offset": [0, 2, 5]}},
    "Together": {"logprobs": {"content": None, "token_ids": [1, 2, 3], **arrays()}},
    "ChatOllama": {"logprobs": objects(entries())},
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


def in_process(text: str, *pieces: bytes, spelled: str | None = None) -> AIMessage:
    """As from a model in this process: token i has the log-probability -(i + 1)."""
    signals = {"token_logprob": [-(at + 1.0) for at in range(len(pieces))]}
    generated = {"text": text if spelled is None else spelled, "sizes": [len(piece) for piece in pieces]}
    return AIMessage(text, response_metadata={"token_signals": signals, "generated_text": generated})


def served(text: str, *pieces: str | bytes, calls: Sequence[Any] = (), scale: float = 1, **odd: Any) -> AIMessage:
    """As from a server: token i has the log-probability -(i + 1) * scale, but for those given as ``t3=None``."""
    entries = []
    for at, piece in enumerate(pieces):
        raw = piece.encode() if isinstance(piece, str) else piece
        token = {"token": raw.decode(errors="replace"), "bytes": list(raw), "logprob": -(at + 1.0) * scale}
        entries.append(token | {"logprob": odd.get(f"t{at}", token["logprob"])})
    return AIMessage(text, tool_calls=list(calls), response_metadata={"logprobs": {"content": entries}})
