"""The config for what happens below a chat model's run, and how that ends with the call.

LangChain gives ``_generate`` the manager of the run, but not ``_stream``, and neither the config of the call. What they
need of both waits for them in a context variable; they take it out, so that no later call finds it. Nor does LangChain
close what ``_stream`` returned when its own stream is closed: :func:`closed_with_call` has that done, before the run of
the call ends.
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, ExitStack
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from langchain_core.callbacks import (
    AsyncCallbackManager,
    AsyncCallbackManagerForLLMRun,
    CallbackManager,
    CallbackManagerForLLMRun,
)
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.utils.uuid import uuid7

__all__ = ["announced", "close_stream_with", "closed_with_call", "remember_config", "remember_run", "taken"]

Manager = TypeVar("Manager", CallbackManager, AsyncCallbackManager)
Streaming = TypeVar("Streaming", bound=Generator[Any] | AsyncGenerator[Any])
_BELOW: Final[ContextVar[RunnableConfig | None]] = ContextVar("langchain_reasc_below", default=None)
_STACK: Final[ContextVar[ExitStack | AsyncExitStack | None]] = ContextVar("langchain_reasc_stack", default=None)


def close_stream_with(stack: ExitStack | AsyncExitStack) -> None:
    """Have the stream of the call that now begins closed with the stack."""
    _STACK.set(stack)


def closed_with_call(stream: Streaming) -> Streaming:
    """The stream of a call: closed when the call is, and not when the garbage collector comes by."""
    stack = _STACK.get()
    _STACK.set(None)
    if isinstance(stream, AsyncGenerator):
        if isinstance(stack, AsyncExitStack):
            stack.push_async_callback(stream.aclose)
    elif stack is not None:
        stack.callback(stream.close)
    return stream


def remember_config(config: RunnableConfig | None) -> None:
    """Keep what a call's config says of the model and of how many samples may be in flight."""
    _BELOW.set(_of_call(ensure_config(config)))


def remember_run(run: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None) -> None:
    """Keep the run of the call, as what its samples are below of."""
    _BELOW.set({**(_BELOW.get() or _of_call(ensure_config())), "callbacks": [] if run is None else _child_of(run)})


def announced(kind: type[Manager], config: RunnableConfig | None) -> RunnableConfig:
    """The config for a stream, whose run is then known beforehand, and kept as :func:`remember_run` would."""
    asked: RunnableConfig = ensure_config(config)
    manager: Any = kind.configure(asked.get("callbacks"))
    run_id = asked.get("run_id") or uuid7()
    below = kind(handlers=[], parent_run_id=run_id)
    below.set_handlers(manager.inheritable_handlers)
    below.add_tags([*manager.inheritable_tags, *(asked.get("tags") or [])])
    below.add_metadata({**manager.inheritable_metadata, **(asked.get("metadata") or {})})
    _BELOW.set({**_of_call(asked), "callbacks": below})
    return {**asked, "callbacks": manager, "run_id": run_id}


def taken(run: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None) -> RunnableConfig:
    """What was kept for this call; where its run is given, that is the right one."""
    if run is not None:
        remember_run(run)
    below = _BELOW.get()
    _BELOW.set(None)
    return below or _of_call(ensure_config())


def _of_call(config: RunnableConfig) -> RunnableConfig:
    return {"configurable": config.get("configurable") or {}, "max_concurrency": config.get("max_concurrency")}


def _child_of(run: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun) -> Any:
    kind = AsyncCallbackManager if isinstance(run, AsyncCallbackManagerForLLMRun) else CallbackManager
    manager = kind(handlers=[], parent_run_id=run.run_id)
    manager.set_handlers(run.inheritable_handlers)
    manager.add_tags(run.inheritable_tags)
    manager.add_metadata(run.inheritable_metadata)
    return manager
