"""Chat models by their names, such as ``"openai:gpt-4o-mini"``.

A model of OpenAI needs only ``langchain-openai``. The names of other providers are
those of LangChain's ``init_chat_model``, and need ``langchain``, too.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.runnables import Runnable
from pydantic import ValidationError

from langchain_reasc.complaints import findings
from langchain_reasc.exceptions import ConfigurationError, missing_extra
from langchain_reasc.langchain_internals import provider_class

__all__ = ["ModelOrName", "chat_model_class", "chat_model_maker", "model_of"]

ModelOrName = Runnable[LanguageModelInput, Any] | str
"""A chat model, or its name: ``"openai:gpt-4o-mini"``."""
_OPENAI: Final = "openai:"


def model_of(model: ModelOrName) -> Runnable[LanguageModelInput, Any]:
    """Return the model itself; a name makes a new one, with the provider's defaults and
    API key.

    Raises:
        ConfigurationError: no provider is known for the name, or the provider refuses
            it.
        MissingExtraError: a package that knows the name is not installed.
        ImportError: the provider's package is not installed; the message names it.
    """
    if not isinstance(model, str):
        return model
    cause: Exception | None = None
    try:
        if not model.strip():
            raise ValueError("it is empty")
        return chat_model_maker(model)()
    except ValidationError as error:
        # The error itself would show the values, API keys too.
        reason = "; ".join(findings(error, values=False))
    except ValueError as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        cause = error
    raise ConfigurationError(
        f"no chat model can be made of the name {model!r} ({reason}); write the provider "
        "before it, as in 'openai:gpt-4o-mini', or give the chat model itself"
    ) from cause


def chat_model_maker(name: str) -> Callable[..., BaseChatModel]:
    """Return what makes the chat model of a name; it takes the model's options.

    Raises:
        MissingExtraError: a package that knows the name is not installed.
    """
    if name.startswith(_OPENAI):
        return partial(_chat_openai(), model=name.removeprefix(_OPENAI))
    try:
        from langchain.chat_models import init_chat_model
    except ImportError as error:
        raise missing_extra("agents", "langchain") from error
    return partial(init_chat_model, name)


def chat_model_class(name: str) -> type[BaseChatModel]:
    """Return the class of the chat model of a name, which names its provider.

    Raises:
        MissingExtraError: a package that knows the name is not installed.
        ImportError: the provider's package is not installed; the message names it.
        ValueError: the provider is unknown.
    """
    if name.startswith(_OPENAI):
        return _chat_openai()
    chat_model_maker(name)
    return provider_class(name.partition(":")[0])


def _chat_openai() -> type[BaseChatModel]:
    try:
        from langchain_openai import ChatOpenAI
    except ImportError as error:
        raise missing_extra("openai", "langchain-openai") from error
    return ChatOpenAI
