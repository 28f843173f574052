"""Options that several commands share.

A command takes a group of options as one dataclass, and :func:`with_groups` shows typer
the options in it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from langchain_reasc.exceptions import ConfigurationError

if TYPE_CHECKING:
    from langchain_reasc.data import Template
    from langchain_reasc.method.confidence import Measure


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is a dataclass by the dataclass's
    fields.
    """
    groups: dict[str, Any] = {}
    options: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        if not is_dataclass(parameter.annotation):
            options.append(parameter)
            continue
        group: Any = parameter.annotation
        groups[parameter.name] = group
        options += signature(group).parameters.values()

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            options_of_group = signature(group).parameters
            values[name] = group(**{key: values.pop(key) for key in options_of_group})
        command(**values)

    # typer passes each option by its name.
    only_named = [option.replace(kind=Parameter.KEYWORD_ONLY) for option in options]
    run.__signature__ = Signature(only_named)  # type: ignore[attr-defined]
    return run


def probability(value: float) -> float:
    """Check an accuracy."""
    if not 0 < value < 1:
        raise typer.BadParameter(
            f"an accuracy must be between 0 and 1, such as 0.9 for 90 %; got {value:g}"
        )
    return value


def one_of(*names: str) -> Callable[[str | None], str | None]:
    """Return a callback that requires one of these names if the option is given."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in names:
            *rest, last = map(repr, names)
            choices = f"{', '.join(rest)} or {last}" if rest else last
            raise typer.BadParameter(f"takes {choices}, got {value!r}")
        return value

    return check


def output_file(path: Path | None) -> Path | None:
    """Check that a file can be written. Its folder is made later, with the file."""
    if path is None:
        return None
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; name a file in it")
    # Refuse a path now that could not be written after hours.
    output_folder(path.parent)
    if path.exists() and not os.access(path, os.W_OK):
        raise typer.BadParameter(f"no permission to write {path}")
    return path


def output_folder(path: Path) -> Path:
    """Check that files can be written into a folder, or that the folder can be made."""
    nearest = path
    while not nearest.exists():
        nearest = nearest.absolute().parent
    if not nearest.is_dir():
        raise typer.BadParameter(f"{nearest} is a file, not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"no permission to write in {nearest}")
    return path


def keep_apart(out: Path, source: Path | None) -> None:
    """Refuse to overwrite the file that is read."""
    if source is not None and out.resolve() == source.resolve():
        raise typer.BadParameter(
            f"--out {out} would overwrite the file that is read; name another file"
        )


def _check_answer(value: str | None) -> str | None:
    from langchain_reasc.answers import extractor

    if value is not None:
        extractor(value)
    return value


def _read_template(value: str | None) -> Any:
    from langchain_reasc.data import Template

    if value is None:
        return None
    return Template.from_option(value)


KeyVariable = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Environment variable that holds the API key."),
]
Urls = Annotated[
    list[str] | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="An OpenAI-compatible server of the model; repeatable.",
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1, help=r"Questions in flight at once. \[default: 8 with --url, else 1]"
    ),
]
QuestionField = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=r"Field of the question. \[default: question, input, problem, ...]",
    ),
]
AnswerField = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=r"Field of the answer. \[default: answer, reference, target, ...]",
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(min=1, help=r"The most tokens of a response. \[default: the model's]"),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0, help="Seed of everything random; the same seed gives the same result."
    ),
]
Score = Annotated[
    str,
    typer.Option(
        help="How a response's confidence is computed from its tokens: bottom_group, "
        "mean, tail_group, average_group, lowest_group, answer_span or last_step."
    ),
]
Window = Annotated[int, typer.Option(min=1, help="Tokens in each group of the score.")]
PTarget = Annotated[
    float,
    typer.Option(
        help="Required accuracy of answers that are accepted after one response.",
        callback=probability,
    ),
]
CalibrationMethod = Annotated[
    str | None,
    typer.Option(
        metavar="paper",
        help="paper: the paper's rule (Algorithm 1) as it stands; it takes right answers.",
        callback=one_of("paper"),
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json/--no-json", help="Print everything as JSON.")
]


def measure_spec(signal: str, score: str, window: int) -> "Measure | Literal['auto']":
    """Return the measure that ``--signal``, ``--score`` and ``--window`` define.

    Raises:
        ConfigurationError: a name is unknown, or a score or window is given with
            ``auto``, which chooses both.
    """
    from langchain_reasc.method.confidence import Measure

    if signal == "auto":
        require_no_details(signal, score, window)
        return "auto"
    return Measure(signal, score, window)


def require_no_details(signal: str, score: str, window: int) -> None:
    """Reject ``--score`` and ``--window`` if ``--signal`` already determines them."""
    from langchain_reasc.method.confidence import Measure

    default = Measure()
    if (score, window) != (default.score, default.window):
        raise ConfigurationError(
            f"--signal {signal} also determines score and window; name a signal to "
            "choose them"
        )


@dataclass
class FieldOptions:
    """The fields of questions and answers in a file."""

    question_field: QuestionField = None
    answer_field: AnswerField = None


class Prompting(NamedTuple):
    """How a model is prompted and sampled.

    Attributes:
        template: the prompt around each question, without the system message; None for
            the question alone.
        prompt: the whole prompt.
        answer: where the answer is in a response.
        sampling: options of the chat model; None for the model's default.
    """

    template: "Template | None"
    prompt: "Template"
    answer: str
    sampling: dict[str, Any]


@dataclass
class PromptOptions:
    """How each question is asked."""

    system: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The system message of each question, as in your application.",
        ),
    ] = None
    template: Annotated[
        Any,  # a Template
        typer.Option(
            metavar="FILE|TEXT",
            help="The prompt around each question, as in your application: a text with "
            "{question} in it, or a file with such a text.",
            parser=str,
            callback=_read_template,
        ),
    ] = None
    answer: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Where a response's answer is: auto, labels (spam,ham), boxed, number, "
            r"choice, math, text, regex:..., json, json:FIELD. \[default: auto]",
            callback=_check_answer,
        ),
    ] = None
    temperature: Annotated[
        float | None,
        typer.Option(help=r"Sampling temperature. \[default: the model's]"),
    ] = None
    max_tokens: MaxTokens = None

    def prompting(self) -> Prompting:
        """Return how a model is prompted and sampled.

        Raises:
            ConfigurationError: the template and the system message contradict each
                other.
        """
        from langchain_reasc.data import Template

        prompt = (self.template or Template()).after(self.system)
        sampling = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        return Prompting(self.template, prompt, self.answer or "auto", sampling)
