"""Prompts for kinds of tasks, and the paper's sampling for families of models.

The paper does not print its prompts. The presets say only where the answer goes, in
words that instruction-tuned models know from their training (a box for what is
computed, a line ``Answer: C`` for a choice), so that the extractor named beside finds
it. The sampling parameters are those of the paper's appendix, "LLM Inference
Configuration".
"""

import re
from dataclasses import dataclass
from typing import Final

from langchain_core.messages import HumanMessage

from langchain_reasc.data.template import PLACEHOLDER, Template
from langchain_reasc.exceptions import ConfigurationError

__all__ = ["PRESETS", "SAMPLING", "Preset", "Sampling", "preset_of", "sampling_of"]


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
    """The paper's sampling for a family of models. What it does not name, such as
    ``min_p``, stays the model's.

    Attributes:
        family: its name in the paper.
        named: matches names of its models.
        temperature: divides the logits.
        top_p: probability of the tokens that are kept.
        top_k: how many tokens are kept; None if the paper says nothing.
    """

    family: str
    named: re.Pattern[str]
    temperature: float
    top_p: float
    top_k: int | None = None

    @property
    def parameters(self) -> dict[str, float | int]:
        """The parameters by the names that chat models have for them."""
        given = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
        }
        return {name: value for name, value in given.items() if value is not None}


def _preset(name: str, instruction: str, answer: str = "auto") -> Preset:
    return Preset(
        name, Template((HumanMessage(f"{PLACEHOLDER}\n\n{instruction}"),)), answer
    )


_STEPS: Final = "Think step by step"
_CHOICE: Final = 'Then end with a line of the form "Answer: X", where X is the letter of the right choice.'
PRESETS: Final = {
    one.name: one
    for one in (
        _preset(
            "number",
            f"{_STEPS}. Then put the final answer, a number, into \\boxed{{}}.",
        ),
        _preset(
            "maths", f"{_STEPS}. Then put the final answer into \\boxed{{}}.", "math"
        ),
        _preset("letter", f"{_STEPS}. {_CHOICE}", "choice"),
        _preset(
            "yes-no",
            f"{_STEPS}. Then put the final answer, yes or no, into \\boxed{{}}.",
        ),
        _preset(
            "letters",
            (
                f"{_STEPS}. Then put the letters, without spaces between them, into "
                "\\boxed{}."
            ),
        ),
        _preset(
            "short",
            (
                "Think briefly. Then put the answer, in as few words as name it, into "
                "\\boxed{}."
            ),
        ),
    )
}
"""Presets by name."""

SAMPLING: Final = (
    Sampling(
        "LLaMA-3.2",
        re.compile(r"llama[-_ .]?3(?:[._]2(?!\d)|-2(?=-))", re.IGNORECASE),
        0.6,
        0.9,
    ),
    Sampling(
        "Qwen-2.5", re.compile(r"qwen[-_ .]?2[-_.]5(?!\d)", re.IGNORECASE), 0.7, 0.8, 20
    ),
    Sampling(
        "Gemma-3", re.compile(r"gemma[-_ .]?3(?!\.?\d|n)", re.IGNORECASE), 1.0, 0.95, 64
    ),
)
"""The families of the paper."""


def preset_of(name: str) -> Preset:
    """Return a preset by name.

    Raises:
        ConfigurationError: there is none of this name.
    """
    if name not in PRESETS:
        raise ConfigurationError(
            f"unknown preset {name!r}; choose auto, {', '.join(PRESETS)}"
        )
    return PRESETS[name]


def sampling_of(model: str | None) -> Sampling | None:
    """Return the paper's sampling for a model of this name, such as
    ``Qwen/Qwen2.5-7B-Instruct``; None for others.

    The last part of a path decides, so a folder's name says nothing; a derived model
    counts as of its family.
    """
    name = re.split(r"[/\\]", model or "")[-1]
    return next((one for one in SAMPLING if one.named.search(name)), None)
