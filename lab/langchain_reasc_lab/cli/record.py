"""``reasc record``: record a model's responses as a pool."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_reasc.cli.console import progress, remark
from langchain_reasc.cli.models import ModelOptions
from langchain_reasc.cli.options import Concurrency, keep_apart, output_file
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_lab.cli.options import FormatOptions, PresetOptions

if TYPE_CHECKING:
    from langchain_reasc_lab.pools import DrawnQuestion, Pool


def record(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Questions with answers: .jsonl, .json, .csv, .tsv (or .gz of these), .parquet; last-letters:500, "
            r"made from names; hf:OWNER/NAME\[:CONFIG]/SPLIT, from the Hugging Face Hub. Or .txt, a question a line.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="POOL",
            help="The pool to write, or to continue.",
            callback=output_file,
        ),
    ],
    *,
    source: ModelOptions,
    samples: Annotated[int, typer.Option(min=1, help="Responses per question.")] = 16,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many questions.")
    ] = None,
    asking: PresetOptions,
    fields: FormatOptions,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help=r"Seed of the samples: the same one draws the same. \[default: 0]",
        ),
    ] = None,
    concurrency: Concurrency = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Let workers on Ray ask: local starts some here, auto joins this machine's cluster, HOST:PORT one.",
        ),
    ] = None,
    ray_workers: Annotated[
        int | None,
        typer.Option(min=1, help=r"Workers; each has --concurrency. \[default: 2]"),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(help="Print how many tokens it is expected to take, and stop."),
    ] = False,
    max_tokens_total: Annotated[
        int | None,
        typer.Option(min=1, help="Do not begin, nor go on, beyond so many tokens."),
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
    --max-tokens-total 1000000 --dry-run
    """
    from langchain_reasc_lab.cli.budget import Budget
    from langchain_reasc_lab.data import read_data_set

    keep_apart(out, data)
    budget = Budget(max_tokens_total)
    found = read_data_set(data, limit=limit, **vars(fields))
    how = asking.prompting(source.model, found.format)
    make_model = partial(source.open, **how.sampling, seed=seed, default_seed=0)
    in_flight, workers = source.in_flight(concurrency), None
    if ray is not None:
        from langchain_reasc_lab.pools.ray_workers import RayWorkers, import_ray

        import_ray()  # a missing one is reported before a model is loaded
        # Each worker makes the model; a key is taken from the environment there, and
        # not sent.
        workers = RayWorkers(ray, ray_workers or 2, in_flight, make_model=make_model)
    elif ray_workers is not None:
        raise ConfigurationError("--ray-workers goes with --ray")
    with make_model() as model:
        budget.expect(
            model,
            found.questions,
            out,
            samples=samples,
            prompt=how.prompt,
            dry_run=dry_run,
        )
        if dry_run:
            return
        with budget.counted():
            record_with_progress(
                "Recording",
                model,
                found.questions,
                out,
                samples=samples,
                answer=how.answer,
                system=asking.system,
                template=how.template,
                workers=budget.limited(in_flight, workers),
                on_drawn=_warning_at_first(budget.add),
                on_question=budget.watch,
            )
            budget.check()
    if (grader := found.format.grader) in (
        "alias",
        "math",
    ):  # more than spelling counts
        remark(
            f"answers to {found.format.name} are compared by {grader}: reasc grade "
            f"{out} --grader {grader}"
        )
    if not any(question.references for question in found.questions):
        adds = f"reasc grade {out} --grader exact --data FILE"
        remark(
            f"{out} has no right answers: reasc pool calibrate {out} needs none, and "
            f"{adds} adds them"
        )
        return
    remark(f"{out} is ready: reasc report {out} shows every method on it")


def _warning_at_first(
    add: "Callable[[DrawnQuestion], None]",
) -> "Callable[[DrawnQuestion], None]":
    """Return ``add`` with a remark, before the rest is paid for, if the first question
    has no log-probabilities.
    """
    is_first = True

    def add_drawn(drawn: "DrawnQuestion") -> None:
        nonlocal is_first
        if is_first and not any(response.reading for response in drawn.responses):
            _remark_missing_logprobs()
        is_first = False
        add(drawn)

    return add_drawn


def _remark_missing_logprobs() -> None:
    from langchain_reasc_lab.report import CONTENTS

    lost = ", ".join(entry.name for entry in CONTENTS if not entry.by_votes)
    remark(
        "the responses come without log-probabilities, so no vote is weighed by "
        f"confidence, and `reasc report` lacks {lost}; `reasc probe URL` shows whether "
        "a server gives any"
    )


def record_with_progress(
    title: str,
    model: Any,
    questions: Any,
    out: Path,
    *,
    on_question: Callable[[int, int], None] = lambda done, total: None,
    **options: Any,
) -> "Pool":
    """Record under a progress bar; print first what makes this model's samples all the
    same, if anything does.

    Args:
        title: the text beside the bar.
        model: as for :func:`~langchain_reasc_lab.pools.record_pool`.
        questions: likewise.
        out: the pool.
        on_question: called after the bar has moved.
        options: of :func:`~langchain_reasc_lab.pools.record_pool`.
    """
    from langchain_reasc.models.prepared import prepare_model
    from langchain_reasc_lab.pools import record_pool

    for notice in prepare_model(model, logprobs=True).notices:
        remark(notice)
    notices: list[str] = []  # printed when the bar is gone
    try:
        with progress(title) as move:

            def moved(done: int, total: int) -> None:
                move(done, total)
                on_question(done, total)

            return record_pool(
                model,
                questions,
                out,
                on_question=moved,
                on_notice=notices.append,
                **options,
            )
    except KeyboardInterrupt:
        remark(f"{out} holds what is done; the same command goes on from there")
        raise
    finally:
        for notice in notices:
            remark(notice)
