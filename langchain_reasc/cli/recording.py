"""Recording as commands do it: under a progress bar, within its limits, here or on other machines."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_reasc.cli.console import progress, remark
from langchain_reasc.cli.costs import Costs
from langchain_reasc.exceptions import ConfigurationError

if TYPE_CHECKING:
    from langchain_reasc.data.questions import LabelledQuestion
    from langchain_reasc.data.template import Template
    from langchain_reasc.pools.pool import Pool
    from langchain_reasc.pools.record import Workers

__all__ = ["record_with_progress", "workers_on_ray"]


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
