"""A chat model as one sample uses it: a copy of its own, which can be cut off in the middle of a response.

LangChain ends the run of a stream that is closed early as an error without usage, and never that of an ``ainvoke``
that is cancelled. Here the model's own stream ends: with one more chunk, which says that the response was cut off, and
what it cost as far as can be told. What LangChain makes of the chunks is then a whole run of a short response.

A silent server must hold up neither a decision, nor a time limit, nor Ctrl-C. So the model is read in a thread, or
task, of its own: LangChain's ``stream`` waits for that or for the cutoff, since nobody else can end the run it began.
"""

import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, Final, NamedTuple, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import BaseModel

from langchain_reasc.answers import says_how_it_ended
from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc.models.chunks import ResponseBound, bounded, metadata_of, token_limit
from langchain_reasc.models.contract import CANCELLED, FINISH_REASON, USAGE_ESTIMATED
from langchain_reasc.models.integrations import integration_of
from langchain_reasc.models.logprobs import count_tokens
from langchain_reasc.models.refusal import LOGPROBS_REQUEST
from langchain_reasc.models.usage import tokens_of_text
from langchain_reasc.models.wrappers import inside, rewrapped
from langchain_reasc.sampling.limits import Cutoff
from langchain_reasc.threads import AsyncWorkers, Workers, blocking, blocking_items, result_of

__all__ = ["CUTOFF", "failure_of", "own_copy", "read"]

T = TypeVar("T")
_END: Final = object()
_AHEAD: Final = 8  # items that are read before they are wanted
_Copies = list[tuple[BaseChatModel, BaseChatModel]]

CUTOFF: Final[ContextVar[Cutoff | None]] = ContextVar("langchain_reasc_cutoff", default=None)
"""The cutoff of the sample that runs in this context; None outside a sample."""


@contextmanager
def own_copy(model: Runnable[Any, Any]) -> Iterator[Runnable[Any, Any]]:
    """Give one sample the model for itself, inside its wrappers too, so that it can be cut off.

    Some models keep on themselves what they are sending, and read it there. What leaves nothing on itself is shared.
    A copy takes 10 to 80 µs.

    Raises:
        ConfigurationError: when the sample has ended, if its copy counted it: all samples would be its first.
    """
    copies: _Copies = []
    yield _copied(model, copies)
    for shared, copy in copies:
        if counts := _counts(shared, copy):
            raise ConfigurationError(
                f"{type(shared).__name__} counts its calls on itself ({', '.join(counts)}), but every sample is drawn "
                "from a copy of the model, so that each would be its first; keep the count in an object that copies "
                "share, or say that it is not to be copied, with register_integration and Integration(own_copy=False)"
            )


def failure_of(error: BaseException) -> Exception | KeyboardInterrupt:
    """Return what a sample fails with whose model raised this.

    ``CancelledError``, of a task that the model itself had cancelled, and ``SystemExit`` would end the thread, task or
    event loop that reads the model, and with it the other samples. Only an interrupt ends them all.
    """
    if isinstance(error, Exception | KeyboardInterrupt):
        return error
    failure = SamplingError(f"the model raised {error!r}")
    failure.__cause__ = error
    return failure


class _Raised(NamedTuple):
    error: Exception | KeyboardInterrupt


