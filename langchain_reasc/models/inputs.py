"""Whatever a chat model takes, as messages."""

from collections.abc import Sequence

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue

from langchain_reasc.exceptions import ConfigurationError

__all__ = ["to_messages"]


def to_messages(value: LanguageModelInput) -> list[BaseMessage]:
    """Whatever a chat model takes, as messages.

    Raises:
        ConfigurationError: not a string, message list or prompt value, or nothing in it.
    """
    if isinstance(value, str):
        messages: list[BaseMessage] = [HumanMessage(value)]
    elif isinstance(value, PromptValue):
        messages = value.to_messages()
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        messages = convert_to_messages(value)
    else:
        raise ConfigurationError(
            f"the input must be a string, a list of messages or a prompt value, got {type(value).__name__}"
        )
    if not messages:
        raise ConfigurationError("the input holds no message")
    return messages
