"""Arguments of a chat model's class, as a command line gives them. Secrets come from the environment alone."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from langchain_reasc.cli.secrets import secret_in
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.untrusted import parse_json, read_text

__all__ = ["ENVIRONMENT", "from_environment", "read_kwargs", "texts_in"]

ENVIRONMENT: Final = "env:"
"""What stands before the name of an environment variable."""


def read_kwargs(given: Sequence[str]) -> dict[str, Any]:
    """Arguments of a class as ``--model-kwargs`` gives them, the later ones on top of the earlier.

    Args:
        given: each is JSON (``{"model": "gpt-4o-mini"}``), a file that holds it, or ``name=value`` with a value in JSON
            or else a text.

    Raises:
        ConfigurationError: it is none of these, or no object.
    """
    kwargs: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if one.lstrip().startswith("{"):
            kwargs |= _object(one, "--model-kwargs")
        elif equals and name.strip().isidentifier():
            kwargs[name.strip()] = _value(value)
        else:
            kwargs |= _object(_text_of(one), one)
    return kwargs


def from_environment(value: Any) -> Any:
    """The value with what environment variables hold in place of ``env:NAME``."""
    if isinstance(value, str) and value.startswith(ENVIRONMENT):
        return secret_in(value.removeprefix(ENVIRONMENT)).get_secret_value()
    if isinstance(value, Mapping):
        return {name: from_environment(inner) for name, inner in value.items()}
    return [from_environment(inner) for inner in value] if isinstance(value, list) else value


def texts_in(value: Any, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each text in a value, with the names that lead to it."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from texts_in(inner, (*where, str(name)))
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner, where)


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


def _object(text: str, source: str) -> dict[str, Any]:
    try:
        read = parse_json(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{source} is no valid JSON ({error.msg} at character {error.pos + 1})") from None
    except ValueError as error:
        raise ConfigurationError(f"{source} cannot be read: {error}") from None
    if not isinstance(read, dict):
        raise ConfigurationError(f"{source} holds no JSON object of arguments but a {type(read).__name__}")
    return read


def _text_of(name: str) -> str:
    try:
        return read_text(Path(name), encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"--model-kwargs takes JSON, a file that holds it, or name=value; got {name[:60]!r}, of which no file can "
            f"be read ({getattr(error, 'strerror', None) or error})"
        ) from None
