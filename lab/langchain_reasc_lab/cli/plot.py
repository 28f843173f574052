"""``reasc plot``: draw what a calibration, or a file of rows, knows."""

from pathlib import Path
from typing import Annotated

import typer

from langchain_reasc.cli.console import remark
from langchain_reasc.cli.inspect import is_store
from langchain_reasc_lab.cli.options import picture


def plot(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A calibration, or a store of calibration='online'."
        ),
    ],
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="The .svg or .png to write.", callback=picture
        ),
    ],
) -> None:
    """Draw what a calibration, or a store of online learning, knows. `reasc inspect`
    says the same in words.

    [bold]Examples[/]

    reasc plot calibration.json calibration.svg

    reasc plot online.sqlite online.png
    """
    from langchain_reasc.calibration import Learner, ObservationStore, load_calibration
    from langchain_reasc_lab.report.learned import draw_learned

    if is_store(path):
        store = ObservationStore.open(path)
        calibration = Learner.from_store(store).calibration
        measure = calibration.measure if calibration else None
        figure = draw_learned(
            calibration, [*store.observations([measure] if measure else [])]
        )
    else:
        figure = draw_learned(load_calibration(path))
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    remark(f"wrote {out}")
