"""Copy a chat model for one sample, so that its response can be cut off in the middle.

LangChain ends the run of a stream that is closed early as an error without usage, and
never that of an ``ainvoke`` that is cancelled. Here the model's own stream ends: with
one more chunk, which says that the response was cut off, and what it cost as far as can
be told. What LangChain makes of the chunks is then a whole run of a short response.

A silent server must hold up neither a decision, nor a time limit, nor Ctrl-C. So the
model is read in a thread, or task, of its own: LangChain's ``stream`` waits for that or
for the cutoff, since nobody else can end the run it began.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import lru_cache, partial, wraps
from types import MethodType
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import BaseModel

from langchain_reasc.answers import has_finish_reason
from langchain_reasc.concurrency import EVENT_LOOP, THREADS, Concurrency
from langchain_reasc.langchain_internals import (
    describe_once,
    langsmith_params,
    private_values,
)
from langchain_reasc.models.chunks import (
    ResponseBound,
    as_chunk,
    bounded,
    metadata_of,
    token_limit,
    with_parsed,
    with_usage_once,
)
from langchain_reasc.models.contract import CANCELLED, FINISH_REASON, USAGE_ESTIMATED
from langchain_reasc.models.integrations import (
    as_json_schema,
    integration_of,
    schema_of_stream,
    streams_another_schema,
)
from langchain_reasc.models.refusal import (
    LOGPROBS_REQUEST,
    SERVER_MEMORY,
    LogprobsRequest,
)
from langchain_reasc.models.usage import estimated_prompt, tokens_written
from langchain_reasc.models.wrappers import rewrap, wrapped_runnables
from langchain_reasc.sampling.cutoff import CUTOFF, Cutoff, read_until_cut
from langchain_reasc.threads import result_of

T = TypeVar("T")


def copy_for_sample(model: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """Copy a prepared model for one sample, inside its wrappers too, so that the sample
    can be cut off.

    Some models keep on themselves what they are sending, and read it there. Models that
    do not are shared
    (:attr:`Integration.own_copy <langchain_reasc.models.integrations.Integration.own_copy>`).
    A copy takes 10 to 80 µs.
    """
    if isinstance(model, BaseChatModel):
        if integration_of(model).own_copy:
            model = _with_own_clients(model)
        return _cuttable(model)
    wrapped = wrapped_runnables(model)
    if wrapped:
        return rewrap(model, [copy_for_sample(inner) for inner in wrapped])
    return model


def _with_own_clients(model: BaseChatModel) -> BaseChatModel:
    """Copy a chat model, and those of its clients that are pydantic models, as
    ChatNVIDIA's are.

    A client of another kind is shared: it holds the connections, many close them when
    they are deleted, and those of the known providers may be used from several threads.
    """
    describe_once(model)
    copy = model.model_copy()
    for values in (copy.__dict__, private_values(copy)):
        for name, value in values.items():
            if isinstance(value, BaseChatModel):
                values[name] = _cuttable(_with_own_clients(value))
            elif isinstance(value, BaseModel):
                values[name] = value.model_copy()
    return copy


def _cuttable(model: BaseChatModel) -> BaseChatModel:
    """Let a prepared model end its responses when the :data:`CUTOFF` of the context
    says so; leave others alone.
    """
    if LOGPROBS_REQUEST in model.__dict__ and "_stream" not in model.__dict__:
        for name, method in _cuttable_methods(type(model)).items():
            # On the instance: its class stays what it was, for registries and
            # `isinstance`.
            object.__setattr__(model, name, MethodType(method, model))
    return model


@lru_cache(maxsize=256)
def _cuttable_methods(kind: type[BaseChatModel]) -> dict[str, Callable[..., Any]]:
    return {
        # LangChain's bridge for `stream_events(version="v3")` overwrites what earlier
        # chunks said of their tokens.
        "_should_use_protocol_streaming": lambda model, **_: False,
        "_generate": _generating(kind, "_generate", THREADS),
        "_agenerate": _generating(kind, "_agenerate", EVENT_LOOP),
        "_astream": _streaming(kind, "_astream", EVENT_LOOP),
        # The last, by which another thread sees that all are there.
        "_stream": _streaming(kind, "_stream", THREADS),
    }


def _generating(kind: type, name: str, io: Concurrency) -> Callable[..., Any]:
    """Wrap ``_generate`` or ``_agenerate``."""
    original = getattr(kind, name)

    @wraps(original)
    def generate(
        model: BaseChatModel, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> Any:
        cutoff = CUTOFF.get()
        respond = partial(_requesting(model, name, original), messages, *args, **kwargs)
        if cutoff is None:
            return io.result(result_of(respond()))
        ending = partial(
            _cut_result, model, partial(_prompt_tokens, cutoff, messages, kwargs)
        )
        reading = read_until_cut(_only(respond), cutoff, ending, io, whole=lambda: True)
        return io.result(_first(reading))

    return generate


def _streaming(kind: type, name: str, io: Concurrency) -> Callable[..., Any]:
    """Wrap ``_stream`` or ``_astream``, and hold it within its limit of tokens."""
    original = getattr(kind, name)
    name_of_whole = name.replace("stream", "generate")
    taking_whole = getattr(kind, name_of_whole)

    @wraps(original)
    def stream(
        model: BaseChatModel, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> Any:
        # Not empty once the response is taken whole.
        whole: list[bool] = []
        schema = schema_of_stream(model, kwargs)

        def request(streamed: bool) -> Any:
            if streamed:
                ask = _requesting(model, name, original)
                if schema is None:
                    return ask(messages, *args, **kwargs)
                arguments = {**kwargs, "response_format": as_json_schema(schema)}
                return with_parsed(ask(messages, *args, **arguments), schema)
            whole.append(True)
            bare, whole_arguments = _unstreamed(model, kwargs)
            return _only_chunk(
                partial(
                    _requesting(bare, name_of_whole, taking_whole),
                    messages,
                    *args,
                    **whole_arguments,
                )
            )

        memory = model.__dict__[SERVER_MEMORY]
        cutoff = CUTOFF.get()
        if streams_another_schema(model, kwargs):
            chunks = request(False)
        else:
            chunks = memory.streamed(request, kwargs.get("model"))
        chunks = with_usage_once(chunks)
        if cutoff is None:
            return io.items(chunks)
        ending = partial(
            _last_chunk, model, partial(_prompt_tokens, cutoff, messages, kwargs)
        )
        chunks = bounded(
            chunks,
            ResponseBound(token_limit(model, kwargs)),
            partial(ending, reason="length"),
        )
        reading = read_until_cut(chunks, cutoff, ending, io, whole=lambda: bool(whole))
        return io.items(reading)

    return stream


def _requesting(
    model: BaseChatModel, name: str, original: Callable[..., Any]
) -> Callable[..., Any]:
    """Return the model's own method, which asks again where its server refuses
    logprobs.
    """
    request: LogprobsRequest | None = model.__dict__[LOGPROBS_REQUEST]
    if request:
        return partial(request.respond, model, name, original)
    return partial(original, model)


def _unstreamed(
    model: BaseChatModel, arguments: Mapping[str, Any]
) -> tuple[BaseChatModel, dict[str, Any]]:
    """Return a model, and the arguments of its call, that ask for no stream."""
    if getattr(model, "streaming", False):
        model = model.model_copy(update={"streaming": False})
    whole_arguments = dict(arguments)
    for name in ("stream_options", "stream_usage"):
        whole_arguments.pop(name, None)
    return model, whole_arguments


async def _only_chunk(
    respond: Callable[[], Any],
) -> AsyncGenerator[ChatGenerationChunk]:
    yield as_chunk(await result_of(respond()))


async def _only(respond: Callable[[], Any]) -> AsyncGenerator[ChatResult]:
    yield await result_of(respond())


async def _first(items: AsyncGenerator[T]) -> T:
    async with aclosing(items):
        return await anext(items)


def _prompt_tokens(
    cutoff: Cutoff, messages: list[BaseMessage], arguments: Mapping[str, Any]
) -> int:
    return cutoff.prompt_tokens or estimated_prompt(messages, arguments)


def _cut_result(
    model: BaseChatModel, prompt_tokens: Callable[[], int], before: object
) -> ChatResult:
    """Build an empty result for a response that was cut before its first token."""
    chunk = _last_chunk(model, prompt_tokens, [])
    message = AIMessage(content="", usage_metadata=chunk.message.usage_metadata)  # type: ignore[attr-defined]
    return ChatResult(
        generations=[
            ChatGeneration(message=message, generation_info=chunk.generation_info)
        ]
    )


def _last_chunk(
    model: BaseChatModel,
    prompt_tokens: Callable[[], int],
    before: list[ChatGenerationChunk],
    reason: str = CANCELLED,
) -> ChatGenerationChunk:
    """Return the last chunk of a response that was cut off: why it ended, and the usage
    that has not come.
    """
    metadata_so_far = [metadata_of(chunk) for chunk in before]
    info: dict[str, Any] = {}
    # After a finish reason, only usage was to come.
    if not any(map(has_finish_reason, metadata_so_far)):
        info = {FINISH_REASON: reason, **_model_name(model, metadata_so_far)}
    reported = _reported_usage(before)
    missing = None
    if info or not reported:
        missing = _missing_usage(reported, metadata_so_far, before, prompt_tokens)
        info[USAGE_ESTIMATED] = True
    in_blocks = bool(before) and not isinstance(before[-1].message.content, str)
    message = AIMessageChunk(
        content=[] if in_blocks else "", usage_metadata=missing, chunk_position="last"
    )
    return ChatGenerationChunk(message=message, generation_info=info)


def _model_name(
    model: BaseChatModel, metadata_so_far: list[dict[str, Any]]
) -> dict[str, str]:
    """Return the name by which LangChain's handlers count usage; most models tell it
    with their last chunk.
    """
    if any("model_name" in metadata for metadata in metadata_so_far):
        return {}
    name = langsmith_params(model).get("ls_model_name")
    return {"model_name": name} if name else {}


def _reported_usage(chunks: list[ChatGenerationChunk]) -> UsageMetadata | None:
    reported: UsageMetadata | None = None
    for chunk in chunks:
        usage = getattr(chunk.message, "usage_metadata", None)
        if usage is not None:
            reported = add_usage(reported, usage)
    return reported


def _missing_usage(
    reported: UsageMetadata | None,
    metadata_so_far: list[dict[str, Any]],
    before: list[ChatGenerationChunk],
    prompt_tokens: Callable[[], int],
) -> UsageMetadata:
    """Return what to add to the usage that has come: some models report the prompt
    first, most only at last.
    """
    reported_prompt = reported["input_tokens"] if reported else 0
    reported_output = reported["output_tokens"] if reported else 0
    prompt = 0 if reported_prompt else prompt_tokens()
    written = tokens_written(
        (chunk.message, metadata)
        for chunk, metadata in zip(before, metadata_so_far, strict=True)
    )
    output = max(0, written - reported_output)
    return UsageMetadata(
        input_tokens=prompt, output_tokens=output, total_tokens=prompt + output
    )
