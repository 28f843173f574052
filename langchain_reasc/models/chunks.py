"""Merge the chunks of a streamed response, within a bound on its length; and make
chunks of a whole one.
"""

import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from typing import Any, Final, TypeVar

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
from langchain_reasc.models.logprobs import count_tokens
from langchain_reasc.models.usage import (
    is_count,
    tokens_of_text,
    tokens_written,
    written,
)
from langchain_reasc.threads import each

T = TypeVar("T")
_NO_LIMIT: Final = 65_536  # tokens, where none is known
LastChunk = Callable[[list[ChatGenerationChunk]], ChatGenerationChunk]
"""Makes the last chunk of a response from those before it."""
_log = logging.getLogger(__name__)


def message_of(chunks: Sequence[BaseMessage]) -> AIMessage:
    """Return the message that chunks add up to; a call whose arguments are no JSON
    object is in ``invalid_tool_calls``.

    Raises:
        SamplingError: some are no parts of an ``AIMessage``.
        Exception: they cannot be added up: a server gave one name values of two types,
            say.
    """
    parts = [chunk for chunk in chunks if isinstance(chunk, AIMessageChunk)]
    if len(parts) < len(chunks):
        odd = next(chunk for chunk in chunks if not isinstance(chunk, AIMessageChunk))
        raise SamplingError(
            f"the model streamed a {type(odd).__name__}, which is no part of an "
            "AIMessage"
        )
    if any(has_finish_reason(part.response_metadata) for part in reversed(parts)):
        parts = [_without_unknown_finish(part) for part in parts]
    # Without their calls, which LangChain would complete, and in quadratic time where
    # they are no JSON.
    no_calls = {"tool_call_chunks": list[ToolCallChunk]()}
    whole = add_ai_message_chunks(
        *(
            one.model_copy(update=no_calls) if one.tool_call_chunks else one
            for one in parts
        )
    )
    message = message_chunk_to_message(whole)
    assert isinstance(message, AIMessage)
    pieces = [piece for part in parts for piece in part.tool_call_chunks]
    return with_calls(message, pieces) if pieces else message


def _without_unknown_finish(part: AIMessageChunk) -> AIMessageChunk:
    """Return the chunk without finish reasons in words that we do not know, which
    LangChain would join to the last.
    """
    metadata = part.response_metadata
    if has_finish_reason(metadata) or not any(finish_reasons(metadata)):
        return part
    return part.model_copy(
        update={"response_metadata": without(metadata, FINISH_FIELDS)}
    )


