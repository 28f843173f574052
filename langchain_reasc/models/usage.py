"""Token usage of a response: as reported, or estimated from all that was sent and
written.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeGuard, cast

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata

from langchain_reasc.answers import has_finish_reason
from langchain_reasc.models.contract import RECEIVED_TOKENS, USAGE_ESTIMATED
from langchain_reasc.models.logprobs import listed_tokens

MOST_TOKENS: Final = 10**9
"""No prompt and no response has more tokens: a usage that says so is not true."""
_BYTES: Final = 4  # of a text in a token, if nothing better is known
_MEDIA: Final = re.compile(
    rb'"type"\s*:\s*"(?:input_)?image[^}]*|(?<![\w+/=-])[\w+/=-]{1000,}'
)
"""An image, or anything else that is written in letters, such as a sound."""
_MEDIA_TOKENS: Final = 1000
_ASKED: Final = ("tools", "functions", "response_format")
"""Arguments of a call that the model reads beside the messages."""
_TEXTS: Final = (
    *("text", "thinking", "reasoning", "reasoning_content", "refusal"),
    *("content", "summary", "transcript", "executable_code"),
)
"""Where a content block has its text; the first that has any is taken."""
_REPEATED: Final = ("parsed", "reasoning_details")
"""What says again, beside the content, what stands elsewhere."""


def reported_usage(message: AIMessage | None) -> UsageMetadata | None:
    """Return the usage that came with a response if it can be true: numbers of tokens,
    and some for a text.

    Details that cannot be true are left out.
    """
    usage: Any = message.usage_metadata if message else None
    if message is None or not usage:
        return None
    prompt, output, total = (
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        usage.get("total_tokens"),
    )
    if (
        not is_count(prompt)
        or not is_count(output)
        or (output == 0 and written(message))
    ):
        return None
    total = total if is_count(total) else prompt + output
    return cast(
        UsageMetadata, {**usage, "total_tokens": total, **_checked_details(usage)}
    )


def _checked_details(usage: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    names = {"input_token_details", "output_token_details"} & usage.keys()
    return {
        name: {
            kind: count
            for kind, count in (usage[name] or {}).items()
            if is_count(count)
        }
        for name in names
    }


def is_count(value: object) -> TypeGuard[int]:
    """Return whether a value can be the number of tokens of a prompt or a response."""
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and 0 <= value <= MOST_TOKENS
    )


def counted_tokens(message: AIMessage) -> int:
    """Return the tokens of a response, counted from what arrived."""
    received = message.response_metadata.get(RECEIVED_TOKENS)
    return (
        int(received)
        if received
        else tokens_written([(message, message.response_metadata)])
    )


def tokens_written(parts: Iterable[tuple[BaseMessage, Mapping[str, Any]]]) -> int:
    """Return about how many tokens a response, or its chunks, has.

    That is those with log-probabilities, and one for four bytes of the rest. A chunk
    that says nothing is a token as well: ``ChatOpenAI`` drops what servers stream of
    reasoning.
    """
    tokens = rest = 0
    for at, (message, metadata) in enumerate(parts):
        listed, spelled = listed_tokens(metadata)
        size = len(written(message).encode(errors="replace"))
        told = (
            size
            or listed
            or getattr(message, "usage_metadata", None)
            or getattr(message, "chunk_position", None)
        )
        tokens += listed + (at > 0 and not told and not has_finish_reason(metadata))
        rest += size - spelled
    return tokens + tokens_of_text(max(0, rest))


def tokens_of_text(size: int) -> int:
    """Return about how many tokens a text of so many bytes has."""
    return -(-size // _BYTES)


def estimated_tokens(document: bytes) -> int:
    """Return about how many tokens a JSON document has: one for four bytes, and 1,000
    for an image or a sound in it.
    """
    words, found = _MEDIA.subn(b"", document)
    return tokens_of_text(len(words)) + found * _MEDIA_TOKENS


def estimated_prompt(
    messages: Sequence[BaseMessage], arguments: Mapping[str, Any]
) -> int:
    """Return about how many tokens a prompt has, with the tools and the schema in the
    arguments of its call.
    """
    fields = ("type", "content", "name", "tool_calls", "tool_call_id")
    sent = [
        {name: value for name in fields if (value := getattr(one, name, None))}
        for one in messages
    ]
    asked = [value for name in _ASKED if (value := arguments.get(name))]
    return estimated_tokens(_as_json([*sent, *asked]).encode(errors="replace"))


def estimated_usage(message: AIMessage, *, prompt_tokens: int) -> UsageMetadata:
    """Return an estimate of the usage of a response that came without one, after a
    prompt of so many tokens.
    """
    output = counted_tokens(message)
    return UsageMetadata(
        input_tokens=prompt_tokens,
        output_tokens=output,
        total_tokens=prompt_tokens + output,
    )


def output_tokens(message: AIMessage | None) -> int:
    """Return the tokens generated for a message, as reported, or else as counted."""
    if message is None:
        return 0
    usage = reported_usage(message)
    return counted_tokens(message) if usage is None else usage["output_tokens"]


def is_estimated(message: AIMessage) -> bool:
    """Return whether the provider never said what the response cost."""
    return reported_usage(message) is None or bool(
        message.response_metadata.get(USAGE_ESTIMATED)
    )


def written(message: BaseMessage) -> str:
    """Return all that the model wrote in a message or a chunk: text, reasoning,
    refusal, calls of tools.
    """
    content, beside = message.content, message.additional_kwargs
    calls: list[Any] = getattr(message, "tool_call_chunks", None) or [
        *getattr(message, "tool_calls", ()),
        *getattr(message, "invalid_tool_calls", ()),
    ]
    if isinstance(content, str) and not (beside or calls):
        return content
    if not calls and isinstance(legacy := beside.get("function_call"), Mapping):
        calls = [{"name": legacy.get("name"), "args": legacy.get("arguments")}]
    texts = [
        _text_of(content),
        *(_text_of(value) for name, value in beside.items() if name not in _REPEATED),
    ]
    if not any(texts[1:]):
        texts.append(_text_of(beside.get("reasoning_details")))
    for call in calls:
        arguments = call.get("args") or ""
        texts += [
            str(call.get("name") or ""),
            arguments if isinstance(arguments, str) else _as_json(arguments),
        ]
    return "".join(texts)


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return next(
            filter(None, (_text_of(value[name]) for name in _TEXTS if name in value)),
            "",
        )
    return "".join(map(_text_of, value)) if isinstance(value, list) else ""


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
