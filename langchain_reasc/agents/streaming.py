"""Callbacks and chunks of a chat model that calls another: the config of its child
runs, and the stream of the winner.

LangChain gives ``_generate`` the manager of the run, but not ``_stream``, and gives
neither of them the config of the call. Both are kept in a context variable until the
call takes them out, so that no later call finds them. Nor does LangChain close what
``_stream`` returned when its own stream is closed: :func:`closed_with_call` has that
done, before the run of the call ends.
"""

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, ExitStack
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from langchain_core.callbacks import (
    AsyncCallbackManager,
    AsyncCallbackManagerForLLMRun,
    CallbackManager,
    CallbackManagerForLLMRun,
)
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.utils.uuid import uuid7

from langchain_reasc.langchain_internals import is_provider_id
from langchain_reasc.models.chunks import chunks_of
from langchain_reasc.models.settings import without
from langchain_reasc.runnable.message_metadata import kept_metadata

Manager = TypeVar("Manager", CallbackManager, AsyncCallbackManager)
RunManager = CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None
Streaming = TypeVar("Streaming", bound=Generator[Any] | AsyncGenerator[Any])
_CONFIG: Final[ContextVar[RunnableConfig | None]] = ContextVar(
    "langchain_reasc_config", default=None
)
_PLACE: Final = frozenset({"type", "index"})  # of a block: to what it is added
_STACK: Final[ContextVar[ExitStack | AsyncExitStack | None]] = ContextVar(
    "langchain_reasc_stack", default=None
)


def remember_config(config: RunnableConfig | None) -> None:
    """Keep the model and the ``max_concurrency`` that a call's config chooses."""
    _CONFIG.set(_passed_down(ensure_config(config)))


def remember_run(run: RunManager) -> None:
    """Keep the run of the call as the parent of its samples."""
    child: Any = []
    if run is not None:
        kind: Any = CallbackManager
        if isinstance(run, AsyncCallbackManagerForLLMRun):
            kind = AsyncCallbackManager
        child = _child(
            kind,
            run.run_id,
            run.inheritable_handlers,
            run.inheritable_tags,
            run.inheritable_metadata,
        )
    config = _CONFIG.get() or _passed_down(ensure_config())
    _CONFIG.set({**config, "callbacks": child})


def stream_config(kind: type[Manager], config: RunnableConfig | None) -> RunnableConfig:
    """Return the config for a stream, with the id of its run chosen in advance, and
    kept as the samples' parent.
    """
    call: RunnableConfig = ensure_config(config)
    manager: Any = kind.configure(call.get("callbacks"))
    # LangChain takes the id from the config, so that the samples' parent is known here.
    run_id = call.get("run_id") or uuid7()
    tags = [*manager.inheritable_tags, *(call.get("tags") or [])]
    metadata = {**manager.inheritable_metadata, **(call.get("metadata") or {})}
    child = _child(kind, run_id, manager.inheritable_handlers, tags, metadata)
    _CONFIG.set({**_passed_down(call), "callbacks": child})
    return {**call, "callbacks": manager, "run_id": run_id}


def take_config(run: RunManager) -> RunnableConfig:
    """Return the config kept for this call, and forget it; the ``run``, where given, is
    the parent of the samples.
    """
    if run is not None and "callbacks" not in (_CONFIG.get() or {}):
        remember_run(run)
    config = _CONFIG.get()
    _CONFIG.set(None)
    return config or _passed_down(ensure_config())


def _passed_down(config: RunnableConfig) -> RunnableConfig:
    return {
        "configurable": config.get("configurable") or {},
        "max_concurrency": config.get("max_concurrency"),
    }


def _child(
    kind: type[Manager], run_id: Any, handlers: Any, tags: Any, metadata: Any
) -> Manager:
    manager = kind(handlers=[], parent_run_id=run_id)
    manager.set_handlers(handlers)
    manager.add_tags(tags)
    manager.add_metadata(metadata)
    return manager


def close_stream_with(stack: ExitStack | AsyncExitStack) -> None:
    """Close the stream of the call that now begins with this stack."""
    _STACK.set(stack)


def closed_with_call(stream: Streaming) -> Streaming:
    """Return the stream of a call, to be closed when the call is, not when it is
    garbage collected.
    """
    stack = _STACK.get()
    _STACK.set(None)
    if isinstance(stream, AsyncGenerator):
        if isinstance(stack, AsyncExitStack):
            stack.push_async_callback(stream.aclose)
    elif stack is not None:
        stack.callback(stream.close)
    return stream


