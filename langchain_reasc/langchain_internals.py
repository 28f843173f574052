"""All uses of private names of langchain-core, langchain and pydantic, each with its
reason.

``tests/test_langchain_internals.py`` fails if a release changes one of them. Private
methods of ``BaseChatModel`` that our chat models override are in their classes; that
test lists them.
"""

import traceback
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models._utils import _filter_invocation_params_for_tracing
from langchain_core.language_models.base import LangSmithParams
from langchain_core.language_models.chat_models import (
    _format_for_tracing,
    _format_ls_structured_output,
)
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tracers import context as tracing
from langchain_core.utils.utils import LC_ID_PREFIX
from pydantic import BaseModel


class TracedCall(NamedTuple):
    """What LangChain tells callback handlers about a call of a chat model.

    Attributes:
        metadata: the metadata of the run.
        inheritable: the metadata that LangSmith passes to child runs.
        arguments: the arguments of ``on_chat_model_start``, except the run's name.
    """

    metadata: dict[str, Any]
    inheritable: dict[str, Any]
    arguments: dict[str, Any]


def traced_call(
    model: BaseChatModel, messages: Sequence[BaseMessage], arguments: Mapping[str, Any]
) -> TracedCall:
    """Describe a call as ``BaseChatModel.generate`` does, for a sample that is drawn
    without it.

    A public method that describes a call would replace this.
    """
    settings = dict(arguments)
    stop = settings.pop("stop", None)
    structured = settings.pop("ls_structured_output_format", None) or settings.pop(
        "structured_output_format", None
    )
    params = model._get_invocation_params(stop=stop, **settings)
    started = {
        "serialized": model._serialized,
        "messages": [_format_for_tracing(list(messages))],
        "invocation_params": params,
        "options": {"stop": stop, **_format_ls_structured_output(structured)},
        "batch_size": 1,
    }
    metadata = model._get_ls_params_with_defaults(stop=stop, **settings)
    return TracedCall(
        {**metadata}, _filter_invocation_params_for_tracing(params), started
    )


def listeners() -> list[ContextVar[Any]]:
    """Return the context variables with handlers of every call: tracers, and counters
    of usage.

    A public way to suppress these handlers would replace this.
    """
    return [
        tracing.tracing_v2_callback_var,
        *(hook[0] for hook in tracing._configure_hooks),
    ]


def describe_once(model: BaseChatModel) -> None:
    """Let LangChain compute the description of a model (a millisecond), so that copies
    of the model have it.
    """
    getattr(model, "_serialized", None)


def langsmith_params(model: BaseChatModel, /, **arguments: Any) -> LangSmithParams:
    """Return the model's name, provider and limits under LangSmith's names. No public
    method returns them.
    """
    return model._get_ls_params(**arguments)


def id_of_run(run: UUID) -> str:
    """Return the id that LangChain gives to the message of a run. Handlers and
    LangGraph identify messages by it.
    """
    return f"{LC_ID_PREFIX}-{run}"


def is_provider_id(id: str | None) -> bool:
    """Return whether a message has the id of a provider, not the one that LangChain
    derives from the run.
    """
    return id is not None and not id.startswith(LC_ID_PREFIX)


def is_handlers(error: BaseException) -> bool:
    """Return whether a callback handler with ``raise_error=True`` raised this.
    LangChain does not mark such errors.
    """
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(
        frame.f_globals.get("__name__") == "langchain_core.callbacks.manager"
        and "handle_event" in frame.f_code.co_name
        for frame in frames
    )


# langchain's init_chat_model


def provider_class(provider: str) -> type[BaseChatModel]:
    """Return the class of the models that ``init_chat_model`` makes of a provider.
    Nothing public tells this.

    Raises:
        ValueError: the provider is unknown.
        ImportError: langchain, or the provider's package, is not installed.
    """
    from langchain.chat_models import base

    creator: Any = base._get_chat_model_creator(provider)
    kind: type[BaseChatModel] = creator.keywords["cls"]
    return kind


def is_configurable_model(model: Runnable[Any, Any]) -> bool:
    """Return whether this is a configurable model of ``init_chat_model``; by name, as
    langchain may be missing.
    """
    return type(model).__name__ == "_ConfigurableModel"


def configured_model(model: Any, config: RunnableConfig) -> Runnable[Any, Any]:
    """Return the chat model that a configurable model makes for a config; it makes a
    new one for each call.
    """
    chosen: Runnable[Any, Any] = model._model(config)
    return chosen


def configured_keys(model: Any) -> set[str] | None:
    """Return the names in a config that a configurable model reads, or None for any
    name.
    """
    fields: Any = model._configurable_fields
    if fields == "any":
        return None
    return {f"{model._config_prefix}{name}" for name in fields}


# pydantic


def private_values(model: BaseModel) -> dict[str, Any]:
    """Return the values of a pydantic model's private attributes, which ``model_copy``
    shares with the copy.
    """
    return model.__pydantic_private__ or {}


def validates_by_functions(kind: type) -> bool:
    """Return whether a class has validators of its author, by its core schema. Nothing
    public tells this.
    """
    return "'function-" in str(getattr(kind, "__pydantic_core_schema__", ""))
