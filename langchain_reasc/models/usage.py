"""What a response cost: the usage that came with it, or what can be counted where none did."""

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata

from langchain_reasc.models.contract import RECEIVED_TOKENS, USAGE_ESTIMATED
from langchain_reasc.models.logprobs import count_tokens

__all__ = ["counted_tokens", "estimated_usage", "is_estimated", "output_tokens", "reported_usage", "tokens_of_text"]

_CHARACTERS = 4  # a token, where nothing says better


def reported_usage(message: AIMessage | None) -> UsageMetadata | None:
    """The usage that came with a response, where it can be true: not below zero, nor no token for a text."""
    usage = message.usage_metadata if message else None
    if not message or usage is None or min(usage["input_tokens"], usage["output_tokens"]) < 0:
        return None
    return None if usage["output_tokens"] == 0 and (message.text or message.tool_calls) else usage


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
