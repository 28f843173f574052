"""Prompt templates: messages with ``{question}`` in them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, convert_to_messages

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.files import parse_json, read_text

PLACEHOLDER = "{question}"
"""Where a template has the question."""
_SHAPE = (
    f'a text with {PLACEHOLDER} in it, a file that holds one, or a .json file with [{{"role": ..., "content": ...}}]'
)


@dataclass(frozen=True)
class Template:
    """The messages of a prompt. One or more contain ``{question}``; other braces are kept as they are.

    Attributes:
        turns: the messages in the order of the prompt, such as worked examples before the question.
    """

    turns: Sequence[BaseMessage] = (HumanMessage(PLACEHOLDER),)

    def __post_init__(self) -> None:
        if any(not isinstance(turn.content, str) for turn in self.turns):
            raise ConfigurationError("the messages of a template hold text; blocks of content are not supported")
        if not any(PLACEHOLDER in str(turn.content) for turn in self.turns):
            raise ConfigurationError(f"the template has no {PLACEHOLDER} in it, so no question could be put there")

    @classmethod
    def from_option(cls, given: str) -> "Template":
        """Return the template that ``--template`` names.

        Args:
            given: a text with ``{question}`` in it, a file that holds one, or a ``.json`` file with a list of messages.

        Raises:
            ConfigurationError: no such file, no ``{question}``, or an unknown role.
        """
        turns: list[BaseMessage] = []
        if _is_file(given):
            text = _text_of(Path(given))
            turns = _messages_of(text, given) if given.lower().endswith(".json") else [HumanMessage(text.strip("\n"))]
        elif PLACEHOLDER in given:
            turns = [HumanMessage(given)]
        else:
            raise ConfigurationError(f"{given!r} is neither a file nor a template; give {_SHAPE}")
        return cls(turns)

    def after(self, system: str | None) -> "Template":
        """Return this template with a system message before it.

        Raises:
            ConfigurationError: the template already has a system message.
        """
        if not system:
            return self
        if any(turn.type == "system" for turn in self.turns):
            raise ConfigurationError("the template already has a system message; give it there, or beside it")
        return Template((SystemMessage(system), *self.turns))

    @property
    def fixed(self) -> list[tuple[str, str]]:
        """(role, text) of each message, with ``{question}`` for the question: part of a calibration's fingerprint."""
        return [(turn.type, str(turn.content)) for turn in self.turns]

    def messages(self, question: str) -> list[BaseMessage]:
        """Return the prompt for a question."""
        return [
            turn.model_copy(update={"content": str(turn.content).replace(PLACEHOLDER, question)}) for turn in self.turns
        ]


def _is_file(given: str) -> bool:
    try:
        return Path(given).is_file()
    except (OSError, ValueError):  # the text is too long for a file's name
        return False


def _text_of(path: Path) -> str:
    try:
        return read_text(path, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the template {path}: {error}") from error


def _messages_of(text: str, source: str) -> list[BaseMessage]:
    try:
        listed: Any = parse_json(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{source}, line {error.lineno} is not valid JSON: {error.msg}") from None
    except ValueError as error:
        raise ConfigurationError(f"{source} cannot be read: {error}") from None
    if not isinstance(listed, list) or not listed:
        raise ConfigurationError(f"{source} does not hold a list of messages; a template is {_SHAPE}")
    try:
        return convert_to_messages(listed)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ConfigurationError(f"{source} holds an invalid message: {str(error).splitlines()[0]}") from None
