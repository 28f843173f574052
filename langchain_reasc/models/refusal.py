"""Repeat a request without logprobs, or unstreamed, where a server refuses that, and
remember the refusal.
"""

import json
import logging
import re
import threading
import weakref
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
)
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.models.contract import LOGPROBS_REFUSED
from langchain_reasc.models.settings import without
from langchain_reasc.threads import each, result_of

T = TypeVar("T")
LOGPROBS_REQUEST: Final = "_logprobs_request"
"""The attribute of a copy that is prepared to be sampled, with how it asks for
logprobs; None if it does not ask.
"""
SERVER_MEMORY: Final = "_server_memory"
"""The attribute of the same copy with what is known of its server."""
logger = logging.getLogger(__name__)

# An error may also have no status at all, such as one in a response with status 200.
_REFUSING: Final = {400, 403, 404, 405, 422, 500, 501}
# "The requested parameters" is OpenRouter's.
_LOGPROBS: Final = re.compile(r"log[\s_-]?prob|the requested parameters", re.IGNORECASE)
_STREAM: Final = re.compile(r"\bstream(?:s|ing|ed)?\b", re.IGNORECASE)
_UNSUPPORTED: Final = re.compile(
    r"support|unknown|unrecogni[sz]|unexpected|extra|invalid|permitted|allowed"
    r"|available|enabled|disabled|implement|cannot|can't|could not|not |n't|must|only"
    r"|max|greater|exceed|less|remove|no endpoints",
    re.IGNORECASE,
)
_ECHO: Final = re.compile(
    r"""["']?\b(?:input|body|request|ctx)["']?\s*[:=]\s*\{.*?\}""", re.DOTALL
)
_LONGEST: Final = 240  # characters of a server's message
_MOST_SHAPES: Final = 256  # of requests: their models may be named by strangers
# Samples of many threads hear of a refusal at once. The memory itself is pickled, and so
# has no lock.
_remembering = threading.Lock()


