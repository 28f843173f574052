"""``reasc calibrate``: make a calibration file from labelled questions."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from langchain_reasc.cli.console import print_lines, progress, remark
from langchain_reasc.cli.models import ModelOptions
from langchain_reasc.cli.options import (
    Concurrency,
    FieldOptions,
    Prompting,
    PromptOptions,
    PTarget,
    Score,
    Seed,
    Window,
    Worth,
    keep_apart,
    measure_spec,
    output_file,
)
from langchain_reasc.exceptions import ConfigurationError

if TYPE_CHECKING:
    from langchain_reasc.calibration import Calibration

__all__ = ["calibrate", "sampled", "save"]

T = TypeVar("T")

_MOST_READ: Final = 10_000  # questions of a file that a sample is taken of


def calibrate(
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DATA]", help="Questions with answers: .jsonl, .json, .csv, .tsv, .parquet; see reasc record."
        ),
    ] = None,
    *,
    unlabelled: Annotated[
        Path | None,
        typer.Option(
            "--unlabelled",
            metavar="QUESTIONS",
            help="Calibrate without right answers: a text with a question a line, or any file that DATA may be.",
        ),
    ] = None,
    source: ModelOptions,
    out: Annotated[Path, typer.Option("--out", "-o", help="The calibration to write.", callback=output_file)] = Path(
        "calibration.json"
    ),
    signal: Annotated[
        str, typer.Option(help="Token signal; auto chooses signal, score and window by cross-validation.")
    ] = "auto",
    score: Score = "bottom_group",
    window: Window = 128,
    p_target: PTarget = 0.9,
    limit: Annotated[int, typer.Option(min=2, help="Questions to calibrate on, taken at random.")] = 128,
    samples: Annotated[
        int, typer.Option(min=1, help="Responses per question; several show whether votes may be weighed.")
    ] = 4,
    worth: Worth = None,
    asking: PromptOptions,
    fields: FieldOptions,
    seed: Seed = 0,
    concurrency: Concurrency = None,
) -> None:
    """Measure how far a model's confidence can be trusted, on questions whose answers you know.

    One response to each of 128 questions (--samples 1) is enough for the gate, the confidence at which a first response
    is accepted alone. Several show whether confidence separates right from wrong responses to the same question: if
    so, votes are weighed by it, else counted. They also show how likely an answer is right, P(correct).

    A calibration holds for this model file, these sampling parameters and this system message; ReASCRunnable refuses it
    elsewhere. To try other signals or corrected labels without the model, record its responses (reasc record), and
    calibrate on them (reasc pool calibrate).

    With --unlabelled no answers are needed. Each question is asked until the votes on it are clear, and how far
    responses agree is learned; 64 questions are a good number. Those responses are not kept.

    [bold]Examples[/]

    reasc calibrate gsm8k.jsonl --model qwen.gguf

    reasc calibrate quiz.csv --model qwen.gguf --answer choice --system "Answer with one letter." --out quiz.json

    reasc calibrate gsm8k.jsonl --url http://gpu1:8000 --model Qwen/Qwen2.5-7B-Instruct

    reasc calibrate --unlabelled questions.txt --model qwen.gguf
    """
    from langchain_reasc.calibration.summary import calibration_lines, consensus_lines
    from langchain_reasc.data import read_questions, read_unlabelled

    if worth is not None and unlabelled is None:
        raise typer.BadParameter("--worth goes with --unlabelled: a calibration on labels has no such stop")
    given = _single_source(data, unlabelled)
    keep_apart(out, given)
    if given.suffix.lower() == ".sqlite":
        raise ConfigurationError(f"{given} is a recorded pool, not a file of questions: reasc pool calibrate {given}")
    spec, in_flight, how = measure_spec(signal, score, window), source.in_flight(concurrency), asking.prompting()
    if unlabelled is not None:
        with source.open(**how.sampling, default_seed=seed) as model:
            questions = sampled(read_unlabelled(unlabelled, limit=_MOST_READ, **vars(fields)), limit, seed)
            calibration = _calibrate_without_labels(
                model, questions, how, out, measure=spec, worth=worth, seed=seed, concurrency=in_flight
            )
        labels = sum(right is not None for _, right in questions)
        save(calibration, out, consensus_lines(calibration, asked=len(questions), known=labels))
        return
    questions_of_file = read_questions(given, limit=_MOST_READ, **vars(fields))
    labelled = [(one.input, one.references) for one in sampled(questions_of_file, limit, seed)]
    with source.open(**how.sampling, default_seed=seed) as model:
        calibration = _calibrate_on_labels(
            model, labelled, how, measure=spec, samples=samples, p_target=p_target, seed=seed, concurrency=in_flight
        )
    if calibration.accuracy == 0:
        remark(
            f"none of the {calibration.n} first responses is right; if the answer is looked for in the wrong place, "
            "--answer says where it is, and if the label is the wrong field, --answer-field names the right one"
        )
    save(calibration, out, calibration_lines(calibration))


def sampled(questions: "Sequence[T]", limit: int, seed: int) -> "Sequence[T]":
    """Return questions at random, those of a smaller limit first: files are often sorted, such as from easy to hard."""
    if len(questions) <= limit:
        return questions
    import numpy as np

    remark(f"{limit} of {len(questions)} questions are taken at random (--seed {seed})")
    return [questions[at] for at in np.random.default_rng(seed).permutation(len(questions))[:limit]]


def _single_source(*sources: Path | None) -> Path:
    given = [one for one in sources if one is not None]
    if len(given) != 1:
        raise typer.BadParameter("give either DATA, questions with answers, or --unlabelled, questions without")
    return given[0]


def _calibrate_on_labels(
    model: Any, questions: "Sequence[tuple[str, tuple[str, ...]]]", how: Prompting, **options: Any
) -> "Calibration":
    """Calibrate under a progress bar."""
    from langchain_reasc.calibrating import calibrate

    _remark_notices(model)
    with progress("Calibrating") as move:
        return calibrate(
            model,
            [(how.prompt.messages(question), right) for question, right in questions],
            answer=how.answer,
            fixed_prompt=how.prompt.fixed,
            progress=move,
            **options,
        )


def _calibrate_without_labels(
    model: Any, questions: "Sequence[tuple[str, str | None]]", how: Prompting, out: Path, **options: Any
) -> "Calibration":
    """Calibrate under a progress bar; what was learned is kept beside ``out`` until that is written."""
    from langchain_reasc.calibrating import calibrate_unlabelled

    _remark_notices(model)
    out.parent.mkdir(parents=True, exist_ok=True)
    checkpoint = out.with_name(f"{out.name}.unfinished")
    try:
        with progress("Calibrating") as move:
            return calibrate_unlabelled(
                model,
                [(how.prompt.messages(question), right) for question, right in questions],
                answer=how.answer,
                fixed_prompt=how.prompt.fixed,
                checkpoint=checkpoint,
                progress=move,
                **options,
            )
    except KeyboardInterrupt:
        remark(
            f"{out} was not written: it is made once all {len(questions)} questions are asked. What those taught that "
            f"were asked is in {checkpoint}: run the same command again to go on"
        )
        raise


def _remark_notices(model: Any) -> None:
    """Print what makes this model's samples all the same, if anything does."""
    from langchain_reasc.models.prepared import PreparedModel

    for notice in PreparedModel.of(model, logprobs=True).notices:
        remark(notice)


def save(calibration: "Calibration", out: Path, lines: Iterable[str]) -> None:
    """Write a calibration, and print what it says."""
    from langchain_reasc.calibration import save_calibration

    out.parent.mkdir(parents=True, exist_ok=True)
    save_calibration(calibration, out)
    print_lines(lines)
    remark(f'wrote {out}; use it with reasc ask --calibration {out}, or ReASCRunnable(calibration="{out}", model=...)')
