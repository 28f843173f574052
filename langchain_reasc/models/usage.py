"""What a response cost: the usage that came with it, or what can be counted where none did."""

from collections.abc import Mapping
from typing import Any, Final, TypeGuard, cast

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata

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
"""No prompt and no response has more: what says so is no usage."""
_CHARACTERS = 4  # a token, where nothing says better


def reported_usage(message: AIMessage | None) -> UsageMetadata | None:
    """The usage that came with a response, where it can be true: numbers of tokens, and some for a text.

    Details that cannot be true are left out.
    """
    usage = message.usage_metadata if message else None
    if (
        not message
        or usage is None
        or not (is_count(usage.get("input_tokens")) and is_count(usage.get("output_tokens")))
    ):
        return None
    if usage["output_tokens"] == 0 and (message.text or message.tool_calls):
        return None
    total = usage["input_tokens"] + usage["output_tokens"]
    checked: UsageMetadata = {**usage, "total_tokens": t if is_count(t := usage.get("total_tokens")) else total}
    if "input_token_details" in usage:
        checked["input_token_details"] = cast(InputTokenDetails, _counts(usage["input_token_details"]))
    if "output_token_details" in usage:
        checked["output_token_details"] = cast(OutputTokenDetails, _counts(usage["output_token_details"]))
    return checked


def _counts(details: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: count for name, count in (details or {}).items() if is_count(count)}


def is_count(value: object) -> TypeGuard[int]:
    """Whether a value can be the number of tokens of a prompt or a response."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def counted_tokens(message: AIMessage) -> int:
    """Tokens of a response, counted from what arrived: log-probabilities, or four characters each."""
    listed = count_tokens(message.response_metadata) or message.response_metadata.get(RECEIVED_TOKENS)
    return int(listed) if listed else tokens_of_text(len(str(message.text)))


def tokens_of_text(characters: int) -> int:
    """Tokens that so much text has, about."""
    return -(-characters // _CHARACTERS)


def estimated_usage(message: AIMessage, *, prompt_tokens: int) -> UsageMetadata:
    """The usage of a response that came without one; ``prompt_tokens`` is what its prompt has."""
    output = counted_tokens(message)
    return UsageMetadata(input_tokens=prompt_tokens, output_tokens=output, total_tokens=prompt_tokens + output)


def output_tokens(message: AIMessage | None) -> int:
    """Tokens generated for a message, as reported, or else as counted."""
    if message is None:
        return 0
    usage = reported_usage(message)
    return counted_tokens(message) if usage is None else usage["output_tokens"]


def is_estimated(message: AIMessage) -> bool:
    """Whether the provider never said what the response cost."""
    return reported_usage(message) is None or bool(message.response_metadata.get(USAGE_ESTIMATED))