async def read(
    items: AsyncGenerator[T],
    cutoff: Cutoff,
    ending: Callable[[list[T]], T],
    workers: Workers | AsyncWorkers,
    *,
    whole: bool = False,
) -> AsyncGenerator[T]:
    """Yield items as they come; once they are cut off, those that had come, and the ending made of them.

    The worker between costs some 5 µs of processor time an item, and a thread some 0.5 ms a sample.

    Args:
        items: what a model says. A thread that reads it closes it after its next item; a task is cancelled.
        cutoff: when to wait no longer.
        ending: makes the last item from all that had come.
        workers: what reads the items.
        whole: whether to wait until the cutoff is given up.

    Raises:
        Exception: what reading raised (:func:`failure_of` it), or the error with which it was given up.
    """
    seen: list[T] = []
    if cutoff.cuts(whole=whole):  # nothing has been asked of the model, and nothing will be
        yield _ended(cutoff, ending, seen)
        return
    left, room = False, workers.semaphore(_AHEAD)

    async def pump() -> None:
        CUTOFF.set(None)  # a whole response that is streamed inside is not cut off there
        try:
            async with aclosing(items):
                async for item in items:
                    workers.put(item)
                    await result_of(room.acquire())
                    if left or cutoff.cuts(whole=whole):
                        workers.put(None)  # a wake may still be on its way, and must come before the end
                        break
        except BaseException as error:
            workers.put(_Raised(failure_of(error)))
        workers.put(_END)

    until = None  # when no more is expected of what had come, once it is cut off
    with cutoff.notifying(workers.wake):
        workers.start(pump, "reasc-read")
        try:
            while (item := await workers.get(until)) is not _END:
                if item is None:
                    if until is not None and time.monotonic() >= until:
                        break
                    if cutoff.cuts(whole=whole):
                        until = time.monotonic() + workers.patience
                elif not isinstance(item, _Raised):
                    room.release()
                    seen.append(item)
                    yield item
                elif until is None:
                    raise item.error
            if until is not None:
                yield _ended(cutoff, ending, seen)
        finally:
            left = True
            room.release()
            await workers.join(workers.patience)


def _ended(cutoff: Cutoff, ending: Callable[[list[T]], T], seen: list[T]) -> T:
    if cutoff.error:
        raise cutoff.error
    return ending(seen)


def _copied(model: Runnable[Any, Any], copies: _Copies) -> Runnable[Any, Any]:
    if isinstance(model, BaseChatModel):
        return _with_own_clients(model, copies) if integration_of(model).own_copy else _cuttable(model)
    wrapped = inside(model)
    return rewrapped(model, [_copied(one, copies) for one in wrapped]) if wrapped else model


def _with_own_clients(model: BaseChatModel, copies: _Copies) -> BaseChatModel:
    """Copy a chat model, and those of its clients that are pydantic models, as ChatNVIDIA's are.

    A client of another kind is shared: it holds the connections, many close them when they are deleted, and those of
    the known providers may be used from several threads.
    """
    getattr(model, "_serialized", None)  # LangChain describes a model once, in about a millisecond, and keeps it there
    copy = model.model_copy()
    for values in (copy.__dict__, copy.__pydantic_private__ or {}):
        for name, value in values.items():
            if isinstance(value, BaseChatModel):
                values[name] = _with_own_clients(value, copies)
            elif isinstance(value, BaseModel):
                values[name] = value.model_copy()
    copies.append((model, copy))
    return _cuttable(copy)


def _counts(shared: BaseChatModel, copy: BaseChatModel) -> list[str]:
    """Return the names of whole numbers that are one more on a copy than on the model it was made of."""
    before, after = ({**one.__dict__, **(one.__pydantic_private__ or {})} for one in (shared, copy))
    return [name for name, value in after.items() if type(value) is int and before.get(name) == value - 1]


def _cuttable(model: BaseChatModel) -> BaseChatModel:
    """Let a prepared model end its responses when the :data:`CUTOFF` of the context says so; leave others alone."""
    if LOGPROBS_REQUEST not in model.__dict__ or "_stream" in model.__dict__:
        return model
    request = model.__dict__[LOGPROBS_REQUEST]
    # LangChain's bridge for `stream_events(version="v3")` overwrites what earlier chunks said of their tokens.
    object.__setattr__(model, "_should_use_protocol_streaming", lambda **_: False)
    for name, wrap in _METHODS.items():
        method = request.wrapped(name, model) if request else getattr(type(model), name).__get__(model)
        # On the instance: its class stays what it was, for registries and `isinstance`.
        object.__setattr__(model, name, wraps(method)(wrap(model, method)))
    return model


