"""Options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from langchain_reasc.cli.checks import answer_spec, format_name, preset_name, probability
from langchain_reasc.exceptions import ConfigurationError

if TYPE_CHECKING:
    from langchain_reasc.calibrating.pool_scores import MeasureSpec
    from langchain_reasc.data import Template

__all__ = [
    "AnswerField",
    "AnswerGiven",
    "AsJson",
    "CalibrationPool",
    "CalibrationSize",
    "Concurrency",
    "Data",
    "Format",
    "KeyVariable",
    "MaxSamples",
    "MaxTokens",
    "Model",
    "ModelClass",
    "ModelKwargs",
    "ModelSeed",
    "PTarget",
    "PoolPath",
    "PresetName",
    "Prices",
    "QuestionField",
    "Ray",
    "RayCount",
    "Score",
    "Seed",
    "System",
    "Temperature",
    "TemplateText",
    "Urls",
    "Window",
    "measure_spec",
    "read_template",
]

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
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Let workers on Ray ask: local starts some on this machine, auto joins its cluster, HOST:PORT another.",
    ),
]
RayCount = Annotated[
    int | None, typer.Option("--ray-workers", min=1, help=r"Workers; each has --concurrency. \[default: 2]")
]
Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Questions with answers: .jsonl, .json, .csv, .tsv (or .gz of these), .parquet; last-letters:500, made "
        r"from names; hf:OWNER/NAME\[:CONFIG]/SPLIT, from the Hugging Face Hub.",
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="The data set that DATA is of, by its published form: gsm8k, math500, omni-math, gpqa, strategyqa, "
        "last-letters, nq-open; any, for the usual fields; auto recognizes it.",
        callback=format_name,
    ),
]
PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="How a kind of task is asked: number, maths, letter, yes-no, letters, short; auto takes that of the data "
        "set. It sets --template, --answer, and the paper's sampling for the model's family, but for what you give.",
        callback=preset_name,
    ),
]
Prices = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help='What a million tokens cost: JSON such as {"currency": "USD", "models": {"gpt-4o-mini": {"input": 0.15, '
        '"output": 0.6}}}, or the same as .toml; cached, cache_write and reasoning may be there, too.',
    ),
]
CalibrationPool = Annotated[
    Path | None,
    typer.Option(
        metavar="POOL",
        help="A pool of other questions, whose first responses calibrate. "
        r"\[default: calibration-pool.sqlite beside POOL, where there is one and --calibration-size is not given]",
    ),
]
CalibrationSize = Annotated[
    int | None,
    typer.Option(
        min=2,
        help="Questions of POOL itself whose first response calibrates, and which are not tested. "
        r"\[default: 128, without a calibration pool]",
    ),
]
MaxSamples = Annotated[
    int | None,
    typer.Option(min=1, help=r"Budget of every method. \[default: 16, or as many as the pool has of each question]"),
]
PoolPath = Annotated[Path, typer.Argument(metavar="POOL", help="A recorded pool.")]
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
        callback=answer_spec,
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
ModelSeed = Annotated[
    int | None, typer.Option(min=0, help=r"Seed of the samples: the same one draws the same. \[default: 0]")
]
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
    """What ``--signal``, ``--score`` and ``--window`` say together.

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
    """What ``--template`` names; None without one.

    Raises:
        ConfigurationError: it cannot be read, has no ``{question}``, or does not go with ``--system``.
    """
    from langchain_reasc.data import Template

    if given is None:
        return None
    template = Template.read(given)
    template.after(system)
    return template
