"""Token usage of a response: as reported, or estimated from its text."""

from collections.abc import Mapping
from typing import Any, Final, TypeGuard, cast

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata

from langchain_reasc.models.contract import RECEIVED_TOKENS, USAGE_ESTIMATED
from langchain_reasc.models.logprobs import count_tokens

__all__ = [
    "MOST_TOKENS",
    "counted_tokens",
    "estimated_usage",
    "is_count",
    "is_estimated",
    "output_tokens",
    "reported_usage",
    "tokens_of_text",
]

MOST_TOKENS: Final = 10**9
"""No prompt and no response has more tokens: a usage that says so is not true."""
_CHARACTERS: Final = 4  # per token, if nothing better is known


def reported_usage(message: AIMessage | None) -> UsageMetadata | None:
    """Return the usage that came with a response if it can be true: numbers of tokens, and some for a text.

    Details that cannot be true are left out.
    """
    usage: Any = message.usage_metadata if message else None
    if message is None or not usage:
        return None
    prompt, output, total = usage.get("input_tokens"), usage.get("output_tokens"), usage.get("total_tokens")
    if not is_count(prompt) or not is_count(output) or (output == 0 and (message.text or message.tool_calls)):
        return None
    total = total if is_count(total) else prompt + output
    return cast(UsageMetadata, {**usage, "total_tokens": total, **_checked_details(usage)})


def _checked_details(usage: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    names = {"input_token_details", "output_token_details"} & usage.keys()
    return {name: {kind: count for kind, count in (usage[name] or {}).items() if is_count(count)} for name in names}


def is_count(value: object) -> TypeGuard[int]:
    """Return whether a value can be the number of tokens of a prompt or a response."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def counted_tokens(message: AIMessage) -> int:
    """Return the tokens of a response, counted from what arrived: log-probabilities, or four characters each."""
    listed = count_tokens(message.response_metadata) or message.response_metadata.get(RECEIVED_TOKENS)
    return int(listed) if listed else tokens_of_text(len(str(message.text)))


def tokens_of_text(characters: int) -> int:
    """Return about how many tokens so many characters are."""
    return -(-characters // _CHARACTERS)


def estimated_usage(message: AIMessage, *, prompt_tokens: int) -> UsageMetadata:
    """Return an estimate of the usage of a response that came without one, after a prompt of so many tokens."""
    output = counted_tokens(message)
    return UsageMetadata(input_tokens=prompt_tokens, output_tokens=output, total_tokens=prompt_tokens + output)


def output_tokens(message: AIMessage | None) -> int:
    """Return the tokens generated for a message, as reported, or else as counted."""
    if message is None:
        return 0
    usage = reported_usage(message)
    return counted_tokens(message) if usage is None else usage["output_tokens"]


def is_estimated(message: AIMessage) -> bool:
    """Return whether the provider never said what the response cost."""
    return reported_usage(message) is None or bool(message.response_metadata.get(USAGE_ESTIMATED))
