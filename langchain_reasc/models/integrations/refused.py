"""Servers that refuse a request because it asks for logprobs: it is made again without them, and that is remembered."""

import json
import logging
import re
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing, closing, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.models.contract import LOGPROBS_REFUSED

__all__ = ["AskedLogprobs", "LogprobsMemory", "logprobs_memory", "reason_of_refusal"]

T = TypeVar("T")
logger = logging.getLogger(__name__)

_REFUSING: Final = (400, 403, 404, 405, 422, 500, 501)  # and no status at all, as of errors with status 200
_LOGPROBS: Final = re.compile(r"log[\s_-]?prob|the requested parameters", re.IGNORECASE)  # the second is OpenRouter's
_UNSUPPORTED: Final = re.compile(
    r"support|unknown|unrecogni[sz]|unexpected|extra|invalid|permitted|allowed|available|enabled|disabled|implement"
    r"|cannot|can't|could not|not |n't|must|only|max|greater|exceed|less|remove|no endpoints",
    re.IGNORECASE,
)
_ECHO: Final = re.compile(r"""["']?\b(?:input|body|request|ctx)["']?\s*[:=]\s*\{.*?\}""", re.DOTALL)
_LONGEST: Final = 240  # characters of a server's message
_remembering = threading.Lock()  # samples of many threads hear of it at once; none in the memory, which is pickled


@dataclass
class LogprobsMemory:
    """What is known of a chat model's server, shared by all that sample the model.

    Attributes:
        refused: why it refused a request for logprobs, in its words; None where it never did.
        accepted: whether it ever took one. Of several servers behind an address some may refuse, and are asked again.
    """

    refused: str | None = None
    accepted: bool = False

    def generate(self, ask: Callable[[], T], without: Callable[[], T], *, required: bool = False) -> T:
        """A response in one piece, a ``ChatResult``; or what it will be read from.

        Args:
            ask: asks for it with logprobs.
            without: asks for it without.
            required: whether a response without them is of no use.

        Raises:
            LogprobsUnavailable: the server refuses logprobs, and they are required.
        """
        if (reason := self._known(required=required)) is None:
            try:
                result = ask()
            except Exception as error:
                if (reason := self._refusal(error, required=required)) is None:
                    raise
            else:
                return self._taken(result)
        return self._marked_result(without(), reason)

    async def agenerate(
        self,
        ask: Callable[[], Coroutine[Any, Any, T]],
        without: Callable[[], Coroutine[Any, Any, T]],
        *,
        required: bool = False,
    ) -> T:
        """The asynchronous :meth:`generate`."""
        if (reason := self._known(required=required)) is None:
            try:
                result = await ask()
            except Exception as error:
                if (reason := self._refusal(error, required=required)) is None:
                    raise
            else:
                return self._taken(result)
        return self._marked_result(await without(), reason)

    def stream(
        self,
        ask: Callable[[], Iterator[ChatGenerationChunk]],
        without: Callable[[], Iterator[ChatGenerationChunk]],
        *,
        required: bool = False,
    ) -> Generator[ChatGenerationChunk]:
        """A response as a stream, with the arguments and errors of :meth:`generate`."""
        if (reason := self._known(required=required)) is None:
            with _closing(ask()) as chunks:
                try:
                    first = next(chunks, None)
                except Exception as error:
                    if (reason := self._refusal(error, required=required)) is None:
                        raise
                else:
                    if first is not None:
                        yield self._begun(first)
                        yield from chunks
                    return
        with _closing(without()) as chunks:
            if (first := next(chunks, None)) is not None:
                yield self._marked(first, reason)
                yield from chunks

    async def astream(
        self,
        ask: Callable[[], AsyncIterator[ChatGenerationChunk]],
        without: Callable[[], AsyncIterator[ChatGenerationChunk]],
        *,
        required: bool = False,
    ) -> AsyncGenerator[ChatGenerationChunk]:
        """The asynchronous :meth:`stream`."""
        if (reason := self._known(required=required)) is None:
            async with _aclosing(ask()) as chunks:
                try:
                    first = await anext(chunks, None)
                except Exception as error:
                    if (reason := self._refusal(error, required=required)) is None:
                        raise
                else:
                    if first is not None:
                        yield self._begun(first)
                        async for chunk in chunks:
                            yield chunk
                    return
        async with _aclosing(without()) as chunks:
            if (first := await anext(chunks, None)) is not None:
                yield self._marked(first, reason)
                async for chunk in chunks:
                    yield chunk

    def _known(self, *, required: bool) -> str | None:
        if self.refused is None or self.accepted:
            return None
        if required:
            raise _unavailable(self.refused)
        return self.refused

    def _refusal(self, error: Exception, *, required: bool) -> str | None:
        """Why the server refuses logprobs; None where the error says something else."""
        reason = reason_of_refusal(error)
        if reason is not None and required:
            self.refused = reason
            raise _unavailable(reason) from error
        return reason

    def _begun(self, first: ChatGenerationChunk) -> ChatGenerationChunk:
        self.accepted = self.accepted or LOGPROBS_REFUSED not in first.message.response_metadata
        return first

    def _taken(self, result: T) -> T:
        marked = any(LOGPROBS_REFUSED in one.message.response_metadata for one in _generations(result))
        self.accepted = self.accepted or not marked
        return result

    def _remember(self, reason: str) -> None:
        with _remembering:
            known, self.refused = self.refused, reason
        if known is None:
            logger.warning("the model is asked without logprobs, which its server refuses: %s", reason)

    def _marked(self, first: ChatGenerationChunk, reason: str) -> ChatGenerationChunk:
        self._remember(reason)
        first.message.response_metadata = {**first.message.response_metadata, LOGPROBS_REFUSED: reason}
        return first

    def _marked_result(self, result: T, reason: str) -> T:
        self._remember(reason)
        for one in _generations(result):
            one.message.response_metadata = {**one.message.response_metadata, LOGPROBS_REFUSED: reason}
        return result


