"""Servers that refuse a request because it asks for logprobs: it is made again without them, and that is remembered."""

import json
import logging
import re
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.models.contract import LOGPROBS_REFUSED
from langchain_reasc.threads import blocking, blocking_items, each, result_of

__all__ = ["LOGPROBS_REQUEST", "LogprobsMemory", "LogprobsRequest", "logprobs_memory", "reason_of_refusal"]

T = TypeVar("T")
Chunk = ChatGenerationChunk
LOGPROBS_REQUEST: Final = "_logprobs_request"
"""The attribute of a copy that is prepared to be sampled, with how it asks for logprobs; None if it does not ask."""
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

    Its methods make a request by a function of one argument: whether to ask for logprobs.

    Attributes:
        refused: why it refused a request for logprobs, in its words; None if it never did.
        accepted: whether it ever took one. Of several servers behind an address some may refuse, and are asked again.
    """

    refused: str | None = None
    accepted: bool = False

    def generate(self, request: Callable[[bool], T], *, required: bool = False) -> T:
        """Return a response in one piece, a ``ChatResult``; or what it will be read from.

        Args:
            request: makes the request, with logprobs or without.
            required: whether a response without them is of no use.

        Raises:
            LogprobsUnavailable: the server refuses logprobs, and they are required.
        """
        return blocking(self.agenerate(lambda with_logprobs: result_of(request(with_logprobs)), required=required))

    async def agenerate(self, request: Callable[[bool], Awaitable[T]], *, required: bool = False) -> T:
        """Return the same asynchronously."""
        for attempt in self._attempts(required):
            with attempt:
                return attempt.note(await request(attempt.with_logprobs))
        raise AssertionError("the last attempt returns or raises")

    def stream(self, request: Callable[[bool], Iterator[Chunk]], *, required: bool = False) -> Generator[Chunk]:
        """Yield the chunks of a response, with the arguments and errors of :meth:`generate`."""
        return blocking_items(self.astream(request, required=required))

    async def astream(
        self, request: Callable[[bool], Iterator[Chunk] | AsyncIterator[Chunk]], *, required: bool = False
    ) -> AsyncGenerator[Chunk]:
        """Yield the same asynchronously."""
        for attempt in self._attempts(required):
            async with aclosing(each(request(attempt.with_logprobs))) as chunks:
                first = None
                with attempt:
                    first = await anext(chunks, None)
                if first is not None:
                    yield attempt.note(first)
                    async for chunk in chunks:
                        yield chunk

    def _attempts(self, required: bool) -> Iterator["_Attempt"]:
        """The requests to make for one response: with logprobs, then without if the server refuses them."""
        attempt = _Attempt(self, None if self.accepted else self.refused, required=required)
        if required and attempt.reason:
            raise _unavailable(attempt.reason)
        yield attempt
        if attempt.refusal:
            yield _Attempt(self, attempt.refusal, required=required)


class _Attempt:
    """A request for a response, with logprobs unless there is a reason why not; suppresses a refusal of logprobs."""

    def __init__(self, memory: LogprobsMemory, reason: str | None, *, required: bool) -> None:
        self._memory, self.reason, self._required = memory, reason, required
        self.with_logprobs = reason is None
        self.refusal: str | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if self.with_logprobs and isinstance(error, Exception):
            self.refusal = reason_of_refusal(error)
            if self.refusal and self._required:
                self._memory.refused = self.refusal
                raise _unavailable(self.refusal) from error
        return self.refusal is not None

    def note(self, result: T) -> T:
        """Remember whether the server gave logprobs, and mark a response that was asked for without them."""
        generations = result.generations if isinstance(result, ChatResult) else [result]
        messages = [one.message for one in generations if isinstance(one, ChatGeneration)]
        memory = self._memory
        if self.reason is None:
            marked = any(LOGPROBS_REFUSED in message.response_metadata for message in messages)
            memory.accepted = memory.accepted or not marked
            return result
        with _remembering:
            known, memory.refused = memory.refused, self.reason
        if known is None:
            logger.warning("the model is asked without logprobs, which its server refuses: %s", self.reason)
        for message in messages:
            message.response_metadata = {**message.response_metadata, LOGPROBS_REFUSED: self.reason}
        return result


@dataclass(frozen=True)
class LogprobsRequest:
    """How a copy of a chat model asks for logprobs, and what it is without asking.

    Attributes:
        memory: of the model that it is a copy of.
        names: the arguments of a call that ask.
        fields: the fields that ask -> their values that do not.
        required: whether a response without logprobs is of no use.
    """

    memory: LogprobsMemory
    names: frozenset[str]
    fields: Mapping[str, Any]
    required: bool = False

    def wrapped(self, name: str, model: BaseChatModel) -> Any:
        """Return a model's ``_stream``, ``_generate`` or asynchronous twin, which asks again after a refusal."""
        requesting: Any = getattr(self.memory, name.removeprefix("_"))
        original: Any = getattr(type(model), name).__get__(model)

        @wraps(original)
        def method(messages: Any, *args: Any, **kwargs: Any) -> Any:
            def request(with_logprobs: bool) -> Any:
                if with_logprobs:
                    return original(messages, *args, **kwargs)
                kept = {key: value for key, value in kwargs.items() if key not in self.names}
                return getattr(self._bare(model), name)(messages, *args, **kept)

            return requesting(request, required=self.required)

        return method

    def _bare(self, model: BaseChatModel) -> BaseChatModel:
        """The model without what asks for logprobs, and with its class's own methods."""
        bare = model.model_copy(update=self.fields)
        for name in ("_stream", "_astream", "_generate", "_agenerate"):
            bare.__dict__.pop(name, None)
        return bare


