"""How a response ended, its reasoning and its reply, in the fields and tags of all
providers.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from langchain_core.messages import AIMessage

Ending = Literal["whole", "cut off", "filtered", "refused", "malformed call"]

_FAILED = "error failed network_error server_error insufficient_system_resource"
"""Words for a response that the server failed to generate."""
_WORDS: dict[Ending, str] = {
    "refused": "refusal refused",
    "filtered": """content_filter content_filtered content-filter safety image_safety recitation blocklist
        prohibited_content spii language guardrail_intervened error_toxic model_armor sensitive moderation""",
    "malformed call": """malformed_function_call malformed_tool_call malformed_tool_use malformed_model_output
        unexpected_tool_call""",
    "cut off": f"""{_FAILED} length max_tokens max_output_tokens max_new_tokens max_length model_length
        model_context_window_exceeded context_length_exceeded token_limit time_limit limit time incomplete pause_turn
        timeout error_limit abort aborted cancelled canceled""",
}
"""The providers' words for each ending. If a response has several endings, the first of
these counts.
"""
_ENDINGS = [(ending, frozenset(words.split())) for ending, words in _WORDS.items()]
_WHOLE = """stop stopped stop_sequence end eos eos_token endoftext end_turn end_of_turn complete completed finish
    finished done success tool_calls tool_call tool_use function_call"""
_FAILURES = frozenset(_FAILED.split())
_KNOWN = frozenset(_WHOLE.split()).union(*(words for _, words in _ENDINGS))
_PENDING = "null none not_finished unfinished in_progress queued pending finish_reason_unspecified"
"""Words that some servers send in each event of a response that goes on, where OpenAI
sends null.
"""
_IS_PENDING = re.compile(rf"(?:{_PENDING.replace(' ', '|')})+")
FINISH_FIELDS = (
    "finish_reason",
    "stop_reason",
    "done_reason",
    "stopReason",
    "finishReason",
    "native_finish_reason",
    "status",  # OpenAI's Responses API, whose streams have no other word for their end
)
_REPEATED = re.compile(r"(.{1,100}?)\1+")
_THOUGHT_OR_TEXT = {
    "text",
    "thinking",
    "redacted_thinking",
    "reasoning",
    "reasoning_content",
}
_BLOCKED = "prompt_feedback"  # Gemini, in place of a response
_ENDS = frozenset({*FINISH_FIELDS, "incomplete_details", _BLOCKED})
Finish = Literal["ended", "failed", "unknown"]
"""What a finish reason says: the response ended, or the server failed to generate the
response. Of a word that we do not know nobody can say whether the response goes on.
"""


def ending_of(message: AIMessage) -> Ending:
    """Return whether a response is whole, and if not, what ended it."""
    return ending_in(message.response_metadata)


def ending_in(metadata: Mapping[str, Any]) -> Ending:
    """Return what the metadata of a response says of its end."""
    reasons = set(finish_reasons(metadata))
    for ending, words in _ENDINGS:
        if not words.isdisjoint(reasons):
            return ending
    return "whole"


def finish_of(reason: object) -> Finish | None:
    """Return what a provider's finish reason says, or None if the response goes on."""
    word = _word(reason)
    if not word:
        return None
    if word in _FAILURES:
        return "failed"
    return "ended" if word in _KNOWN else "unknown"


def has_finish_reason(metadata: Mapping[str, Any]) -> bool:
    """Return whether the metadata of a response or a chunk says, in a word that we
    know, why generation ended.
    """
    return any(finish_of(word) != "unknown" for word in finish_reasons(metadata))


def failed_reason(metadata: Mapping[str, Any]) -> str | None:
    """Return the finish reason of a response that its server failed to generate, or
    None.
    """
    return next((word for word in finish_reasons(metadata) if word in _FAILURES), None)