def salvaged(chunks: Sequence[BaseMessage]) -> AIMessage | None:
    """Return what there is of a response that failed, for its bill; never raise.

    Where chunks do not add up, it is their text alone, with their usage where at least
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
    received = {
        RECEIVED_TOKENS: tokens_written(
            (chunk, chunk.response_metadata) for chunk in chunks
        )
    }
    try:
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
    if any(has_finish_reason(chunk.response_metadata) for chunk in reversed(chunks)):
        return True
    finish = UnknownFinish()
    for chunk in chunks:
        finish.add(
            next(finish_reasons(chunk.response_metadata), None),
            says=bool(written(chunk)),
        )
    if finish.reason is not None:
        warn_unknown_finish(finish.reason)
    return finish.reason is not None


def refuse_failed(metadata: Mapping[str, Any]) -> None:
    """Refuse a response with a finish reason that says that the server failed to
    generate the response.

    Raises:
        SamplingError: the response has such a reason.
    """
    if reason := failed_reason(metadata):
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
    message: Any = generation.message
    if name := (result.llm_output or {}).get("model_name"):
        model_name = {"model_name": name}
    else:
        model_name = {}
    fields = {
        field: getattr(message, field)
        for field in AIMessage.model_fields
        if field != "type"
    }
    chunk = AIMessageChunk(
        **{**fields, "response_metadata": {**message.response_metadata, **model_name}}
    )
    return ChatGenerationChunk(
        message=chunk, generation_info=generation.generation_info
    )


def metadata_of(chunk: ChatGenerationChunk) -> dict[str, Any]:
    """Return what a chunk says besides its content."""
    return {**(chunk.generation_info or {}), **chunk.message.response_metadata}


def token_limit(model: BaseChatModel, call: Mapping[str, Any]) -> int | None:
    """Return how many tokens a response may have, by the arguments of the call or by
    what the model tells LangSmith.
    """
    limits = [call.get(name) for name in TOKEN_LIMITS]
    if not any(limits):
        limits = [langsmith_params(model).get("ls_max_tokens")]
    return next(
        (limit for limit in limits if isinstance(limit, int) and limit > 0), None
    )


class ResponseBound:
    """Tells when a response has gone past its limit of tokens, which some servers do
    not hold.

    Tokens can be counted exactly only where each comes with its log-probability.
    Elsewhere each word of a chunk counts as a token, but four characters as no more
    than one: some servers send single characters. Characters alone are bounded too, at
    128 for each token, and so are chunks that say nothing.
    """

    def __init__(self, max_tokens: int | None) -> None:
        """Begin to count.

        Args:
            max_tokens: the limit that the server was given; None where there is none,
                for 65,536.
        """
        self._limit = limit = max_tokens or _NO_LIMIT
        self._most_tokens = limit + limit // 8 + 16
        self._most_words = 2 * limit + 64
        self._most_characters = 128 * limit + 16_384
        self._most_chunks = 4 * limit + 4096
        self._tokens = self._chunks = self._words = self._characters = 0
        self._ended = False
        self._seen: list[ChatGenerationChunk] = []

    def count_chunk(self, chunk: ChatGenerationChunk) -> None:
        """Count a chunk."""
        metadata = metadata_of(chunk)
        self._seen.append(chunk)
        self.count(
            count_tokens(metadata),
            written(chunk.message),
            ended=has_finish_reason(metadata),
        )

    def count(self, tokens: int, text: str, *, ended: bool) -> None:
        """Count a part of a response by its tokens with log-probabilities and its text."""
        self._ended = self._ended or ended
        self._chunks += 1
        self._tokens += tokens
        if text:
            self._words += len(text.split()) or 1
            self._characters += len(text)

    @property
    def passed(self) -> bool:
        """Whether no more of the response is to be read."""
        return (
            self._tokens > self._most_tokens
            or (
                self._words > self._most_words
                and tokens_of_text(self._characters) > self._most_words
            )
            or self._characters > self._most_characters
            or self._chunks > self._most_chunks
        )

    @property
    def over(self) -> bool:
        """Whether the response has ended, or has passed its limit."""
        return self._ended or self.passed

    def cut(self, last_chunk: Callable[[list[ChatGenerationChunk]], T]) -> Iterator[T]:
        """Yield the last chunk of a response that has passed its limit, unless the
        response had ended already.
        """
        if not self._ended:
            _log.warning(
                "a response was cut off that went on past its limit of %s tokens",
                f"{self._limit:,}",
            )
            yield last_chunk(self._seen)


async def bounded(
    chunks: Iterable[ChatGenerationChunk] | AsyncIterable[ChatGenerationChunk],
    bound: ResponseBound,
    last_chunk: LastChunk,
) -> AsyncGenerator[ChatGenerationChunk]:
    """Yield the chunks of a stream; where it passes its bound, close it and yield a
    last chunk that says so.
    """
    async with aclosing(each(chunks)) as items:
        async for chunk in items:
            yield chunk
            bound.count_chunk(chunk)
            if bound.passed:
                for last in bound.cut(last_chunk):
                    yield last
                return


async def with_parsed(
    chunks: Iterable[ChatGenerationChunk] | AsyncIterable[ChatGenerationChunk],
    schema: type[BaseModel],
) -> AsyncGenerator[ChatGenerationChunk]:
    """Yield the chunks of a stream, and a last one with the object that the text
    states, if the schema accepts it.
    """
    texts: list[str] = []
    async with aclosing(each(chunks)) as items:
        async for chunk in items:
            texts.append(chunk.text)
            yield chunk
    with suppress(ValidationError):  # with_structured_output says what is missing
        parsed = schema.model_validate_json("".join(texts))
        yield ChatGenerationChunk(
            message=AIMessageChunk(content="", additional_kwargs={"parsed": parsed})
        )


async def with_usage_once(
    chunks: Iterable[ChatGenerationChunk] | AsyncIterable[ChatGenerationChunk],
) -> AsyncGenerator[ChatGenerationChunk]:
    """Yield the chunks of a stream with usages that add up to the response's, as
    LangChain adds them up.

    Some servers (vLLM's ``continuous_usage_stats``) report with each event the usage so
    far. Such a usage contains all before it, the whole prompt too, and becomes the
    difference. Usages of what is new name the prompt only once.
    """
    total: UsageMetadata | None = None
    async with aclosing(each(chunks)) as items:
        async for chunk in items:
            usage = getattr(chunk.message, "usage_metadata", None)
            if (
                usage
                and is_count(usage.get("input_tokens"))
                and is_count(usage.get("output_tokens"))
            ):
                if total is not None and _contains(usage, total):
                    usage = subtract_usage(usage, total)
                    message = chunk.message.model_copy(update={"usage_metadata": usage})
                    chunk = ChatGenerationChunk(
                        message=message, generation_info=chunk.generation_info
                    )
                total = add_usage(total, usage)
            yield chunk


def _contains(usage: UsageMetadata, earlier: UsageMetadata) -> bool:
    return (
        usage["input_tokens"] >= earlier["input_tokens"] > 0
        and usage["output_tokens"] >= earlier["output_tokens"]
    )


def chunks_of(message: AIMessage) -> list[AIMessageChunk]:
    """Return a message as a stream: one chunk, and one before it with the invalid calls
    that it would not show.

    The message is not cut in pieces: how content blocks, tool calls and provider
    metadata belong together differs from provider to provider, and LangChain reads a
    chunk that is marked as the last as it reads a whole message. Its v3 events then
    show only those invalid calls that are blocks of the content.
    """
    if not message.invalid_tool_calls or any(
        _shows_invalid_call(block) for block in message.content
    ):
        return [_whole(message)]
    calls = AIMessageChunk(
        content=type(message.content)(),
        id=message.id,
        invalid_tool_calls=message.invalid_tool_calls,
    )
    for call in calls.tool_call_chunks:
        call["args"] = _unrepairable(call["args"])
    raw = {
        "tool_calls"
        # as some providers' models keep them, where LangChain would look for calls and
        # complete them
    }
    left = {
        "invalid_tool_calls": [],
        "additional_kwargs": without(message.additional_kwargs, raw),
    }
    return [calls, _whole(message.model_copy(update=left))]


def _whole(message: AIMessage) -> AIMessageChunk:
    names = "id name tool_calls invalid_tool_calls additional_kwargs response_metadata usage_metadata"
    fields: dict[str, Any] = {name: getattr(message, name) for name in names.split()}
    chunk = AIMessageChunk(
        content=_distinct_blocks(message), chunk_position="last", **fields
    )
    for index, call in enumerate(chunk.tool_call_chunks):
        call["index"] = index
        if index >= len(message.tool_calls):
            call["args"] = _unrepairable(call["args"])
    return chunk


def _shows_invalid_call(block: Any) -> bool:
    """Return whether it is an invalid call, or a call of the Responses API, which
    LangChain shows as invalid if so.
    """
    return isinstance(block, dict) and block.get("type") in (
        "invalid_tool_call",
        "function_call",
    )


def _unrepairable(args: str | None) -> str:
    """Return the arguments of an invalid call so that it stays invalid when the chunk
    is added to others.

    LangChain completes what looks like the beginning of an object, takes nothing at all
    for an empty one, and fails on a list. A bracket that closes nothing prevents all
    three.
    """
    return f"]{args or ''}"


def _distinct_blocks(message: AIMessage) -> str | list[str | dict[str, Any]]:
    """Return the content with a distinct index for each block, as LangChain's events
    need.
    """
    if isinstance(message.content, str):
        return message.content
    blocks: list[Any] = _with_all_calls(message, message.content)
    indices = {
        place: block["index"]
        for place, block in enumerate(blocks)
        if isinstance(block, dict) and "index" in block
    }
    if len(set(indices.values())) == len(indices):
        return blocks
    return [
        {**block, "index": place} if place in indices else block
        for place, block in enumerate(blocks)
    ]


def _with_all_calls(message: AIMessage, blocks: list[Any]) -> list[Any]:
    """Return the blocks with the calls that LangChain's streams lost.

    With ``output_version="v1"`` they give a call of a tool the index of a text, or of
    another call, and then make the two one block.
    """
    calls = [
        block
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "tool_call"
    ]
    if message.response_metadata.get("output_version") != "v1" or len(calls) >= len(
        message.tool_calls
    ):
        return blocks
    return [
        *(block for block in blocks if block not in calls),
        *map(dict, message.tool_calls),
    ]


def without(given: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the metadata or the block without these names."""
    return {name: value for name, value in given.items() if name not in names}
