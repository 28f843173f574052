"""What ``--preset`` sets: the prompt, where the answer is, and the paper's sampling; what is given goes before it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_reasc.cli.console import remark

if TYPE_CHECKING:
    from langchain_reasc.data import DataFormat, Template

__all__ = ["Asking", "asking"]


@dataclass(frozen=True)
class Asking:
    """How questions are asked.

    Attributes:
        template: what stands around each.
        answer: where the answer is in a response.
        sampling: options of the chat model; those that are None are the model's to choose.
    """

    template: "Template | None"
    answer: str
    sampling: dict[str, Any] = field(default_factory=dict)


def asking(
    preset: str | None,
    data: "DataFormat | None",
    *,
    model: str | None,
    template: "Template | None",
    answer: str | None,
    temperature: float | None,
) -> Asking:
    """How to ask, and a line that says what was chosen, where a preset was.

    Args:
        preset: its name, or ``"auto"``, for that of the data set; None for none.
        data: which data set the questions are of; None where nobody knows.
        model: the model's name, which tells its family.
        template: what was given; the same holds for ``answer`` and ``temperature``.
        answer: where the answer is.
        temperature: of sampling.

    Raises:
        ConfigurationError: ``"auto"``, and the data set is none that is known.
        MissingExtraError: the preset finds its answers by a package that is not installed.
    """
    given = {"temperature": temperature}
    if preset is None:
        return Asking(template, answer or "auto", given)
    from langchain_reasc.answers import extractor
    from langchain_reasc.data import preset_of, sampling_of

    chosen = preset_of(_named(data) if preset == "auto" else preset)
    family = sampling_of(model)
    asked = Asking(
        template or chosen.template,
        answer or chosen.answer,
        (family.parameters if family else {}) | {name: value for name, value in given.items() if value is not None},
    )
    extractor(asked.answer)
    prompt = "your template" if template else f'"{" ".join(str(chosen.template.turns[-1].content).split())}"'
    values = ", ".join(f"{name} {value:g}" for name, value in asked.sampling.items()) or "the model's own"
    source = (
        f"the paper's for {family.family}"
        if family
        else "the paper's is unknown, as the model's name is of none of its families"
    )
    source += ", your temperature" if family and temperature is not None else ""
    remark(f"--preset {chosen.name}: {prompt}, --answer {asked.answer}; sampling: {values} ({source})")
    return asked


def _named(data: "DataFormat | None") -> str:
    from langchain_reasc.data import PRESETS
    from langchain_reasc.exceptions import ConfigurationError

    if data is None or data.preset is None:
        raise ConfigurationError(
            "--preset auto is for data sets that are recognized, or named with --format; for other questions name the "
            f"preset: {', '.join(PRESETS)}"
        )
    return data.preset