@dataclass
class LogprobsMemory:
    """What is known of a chat model's server, shared by all that sample the model.

    A server may refuse logprobs for one model and not for another, beside tools or in
    streams only. So :meth:`of_shape` gives the memory of requests alike. Its methods
    make a request by a function of one argument: whether to ask for logprobs.

    Attributes:
        refused: why it refused a request for logprobs, in its words; None if it never
            did.
        accepted: whether it ever took one. Of several servers behind an address some
            may refuse, and are asked again.
        shapes: hash of a shape of requests -> its memory; the last ones are kept.
        unstreamed: model -> why the server refused to stream it, in its words.
        warned: what was logged of the model.
    """

    refused: str | None = None
    accepted: bool = False
    shapes: dict[int, "LogprobsMemory"] = field(default_factory=dict)
    unstreamed: dict[str, str] = field(default_factory=dict)
    warned: set[str] = field(default_factory=set)

    def of_shape(
        self, request: Mapping[str, Any], *, streamed: bool
    ) -> "LogprobsMemory":
        """Return what is known of requests for this model, in a stream or whole, with
        tools and structure or without.

        ``request`` has its fields, or the arguments of the call that makes it.
        """
        shape = hash(
            (
                str(request.get("model")),
                str(request.get("reasoning_effort")),
                bool(request.get("tools")),
                bool(request.get("response_format")),
                streamed,
            )
        )
        with _remembering:
            memory = self.shapes.pop(shape, LogprobsMemory())
            self.shapes[shape] = memory
            # The first one was used longest ago.
            if len(self.shapes) > _MOST_SHAPES:
                del self.shapes[next(iter(self.shapes))]
        return memory

    async def agenerate(
        self, request: Callable[[bool], Awaitable[T] | T], *, required: bool = False
    ) -> T:
        """Return a response in one piece, a ``ChatResult``; or what it will be read
        from.

        ``request`` makes the request, with logprobs or without; ``required`` says that
        a response without is of no use.

        Raises:
            LogprobsUnavailable: the server refuses logprobs, and they are required.
        """

        async def once(with_logprobs: bool) -> AsyncGenerator[T]:
            yield await result_of(request(with_logprobs))

        async with aclosing(self.astream(once, required=required)) as results:
            return await anext(results)

    async def astream(
        self,
        request: Callable[[bool], Iterator[T] | AsyncIterator[T]],
        *,
        required: bool = False,
    ) -> AsyncGenerator[T]:
        """Yield the chunks of a response, with the arguments and errors of
        :meth:`agenerate`.
        """
        reason = None if self.accepted else self.refused
        if required and reason:
            raise _unavailable(reason)
        for with_logprobs in (False,) if reason else (True, False):
            async with aclosing(each(request(with_logprobs))) as items:
                try:
                    first = await anext(items)
                except StopAsyncIteration:
                    return
                except Exception as error:
                    reason = refusal_reason(error) if with_logprobs else None
                    if reason is None:
                        raise
                    # Without logprobs, the response would be paid for in vain.
                    if required:
                        self.refused = reason
                        raise _unavailable(reason) from error
                    continue
                self._note(first, reason)
                yield first
                async for item in items:
                    yield item
                return

    async def streamed(
        self,
        request: Callable[[bool], Iterator[T] | AsyncIterator[T]],
        model: str | None,
    ) -> AsyncGenerator[T]:
        """Yield the chunks of a response, or of one taken whole if the server refuses
        to stream the model.

        ``request`` makes the request, streamed or not. ``model`` is None for the
        server's own.
        """
        reason = None
        begun = False
        name = str(model)
        models = self.unstreamed
        if name not in models:
            async with aclosing(each(request(True))) as items:
                try:
                    async for item in items:
                        begun = True
                        yield item
                    return
                except Exception as error:
                    # "logprobs is not supported with tools + stream" is about the
                    # logprobs of that request alone.
                    if begun or refusal_reason(error):
                        raise
                    reason = refusal_reason(error, _STREAM)
                    if reason is None:
                        raise
        async with aclosing(each(request(False))) as items:
            async for item in items:
                # The refusal is true once a whole response came instead. Of samples that
                # hear of it at once, the first warns.
                if (
                    reason
                    and len(models) < _MOST_SHAPES
                    and models.setdefault(name, reason) is reason
                ):
                    logger.warning(
                        "responses are taken whole, since the server refuses to stream "
                        "them: %s",
                        reason,
                    )
                reason = None
                yield item

    def _note(self, result: Any, reason: str | None) -> None:
        """Remember whether the server gave logprobs, and mark a response that was
        requested without them.

        Args:
            result: the response, or the first chunk of it.
            reason: why it was requested without logprobs; None if it was requested with
                them.
        """
        generations = result.generations if isinstance(result, ChatResult) else [result]
        messages = [
            generation.message
            for generation in generations
            if isinstance(generation, ChatGeneration)
        ]
        if reason is None:
            # A backend may have marked the response itself.
            if not any(LOGPROBS_REFUSED in item.response_metadata for item in messages):
                self.accepted = True
            return
        with _remembering:
            is_first = self.refused is None
            self.refused = reason
        if is_first:
            logger.warning(
                "the model is asked without logprobs, which its server refuses: %s",
                reason,
            )
        for message in messages:
            message.response_metadata = {
                **message.response_metadata,
                LOGPROBS_REFUSED: reason,
            }


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

    def respond(
        self,
        model: BaseChatModel,
        name: str,
        original: Callable[..., Any],
        messages: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Call a model's own ``_stream``, ``_generate`` or asynchronous twin, and again
        after a refusal.

        The result is a coroutine or an asynchronous generator, which waits for an event
        loop only if the method does.

        Args:
            model: a copy that asks for logprobs.
            name: the name of the method.
            original: the method, of its class.
            messages: the prompt.
            *args: what else it is called with.
            **kwargs: and by name.
        """

        def request(with_logprobs: bool) -> Any:
            if with_logprobs:
                return original(model, messages, *args, **kwargs)
            arguments = without(kwargs, self.names)
            bare = model.model_copy(update=self.fields)
            # The copy's own methods would ask again; those of its class are called.
            for method in ("_stream", "_astream", "_generate", "_agenerate"):
                bare.__dict__.pop(method, None)
            return getattr(bare, name)(messages, *args, **arguments)

        streamed = "stream" in name
        memory = self.memory.of_shape(kwargs, streamed=streamed)
        respond = memory.astream if streamed else memory.agenerate
        return respond(request, required=self.required)


_memories: dict[int, LogprobsMemory] = {}


def logprobs_memory(model: BaseChatModel) -> LogprobsMemory:
    """Return what is known of this model, the user's own object, for as long as it
    lives.
    """
    memory = _memories.get(id(model))
    if memory is None:
        memory = _memories.setdefault(id(model), LogprobsMemory())
        weakref.finalize(model, _memories.pop, id(model), None).atexit = False
    return memory


def refusal_reason(
    error: Exception, pattern: re.Pattern[str] = _LOGPROBS
) -> str | None:
    """Return the words in which a server refuses logprobs, or to stream; None if the
    error is about something else.

    Servers say it in many ways: OpenAI by ``param``, those built on pydantic by the
    place of the field, the others in a sentence that names it.
    """
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None) or getattr(
        response, "status_code", None
    )
    if status is not None and status not in _REFUSING:
        return None
    # "The stream is not available" with status 500 may be a failure of the moment.
    if pattern is _STREAM and status in (None, 500):
        return None
    body = getattr(error, "body", None)
    fields = body if isinstance(body, dict) else {}
    detail = fields.get("detail")
    if isinstance(detail, list) and detail:
        text = _fields_on(pattern, detail)
    else:
        text = _sentence_on(pattern, error, fields.get("error", body))
    line = " ".join(text.split()).rstrip(".")
    if len(line) > _LONGEST:
        return f"{line[:_LONGEST]}..."
    return line or None


def _fields_on(pattern: re.Pattern[str], detail: list[Any]) -> str:
    """The findings of pydantic on the fields with matching names; empty if there are
    none.
    """
    findings = []
    for finding in detail:
        if isinstance(finding, dict) and pattern.search(str(finding.get("loc"))):
            findings.append(f"{finding.get('msg')}: {finding['loc']}")
    return "; ".join(findings)


def _sentence_on(pattern: re.Pattern[str], error: Exception, answer: Any) -> str:
    """The matching text of an error or of its body; empty if the error is about
    something else.
    """
    param = None
    if isinstance(answer, dict):
        param = answer.get("param")
        text = str(answer.get("message") or json.dumps(answer))
    else:
        text = str(error)
        # A streamed response that was not read has no text.
        with suppress(Exception):
            text += f" {getattr(getattr(error, 'response', None), 'text', '')}"
    if isinstance(param, str) and param and not pattern.search(param):
        return ""
    # A server that repeats the request in its error names all its parameters.
    text = _ECHO.sub("", text)
    if pattern.search(text) and (param or _UNSUPPORTED.search(text)):
        return text
    return ""


def _unavailable(reason: str) -> LogprobsUnavailable:
    return LogprobsUnavailable(
        f"the model's server refuses logprobs: {reason}; let the model state its "
        "confidence (confidence='stated', calibrated so), or count votes with "
        "on_missing_confidence='count'"
    )
