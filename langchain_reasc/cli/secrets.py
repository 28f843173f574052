"""Secrets that a command was given, so that nothing it prints shows one, whoever wrote the message."""

import os
from typing import TYPE_CHECKING, Final

from langchain_reasc.exceptions import ConfigurationError

if TYPE_CHECKING:
    from pydantic import SecretStr

__all__ = ["hidden", "secret_in"]

_LEAST = 6  # characters; anything shorter stands in many a message by chance
_known: Final[set[str]] = set()


def secret_in(variable: str) -> "SecretStr":
    """What an environment variable holds; from now on :func:`hidden` takes it out of messages.

    Raises:
        ConfigurationError: it is not set.
    """
    from pydantic import SecretStr

    value = os.environ.get(variable)
    if not value:
        raise ConfigurationError(f"the environment variable {variable} is not set")
    _known.add(value)
    return SecretStr(value)


def hidden(text: str) -> str:
    """A message without the secrets that are known."""
    for secret in _known:
        if len(secret) >= _LEAST:
            text = text.replace(secret, "***")
    return text
