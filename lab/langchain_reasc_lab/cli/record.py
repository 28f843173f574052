"""``reasc record``: keep a model's responses as a pool."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from langchain_reasc.cli.console import remark
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
    QuestionField,
    System,
    Temperature,
    TemplateText,
    Urls,
    keep_apart,
    output_file,
    prompting,
    read_template,
)
from langchain_reasc.cli.recording import record_with_progress
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_lab.cli.options import Data, ModelSeed, Prices, Ray, RayCount

__all__ = ["record"]


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
    from langchain_reasc.data import Template, read_data_set
    from langchain_reasc_lab.cli.budget import Budget

    keep_apart(out, data)
    budget = Budget(prices, max_cost, max_tokens_total)
    fixed = read_template(template, system=system)
    found = read_data_set(data, format=format, question_field=question_field, answer_field=answer_field, limit=limit)
    how = prompting(preset, found.format, model=model, template=fixed, answer=answer, temperature=temperature)
    options: dict[str, Any] = {**how.sampling, "max_tokens": max_tokens, "seed": seed}
    source: dict[str, Any] = {
        "urls": url,
        "key_variable": key_variable,
        "model_class": model_class,
        "model_kwargs": model_kwargs,
    }
    make_model = partial(open_model, model, **source, default_seed=0, **options)
    in_flight = concurrency or (8 if url else 1)
    workers = None
    if ray is not None:
        from langchain_reasc_lab.pools.ray_workers import RayWorkers, import_ray

        import_ray()  # a missing one is reported before a model is loaded
        # Each worker makes the model; a key is taken from the environment there, and not sent.
        workers = RayWorkers(ray, ray_workers or 2, in_flight, make_model=make_model)
    elif ray_workers is not None:
        raise ConfigurationError("--ray-workers goes with --ray")
    with make_model() as chat_model:
        prompt = (how.template or Template()).after(system)
        budget.expect(chat_model, found.questions, out, samples=samples, prompt=prompt, dry_run=dry_run)
        if dry_run:
            return
        with budget.billed():
            record_with_progress(
                "Recording",
                chat_model,
                found.questions,
                out,
                samples=samples,
                answer=how.answer,
                system=system,
                template=how.template,
                workers=budget.limited(in_flight, workers),
                on_drawn=budget.add,
                on_question=budget.watch,
            )
            budget.check()
    if (grader := found.format.grader) in ("alias", "math"):  # more than spelling counts
        remark(f"answers to {found.format.name} are compared by {grader}: reasc grade {out} --grader {grader}")
    remark(f"{out} is ready: reasc report {out} shows every method on it")
