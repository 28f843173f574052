"""``reasc calibrate``: make a calibration file from labelled questions."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from langchain_reasc.cli.console import ending, print_lines, progress, record_with_progress, remark
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
from langchain_reasc.exceptions import ConfigurationError, PoolError

if TYPE_CHECKING:
    from langchain_reasc.calibrating import MeasureSpec
    from langchain_reasc.calibration import Calibration
    from langchain_reasc.pools import Pool, PoolQuestion

__all__ = ["calibrate"]

T = TypeVar("T")

_SHOWN = 3  # examples
_MOST_READ = 10_000  # questions of a file that a sample is taken of


def calibrate(
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DATA]", help="Questions with answers: .jsonl, .json, .csv, .tsv, .parquet; see reasc record."
        ),
    ] = None,
    *,
    pool: Annotated[
        Path | None, typer.Option("--pool", metavar="POOL", help="Calibrate on recorded responses instead of a model.")
    ] = None,
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
    elsewhere. Responses are kept beside the calibration: an interrupted run goes on, corrected labels need no new
    responses, and another signal can be tried without the model (--pool).

    With --unlabelled no answers are needed. Each question is asked until the votes on it are clear, and how far
    responses agree is learned; 64 questions are a good number. Those responses are not kept.

    [bold]Examples[/]

    reasc calibrate gsm8k.jsonl --model qwen.gguf

    reasc calibrate quiz.csv --model qwen.gguf --answer choice --system "Answer with one letter." --out quiz.json

    reasc calibrate gsm8k.jsonl --url http://gpu1:8000 --model Qwen/Qwen2.5-7B-Instruct

    reasc calibrate --pool pool.sqlite --signal token_logprob

    reasc calibrate --unlabelled questions.txt --model qwen.gguf
    """
    from langchain_reasc.calibrating import calibrate_on_pool
    from langchain_reasc.calibration.summary import calibration_lines, consensus_lines
    from langchain_reasc.data import data_format, read_data_set, read_unlabelled
    from langchain_reasc.pools import read_pool

    if pool is not None and (asking.preset is not None or fields.format != "auto"):
        raise typer.BadParameter("--preset and --format say how questions are read and asked; a --pool's were")
    if worth is not None and unlabelled is None:
        raise typer.BadParameter("--worth goes with --unlabelled: a calibration on labels has no such stop")
    given = _single_source(data, pool, unlabelled)
    keep_apart(out, given)
    spec, in_flight = measure_spec(signal, score, window), source.in_flight(concurrency)
    if unlabelled is not None:
        # The format is looked up only where it is needed, as a pipe can be read once.
        known = data_format(unlabelled, **vars(fields)) if asking.preset == "auto" else None
        how = asking.prompting(source.model, known)
        with source.open(**how.sampling, default_seed=seed) as model:
            questions = _sampled(read_unlabelled(unlabelled, limit=_MOST_READ, **vars(fields)), limit, seed)
            calibration = _calibrate_without_labels(
                model, questions, how, out, spec, worth=worth, seed=seed, concurrency=in_flight
            )
        labels = sum(right is not None for _, right in questions)
        _save(calibration, out, consensus_lines(calibration, asked=len(questions), known=labels))
        return
    if data is not None:
        found = read_data_set(data, limit=_MOST_READ, **vars(fields))
        asked = _sampled(found.questions, limit, seed)
        how = asking.prompting(source.model, found.format)
        responses = out.with_suffix(".pool.sqlite")
        with source.open(**how.sampling, default_seed=seed) as model:
            recorded = record_with_progress(
                "Calibrating",
                model,
                asked,
                responses,
                samples=samples,
                answer=how.answer,
                template=how.template,
                system=asking.system,
                concurrency=in_flight,
                on_question=_first_response_check(responses, spec),
            )
        chosen = [question.id for question in asked]
    else:
        recorded = read_pool(given)
        chosen = [question.id for question in _sampled(recorded.questions, limit, seed)]
    among = set(chosen)
    _remark_none_right(recorded, [question for question in recorded.questions if question.id in among])
    calibration = calibrate_on_pool(recorded, spec, p_target=p_target, seed=seed, only=chosen)
    _save(calibration, out, calibration_lines(calibration))


