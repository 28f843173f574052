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
# "stopstop"
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
    if word in _KNOWN:
        return "ended"
    return "unknown"


def has_finish_reason(metadata: Mapping[str, Any]) -> bool:
    """Return whether the metadata of a response or a chunk says, in a word that we
    know, why generation ended.
    """
    return any(finish_of(word) != "unknown" for word in finish_reasons(metadata))


def failed_reason(metadata: Mapping[str, Any]) -> str | None:
    """Return the finish reason of a response that its server failed to generate, or
    None.
    """
    for word in finish_reasons(metadata):
        if word in _FAILURES:
            return word
    return None


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
        if finish_of(reason) == "unknown" and str(reason) not in self._followed:
            self.reason = str(reason)


def is_refusal(message: AIMessage) -> bool:
    """Return whether the model or its provider declined, by a refusal block or field."""
    if message.additional_kwargs.get("refusal"):
        return True
    return "refusal" in _types_of_blocks(message)


def says_nothing(message: AIMessage) -> bool:
    """Return whether a response has no content: it calls no tool, and is filtered,
    malformed or empty.

    A refusal is content, and so are blocks other than text and reasoning, such as a
    picture.
    """
    if message.tool_calls or message.invalid_tool_calls:
        return False
    if not message.additional_kwargs.keys().isdisjoint(("audio", "function_call")):
        return False
    if any(kind not in _THOUGHT_OR_TEXT for kind in _types_of_blocks(message)):
        return False
    ending = ending_of(message)
    if ending in ("filtered", "malformed call"):
        return True
    if ending == "refused" or is_refusal(message):
        return False
    text = without_reasoning(str(message.text)) or ""
    return not text.strip()


def _types_of_blocks(message: AIMessage) -> list[Any]:
    if isinstance(message.content, str):
        return []
    return [block.get("type") for block in message.content if isinstance(block, dict)]


def finish_reasons(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield the finish reasons in the metadata of a response or a chunk, in lower case."""
    if _ENDS.isdisjoint(metadata):  # as of most chunks
        return
    values = [metadata[field] for field in FINISH_FIELDS if field in metadata]
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
    pending = _IS_PENDING.match(word)
    if pending:
        word = word[pending.end() :]
    repeated = _REPEATED.fullmatch(word)
    if repeated:
        return repeated[1]
    return word


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
        finals = list(_FINAL.finditer(text))
        if not finals:
            return None
        return re.split(r"<\|\w+\|>", text[finals[-1].end() :], maxsplit=1)[0]
    if _HEADINGS.match(text):
        heading = _RESPONSE.search(text)
        if heading is None:
            return None
        return text[heading.end() :]
    if _MAY_BE_TAG.search(text):
        return _outside_tags(text)
    return text


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
    if closing:
        return None
    pieces.append(text[position:])
    return _FRAMES.sub("\n", "".join(pieces))