_memories: dict[int, LogprobsMemory] = {}


def logprobs_memory(model: BaseChatModel) -> LogprobsMemory:
    """Return what is known of this model, the user's own object, for as long as it lives."""
    memory = _memories.get(id(model))
    if memory is None:
        memory = _memories.setdefault(id(model), LogprobsMemory())
        weakref.finalize(model, _memories.pop, id(model), None).atexit = False
    return memory


def reason_of_refusal(error: Exception) -> str | None:
    """Return the words in which a server refuses logprobs; None if the error is about something else.

    Servers say it in many ways: OpenAI by ``param``, those built on pydantic by the place of the field, the others in a
    sentence that names it. A server that repeats the request in its error names it as well, and is not misread.
    """
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    if status is not None and status not in _REFUSING:
        return None
    body = getattr(error, "body", None)
    fields = body if isinstance(body, dict) else {}
    if isinstance(detail := fields.get("detail"), list) and detail:
        named = [one for one in detail if isinstance(one, dict) and _LOGPROBS.search(str(one.get("loc")))]
        text = "; ".join(f"{one.get('msg')}: {one['loc']}" for one in named)
    else:
        text = _sentence_on_logprobs(error, fields.get("error", body))
    line = " ".join(text.split()).rstrip(".")
    return (line if len(line) <= _LONGEST else f"{line[:_LONGEST]}...") or None


def _sentence_on_logprobs(error: Exception, answer: Any) -> str:
    """What an error says of logprobs, be it in its body or in its text; empty if it is about something else."""
    param = answer.get("param") if isinstance(answer, dict) else None
    if isinstance(param, str) and param and not _LOGPROBS.search(param):
        return ""
    if isinstance(answer, dict):
        text = str(answer.get("message") or json.dumps(answer))
    else:
        text = str(error)
        with suppress(Exception):  # a response that is streamed and was not read
            text += f" {getattr(getattr(error, 'response', None), 'text', '')}"
    text = _ECHO.sub("", text)
    return text if _LOGPROBS.search(text) and (param or _UNSUPPORTED.search(text)) else ""


def _unavailable(reason: str) -> LogprobsUnavailable:
    return LogprobsUnavailable(
        f"the model's server refuses logprobs: {reason}; let the model state its confidence (ask_confidence=True, "
        "calibrated so), or count votes with on_missing_confidence='count'"
    )