@dataclass(frozen=True)
class AskedLogprobs:
    """How a copy of a chat model asks for logprobs, and what it is without asking.

    Attributes:
        memory: of the model that it is a copy of.
        names: the arguments of a call that ask.
        fields: the fields that ask -> their values that do not.
        required: whether a response without logprobs is of no use.
    """

    memory: LogprobsMemory
    names: frozenset[str]
    fields: Mapping[str, Any] = field(default_factory=dict)
    required: bool = False

    def wrapped(self, name: str, model: BaseChatModel) -> Any:
        """A model's method of this name, ``_stream``, ``_generate`` or an asynchronous twin, that may be refused."""
        wrapper: Any = getattr(self.memory, name.removeprefix("_"))
        original: Any = getattr(type(model), name).__get__(model)

        @wraps(original)
        def method(messages: Any, *args: Any, **kwargs: Any) -> Any:
            def without() -> Any:
                kept = {key: value for key, value in kwargs.items() if key not in self.names}
                return getattr(self._bare(model), name)(messages, *args, **kept)

            return wrapper(lambda: original(messages, *args, **kwargs), without, required=self.required)

        return method

    def _bare(self, model: BaseChatModel) -> BaseChatModel:
        """The model without what asks for logprobs, and with its class's own methods."""
        bare = model.model_copy(update=self.fields)
        for name in ("_stream", "_astream", "_generate", "_agenerate"):
            bare.__dict__.pop(name, None)
        return bare


_memories: dict[int, LogprobsMemory] = {}


def logprobs_memory(model: BaseChatModel) -> LogprobsMemory:
    """What is known of this model, the user's own object, for as long as it lives."""
    memory = _memories.get(id(model))
    if memory is None:
        memory = _memories.setdefault(id(model), LogprobsMemory())
        weakref.finalize(model, _memories.pop, id(model), None).atexit = False
    return memory


def reason_of_refusal(error: Exception) -> str | None:
    """The words in which a server refuses logprobs; None where the error is about something else.

    Servers say it in many ways: OpenAI by ``param``, those built on pydantic by the place of the field, the others in a
    sentence that names it. A server that repeats the request in its error names it as well, and is not misread.
    """
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    if status is not None and status not in _REFUSING:
        return None
    body = getattr(error, "body", None)
    told: Any = body.get("error", body) if isinstance(body, dict) else body
    param = told.get("param") if isinstance(told, dict) else None
    if isinstance(param, str) and param and not _LOGPROBS.search(param):
        return None
    detail = body.get("detail") if isinstance(body, dict) else None
    if isinstance(detail, list) and detail:
        named = [one for one in detail if isinstance(one, dict) and _LOGPROBS.search(str(one.get("loc")))]
        return _shortened("; ".join(f"{one.get('msg')}: {one['loc']}" for one in named)) if named else None
    text = _ECHO.sub("", str(told.get("message") or json.dumps(told)) if isinstance(told, dict) else _words(error))
    if not _LOGPROBS.search(text) or not (param or _UNSUPPORTED.search(text)):
        return None
    return _shortened(text)


def _generations(result: object) -> Sequence[ChatGeneration]:
    return result.generations if isinstance(result, ChatResult) else ()


def _words(error: Exception) -> str:
    """What an error says, and the response behind it, where that was read."""
    try:
        return f"{error} {getattr(getattr(error, 'response', None), 'text', '')}"
    except Exception:  # a response that is streamed and was not read
        return str(error)


def _shortened(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _unavailable(reason: str) -> LogprobsUnavailable:
    return LogprobsUnavailable(
        f"the model's server refuses logprobs: {reason}; let the model state its confidence (ask_confidence=True, "
        "calibrated so), or count votes with on_missing_confidence='count'"
    )


def _closing(chunks: Any) -> AbstractContextManager[Iterator[ChatGenerationChunk]]:
    return closing(chunks) if hasattr(chunks, "close") else nullcontext(chunks)


def _aclosing(chunks: Any) -> AbstractAsyncContextManager[AsyncIterator[ChatGenerationChunk]]:
    return aclosing(chunks) if hasattr(chunks, "aclose") else nullcontext(chunks)
