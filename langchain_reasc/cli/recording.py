"""Recording a pool under a progress bar."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_reasc.cli.console import progress, remark

if TYPE_CHECKING:
    from langchain_reasc.pools import Pool

__all__ = ["record_with_progress"]


def record_with_progress(
    title: str,
    model: Any,
    questions: Any,
    out: Path,
    *,
    on_question: Callable[[int, int], None] = lambda done, total: None,
    **options: Any,
) -> "Pool":
    """Record under a progress bar; print first what makes this model's samples all the same, if anything does.

    Args:
        title: the text beside the bar.
        model: as for :func:`~langchain_reasc.pools.record_pool`.
        questions: likewise.
        out: the pool.
        on_question: called after the bar has moved.
        options: of :func:`~langchain_reasc.pools.record_pool`.
    """
    from langchain_reasc.models.prepared import PreparedModel
    from langchain_reasc.pools import record_pool

    for notice in PreparedModel.of(model, logprobs=True).notices:
        remark(notice)
    notices: list[str] = []  # printed when the bar is gone
    try:
        with progress(title) as move:

            def moved(done: int, total: int) -> None:
                move(done, total)
                on_question(done, total)

            return record_pool(model, questions, out, on_question=moved, on_notice=notices.append, **options)
    except KeyboardInterrupt:
        remark(f"{out} holds what is done; the same command goes on from there")
        raise
    finally:
        for notice in notices:
            remark(notice)
