"""Chat models by their names, as LangChain's ``init_chat_model`` takes them: ``"openai:gpt-4o-mini"``."""

from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import Runnable
from pydantic import ValidationError

from langchain_reasc.complaints import findings
from langchain_reasc.exceptions import ConfigurationError, missing_extra

__all__ = ["ModelOrName", "model_of"]

ModelOrName = Runnable[LanguageModelInput, Any] | str
"""A chat model, or its name."""


def model_of(given: ModelOrName) -> Runnable[LanguageModelInput, Any]:
    """The model itself; one that is given by its name is made anew, with the provider's own defaults and API key.

    Raises:
        ConfigurationError: no provider is known for the name, or the provider refuses it.
        MissingExtraError: ``langchain`` is not installed, which knows the names.
        ImportError: the provider's package is not installed; the message names it.
    """
    if not isinstance(given, str):
        return given
    try:
        from langchain.chat_models import init_chat_model
    except ImportError as error:
        raise missing_extra("agents", "langchain") from error
    try:
        if not given.strip():
            raise ValueError("it is empty")
        return init_chat_model(given)
    except ValidationError as error:  # whose text would show the values, API keys too
        why, cause = "; ".join(findings(error, values=False)), None
    except ValueError as error:
        why, cause = str(error).partition("\n")[0].rstrip("."), error
    raise ConfigurationError(
        f"no chat model can be made of the name {given!r} ({why}); write the provider before it, as in "
        "'openai:gpt-4o-mini', or give the chat model itself"
    ) from cause
