"""Prompt templates: messages with ``{question}`` in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.files import read_text

PLACEHOLDER = "{question}"
"""Where a template has the question."""


@dataclass(frozen=True)
class Template:
    """The messages of a prompt. One or more contain ``{question}``; other braces are
    kept as they are.

    Attributes:
        turns: the messages in the order of the prompt, such as worked examples before
            the question.
    """

    turns: Sequence[BaseMessage] = (HumanMessage(PLACEHOLDER),)

    def __post_init__(self) -> None:
        if any(not isinstance(turn.content, str) for turn in self.turns):
            raise ConfigurationError(
                "the messages of a template hold text; blocks of content are not "
                "supported"
            )
        if not any(PLACEHOLDER in str(turn.content) for turn in self.turns):
            raise ConfigurationError(
                f"the template has no {PLACEHOLDER} in it, so no question could be put "
                "there"
            )

    @classmethod
    def from_option(cls, option: str) -> "Template":
        """Return the template that ``--template`` names.

        Args:
            option: a text with ``{question}`` in it, or a file that holds one.

        Raises:
            ConfigurationError: no such file, no ``{question}``, or a file of JSON.
        """
        if _is_file(option):
            if option.lower().endswith(".json"):
                raise ConfigurationError(
                    f"{option} is JSON; a template is a text file with {PLACEHOLDER} in "
                    "it"
                )
            # Editors end a file with a line break, which the prompt does not need.
            return cls([HumanMessage(_text_of(Path(option)).strip("\n"))])
        if PLACEHOLDER in option:
            return cls([HumanMessage(option)])
        raise ConfigurationError(
            f"{option!r} is neither a file nor a template; give a text with "
            f"{PLACEHOLDER} in it, or a file with such a text"
        )

    def after(self, system: str | None) -> "Template":
        """Return this template with a system message before it.

        Raises:
            ConfigurationError: the template already has a system message.
        """
        if not system:
            return self
        if any(turn.type == "system" for turn in self.turns):
            raise ConfigurationError(
                "the template already has a system message; give it there, or beside it"
            )
        return Template((SystemMessage(system), *self.turns))

    @property
    def fixed(self) -> list[tuple[str, str]]:
        """(role, text) of each message, with ``{question}`` for the question: part of a
        calibration's fingerprint.
        """
        return [(turn.type, str(turn.content)) for turn in self.turns]

    def messages(self, question: str) -> list[BaseMessage]:
        """Return the prompt for a question."""
        messages = []
        for turn in self.turns:
            content = str(turn.content).replace(PLACEHOLDER, question)
            messages.append(turn.model_copy(update={"content": content}))
        return messages


def _is_file(option: str) -> bool:
    try:
        return Path(option).is_file()
    except (OSError, ValueError):
        # The text is too long for a file's name.
        return False


def _text_of(path: Path) -> str:
    try:
        return read_text(path, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the template {path}: {error}") from error