def _generating(workers: type[Workers | AsyncWorkers]) -> Callable[[BaseChatModel, Any], Any]:
    """Wrap ``_generate`` or ``_agenerate``."""

    def wrap(model: BaseChatModel, original: Any) -> Any:
        async def generate(messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
            cutoff = CUTOFF.get()
            if cutoff is None:
                return await result_of(original(messages, *args, **kwargs))

            async def once() -> AsyncGenerator[ChatResult]:
                yield await result_of(original(messages, *args, **kwargs))

            ending = partial(_cut_result, model, messages, cutoff)
            async with aclosing(read(once(), cutoff, ending, workers(), whole=True)) as results:
                return await anext(results)

        return generate if workers.is_async else lambda *args, **kwargs: blocking(generate(*args, **kwargs))

    return wrap


def _streaming(workers: type[Workers | AsyncWorkers]) -> Callable[[BaseChatModel, Any], Any]:
    """Wrap ``_stream`` or ``_astream``, and hold it within its limit of tokens."""

    def wrap(model: BaseChatModel, original: Any) -> Any:
        def stream(messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
            chunks, cutoff = original(messages, *args, **kwargs), CUTOFF.get()
            if cutoff is None:
                return chunks
            ending, bound = partial(_last_chunk, model, messages, cutoff), ResponseBound(token_limit(model, kwargs))
            reading = read(bounded(chunks, bound, partial(ending, reason="length")), cutoff, ending, workers())
            return reading if workers.is_async else blocking_items(reading)

        return stream

    return wrap


_METHODS: Final = {
    "_generate": _generating(Workers),
    "_agenerate": _generating(AsyncWorkers),
    "_astream": _streaming(AsyncWorkers),
    "_stream": _streaming(Workers),  # the last, by which another thread sees that all are there
}


def _cut_result(model: BaseChatModel, messages: list[BaseMessage], cutoff: Cutoff, before: object) -> ChatResult:
    """Return what stands in place of a whole response of which nothing has come."""
    chunk = _last_chunk(model, messages, cutoff, [])
    message = AIMessage(content="", usage_metadata=chunk.message.usage_metadata)  # type: ignore[attr-defined]
    return ChatResult(generations=[ChatGeneration(message=message, generation_info=chunk.generation_info)])


def _last_chunk(
    model: BaseChatModel,
    messages: list[BaseMessage],
    cutoff: Cutoff,
    before: list[ChatGenerationChunk],
    reason: str = CANCELLED,
) -> ChatGenerationChunk:
    """Return the last chunk of a response that was cut off: why it ended, and the usage that has not come."""
    seen = [metadata_of(chunk) for chunk in before]
    info: dict[str, Any] = {}
    if not any(map(says_how_it_ended, seen)):  # else it had ended, and only its usage was to come
        info[FINISH_REASON] = reason
        # LangChain's handlers count usage by the model's name, which most models tell with their last chunk.
        if not any("model_name" in one for one in seen) and (name := model._get_ls_params().get("ls_model_name")):
            info["model_name"] = name
    come: UsageMetadata | None = None
    for chunk in before:
        if (usage := getattr(chunk.message, "usage_metadata", None)) is not None:
            come = add_usage(come, usage)
    missing = None
    if info or not come:
        missing = _missing_usage(come, seen, before, cutoff.prompt_tokens or count_tokens_approximately(messages))
        info[USAGE_ESTIMATED] = True
    in_blocks = bool(before) and not isinstance(before[-1].message.content, str)
    message = AIMessageChunk(content=[] if in_blocks else "", usage_metadata=missing, chunk_position="last")
    return ChatGenerationChunk(message=message, generation_info=info)


def _missing_usage(
    come: UsageMetadata | None, seen: list[dict[str, Any]], before: list[ChatGenerationChunk], prompt_tokens: int
) -> UsageMetadata:
    """Return what to add to the usage that has come: some models tell of the prompt first, most only at last."""
    prompt = 0 if come and come["input_tokens"] else prompt_tokens
    counted = sum(map(count_tokens, seen)) or tokens_of_text(sum(len(chunk.text) for chunk in before))
    output = max(0, counted - (come["output_tokens"] if come else 0))
    return UsageMetadata(input_tokens=prompt, output_tokens=output, total_tokens=prompt + output)