class UnknownFinish:
    """The finish reason of a stream that is in no word that we know.

    Some servers send such a word in each event, so a word that content follows says
    nothing of the end.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._followed: set[str] = set()

    def add(self, reason: object, *, says: bool) -> None:
        """Add the finish reason of the next event, if there is one, and whether the
        event has content.
        """
        if says and self.reason is not None:
            self._followed.add(self.reason)
            self.reason = None
        if (
            reason is not None
            and finish_of(reason) == "unknown"
            and str(reason) not in self._followed
        ):
            self.reason = str(reason)


def is_refusal(message: AIMessage) -> bool:
    """Return whether the model or its provider declined, by a refusal block or field."""
    if message.additional_kwargs.get("refusal"):
        return True
    if isinstance(message.content, str):
        return False
    return any(
        isinstance(block, dict) and block.get("type") == "refusal"
        for block in message.content
    )


def says_nothing(message: AIMessage) -> bool:
    """Return whether a response has no content: it calls no tool, and is filtered,
    malformed or empty.

    A refusal is content, and so are blocks other than text and reasoning, such as a
    picture.
    """
    blocks = message.content if isinstance(message.content, list) else ()
    other_blocks = [
        block
        for block in blocks
        if isinstance(block, dict) and block.get("type") not in _THOUGHT_OR_TEXT
    ]
    beside = not message.additional_kwargs.keys().isdisjoint(("audio", "function_call"))
    if message.tool_calls or message.invalid_tool_calls or other_blocks or beside:
        return False
    ending = ending_of(message)
    if ending in ("filtered", "malformed call"):
        return True
    refused = ending == "refused" or is_refusal(message)
    return not refused and not (without_reasoning(str(message.text)) or "").strip()


def finish_reasons(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield the finish reasons in the metadata of a response or a chunk, in lower case."""
    if _ENDS.isdisjoint(metadata):  # as of most chunks
        return
    values = [metadata.get(field) for field in FINISH_FIELDS]
    for field, key in (("incomplete_details", "reason"), (_BLOCKED, "block_reason")):
        details = metadata.get(field)
        if isinstance(details, dict):
            values.append(details.get(key))
    yield from filter(None, map(_word, values))


def _word(reason: object) -> str:
    """Return a finish reason in lower case; an empty text if the response goes on."""
    if reason is None or reason is False:
        return ""
    word = str(getattr(reason, "value", reason)).rpartition(".")[2].lower()
    # LangChain joins the strings of a stream's chunks: ``STOPSTOP`` is ``STOP``, and
    # ``nullnullstop`` is ``stop``.
    if pending := _IS_PENDING.match(word):
        word = word[pending.end() :]
    return repeated[1] if (repeated := _REPEATED.fullmatch(word)) else word


# Reasoning in the text, where a server has no parser for it. Known are the marks of
# vLLM's and SGLang's parsers: tags in pairs, Harmony's channels, and Granite's two
# headings.

_TAGS = "think thinking thought thoughts reasoning seed:think reflection scratchpad analysis inner_monologue"
_OPENINGS = {f"<{name}>": f"</{name}>" for name in _TAGS.split()} | {
    "[think]": "[/think]",
    "◁think▷": "◁/think▷",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|start_thinking|>": "<|end_thinking|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<|channel>": "<channel|>",
}
_TAG = re.compile(
    "|".join(map(re.escape, (*_OPENINGS, *_OPENINGS.values()))), re.IGNORECASE
)
_MAY_BE_TAG = re.compile(r"[<\[◁]")
_LONE = {
    "</think>",
    "</thinking>",
    "</seed:think>",
    "[/think]",
    "◁/think▷",
    "<|end_thinking|>",
}
"""Closed without having been opened where the chat template opens it, at the end of the
prompt.
"""
_CHANNEL = "<|channel|>"
_FINAL = re.compile(
    r"<\|channel\|>\s*final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>"
)
_HEADINGS = re.compile(r"\s*here(?:'s| is) my thought process:", re.IGNORECASE)
_RESPONSE = re.compile(r"here(?:'s| is) my response:", re.IGNORECASE)
_FRAMES = re.compile(
    r"</?response>|<\|(?:begin|end)_of_solution\|>|<\|(?:start|end)_response\|>",
    re.IGNORECASE,
)


def without_reasoning(text: str) -> str | None:
    """Return a text without its reasoning, or None if the reasoning never ended.

    If only a closing tag is found, the prompt opened the reasoning, and everything
    before the tag is reasoning.
    """
    if _CHANNEL in text:
        ends = [channel.end() for channel in _FINAL.finditer(text)]
        return re.split(r"<\|\w+\|>", text[ends[-1] :], maxsplit=1)[0] if ends else None
    if _HEADINGS.match(text):
        answer = _RESPONSE.search(text)
        return text[answer.end() :] if answer else None
    return _outside_tags(text) if _MAY_BE_TAG.search(text) else text


def _outside_tags(text: str) -> str | None:
    pieces: list[str] = []
    closing = ""
    position = 0
    for tag in _TAG.finditer(text):
        mark = tag[0].lower()
        if closing:
            if mark == closing:
                closing = ""
                position = tag.end()
        elif mark in _OPENINGS:
            pieces.append(text[position : tag.start()])
            closing = _OPENINGS[mark]
        elif mark in _LONE:
            pieces = []
            position = tag.end()
    return None if closing else _FRAMES.sub("\n", "".join([*pieces, text[position:]]))
