"""``reasc calibrate --unlabelled``: questions in, calibration.json out, and no right answer needed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from langchain_reasc.cli.console import progress, remark, stdout

if TYPE_CHECKING:
    from langchain_reasc.calibrating.pool_scores import MeasureSpec
    from langchain_reasc.calibration import Calibration
    from langchain_reasc.data import Template

__all__ = ["calibrate_without_labels", "explained_consensus"]


def calibrate_without_labels(
    model: Any,
    data: Path,
    out: Path,
    *,
    spec: "MeasureSpec",
    limit: int,
    answer: str,
    system: str | None,
    template: "Template | None",
    fields: Mapping[str, Any],
    seed: int,
    concurrency: int,
) -> None:
    """Ask the questions under a progress bar, save what was learned, and print it.

    Raises:
        ConfigurationError: the questions cannot be read, or the measure is that of a pool.
    """
    from langchain_reasc.calibrating import calibrate_unlabelled
    from langchain_reasc.calibration import save_calibration
    from langchain_reasc.data import Template, read_unlabelled
    from langchain_reasc.exceptions import ConfigurationError
    from langchain_reasc.models.prepared import PreparedModel

    out.parent.mkdir(parents=True, exist_ok=True)
    if spec == "recorded":
        raise ConfigurationError("--signal recorded goes with --pool: its scores are those of recorded responses")
    questions = read_unlabelled(data, limit=limit, **fields)
    prompt, checkpoint = (template or Template()).after(system), out.with_name(f"{out.name}.unfinished")
    for notice in PreparedModel.of(model, logprobs=True).notices:
        remark(notice)
    try:
        with progress("Calibrating") as move:
            calibration = calibrate_unlabelled(
                model,
                [(prompt.messages(question), right) for question, right in questions],
                answer=answer,
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
    save_calibration(calibration, out)
    console = stdout()
    for line in explained_consensus(
        calibration, asked=len(questions), known=sum(right is not None for _, right in questions)
    ):
        console.print(line, soft_wrap=True, markup=False)
    remark(f'wrote {out}; use it with ReASCRunnable(calibration="{out}", model=...), or reasc ask --calibration {out}')


def explained_consensus(calibration: "Calibration", *, asked: int, known: int) -> Iterator[str]:
    """What was learned without labels, in a few readable lines.

    Args:
        calibration: what was made of the questions.
        asked: how many questions there were.
        known: to how many of them the right answer was known.
    """
    left_out = f"; {asked - calibration.n} were left out" if calibration.n < asked else ""
    labels = f"the right answers to {known} of them" if known else "no right answer"
    yield from _said("Questions", f"{calibration.n}, with {labels}{left_out}")
    if calibration.measure is None:
        yield from _said("Measure", f"none, so answers are counted: {calibration.untrusted}")
    else:
        yield from _said("Measure", str(calibration.measure))
        if calibration.auroc and calibration.within:
            yield from _said(
                "",
                f"It tells responses that agree with the others from those that do not: AUROC "
                f"{calibration.auroc.value:.2f}, and {calibration.within.value:.2f} within a question",
            )
        yield from _said("Scores", f"mean {calibration.mean:.4g}, standard deviation {calibration.std:.4g}")
    if calibration.guarantee:
        yield from _said("Promise", calibration.guarantee)
    if curve := calibration.p_agree:
        (low, lowest), (high, highest) = curve.points[0], curve.points[-1]
        yield from _said(
            "P(agree)",
            f"{lowest:.2f} where {low:.0%} of the votes support the answer, {highest:.2f} where {high:.0%} do: how "
            "likely further responses agree with it, which is not how likely it is right",
        )
    yield from _said("In use", "sampling stops as soon as the answer is unlikely to change, were all responses drawn")


def _said(name: str, text: str) -> list[str]:
    """A line with its name before it, folded into a column."""
    return wrap(text, 79, initial_indent=f"{name:13}", subsequent_indent=" " * 13, break_on_hyphens=False)
