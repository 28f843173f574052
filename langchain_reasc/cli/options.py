"""Options that several commands share, their checks, and what they mean together."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from langchain_reasc.cli.console import remark
from langchain_reasc.exceptions import ConfigurationError

if TYPE_CHECKING:
    from langchain_reasc.calibrating import MeasureSpec
    from langchain_reasc.data import DataFormat, Template

__all__ = [
    "AnswerField",
    "AnswerGiven",
    "AsJson",
    "Concurrency",
    "Format",
    "KeyVariable",
    "MaxTokens",
    "Model",
    "ModelClass",
    "ModelKwargs",
    "PTarget",
    "PresetName",
    "Prompting",
    "QuestionField",
    "Score",
    "Seed",
    "System",
    "Temperature",
    "TemplateText",
    "Urls",
    "Window",
    "keep_apart",
    "measure_spec",
    "one_of",
    "output_file",
    "output_folder",
    "probability",
    "prompting",
    "read_template",
]


_UNKNOWN_FAMILY = "the paper's is unknown, as the model's name is of none of its families"


def probability(value: float) -> float:
    """Check an accuracy."""
    if not 0 < value < 1:
        raise typer.BadParameter(f"an accuracy lies between 0 and 1, such as 0.9 for 90 %; got {value:g}")
    return value


def one_of(*names: str) -> Callable[[str], str]:
    """Return a check that a value is one of these names."""

    def check(value: str) -> str:
        if value not in names:
            *others, last = map(repr, names)
            raise typer.BadParameter(f"takes {', '.join(others)} or {last}, got {value!r}")
        return value

    return check


def output_file(path: Path | None) -> Path | None:
    """Check that a file can be written; its folder is made when it is."""
    if path is None:
        return None
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; name a file in it")
    output_folder(path.parent)
    if path.exists() and not os.access(path, os.W_OK):
        raise typer.BadParameter(f"{path} may not be written")
    return path


def output_folder(path: Path) -> Path:
    """Check that files can be put in a folder, or that it can be made."""
    nearest = next(one for one in (path, *path.absolute().parents) if one.exists())
    if not nearest.is_dir():
        raise typer.BadParameter(f"{nearest} is a file, not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"nothing may be written in {nearest}")
    return path


def keep_apart(out: Path, read: Path | None) -> None:
    """Refuse to write over what is read."""
    if read is not None and out.resolve() == read.resolve():
        raise typer.BadParameter(f"--out {out} is the file that is read, and would be lost; name another one")


def _answer_spec(value: str | None) -> str | None:
    from langchain_reasc.answers import extractor

    if value is not None:
        extractor(value)
    return value


def _format_name(value: str) -> str:
    from langchain_reasc.data import format_of

    if value != "auto":
        format_of(value, {})
    return value


def _preset_name(value: str | None) -> str | None:
    from langchain_reasc.data import preset_of

    if value not in (None, "auto"):
        preset_of(value)
    return value


Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help=r"A GGUF file, hf:OWNER/REPO/FILE for one of the Hub, or with --url or --model-class its name there. "
        r"\[default: the shipped one]",
    ),
]
ModelClass = Annotated[
    str | None,
    typer.Option(
        metavar="PACKAGE.CLASS", help="Any LangChain chat model instead, such as ChatOpenAI of langchain_openai."
    ),
]
ModelKwargs = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Arguments of that class: name=value, a JSON object, or a file with one; may be given several times. "
        "A secret is given as env:NAME, the environment variable that holds it.",
    ),
]
Urls = Annotated[
    list[str] | None,
    typer.Option("--url", metavar="URL", help="An OpenAI-compatible server of the model; several may be given."),
]
KeyVariable = Annotated[str | None, typer.Option(metavar="NAME", help="Environment variable that holds the API key.")]
Concurrency = Annotated[
    int | None, typer.Option(min=1, help=r"Questions in flight at once. \[default: 8 with --url, else 1]")
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="The data set that DATA is of, by its published form: gsm8k, math500, omni-math, gpqa, strategyqa, "
        "last-letters, nq-open; any, for the usual fields; auto recognizes it.",
        callback=_format_name,
    ),
]
PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="How a kind of task is asked: number, maths, letter, yes-no, letters, short; auto takes that of the data "
        "set. It sets --template, --answer, and the paper's sampling for the model's family, but for what you give.",
        callback=_preset_name,
    ),
]
QuestionField = Annotated[
    str | None, typer.Option(metavar="NAME", help=r"Field of the question. \[default: question, input, problem, ...]")
]
AnswerField = Annotated[
    str | None, typer.Option(metavar="NAME", help=r"Field of the answer. \[default: answer, reference, target, ...]")
]
AnswerGiven = Annotated[
    str | None,
    typer.Option(
        "--answer",
        metavar="SPEC",
        help="Where a response's answer is: auto, boxed, number, choice, math, regex:..., json, json:FIELD. "
        r"\[default: the preset's, else auto]",
        callback=_answer_spec,
    ),
]
System = Annotated[
    str | None, typer.Option(metavar="TEXT", help="A system message in front of each question, the same as in use.")
]
TemplateText = Annotated[
    str | None,
    typer.Option(
        "--template",
        metavar="FILE|TEXT",
        help="What stands around each question, the same as in use: a text with {question} in it, a file that holds "
        "one, or a .json file with a list of messages (worked examples, say).",
    ),
]
Temperature = Annotated[float | None, typer.Option(help=r"Sampling temperature. \[default: the model's]")]
MaxTokens = Annotated[int | None, typer.Option(min=1, help=r"Tokens per response at most. \[default: the model's]")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random; the same one gives the same result.")]
Score = Annotated[
    str,
    typer.Option(
        help="Response score: bottom_group, mean, tail_group, average_group, lowest_group, answer_span or last_step."
    ),
]
Window = Annotated[int, typer.Option(min=1, help="Tokens per group of the score.")]
PTarget = Annotated[
    float, typer.Option(help="Accuracy asked of what the gate accepts from one response.", callback=probability)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def measure_spec(signal: str, score: str, window: int) -> "MeasureSpec":
    """Return the measure that ``--signal``, ``--score`` and ``--window`` name together.

    Raises:
        ConfigurationError: an unknown name, or a score or window beside ``auto``, which chooses them itself.
    """
    from langchain_reasc.method.confidence import Measure

    paper = Measure()
    if signal not in ("auto", "recorded"):
        return Measure(signal, score, window)
    if (score, window) != (paper.score, paper.window):
        raise ConfigurationError(f"--signal {signal} settles score and window too; name a signal to choose them")
    return "auto" if signal == "auto" else "recorded"


def read_template(given: str | None, *, system: str | None) -> "Template | None":
    """Read what ``--template`` names; None without one.

    Raises:
        ConfigurationError: it cannot be read, has no ``{question}``, or does not go with ``--system``.
    """
    from langchain_reasc.data import Template

    if given is None:
        return None
    template = Template.read(given)
    template.after(system)
    return template


class Prompting(NamedTuple):
    """How a model is prompted and sampled.

    Attributes:
        template: the prompt around each question.
        answer: where the answer is in a response.
        sampling: options of the chat model; for those that are None its defaults hold.
    """

    template: "Template | None"
    answer: str
    sampling: dict[str, Any]


def prompting(
    preset: str | None,
    data: "DataFormat | None",
    *,
    model: str | None,
    template: "Template | None",
    answer: str | None,
    temperature: float | None,
) -> Prompting:
    """Return what ``--preset`` sets, but for what was given; print what was chosen.

    Args:
        preset: its name, or ``"auto"``, for that of the data set; None for none.
        data: the format of the questions; None where it is not known.
        model: the model's name, which tells its family.
        template: what was given; likewise ``answer`` and ``temperature``.
        answer: where the answer is.
        temperature: of sampling.

    Raises:
        ConfigurationError: ``"auto"``, and the data set has no preset.
        MissingExtraError: the preset finds its answers by a package that is not installed.
    """
    if preset is None:
        return Prompting(template, answer or "auto", {"temperature": temperature})
    from langchain_reasc.answers import extractor
    from langchain_reasc.data import PRESETS, preset_of, sampling_of

    if preset == "auto":
        preset = data.preset if data else None
        if preset is None:
            raise ConfigurationError(
                "--preset auto is for data sets that are recognized, or named with --format; for other questions name "
                f"the preset: {', '.join(PRESETS)}"
            )
    chosen, family = preset_of(preset), sampling_of(model)
    how = Prompting(template or chosen.template, answer or chosen.answer, dict(family.parameters) if family else {})
    extractor(how.answer)
    source = f"the paper's for {family.family}" if family else _UNKNOWN_FAMILY
    if temperature is not None:
        how.sampling["temperature"] = temperature
        source += ", your temperature" if family else ""
    prompt = "your template" if template else f'"{" ".join(str(chosen.template.turns[-1].content).split())}"'
    values = ", ".join(f"{name} {value:g}" for name, value in how.sampling.items()) or "the model's own"
    remark(f"--preset {chosen.name}: {prompt}, --answer {how.answer}; sampling: {values} ({source})")
    return how
