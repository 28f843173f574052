"""Options of the laboratory's commands that several share, and their checks."""

from pathlib import Path
from typing import Annotated

import typer

from langchain_reasc.cli.options import output_file

__all__ = [
    "AllSignals",
    "CalibrationPool",
    "CalibrationSize",
    "MaxSamples",
    "PoolPath",
    "Prices",
    "picture",
    "text_output",
]


def text_output(path: Path | None) -> Path | None:
    """Check that a file can be written; ``-`` is stdout."""
    return path if path == Path("-") else output_file(path)


def picture(path: Path | None) -> Path | None:
    """Check that a picture can be drawn.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    if path is None:
        return None
    from langchain_reasc_lab.replay.plots import picture_formats

    formats = picture_formats()
    if path.suffix.lower().removeprefix(".") not in formats:
        raise typer.BadParameter(
            f"{path} is no picture that can be drawn; its name ends in one of .{', .'.join(formats)}"
        )
    return output_file(path)


def _all(value: str | None) -> str | None:
    if value not in (None, "all"):
        raise typer.BadParameter(f"takes 'all', got {value!r}")
    return value


AllSignals = Annotated[
    str | None,
    typer.Option(
        "--signals", metavar="all", help="all: rows for auto and for every signal of the pool.", callback=_all
    ),
]
Prices = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help='What a million tokens cost: JSON such as {"currency": "USD", "models": {"gpt-4o-mini": {"input": 0.15, '
        '"output": 0.6}}}, or the same as .toml; cached, cache_write and reasoning may be there, too.',
    ),
]
CalibrationPool = Annotated[
    Path | None,
    typer.Option(
        metavar="POOL",
        help="A pool of other questions, whose first responses calibrate. "
        r"\[default: calibration-pool.sqlite beside POOL, where there is one and --calibration-size is not given]",
    ),
]
CalibrationSize = Annotated[
    int | None,
    typer.Option(
        min=2,
        help="Questions of POOL itself whose first response calibrates, and which are not tested. "
        r"\[default: 128, without a calibration pool]",
    ),
]
MaxSamples = Annotated[
    int | None,
    typer.Option(min=1, help=r"Budget of every method. \[default: 16, or as many as the pool has of each question]"),
]
PoolPath = Annotated[Path, typer.Argument(metavar="POOL", help="A recorded pool.")]
