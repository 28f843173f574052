"""``reasc record``: keep a model's responses as a pool."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_reasc.cli.checks import keep_apart, output_file
from langchain_reasc.cli.console import progress, remark
from langchain_reasc.cli.models import open_model
from langchain_reasc.cli.options import (
    AnswerField,
    AnswerSpec,
    Concurrency,
    Data,
    KeyVariable,
    MaxTokens,
    Model,
    QuestionField,
    Ray,
    RayCount,
    Seed,
    System,
    Temperature,
    TemplateText,
    Urls,
    read_template,
)
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
    samples: Annotated[int, typer.Option(min=1, help="Responses per question.")] = 16,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many questions.")] = None,
    system: System = None,
    template: TemplateText = None,
    answer: AnswerSpec = "auto",
    question_field: QuestionField = None,
    answer_field: AnswerField = None,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    seed: Seed = 0,
    concurrency: Concurrency = None,
    ray: Ray = None,
    ray_workers: RayCount = None,
) -> None:
    """Record 16 responses to each question, with token signals beside them, for `reasc replay`.

    Interrupt it whenever you like: the same command goes on where it stopped. Corrected labels and another --answer
    count for what is recorded already, without a new response.

    [bold]Examples[/]

    reasc record gsm8k.jsonl --out pool.sqlite --model qwen.gguf

    reasc record quiz.csv --out quiz.sqlite --model qwen.gguf --answer choice --limit 200

    reasc record gsm8k.jsonl --out pool.sqlite --model qwen.gguf --template "{question} Think step by step."

    reasc record gsm8k.jsonl --out pool.sqlite --url http://gpu1:8000 --url http://gpu2:8000 --model qwen

    reasc record gsm8k.jsonl --out pool.sqlite --url http://gpu1:8000 --model qwen --ray auto --ray-workers 8
    """
    from langchain_reasc.data.questions import read_questions

    keep_apart(out, data)
    fixed = read_template(template, system=system)
    questions = read_questions(data, question_field=question_field, answer_field=answer_field, limit=limit)
    options = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
    make_model = partial(open_model, model, urls=url, key_variable=key_variable, **options)
    in_flight = concurrency or (8 if url else 1)
    workers = workers_on_ray(ray, count=ray_workers, concurrency=in_flight, make_model=make_model)
    with make_model() as chat_model:
        record_with_progress(
            "Recording",
            chat_model,
            questions,
            out,
            samples=samples,
            answer=answer,
            system=system,
            template=fixed,
            concurrency=in_flight,
            workers=workers,
        )
    remark(f"{out} is ready: reasc replay {out}")


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
    """
    from langchain_reasc.models.prepared import PreparedModel
    from langchain_reasc.pools.record import record_pool

    for notice in PreparedModel.of(model, logprobs=True).notices:
        remark(notice)
    notices: list[str] = []  # kept until the bar is gone
    try:
        with progress(title) as move:
            return record_pool(
                model,
                questions,
                out,
                samples=samples,
                answer=answer,
                system=system,
                template=template,
                concurrency=concurrency,
                workers=workers,
                on_question=_checking_first(move, out, check_first) if check_first else move,
                on_notice=notices.append,
            )
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
