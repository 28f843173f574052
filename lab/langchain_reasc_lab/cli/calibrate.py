"""``reasc pool calibrate``: make a calibration file from recorded responses."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from langchain_reasc.cli.calibrate import sampled, save
from langchain_reasc.cli.console import ending, remark
from langchain_reasc.cli.options import (
    CalibrationMethod,
    PTarget,
    Score,
    Seed,
    Window,
    keep_apart,
    output_file,
)
from langchain_reasc_lab.cli.options import PoolPath, pool_measure

if TYPE_CHECKING:
    from langchain_reasc_lab.pools import Pool, PoolQuestion

_SHOWN: Final = 3  # examples


def calibrate(
    pool: PoolPath,
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="The calibration to write.", callback=output_file
        ),
    ] = Path("calibration.json"),
    signal: Annotated[
        str,
        typer.Option(
            help="Token signal; auto chooses signal, score and window by cross-validation, recorded takes the pool's "
            "own scores."
        ),
    ] = "auto",
    score: Score = "bottom_group",
    window: Window = 128,
    method: CalibrationMethod = None,
    p_target: PTarget = 0.9,
    limit: Annotated[
        int, typer.Option(min=2, help="Questions to calibrate on, taken at random.")
    ] = 128,
    seed: Seed = 0,
) -> None:
    """Make a calibration from recorded responses, as `reasc calibrate` makes one from a model's.

    Other signals, corrected labels and other graders can be tried without the model.

    [bold]Examples[/]

    reasc pool calibrate pool.sqlite

    reasc pool calibrate pool.sqlite --signal token_logprob --score mean --out calibration.json
    """
    from langchain_reasc_lab.pools import calibrate_on_pool, read_pool

    keep_apart(out, pool)
    measure, recorded = (
        pool_measure(signal, score, window),
        read_pool(pool, ungraded=True),
    )
    chosen = sampled(recorded.questions, limit, seed)
    right = [question.responses[0].correct for question in chosen]
    if not any(right) and any(one is not None for one in right):
        _remark_none_right(recorded, chosen)
    if measure == "auto" and recorded.signals is None:
        own = "; --signal recorded takes its own scores" if recorded.has_scores else ""
        remark(
            f"{pool} has no token signals: calibrated by how answers agree, and no "
            f"vote is weighed{own}"
        )
    only = [question.id for question in chosen]
    calibration = calibrate_on_pool(
        recorded,
        measure,
        method="paper" if method else None,
        p_target=p_target,
        seed=seed,
        only=only,
    )
    save(
        calibration.as_in_paper() if method == "paper" else calibration,
        out,
        asked_by="reasc record",
    )


def _remark_none_right(pool: "Pool", questions: "Sequence[PoolQuestion]") -> None:
    """Show answers beside labels: the answers may be looked for in the wrong place, or
    the labels may be wrong.
    """
    remark(
        f"none of the {len(questions)} first responses is right; if the answer is "
        "looked for in the wrong place, `reasc record` with another --answer finds it "
        "again, and with another --answer-field it corrects the labels:"
    )
    for question in questions[:_SHOWN]:
        text = pool.texts(question.id)[0]
        end = "" if text is None else f", in a response that ends {ending(text)}"
        remark(
            f"  label {question.reference!r}, answer "
            f"{question.responses[0].answer!r}{end}"
        )
