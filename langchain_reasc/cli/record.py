"""``reasc record``: keep a model's responses as a pool."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_reasc.cli.checks import keep_apart, output_file
from langchain_reasc.cli.console import progress, remark
from langchain_reasc.cli.costs import Costs, Limits
from langchain_reasc.cli.models import open_model
from langchain_reasc.cli.options import (
    AnswerField,
    AnswerGiven,
    Concurrency,
    Data,
    Format,
    KeyVariable,
    MaxTokens,
    Model,
    ModelClass,
    ModelKwargs,
    ModelSeed,
    PresetName,
    Prices,
    QuestionField,
    Ray,
    RayCount,
    System,
    Temperature,
    TemplateText,
    Urls,
    read_template,
)
from langchain_reasc.cli.preset import asking
from langchain_reasc.exceptions import ConfigurationError

if TYPE_CHECKING:
    from langchain_reasc.data.questions import LabelledQuestion
    from langchain_reasc.data.template import Template
    from langchain_reasc.pools.pool import Pool
    from langchain_reasc.pools.record import Workers

__all__ = ["record", "record_with_progress", "workers_on_ray"]


def record(
    data: Data,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="POOL", help="The pool to write, or to continue.", callback=output_file),
    ],
    model: Model = None,
    url: Urls = None,
    key_variable: KeyVariable = None,
    model_class: ModelClass = None,
    model_kwargs: ModelKwargs = None,
    samples: Annotated[int, typer.Option(min=1, help="Responses per question.")] = 16,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many questions.")] = None,
    system: System = None,
    template: TemplateText = None,
    answer: AnswerGiven = None,
    preset: PresetName = None,
    format: Format = "auto",
    question_field: QuestionField = None,
    answer_field: AnswerField = None,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    seed: ModelSeed = None,
    concurrency: Concurrency = None,
    ray: Ray = None,
    ray_workers: RayCount = None,
    prices: Prices = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what it is expected to cost, and stop.")] = False,
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="Do not begin, nor go on, beyond this cost (with --prices).")
    ] = None,
    max_tokens_total: Annotated[
        int | None, typer.Option(min=1, help="Do not begin, nor go on, beyond so many tokens.")
    ] = None,
) -> None:
    """Record 16 responses to each question, with token signals beside them, for `reasc replay`.

    Interrupt it whenever you like: the same command goes on where it stopped. Corrected labels and another --answer
    count for what is recorded already, without a new response.

    [bold]Examples[/]

    reasc record gsm8k.jsonl --out pool.sqlite --model qwen.gguf

    reasc record quiz.csv --out quiz.sqlite --model qwen.gguf --answer choice --limit 200

    reasc record gsm8k.jsonl --out pool.sqlite --model qwen.gguf --template "{question} Think step by step."

    reasc record gpqa_diamond.csv --out pool.sqlite --model qwen2.5.gguf --preset auto

    reasc record last-letters:500 --out letters.sqlite --model qwen2.5.gguf --preset auto

    reasc record gsm8k.jsonl --out pool.sqlite --url http://gpu1:8000 --url http://gpu2:8000 --model qwen

    reasc record gsm8k.jsonl --out pool.sqlite --url http://gpu1:8000 --model qwen --ray auto --ray-workers 8

    reasc record gsm8k.jsonl --out pool.sqlite --model-class langchain_openai.ChatOpenAI --model gpt-4o-mini
    --prices prices.json --dry-run
    """
    from langchain_reasc.data.questions import read_data_set
    from langchain_reasc.data.template import Template

    keep_apart(out, data)
    costs = Costs(prices, Limits(max_cost, max_tokens_total))
    fixed = read_template(template, system=system)
    found = read_data_set(data, format=format, question_field=question_field, answer_field=answer_field, limit=limit)
    asked = asking(preset, found.format, model=model, template=fixed, answer=answer, temperature=temperature)
    options: dict[str, Any] = {**asked.sampling, "max_tokens": max_tokens, "seed": seed}
    source: dict[str, Any] = {
        "urls": url,
        "key_variable": key_variable,
        "model_class": model_class,
        "model_kwargs": model_kwargs,
    }
    make_model = partial(open_model, model, **source, default_seed=0, **options)
    in_flight = concurrency or (8 if url else 1)
    workers = workers_on_ray(ray, count=ray_workers, concurrency=in_flight, make_model=make_model)
    with make_model() as chat_model:
        prompt = (asked.template or Template()).after(system)
        costs.expect(chat_model, found.questions, out, samples=samples, prompt=prompt, dry_run=dry_run)
        if dry_run:
            return
        with costs.told_in_the_end():
            record_with_progress(
                "Recording",
                chat_model,
                found.questions,
                out,
                samples=samples,
                answer=asked.answer,
                system=system,
                template=asked.template,
                concurrency=in_flight,
                workers=workers,
                costs=costs,
            )
    if (grader := found.format.grader) in ("alias", "math"):  # more than spelling counts
        remark(f"answers to {found.format.name} are compared by {grader}: reasc grade {out} --grader {grader}")
    remark(f"{out} is ready: reasc report {out} shows every method on it")


def record_with_progress(
    title: str,
    model: Any,
    questions: "Sequence[LabelledQuestion]",
    out: Path,
    *,
    samples: int,
    answer: str = "auto",
    system: str | None = None,
    template: "Template | None" = None,
    concurrency: int = 1,
    workers: "Workers | None" = None,
    check_first: "Callable[[Pool], None] | None" = None,
    costs: Costs | None = None,
) -> "Pool":
    """Record under a progress bar, after saying what makes this model's samples all the same, if anything does.

    Args:
        title: what stands beside the bar.
        model: see :func:`~langchain_reasc.pools.record.record_pool`, as for the others.
        questions: all questions.
        out: the pool.
        samples: how many to draw for each question.
        answer: where the answer is.
        system: a system message.
        template: what else stands around each question.
        concurrency: questions in flight at once.
        workers: what asks, where it is not this process.
        check_first: is given the pool as soon as it holds a question, before all the others are paid for.
        costs: counts what is drawn, and ends the recording where it has become too much.
    """
    from langchain_reasc.models.prepared import PreparedModel
    from langchain_reasc.pools.record import record_pool

    for notice in PreparedModel.of(model, logprobs=True).notices:
        remark(notice)
    notices: list[str] = []  # kept until the bar is gone
    try:
        with progress(title) as move:
            moved = _checking_first(move, out, check_first) if check_first else move
            pool = record_pool(
                model,
                questions,
                out,
                samples=samples,
                answer=answer,
                system=system,
                template=template,
                concurrency=concurrency,
                workers=costs.workers(concurrency, workers) if costs else workers,
                on_question=costs.watching(moved) if costs else moved,
                on_bill=costs.tally.add if costs else None,
                on_notice=notices.append,
            )
        if costs:
            costs.check()
        return pool
    except KeyboardInterrupt:
        remark(f"{out} holds what is done; the same command goes on from there")
        raise
    finally:
        for notice in notices:
            remark(notice)


def workers_on_ray(
    address: str | None, *, count: int | None, concurrency: int, make_model: Callable[[], Any]
) -> "Workers | None":
    """What ``--ray`` asks for; None without it.

    Args:
        address: of the cluster.
        count: how many workers.
        concurrency: questions that each has in flight.
        make_model: makes the model in each. A key is taken from the environment there, and not sent.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigurationError: workers are counted that nobody asked for.
    """
    if address is None:
        if count is not None:
            raise ConfigurationError("--ray-workers goes with --ray")
        return None
    from langchain_reasc.pools.on_ray import RayWorkers
    from langchain_reasc.pools.ray_cluster import import_ray

    import_ray()  # which may be missing, and is to be said before a model is loaded
    return RayWorkers(address=address, count=count or 2, concurrency=concurrency, make_model=make_model)


def _checking_first(
    move: Callable[[int, int], None], out: Path, check: "Callable[[Pool], None]"
) -> Callable[[int, int], None]:
    """Moves a bar; once the pool holds something, has it checked."""
    from langchain_reasc.pools.reading import read_pool
    from langchain_reasc.pools.store import PoolStore

    unchecked = [check]

    def moved(done: int, total: int) -> None:
        move(done, total)
        if unchecked and PoolStore.open(out).ids():
            unchecked.pop()(read_pool(out))

    return moved
