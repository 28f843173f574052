"""Prompt templates, and presets for kinds of tasks and families of models.

The paper does not print its prompts. The presets say only where the answer goes, in words that instruction-tuned models
know from their training (a box for what is computed, a line ``Answer: C`` for a choice), so that the extractor
named beside finds it. The sampling parameters are those of the paper's appendix, "LLM Inference Configuration".
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, convert_to_messages

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.files import parse_json, read_text

__all__ = ["PLACEHOLDER", "PRESETS", "SAMPLING", "Preset", "Sampling", "Template", "preset_of", "sampling_of"]

PLACEHOLDER = "{question}"
_SHAPE = (
    f'a text with {PLACEHOLDER} in it, a file that holds one, or a .json file with [{{"role": ..., "content": ...}}]'
)


@dataclass(frozen=True)
class Template:
    """Messages, at least one of which has ``{question}`` where a question goes; all other braces stand for themselves.

    Attributes:
        turns: the messages in the order of the prompt, such as worked examples in front of the question.
    """

    turns: Sequence[BaseMessage] = (HumanMessage(PLACEHOLDER),)

    def __post_init__(self) -> None:
        if any(not isinstance(turn.content, str) for turn in self.turns):
            raise ConfigurationError("the messages of a template hold text; blocks of content are not supported")
        if not any(PLACEHOLDER in str(turn.content) for turn in self.turns):
            raise ConfigurationError(f"the template has no {PLACEHOLDER} in it, so no question could be put there")

    @classmethod
    def read(cls, given: str) -> "Template":
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
            raise ConfigurationError(f"no template at {given!r}: it is no file, and no text either; give {_SHAPE}")
        return cls(turns)

    def after(self, system: str | None) -> "Template":
        """Return this template with a system message in front.

        Raises:
            ConfigurationError: it has one of its own.
        """
        if not system:
            return self
        if any(turn.type == "system" for turn in self.turns):
            raise ConfigurationError("the template has a system message of its own; give it there, or beside it")
        return Template((SystemMessage(system), *self.turns))

    @property
    def fixed(self) -> list[tuple[str, str]]:
        """(role, text) of each message, with ``{question}`` where the question goes: what a calibration holds for."""
        return [(turn.type, str(turn.content)) for turn in self.turns]

    def messages(self, question: str) -> list[BaseMessage]:
        """Return the prompt for a question."""
        return [
            turn.model_copy(update={"content": str(turn.content).replace(PLACEHOLDER, question)}) for turn in self.turns
        ]


@dataclass(frozen=True, slots=True)
class Preset:
    """The prompt for a kind of task.

    Attributes:
        name: its name for ``--preset``.
        template: the prompt.
        answer: where the answer is in a response to it, as ``--answer`` takes it.
    """

    name: str
    template: Template
    answer: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """The paper's sampling for a family of models. What it does not name, such as ``min_p``, stays the model's.

    Attributes:
        family: its name in the paper.
        named: matches names of its models.
        temperature: divides the logits.
        top_p: probability of the tokens that are kept.
        top_k: how many tokens are kept; None where the paper says nothing.
    """

    family: str
    named: re.Pattern[str]
    temperature: float
    top_p: float
    top_k: int | None = None

    @property
    def parameters(self) -> dict[str, float | int]:
        """The parameters by the names that chat models have for them."""
        given = {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k}
        return {name: value for name, value in given.items() if value is not None}


def _preset(name: str, instruction: str, answer: str = "auto") -> Preset:
    return Preset(name, Template((HumanMessage(f"{PLACEHOLDER}\n\n{instruction}"),)), answer)


_STEPS: Final = "Think step by step"
_CHOICE: Final = 'Then end with a line of the form "Answer: X", where X is the letter of the right choice.'
PRESETS: Final = {
    one.name: one
    for one in (
        _preset("number", f"{_STEPS}. Then put the final answer, a number, into \\boxed{{}}."),
        _preset("maths", f"{_STEPS}. Then put the final answer into \\boxed{{}}.", "math"),
        _preset("letter", f"{_STEPS}. {_CHOICE}", "choice"),
        _preset("yes-no", f"{_STEPS}. Then put the final answer, yes or no, into \\boxed{{}}."),
        _preset("letters", f"{_STEPS}. Then put the letters, without spaces between them, into \\boxed{{}}."),
        _preset("short", "Think briefly. Then put the answer, in as few words as name it, into \\boxed{}."),
    )
}
"""Presets by name."""

SAMPLING: Final = (
    Sampling("LLaMA-3.2", re.compile(r"llama[-_ .]?3(?:[._]2(?!\d)|-2(?=-))", re.IGNORECASE), 0.6, 0.9),
    Sampling("Qwen-2.5", re.compile(r"qwen[-_ .]?2[-_.]5(?!\d)", re.IGNORECASE), 0.7, 0.8, 20),
    Sampling("Gemma-3", re.compile(r"gemma[-_ .]?3(?!\.?\d|n)", re.IGNORECASE), 1.0, 0.95, 64),
)
"""The families of the paper."""


def preset_of(name: str) -> Preset:
    """Return a preset by name.

    Raises:
        ConfigurationError: there is none of this name.
    """
    if name not in PRESETS:
        raise ConfigurationError(f"unknown preset {name!r}; choose auto, {', '.join(PRESETS)}")
    return PRESETS[name]


def sampling_of(model: str | None) -> Sampling | None:
    """Return the paper's sampling for a model of this name, such as ``Qwen/Qwen2.5-7B-Instruct``; None for others.

    The last part of a path decides, so a folder's name says nothing; a derived model counts as of its family.
    """
    name = re.split(r"[/\\]", model or "")[-1]
    return next((one for one in SAMPLING if one.named.search(name)), None)


def _is_file(given: str) -> bool:
    try:
        return Path(given).is_file()
    except (OSError, ValueError):  # a text too long for a file's name
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
        raise ConfigurationError(f"{source} holds no list of messages; a template is {_SHAPE}")
    try:
        return convert_to_messages(listed)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ConfigurationError(f"{source} holds what is no message: {str(error).splitlines()[0]}") from None