class RelayedChunks:
    """The chunks of a response that is streamed as it comes, and the rest at its end.

    Usage is left out of them: it is reported once, for all samples. From the first call
    of a tool on, nothing is relayed: it is voted on first. Another response may then
    win, so where tools may be called, its text alone is relayed before: no reasoning
    beside the text, which would stand in the winner's message, and nothing from the
    first part on that belongs to its calls, such as signed reasoning.
    """

    def __init__(self, *, logprobs: bool, may_call: bool) -> None:
        self._logprobs = logprobs
        self._may_call = may_call
        self._chunks: list[AIMessageChunk] = []
        self._is_held_back = False

    def relay(self, chunk: AIMessageChunk) -> list[AIMessageChunk]:
        """Return the chunk to stream, if any."""
        if chunk.tool_call_chunks or (self._may_call and not _is_text(chunk)):
            self._is_held_back = True
        if self._is_held_back:
            return []
        metadata = without_token_usage(kept_metadata(chunk, logprobs=self._logprobs))
        update: dict[str, Any] = {
            "id": provider_id(chunk),
            "usage_metadata": None,
            "chunk_position": None,
            "response_metadata": metadata,
        }
        if self._may_call:
            provider = metadata.keys() & {"model_provider"}
            update["response_metadata"] = {name: metadata[name] for name in provider}
            update["additional_kwargs"] = {}
        relayed = chunk.model_copy(update=update)
        says_something = relayed.content or relayed.additional_kwargs
        # A chunk without content is relayed for its metadata, which with tools come at
        # the end.
        if not says_something and (self._may_call or not relayed.response_metadata):
            return []
        self._chunks.append(relayed)
        return [relayed]

    def rest(self, message: AIMessage) -> list[AIMessageChunk]:
        """Return the chunks still to stream of the winning response."""
        if not self._chunks:
            return chunks_of(message)
        if self._may_call:
            return chunks_of(self._continued(message))
        # Whoever adds the chunks up must not add what was relayed a second time.
        metadata: set[str] = set()
        extras: set[str] = set()
        for chunk in self._chunks:
            metadata.update(chunk.response_metadata)
            extras.update(chunk.additional_kwargs)
        update = {
            "content": type(message.content)(),
            "response_metadata": without(message.response_metadata, metadata),
            "additional_kwargs": without(message.additional_kwargs, extras),
        }
        return chunks_of(message.model_copy(update=update))

    def _continued(self, message: AIMessage) -> AIMessage:
        """Return what follows the text that was relayed: the rest of a response that
        begins with it, or another one.
        """
        relayed = "".join(chunk.text for chunk in self._chunks)
        content = message.content
        if message.text.startswith(relayed):
            content = _after(content, relayed)
        elif not isinstance(content, str):
            # Its indices must not be those of the blocks that were relayed.
            content = [
                _moved(block, index) for index, block in enumerate(content, 1000)
            ]
        elif content:
            # The text of another response stands below what was relayed.
            content = f"\n\n{content}"
        id = self._chunks[0].id or message.id
        return message.model_copy(update={"content": content, "id": id})


def _after(content: str | list[Any], beginning: str) -> str | list[Any]:
    """Return the content without the text with which it begins."""
    if isinstance(content, str):
        return content[len(beginning) :]
    rest: list[Any] = []
    for block in content:
        text = _text_of(block)
        if not beginning or not text:
            rest.append(block)
            continue
        text_left = text[len(beginning) :]
        beginning = beginning[len(text) :]
        if not text_left:
            continue
        if isinstance(block, str):
            rest.append(text_left)
        else:
            place = without(block, block.keys() - _PLACE)
            rest.append({**place, "text": text_left})
    return rest


def _text_of(block: Any) -> str:
    if isinstance(block, str):
        return block
    if block.get("type") != "text":
        return ""
    text: str = block.get("text", "")
    return text


def _moved(block: Any, index: int) -> Any:
    if isinstance(block, dict) and "index" in block:
        return {**block, "index": index}
    return block


def _is_text(chunk: AIMessageChunk) -> bool:
    """Return whether a part of a response is text, or unsigned reasoning beside it,
    which go with any calls.
    """
    if not isinstance(chunk.content, str):
        for block in chunk.content:
            if not isinstance(block, str) and block.get("type") != "text":
                return False
    return all(isinstance(extra, str) for extra in chunk.additional_kwargs.values())


def provider_id(message: AIMessage) -> str | None:
    """Return the id that a provider gave a response; None for one that LangChain made
    for a call.
    """
    return message.id if is_provider_id(message.id) else None


def without_token_usage(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a response without OpenAI's ``token_usage``, as the bill
    is of all samples.
    """
    return without(metadata, {"token_usage"})
