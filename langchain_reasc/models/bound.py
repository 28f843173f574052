"""Where a response is cut off that goes on and on: a limit of tokens is the server's to hold, and some servers do not.

Tokens can be told exactly only where each comes with its log-probability. Elsewhere each word of a chunk is taken for a
token, but four characters for no more than one: some servers send single characters. Characters alone have a bound too,
128 for each token, and so have chunks that say nothing.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

from langchain_reasc.answers import says_how_it_ended
from langchain_reasc.models.logprobs import count_tokens
from langchain_reasc.models.usage import tokens_of_text

__all__ = ["ResponseBound", "abounded", "bounded", "token_limit"]

_NO_LIMIT: Final = 65_536  # tokens, where none is known
_FIELDS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "num_predict")
Ending = Callable[[list[ChatGenerationChunk]], ChatGenerationChunk]
"""Makes the last chunk of those that came."""
_log = logging.getLogger(__name__)


def token_limit(model: BaseChatModel, call: Mapping[str, Any]) -> int | None:
    """Tokens that a response may have, by the arguments of the call or by what the model tells LangSmith."""
    told = [call.get(field) for field in _FIELDS]
    if not any(told):
        told = [model._get_ls_params().get("ls_max_tokens")]
    return next((limit for limit in told if isinstance(limit, int) and limit > 0), None)


class ResponseBound:
    """Tells when a response has gone past its limit of tokens, with some to spare for how they are counted."""

    def __init__(self, max_tokens: int | None) -> None:
        """Begin to count.

        Args:
            max_tokens: the limit that the server was given; None where there is none, for 65,536.
        """
        limit = max_tokens or _NO_LIMIT
        self._limit, self._most_tokens, self._most_counted = limit, limit + limit // 8 + 16, 2 * limit + 64
        self._most_characters, self._most_chunks = 128 * limit + 16_384, 4 * limit + 4096
        self._tokens = self._saying = self._more_words = self._characters = 0
        self._ended = False
        self._seen: list[ChatGenerationChunk] = []

    def take(self, chunk: ChatGenerationChunk) -> None:
        """Count a chunk."""
        told = {**(chunk.generation_info or {}), **chunk.message.response_metadata}
        self._ended = self._ended or says_how_it_ended(told)
        text = _written(chunk)
        self._seen.append(chunk)
        self._tokens += count_tokens(told)
        self._saying += bool(text)
        self._more_words += max(0, len(text.split()) - 1)
        self._characters += len(text)

    @property
    def passed(self) -> bool:
        """Whether no more of the response is to be read."""
        return (
            self._tokens > self._most_tokens
            or min(self._saying + self._more_words, tokens_of_text(self._characters)) > self._most_counted
            or self._characters > self._most_characters
            or len(self._seen) > self._most_chunks
        )

    @property
    def over(self) -> bool:
        """Whether the response has ended, or has passed it."""
        return self._ended or self.passed

    def cut(self, ending: Ending) -> Iterator[ChatGenerationChunk]:
        """The last chunk of a response that has passed it, unless that had ended already."""
        if not self._ended:
            _log.warning("a response was cut off that went on past its limit of %s tokens", f"{self._limit:,}")
            yield ending(self._seen)


def bounded(
    chunks: Iterator[ChatGenerationChunk], bound: ResponseBound, ending: Ending
) -> Iterator[ChatGenerationChunk]:
    """A stream, ended and closed where it passes its bound; ``ending`` makes the chunk that says so."""
    try:
        for chunk in chunks:
            yield chunk
            bound.take(chunk)
            if bound.passed:
                yield from bound.cut(ending)
                return
    finally:
        with suppress(Exception):
            getattr(chunks, "close", lambda: None)()


async def abounded(
    chunks: AsyncIterator[ChatGenerationChunk], bound: ResponseBound, ending: Ending
) -> AsyncIterator[ChatGenerationChunk]:
    """The asynchronous :func:`bounded`."""
    try:
        async for chunk in chunks:
            yield chunk
            bound.take(chunk)
            if bound.passed:
                for last in bound.cut(ending):
                    yield last
                return
    finally:
        if close := getattr(chunks, "aclose", None):
            with suppress(Exception):
                await close()


def _written(chunk: ChatGenerationChunk) -> str:
    """All that the model wrote in a chunk, be it text, reasoning, or arguments of calls."""
    message = chunk.message
    called = message.tool_call_chunks if isinstance(message, AIMessageChunk) else ()
    blocks = [message.content] if isinstance(message.content, str) else message.content
    written = [*map(_of_block, blocks), *message.additional_kwargs.values(), *(call["args"] for call in called)]
    return "".join(text for text in written if isinstance(text, str))


def _of_block(block: str | dict[Any, Any]) -> Any:
    fields = ("text", "thinking", "reasoning", "refusal")
    return block if isinstance(block, str) else next((block[field] for field in fields if block.get(field)), "")
