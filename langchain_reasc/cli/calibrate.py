"""``reasc calibrate``: labelled questions in, calibration.json out."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_reasc.cli.calibration_lines import calibration_lines, consensus_lines
from langchain_reasc.cli.console import ending, progress, remark, stdout
from langchain_reasc.cli.models import open_model
from langchain_reasc.cli.options import (
    AnswerField,
    AnswerGiven,
    Concurrency,
    Format,
    KeyVariable,
    MaxTokens,
    Model,
    ModelClass,
    ModelKwargs,
    PresetName,
    Prompting,
    PTarget,
    QuestionField,
    Score,
    Seed,
    System,
    Temperature,
    TemplateText,
    Urls,
    Window,
    keep_apart,
    measure_spec,
    output_file,
    prompting,
    read_template,
)
from langchain_reasc.cli.recording import record_with_progress
from langchain_reasc.exceptions import ConfigurationError, PoolError

if TYPE_CHECKING:
    from langchain_reasc.calibrating import MeasureSpec
    from langchain_reasc.calibration import Calibration
    from langchain_reasc.pools import Pool

__all__ = ["calibrate", "check_signals"]

_SHOWN = 3  # examples


def calibrate(
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DATA]", help="Questions with answers: .jsonl, .json, .csv, .tsv, .parquet; see reasc record."
        ),
    ] = None,
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
    model: Model = None,
    url: Urls = None,
    key_variable: KeyVariable = None,
    model_class: ModelClass = None,
    model_kwargs: ModelKwargs = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The calibration to write.", callback=output_file)] = Path(
        "calibration.json"
    ),
    signal: Annotated[
        str, typer.Option(help="Token signal; auto chooses signal, score and window by cross-validation.")
    ] = "auto",
    score: Score = "bottom_group",
    window: Window = 128,
    p_target: PTarget = 0.9,
    limit: Annotated[int, typer.Option(min=2, help="Questions to calibrate on.")] = 128,
    samples: Annotated[
        int, typer.Option(min=1, help="Responses per question; several show whether votes may be weighed.")
    ] = 4,
    system: System = None,
    template: TemplateText = None,
    answer: AnswerGiven = None,
    preset: PresetName = None,
    format: Format = "auto",
    question_field: QuestionField = None,
    answer_field: AnswerField = None,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
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
    from langchain_reasc.data import data_format, read_data_set
    from langchain_reasc.pools import read_pool

    if pool is not None and (preset is not None or format != "auto"):
        raise typer.BadParameter("--preset and --format say how questions are read and asked; a --pool's were")
    keep_apart(out, _only_source(data, pool, unlabelled))
    spec = measure_spec(signal, score, window)
    fixed = read_template(template, system=system)
    fields: dict[str, Any] = {"format": format, "question_field": question_field, "answer_field": answer_field}
    given: dict[str, Any] = {"model": model, "template": fixed, "answer": answer, "temperature": temperature}
    opened = partial(
        open_model,
        model,
        urls=url,
        key_variable=key_variable,
        model_class=model_class,
        model_kwargs=model_kwargs,
        default_seed=seed,
        max_tokens=max_tokens,
    )
    in_flight = concurrency or (8 if url else 1)
    if unlabelled is not None:
        known = data_format(unlabelled, **fields) if preset == "auto" else None  # a pipe can be read once only
        how = prompting(preset, known, **given)
        with opened(**how.sampling) as chat_model:
            options: dict[str, Any] = {"limit": limit, "seed": seed, "concurrency": in_flight}
            calibration, lines = _calibrated_without_labels(
                chat_model, unlabelled, fields, out, spec=spec, how=how, system=system, **options
            )
    else:
        if data is not None:
            found = read_data_set(data, limit=limit, **fields)
            how = prompting(preset, found.format, **given)
            responses = out.with_suffix(".pool.sqlite")
            with opened(**how.sampling) as chat_model:
                recorded = record_with_progress(
                    "Calibrating",
                    chat_model,
                    found.questions,
                    responses,
                    samples=samples,
                    answer=how.answer,
                    template=how.template,
                    system=system,
                    concurrency=in_flight,
                    on_question=_checking_first(responses, spec),
                )
            chosen = {question.id for question in found.questions}
        else:
            recorded = read_pool(pool or Path())
            chosen = {question.id for question in recorded.questions[:limit]}
        for line in _nothing_right(recorded, chosen):
            remark(line)
        calibration = calibrate_on_pool(recorded, spec, p_target=p_target, seed=seed, only=chosen)
        lines = calibration_lines(calibration)
    _save(calibration, out, lines)


def _only_source(*sources: Path | None) -> Path:
    given = [one for one in sources if one is not None]
    if len(given) != 1:
        raise typer.BadParameter(
            "give either DATA, to be answered by the model, or --pool, with recorded responses, or --unlabelled, with "
            "questions whose answers nobody knows"
        )
    return given[0]


def _checking_first(responses: Path, spec: "MeasureSpec") -> "Callable[[int, int], None]":
    """Return a callback that checks the first response once the pool holds it, before all others are paid for."""
    from langchain_reasc.pools import PoolStore, read_pool

    unchecked = [spec]

    def check_first(done: int, total: int) -> None:
        if unchecked and PoolStore.open(responses).ids():
            check_signals(read_pool(responses), unchecked.pop())

    return check_first


def _calibrated_without_labels(
    model: Any,
    data: Path,
    fields: Mapping[str, Any],
    out: Path,
    *,
    spec: "MeasureSpec",
    how: Prompting,
    system: str | None,
    limit: int,
    seed: int,
    concurrency: int,
) -> "tuple[Calibration, Iterator[str]]":
    """Calibrate under a progress bar; return the calibration and what to print of it."""
    from langchain_reasc.calibrating import calibrate_unlabelled
    from langchain_reasc.data import Template, read_unlabelled
    from langchain_reasc.models.prepared import PreparedModel

    out.parent.mkdir(parents=True, exist_ok=True)
    if spec == "recorded":
        raise ConfigurationError("--signal recorded goes with --pool: its scores are those of recorded responses")
    questions = read_unlabelled(data, limit=limit, **fields)
    prompt, checkpoint = (how.template or Template()).after(system), out.with_name(f"{out.name}.unfinished")
    for notice in PreparedModel.of(model, logprobs=True).notices:
        remark(notice)
    try:
        with progress("Calibrating") as move:
            calibration = calibrate_unlabelled(
                model,
                [(prompt.messages(question), right) for question, right in questions],
                answer=how.answer,
                fixed_prompt=prompt.fixed,
                measure="auto" if spec == "auto" else spec,
                concurrency=concurrency,
                seed=seed,
                checkpoint=checkpoint,
                progress=move,
            )
    except KeyboardInterrupt:
        remark(
            f"{out} was not written: it is made once all {len(questions)} questions are asked. What those taught that "
            f"were asked is in {checkpoint}: run the same command again to go on"
        )
        raise
    known = sum(right is not None for _, right in questions)
    return calibration, consensus_lines(calibration, asked=len(questions), known=known)


def _save(calibration: "Calibration", out: Path, lines: Iterable[str]) -> None:
    from langchain_reasc.calibration import save_calibration

    out.parent.mkdir(parents=True, exist_ok=True)
    save_calibration(calibration, out)
    for line in lines:
        stdout().print(line, soft_wrap=True, markup=False)
    remark(f'wrote {out}; use it with reasc ask --calibration {out}, or ReASCRunnable(calibration="{out}", model=...)')


def check_signals(pool: "Pool", spec: "MeasureSpec") -> None:
    """Refuse a measure that the model's responses cannot give, before all of them are paid for."""
    from langchain_reasc.method.confidence import Measure

    held = pool.signals.names if pool.signals else ()
    if not any(response.completion_tokens for response in pool.questions[0].responses):
        return  # an empty response has no signals either
    if not held:
        raise PoolError(
            "the first response came without log-probabilities, so no confidence can be measured; `reasc probe URL` "
            "shows whether a server gives any"
        )
    if isinstance(spec, Measure) and spec.signal not in held:
        raise PoolError(f"--signal {spec.signal} cannot be had from this model; its responses have {', '.join(held)}")


def _nothing_right(pool: "Pool", chosen: "Collection[str]") -> Iterator[str]:
    """Yield answers beside their labels where none is right: extractor or label field may be the wrong one."""
    firsts = [(question, question.responses[0]) for question in pool.questions if question.id in chosen]
    if any(response.correct for _, response in firsts):
        return
    yield (
        f"none of the {len(firsts)} first responses is right; if the answer is looked for in the wrong place, --answer "
        "says where it is, and if the label is the wrong field, --answer-field names the right one:"
    )
    for question, response in firsts[:_SHOWN]:
        text = pool.texts(question.id)[0]
        end = "" if text is None else f", in a response that ends {ending(text)}"
        yield f"  label {question.reference!r}, answer {response.answer!r}{end}"
