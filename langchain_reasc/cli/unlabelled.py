"""``reasc calibrate --unlabelled``: questions in, calibration.json out, and no right answer needed."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_reasc.cli.console import progress, remark, stdout

if TYPE_CHECKING:
    from langchain_reasc.calibration import Calibration
    from langchain_reasc.evaluation.scoring import MeasureSpec
    from langchain_reasc.evaluation.template import Template

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
    question_field: str | None,
    answer_field: str | None,
    seed: int,
    concurrency: int,
) -> None:
    """Ask the questions under a progress bar, save what was learned, and print it.

    Raises:
        ConfigurationError: the questions cannot be read, or the measure is that of a pool.
    """
    from langchain_reasc.calibration import save_calibration
    from langchain_reasc.evaluation.questions import read_unlabelled
    from langchain_reasc.evaluation.template import Template
    from langchain_reasc.exceptions import ConfigurationError
    from langchain_reasc.models.prepared import PreparedModel
    from langchain_reasc.runnable import calibrate_unlabelled

    if spec == "recorded":
        raise ConfigurationError("--signal recorded goes with --pool: its scores are those of recorded responses")
    questions = read_unlabelled(data, question_field=question_field, answer_field=answer_field, limit=limit)
    prompt = (template or Template()).after(system)
    for notice in PreparedModel.of(model, logprobs=True).notices:
        remark(notice)
    with progress("Calibrating") as move:
        calibration = calibrate_unlabelled(
            model,
            [(prompt.messages(question), right) for question, right in questions],
            answer=answer,
            fixed_prompt=prompt.fixed,
            measure="auto" if spec == "auto" else spec,
            concurrency=concurrency,
            seed=seed,
            progress=move,
        )
    out.parent.mkdir(parents=True, exist_ok=True)
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
    yield f"Questions    {calibration.n}, with {labels}{left_out}"
    if calibration.measure is None:
        yield "Measure      none: only how often answers come up counts, not how sure the"
        yield "             model seems of them"
    else:
        yield f"Measure      {calibration.measure}"
        yield "             It tells responses that agree with the others from those that"
        yield "             do not."
        yield f"Scores       mean {calibration.mean:.4g}, standard deviation {calibration.std:.4g}"
    if calibration.fallback:
        yield f"Safeguard    a live run counts votes (ASC) instead: {calibration.fallback}"
    yield "In use       sampling stops as soon as the answer is unlikely to change, were"
    yield "             all responses drawn. Responses that agree can be wrong together:"
    yield "             with right answers (reasc calibrate DATA) it would know how often."
