"""Which tokens of what a server answered have log-probabilities."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["counted_logprobs", "reasoning_logprobs"]

_REASONING: Final = ("reasoning_content", "reasoning")
"""What servers call the reasoning that their parsers take out of a response."""


def reasoning_logprobs(events: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether the reasoning that a stream begins with has logprobs; None where it shows no reasoning."""
    reasoned = tokens = 0
    for event in events:
        choices = event.get("choices")
        delta = (
            choices[0].get("delta") if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        )
        said = delta if isinstance(delta, dict) else {}
        if said.get("content"):
            break  # the answer
        reasoned += any(said.get(name) for name in _REASONING)
        tokens += counted_logprobs(choices)[0]
    return 2 * tokens >= reasoned if reasoned else None  # a token or two may be the marks around it


def counted_logprobs(choices: Any) -> tuple[int, int]:
    """(tokens with a logprob, most alternatives of one) in the first choice, in either of OpenAI's two shapes."""
    first = choices[0] if isinstance(choices, list) and choices else None
    given = first.get("logprobs") if isinstance(first, dict) else None
    if not isinstance(given, dict):
        return 0, 0
    if isinstance(given.get("content"), list):
        rows = [row for row in given["content"] if isinstance(row, dict) and _is_number(row.get("logprob"))]
        return len(rows), max((_length(row.get("top_logprobs")) for row in rows), default=0)
    chosen, alternatives = given.get("token_logprobs"), given.get("top_logprobs")
    count = sum(map(_is_number, chosen)) if isinstance(chosen, list) else 0
    most = max(map(_length, alternatives), default=0) if isinstance(alternatives, list) else 0
    return count, most if count else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0
