"""How a response ended, in the words of the providers that LangChain has integrations for."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from langchain_core.messages import AIMessage

__all__ = ["Ending", "ending_of", "is_refusal", "says_how_it_ended"]

Ending = Literal["whole", "cut off", "filtered", "refused", "malformed call"]

_CUT_OFF = """length max_tokens max_output_tokens max_new_tokens max_length model_length
    model_context_window_exceeded context_length_exceeded token_limit time_limit limit time incomplete pause_turn
    error error_limit abort aborted cancelled canceled"""
_FILTERED = """content_filter content_filtered content-filter safety image_safety recitation blocklist
    prohibited_content spii language guardrail_intervened error_toxic model_armor sensitive moderation"""
_MALFORMED = """malformed_function_call malformed_tool_call malformed_tool_use malformed_model_output
    unexpected_tool_call"""
_ENDINGS: tuple[tuple[Ending, str], ...] = (
    ("refused", "refusal refused"),
    ("filtered", _FILTERED),
    ("malformed call", _MALFORMED),
    ("cut off", _CUT_OFF),
)
_REASONS = {reason: ending for ending, reasons in _ENDINGS for reason in reasons.split()}
_FIELDS = (
    "finish_reason",
    "stop_reason",
    "done_reason",
    "stopReason",
    "finishReason",
    "native_finish_reason",
    "status",  # OpenAI's Responses API, whose streams have no other word for their end
)
_BLOCKED = "prompt_feedback"  # Gemini, in place of a response


def ending_of(message: AIMessage) -> Ending:
    """Whether a response came to its end, and if not, what ended it."""
    endings = {_REASONS[reason] for reason in _said(message.response_metadata) if reason in _REASONS}
    whole: Ending = "whole"
    return next((ending for ending, _ in _ENDINGS if ending in endings), whole)


def says_how_it_ended(metadata: Mapping[str, Any]) -> bool:
    """Whether the metadata of a response, or of a part of its stream, has the provider's word for its end."""
    return any(metadata.get(field) for field in (*_FIELDS, _BLOCKED))


def is_refusal(message: AIMessage) -> bool:
    """Whether the model, or its provider, says that it declines: in a block or field of its own."""
    blocks = message.content if isinstance(message.content, list) else ()
    said = any(isinstance(block, dict) and block.get("type") == "refusal" for block in blocks)
    return said or bool(message.additional_kwargs.get("refusal"))


def _said(metadata: dict[str, Any]) -> Iterator[str]:
    for field in _FIELDS:
        if (reason := metadata.get(field)) is not None:
            yield _once(str(getattr(reason, "value", reason)).rpartition(".")[2].lower())
    for field, key in (("incomplete_details", "reason"), (_BLOCKED, "block_reason")):
        details = metadata.get(field)
        if isinstance(details, dict) and (reason := details.get(key)):
            yield str(getattr(reason, "value", reason)).lower()


def _once(reason: str) -> str:
    """``STOPSTOP`` is ``STOP``: LangChain joins strings where two chunks of a stream say the same."""
    half, odd = divmod(len(reason), 2)
    return _once(reason[:half]) if half and not odd and reason[:half] == reason[half:] else reason
