"""Merge the chunks of a streamed response, within a bound on its length; and make
chunks of a whole one.
"""

import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    message_chunk_to_message,
)
from langchain_core.messages.ai import (
    UsageMetadata,
    add_ai_message_chunks,
    add_usage,
    subtract_usage,
)
from langchain_core.messages.tool import ToolCallChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import BaseModel, ValidationError

from langchain_reasc.answers import (
    FINISH_FIELDS,
    UnknownFinish,
    failed_reason,
    finish_reasons,
    has_finish_reason,
)
from langchain_reasc.complaints import warn_once
from langchain_reasc.exceptions import SamplingError
from langchain_reasc.langchain_internals import langsmith_params
from langchain_reasc.models.calls import with_calls
from langchain_reasc.models.contract import RECEIVED_TOKENS, TOKEN_LIMITS
from langchain_reasc.models.settings import without
from langchain_reasc.models.signal_reading import count_tokens
from langchain_reasc.models.usage import (
    is_count,
    tokens_of_text,
    tokens_written,
    written,
)
from langchain_reasc.threads import each

_NO_LIMIT: Final = 65_536  # tokens, where none is known
Chunks = Iterable[ChatGenerationChunk] | AsyncIterable[ChatGenerationChunk]
LastChunk = Callable[[list[ChatGenerationChunk]], ChatGenerationChunk]
"""Makes the last chunk of a response from those before it."""
_log = logging.getLogger(__name__)


def message_of(chunks: Sequence[BaseMessage]) -> AIMessage:
    """Return the message that chunks add up to; a call whose arguments are not a JSON
    object is in ``invalid_tool_calls``.

    Raises:
        SamplingError: some are not parts of an ``AIMessage``.
        Exception: they cannot be added up, such as values of two types under one name.
    """
    # LangChain would join a reason in a word that we do not know to the last reason.
    drops_unknown_reasons = _has_known_reason(chunks)
    parts = []
    pieces: list[ToolCallChunk] = []
    for chunk in chunks:
        if not isinstance(chunk, AIMessageChunk):
            raise SamplingError(
                f"the model streamed a {type(chunk).__name__}, which is not part of an "
                "AIMessage"
            )
        metadata = chunk.response_metadata
        update: dict[str, Any] = {}
        # LangChain would complete the calls, and in quadratic time if they are not JSON.
        if chunk.tool_call_chunks:
            pieces += chunk.tool_call_chunks
            update["tool_call_chunks"] = []
        is_unknown = any(finish_reasons(metadata)) and not has_finish_reason(metadata)
        if drops_unknown_reasons and is_unknown:
            update["response_metadata"] = without(metadata, FINISH_FIELDS)
        parts.append(chunk.model_copy(update=update) if update else chunk)
    message = message_chunk_to_message(add_ai_message_chunks(*parts))
    assert isinstance(message, AIMessage)
    return with_calls(message, pieces) if pieces else message


def salvaged(chunks: Sequence[BaseMessage]) -> AIMessage | None:
    """Return what there is of a response that failed, for its bill; never raise.

    If the chunks do not add up, return their text alone, with their usage if at least
    that adds up.
    """
    if not chunks:
        return None
    try:
        return message_of(chunks)
    except Exception:
        text = "".join(
            chunk.content for chunk in chunks if isinstance(chunk.content, str)
        )
    parts = [(chunk, chunk.response_metadata) for chunk in chunks]
    received = {RECEIVED_TOKENS: tokens_written(parts)}
    try:
        # The usages may be what does not add up.
        usage: UsageMetadata | None = None
        for chunk in chunks:
            usage = add_usage(usage, getattr(chunk, "usage_metadata", None))
        return AIMessage(text, usage_metadata=usage, response_metadata=received)
    except Exception:
        return AIMessage(text, response_metadata=received)


def has_ended(chunks: Sequence[BaseMessage]) -> bool:
    """Return whether the chunks of a stream that has ended are a whole response: their
    end has a finish reason.

    A reason in a word that we do not know is believed if no content came after it; a
    warning is then logged once.
    """
    if _has_known_reason(chunks):
        return True
    # Some servers send a word that we do not know with each event.
    finish = UnknownFinish()
    for chunk in chunks:
        reason = next(finish_reasons(chunk.response_metadata), None)
        finish.add(reason, says=bool(written(chunk)))
    if finish.reason is not None:
        warn_unknown_finish(finish.reason)
    return finish.reason is not None


def _has_known_reason(chunks: Sequence[BaseMessage]) -> bool:
    # A reason comes with one of the last chunks.
    return any(has_finish_reason(chunk.response_metadata) for chunk in reversed(chunks))


def refuse_failed(metadata: Mapping[str, Any]) -> None:
    """Refuse a response with a finish reason that says that the server failed to
    generate the response.

    Raises:
        SamplingError: the response has such a reason.
    """
    reason = failed_reason(metadata)
    if reason:
        raise SamplingError(
            "the server failed to generate the response: its finish reason is "
            f"{reason!r}"
        )


