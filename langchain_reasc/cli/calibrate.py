"""``reasc calibrate``: make a calibration file by asking questions, with right answers or without."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, cast

import typer

from langchain_reasc.cli.console import in_options, print_lines, progress, remark
from langchain_reasc.cli.models import LearnedLargerModelOptions, ModelOptions
from langchain_reasc.cli.options import (
    CalibrationMethod,
    Concurrency,
    FieldOptions,
    PromptOptions,
    PTarget,
    Score,
    Seed,
    Window,
    keep_apart,
    measure_spec,
    output_file,
)
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.stopping import DEFAULT_BUDGET

if TYPE_CHECKING:
    from langchain_reasc.calibration import Calibration

T = TypeVar("T")

_MOST_READ: Final = 10_000  # questions of a file that a sample is taken of


def calibrate(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Questions with answers: .jsonl, .json, .csv, .tsv, .parquet; see reasc record. Or a .txt with a "
            "question a line.",
        ),
    ],
    *,
    unlabelled: Annotated[
        bool,
        typer.Option(
            help="DATA has right answers to no question, or only where --answer-field is."
        ),
    ] = False,
    source: ModelOptions,
    larger: LearnedLargerModelOptions,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="The calibration to write.", callback=output_file
        ),
    ] = Path("calibration.json"),
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="ROWS",
            help="Keeps what each question teaches, without any text; an interrupted run goes on from there. "
            r"\[default: beside --out, .rows.sqlite]",
            show_default=False,
            callback=output_file,
        ),
    ] = None,
    signal: Annotated[
        str,
        typer.Option(
            help="Token signal; auto chooses signal, score and window on the responses."
        ),
    ] = "auto",
    score: Score = "bottom_group",
    window: Window = 128,
    method: CalibrationMethod = None,
    p_target: PTarget = 0.9,
    limit: Annotated[
        int | None,
        typer.Option(
            min=2,
            help=r"Questions to calibrate on, taken at random. \[default: 128, or 300 with a larger model]",
        ),
    ] = None,
    max_samples: Annotated[
        int, typer.Option(min=1, help="Responses to a question at most.")
    ] = DEFAULT_BUDGET,
    asking: PromptOptions,
    fields: FieldOptions,
    seed: Seed = 0,
    concurrency: Concurrency = None,
) -> None:
    """Measure how far a model's answers and its confidence can be trusted, on questions of yours.

    Each question is asked until the votes on it are clear. How far the responses agree, and what their
    log-probabilities tell of that, decides when to stop. Right answers add how likely an answer is right, P(correct).
    64 questions are a good number.

    With a larger model, both models are asked each question, to learn when an answer of the smaller one may stand. The
    promise holds with 95 % confidence for questions in random order, and takes 76 questions without a contradiction, or
    200 to 300 with some. If nothing can be promised, the larger model answers alone.

    A calibration holds for this model file, these sampling parameters and this system message; ReASCRunnable refuses it
    elsewhere. To try other signals or corrected labels without the model, record its responses (reasc record), and
    calibrate on them (reasc pool calibrate).

    [bold]Examples[/]

    reasc calibrate gsm8k.jsonl --model qwen.gguf

    reasc calibrate quiz.csv --model qwen.gguf --answer choice --system "Answer with one letter." --out quiz.json

    reasc calibrate gsm8k.jsonl --url http://gpu1:8000 --model Qwen/Qwen2.5-7B-Instruct

    reasc calibrate questions.txt --model qwen.gguf

    reasc calibrate questions.txt --model small.gguf --escalate-to openai:gpt-4o --price-ratio 30
    """
    from langchain_reasc.runnable.calibrate import calibrate as calibrated

    rows = checkpoint or out.with_suffix(".rows.sqlite")
    keep_apart(out, data)
    keep_apart(rows, data)
    if data.suffix.lower() == ".sqlite":
        raise ConfigurationError(
            f"{data} is a recorded pool, not a file of questions: reasc pool calibrate "
            f"{data}"
        )
    spec = measure_spec(signal, score, window)
    in_flight = source.in_flight(concurrency)
    questions = _questions(data, fields, unlabelled=unlabelled)
    prompting = asking.prompting()
    prompt = prompting.prompt
    if limit is None:
        limit = 300 if larger.is_given else 128
    questions = sampled(questions, limit, seed)
    rows.parent.mkdir(parents=True, exist_ok=True)
    with (
        larger.open(seed=seed) as escalation,
        source.open(**prompting.sampling, default_seed=seed) as model,
        _resumable(rows, out),
        progress("Calibrating") as move,
    ):
        _remark_notices(model)
        calibration = calibrated(
            model,
            [(prompt.messages(question), right) for question, right in questions],
            answer=prompting.answer,
            fixed_prompt=prompt.fixed,
            measure=spec,
            method=cast(Literal["paper"] | None, method),
            p_target=p_target,
            max_samples=max_samples,
            checkpoint=rows,
            concurrency=in_flight,
            seed=seed,
            progress=move,
            **escalation,
        )
    save(calibration, out)


def _questions(
    data: Path, fields: FieldOptions, *, unlabelled: bool
) -> "Sequence[tuple[str, Any]]":
    """Return the questions, each with its right answers or None."""
    from langchain_reasc.data import is_text, read_questions, read_unlabelled

    if unlabelled or is_text(data):
        return read_unlabelled(data, limit=_MOST_READ, **vars(fields))
    questions = read_questions(data, limit=_MOST_READ, **vars(fields))
    return [(question.input, question.references) for question in questions]


@contextmanager
def _resumable(rows: Path, out: Path) -> Iterator[None]:
    """Say after Ctrl-C where the answers are kept."""
    try:
        yield
    except KeyboardInterrupt:
        remark(
            f"{out} was not written: it is made once all questions are asked. What the "
            f"answers so far taught is in {rows}: run the same command again to go on"
        )
        raise


def sampled(questions: "Sequence[T]", limit: int, seed: int) -> "Sequence[T]":
    """Return questions at random, those of a smaller limit first: files are often
    sorted, such as from easy to hard.
    """
    # All are taken, so their order does not matter.
    if len(questions) <= limit:
        return questions
    import numpy as np

    remark(f"{limit} of {len(questions)} questions are taken at random (--seed {seed})")
    order = np.random.default_rng(seed).permutation(len(questions))
    return [questions[index] for index in order[:limit]]


def _remark_notices(model: Any) -> None:
    """Print the reasons why the model's samples may all be the same."""
    from langchain_reasc.models.prepared import prepare_model

    for notice in prepare_model(model, logprobs=True).notices:
        remark(notice)


def save(calibration: "Calibration", out: Path, *, asked_by: str = "") -> None:
    """Write a calibration, and print what it will do, what to do next, and what was
    measured.

    ``asked_by`` is the command that asks the model, if another one than this.
    """
    from langchain_reasc.calibration import save_calibration
    from langchain_reasc.calibration.summary import describe_calibration

    out.parent.mkdir(parents=True, exist_ok=True)
    save_calibration(calibration, out)
    command = f"reasc ask --calibration {out}"
    arguments = f'calibration="{out}", model=...'
    if calibration.escalation:
        command += " --escalate-to ..."
        arguments += ", escalate_to=..."
    lines = describe_calibration(calibration).lines(command)
    print_lines(in_options(line, asked_by) for line in lines)
    remark(f"wrote {out}, also for ReASCRunnable({arguments})")