def _sampled(questions: "Sequence[T]", limit: int, seed: int) -> "Sequence[T]":
    """Return questions at random, those of a smaller limit first: files are often sorted, such as from easy to hard."""
    if len(questions) <= limit:
        return questions
    import numpy as np

    remark(f"{limit} of {len(questions)} questions are taken at random (--seed {seed})")
    return [questions[at] for at in np.random.default_rng(seed).permutation(len(questions))[:limit]]


def _single_source(*sources: Path | None) -> Path:
    given = [one for one in sources if one is not None]
    if len(given) != 1:
        raise typer.BadParameter(
            "give either DATA, to be answered by the model, or --pool, with recorded responses, or --unlabelled, with "
            "questions whose answers nobody knows"
        )
    return given[0]


def _first_response_check(responses: Path, spec: "MeasureSpec") -> "Callable[[int, int], None]":
    """Return a callback that checks the first response once the pool holds it, before all others are paid for."""
    from langchain_reasc.pools import PoolStore, read_pool

    unchecked = [spec]

    def check_first(done: int, total: int) -> None:
        if unchecked and PoolStore.open(responses).ids():
            _check_signals(read_pool(responses), unchecked.pop())

    return check_first


def _check_signals(pool: "Pool", spec: "MeasureSpec") -> None:
    from langchain_reasc.method.confidence import Measure

    names = pool.signals.names if pool.signals else ()
    if not any(response.completion_tokens for response in pool.questions[0].responses):
        return  # an empty response has no signals either
    if not names:
        raise PoolError(
            "the first response came without log-probabilities, so no confidence can be measured; `reasc probe URL` "
            "shows whether a server gives any"
        )
    if isinstance(spec, Measure) and spec.signal not in names:
        raise PoolError(f"--signal {spec.signal} cannot be had from this model; its responses have {', '.join(names)}")


def _calibrate_without_labels(
    model: Any,
    questions: "Sequence[tuple[str, str | None]]",
    how: Prompting,
    out: Path,
    spec: "MeasureSpec",
    **options: Any,
) -> "Calibration":
    """Calibrate under a progress bar; what was learned is kept beside ``out`` until that is written."""
    from langchain_reasc.calibrating import calibrate_unlabelled
    from langchain_reasc.models.prepared import PreparedModel

    if spec == "recorded":
        raise ConfigurationError("--signal recorded goes with --pool: its scores are those of recorded responses")
    out.parent.mkdir(parents=True, exist_ok=True)
    for notice in PreparedModel.of(model, logprobs=True).notices:
        remark(notice)
    checkpoint = out.with_name(f"{out.name}.unfinished")
    try:
        with progress("Calibrating") as move:
            return calibrate_unlabelled(
                model,
                [(how.prompt.messages(question), right) for question, right in questions],
                answer=how.answer,
                fixed_prompt=how.prompt.fixed,
                measure=spec,
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


def _save(calibration: "Calibration", out: Path, lines: Iterable[str]) -> None:
    from langchain_reasc.calibration import save_calibration

    out.parent.mkdir(parents=True, exist_ok=True)
    save_calibration(calibration, out)
    print_lines(lines)
    remark(f'wrote {out}; use it with reasc ask --calibration {out}, or ReASCRunnable(calibration="{out}", model=...)')


def _remark_none_right(pool: "Pool", questions: "Sequence[PoolQuestion]") -> None:
    """Show answers beside labels where no first response is right: extractor or label field may be the wrong one."""
    if any(question.responses[0].correct for question in questions):
        return
    remark(
        f"none of the {len(questions)} first responses is right; if the answer is looked for in the wrong place, "
        "--answer says where it is, and if the label is the wrong field, --answer-field names the right one:"
    )
    for question in questions[:_SHOWN]:
        text = pool.texts(question.id)[0]
        end = "" if text is None else f", in a response that ends {ending(text)}"
        remark(f"  label {question.reference!r}, answer {question.responses[0].answer!r}{end}")