def warn_unknown_finish(reason: str) -> None:
    """Warn once that a response counts as whole, although its finish reason is in a
    word that we do not know.
    """
    warn_once(
        f"unknown finish reason {reason[:100]!r}: responses that end with it count as "
        "whole"
    )


def as_chunk(result: ChatResult) -> ChatGenerationChunk:
    """Return a response that was taken whole as the only chunk of a stream."""
    generation = result.generations[0]
    metadata = generation.message.response_metadata
    model_name = (result.llm_output or {}).get("model_name")
    if model_name:
        metadata = {**metadata, "model_name": model_name}
    chunk = _chunk_with(generation.message, response_metadata=metadata)
    return ChatGenerationChunk(
        message=chunk, generation_info=generation.generation_info
    )


def _chunk_with(message: BaseMessage, **changed: Any) -> AIMessageChunk:
    """Return a message as a chunk, with some fields changed."""
    fields = {name: getattr(message, name) for name in AIMessage.model_fields}
    # A chunk has a type of its own.
    del fields["type"]
    return AIMessageChunk(**{**fields, **changed})


def metadata_of(chunk: ChatGenerationChunk) -> dict[str, Any]:
    """Return what a chunk says besides its content."""
    return {**(chunk.generation_info or {}), **chunk.message.response_metadata}


def token_limit(model: BaseChatModel, call: Mapping[str, Any]) -> int | None:
    """Return how many tokens a response may have, by the arguments of the call or by
    what the model tells LangSmith.
    """
    limits = [call.get(name) for name in TOKEN_LIMITS]
    if not any(limits):
        # The model's own limit has a name in each class, and this one for LangSmith.
        limits = [langsmith_params(model).get("ls_max_tokens")]
    for limit in limits:
        if isinstance(limit, int) and limit > 0:
            return limit
    return None


class ResponseBound:
    """Tells when a response has gone past its limit of tokens, which some servers do
    not keep.

    Tokens can be counted exactly only if each comes with its log-probability. Otherwise
    each word of a chunk counts as a token, but four characters as one at most: some
    servers send single characters. Characters alone are bounded too, at 128 for each
    token, and so are empty chunks.
    """

    def __init__(self, max_tokens: int | None) -> None:
        """Begin to count.

        Args:
            max_tokens: the limit that the server was given; None for 65,536.
        """
        self._limit = limit = max_tokens or _NO_LIMIT
        # The counts are rough, so each bound leaves room above the limit.
        self._most_tokens = limit + limit // 8 + 16
        self._most_words = 2 * limit + 64
        self._most_characters = 128 * limit + 16_384
        self._most_chunks = 4 * limit + 4096
        self._tokens = self._chunks = self._words = self._characters = 0
        self._ended = False

    def count(self, tokens: int, text: str, *, ended: bool) -> None:
        """Count a part of a response by its tokens with log-probabilities and its text."""
        self._ended = self._ended or ended
        self._chunks += 1
        self._tokens += tokens
        if text:
            # White space alone is generated, too.
            self._words += len(text.split()) or 1
            self._characters += len(text)

    @property
    def passed(self) -> bool:
        """Whether no more of the response may be read."""
        words = min(self._words, tokens_of_text(self._characters))
        return (
            self._tokens > self._most_tokens
            or words > self._most_words
            or self._characters > self._most_characters
            or self._chunks > self._most_chunks
        )

    @property
    def over(self) -> bool:
        """Whether the response has ended, or has passed its limit."""
        return self._ended or self.passed

    def cut(self) -> bool:
        """Return whether a response that has passed its limit needs an end, and log a
        warning if so.
        """
        if self._ended:
            return False
        _log.warning(
            "a response was cut off that went on past its limit of %s tokens",
            f"{self._limit:,}",
        )
        return True


async def bounded(
    chunks: Chunks,
    bound: ResponseBound,
    last_chunk: LastChunk,
) -> AsyncGenerator[ChatGenerationChunk]:
    """Yield the chunks of a stream; if it passes its bound, close it and yield a last
    chunk that says so.
    """
    received = []
    async with aclosing(each(chunks)) as items:
        async for chunk in items:
            yield chunk
            received.append(chunk)
            metadata = metadata_of(chunk)
            bound.count(
                count_tokens(metadata),
                written(chunk.message),
                ended=has_finish_reason(metadata),
            )
            if bound.passed:
                if bound.cut():
                    yield last_chunk(received)
                return


async def with_parsed(
    chunks: Chunks,
    schema: type[BaseModel],
) -> AsyncGenerator[ChatGenerationChunk]:
    """Yield the chunks of a stream, then one with the object that the text states, if
    the schema accepts the object.
    """
    texts: list[str] = []
    async with aclosing(each(chunks)) as items:
        async for chunk in items:
            texts.append(chunk.text)
            yield chunk
    # If the object does not fit, with_structured_output says why.
    with suppress(ValidationError):
        parsed = schema.model_validate_json("".join(texts))
        yield ChatGenerationChunk(
            message=AIMessageChunk(content="", additional_kwargs={"parsed": parsed})
        )


async def with_usage_once(
    chunks: Chunks,
) -> AsyncGenerator[ChatGenerationChunk]:
    """Yield the chunks of a stream with usages that add up to the response's, as
    LangChain adds them up.

    Some servers (vLLM's ``continuous_usage_stats``) report with each event the usage so
    far. Such a usage contains all before it, the whole prompt too; yield the difference
    in its place. Other servers report what is new, and name the prompt only once.
    """
    total: UsageMetadata | None = None
    async with aclosing(each(chunks)) as items:
        async for chunk in items:
            usage: Any = getattr(chunk.message, "usage_metadata", None) or {}
            counts = [usage.get("input_tokens"), usage.get("output_tokens")]
            if all(map(is_count, counts)):
                # All before is in it, if it has no less of each.
                if (
                    total is not None
                    and usage["input_tokens"] >= total["input_tokens"] > 0
                    and usage["output_tokens"] >= total["output_tokens"]
                ):
                    usage = subtract_usage(usage, total)
                    message = chunk.message.model_copy(update={"usage_metadata": usage})
                    chunk = ChatGenerationChunk(
                        message=message, generation_info=chunk.generation_info
                    )
                total = add_usage(total, usage)
            yield chunk


def chunks_of(message: AIMessage) -> list[AIMessageChunk]:
    """Return a message as a stream: one chunk, and one before it with the invalid calls
    that it would not show.

    The message is not cut in pieces: how content blocks, tool calls and provider
    metadata belong together differs from provider to provider, and LangChain reads a
    chunk that is marked as the last as it reads a whole message. Its v3 events then
    show only those invalid calls that are blocks of the content.
    """
    if not message.invalid_tool_calls or any(map(_shows_invalid_call, message.content)):
        return [_whole(message)]
    calls = AIMessageChunk(
        content=type(message.content)(),
        id=message.id,
        invalid_tool_calls=message.invalid_tool_calls,
    )
    for call in calls.tool_call_chunks:
        call["args"] = _unrepairable(call["args"])
    # LangChain would look for calls in the provider's own copies, and complete them.
    update = {
        "invalid_tool_calls": [],
        "additional_kwargs": without(message.additional_kwargs, {"tool_calls"}),
    }
    return [calls, _whole(message.model_copy(update=update))]


def _whole(message: AIMessage) -> AIMessageChunk:
    chunk = _chunk_with(
        message, content=_distinct_blocks(message), chunk_position="last"
    )
    for index, call in enumerate(chunk.tool_call_chunks):
        # LangChain joins calls with the same index.
        call["index"] = index
        if index >= len(message.tool_calls):
            call["args"] = _unrepairable(call["args"])
    return chunk


def _shows_invalid_call(block: Any) -> bool:
    # LangChain shows an invalid call of the Responses API as such.
    kinds = ("invalid_tool_call", "function_call")
    return isinstance(block, dict) and block.get("type") in kinds


def _unrepairable(args: str | None) -> str:
    """Return the arguments of an invalid call so that it stays invalid when the chunk
    is added to others.

    LangChain completes what looks like the beginning of an object, reads an empty text
    as an empty object, and fails on a list. A bracket that closes nothing prevents all
    three.
    """
    return f"]{args or ''}"


def _distinct_blocks(message: AIMessage) -> str | list[str | dict[str, Any]]:
    """Return the content with a distinct index for each block, as LangChain's events
    need.
    """
    if isinstance(message.content, str):
        return message.content
    blocks = _with_all_calls(message, message.content)
    indexed = [
        block for block in blocks if isinstance(block, dict) and "index" in block
    ]
    if len({block["index"] for block in indexed}) == len(indexed):
        return blocks
    return [
        {**block, "index": index} if block in indexed else block
        for index, block in enumerate(blocks)
    ]


def _with_all_calls(message: AIMessage, blocks: list[Any]) -> list[Any]:
    """Return the blocks with the calls that LangChain's streams lost.

    With ``output_version="v1"`` they give a call of a tool the index of a text, or of
    another call, and then make the two one block.
    """
    other_blocks = [
        block
        for block in blocks
        if not (isinstance(block, dict) and block.get("type") == "tool_call")
    ]
    lacks_calls = len(blocks) - len(other_blocks) < len(message.tool_calls)
    if message.response_metadata.get("output_version") != "v1" or not lacks_calls:
        return blocks
    # Nobody can tell which calls are lost, so all are replaced.
    return [*other_blocks, *map(dict, message.tool_calls)]
