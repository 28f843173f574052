"""``reasc report``: make the paper's tables and figures of recorded responses."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from langchain_reasc.cli.console import json_text, print_json, progress, remark, stdout
from langchain_reasc.cli.options import output_file
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_lab.cli.options import ComparisonOptions, text_output

if TYPE_CHECKING:
    from langchain_reasc_lab.pools import Pool


def _page(path: Path | None) -> Path | None:
    """Check that a page with figures can be written.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    if path is None:
        return None
    from langchain_reasc_lab.replay.plots import empty_figure

    empty_figure(1, 1)
    return output_file(path)


def report(
    pools: Annotated[
        list[Path],
        typer.Argument(metavar="POOL", help="Recorded pools, shown side by side."),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.md",
            help="A Markdown page; figures and all data as CSV are in the folder FILE-figures beside it.",
            callback=_page,
        ),
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|-",
            help="Everything as JSON; -: to stdout.",
            callback=text_output,
        ),
    ] = None,
    shuffles: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Rearrange each pool this often; 0: recorded order. "
            r"\[default: 10; 0 where other pools calibrate]",
        ),
    ] = None,
    options: ComparisonOptions,
    parameters: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Parameters of the model, for TFLOPs (2N per token).",
        ),
    ] = None,
    tokens_per_second: Annotated[
        float | None,
        typer.Option(
            metavar="R", min=1e-9, help="Rate of one sequence, for latencies."
        ),
    ] = None,
) -> None:
    """Make the paper's tables and figures of your own recorded responses.

    Without --out and --json, tables are printed. What a pool cannot tell leaves a
    sentence in its place.

    [bold]Examples[/]

    reasc report pool.sqlite

    reasc report small.sqlite large.sqlite --out report.md --json report.json
    """
    from langchain_reasc_lab.report import (
        Study,
        StudySettings,
        make_report,
        print_report,
        report_data,
        write_report,
        write_text,
    )

    _check_outputs([path for path in (out, json) if path is not None], pools)
    options.check()
    recorded = _read(pools, options)
    if shuffles is None:
        shuffles = (
            0
            if all(pool.calibrating for pool in recorded)
            else StudySettings().shuffles
        )
    settings = StudySettings(
        shuffles=shuffles,
        calibration_size=options.calibration_size,
        seed=options.seed,
        methods=options.settings(recorded),
        parameters=parameters,
        tokens_per_second=tokens_per_second,
    )
    studies = [
        Study(name, pool, next(iter(options.measures(pool)), None), settings)
        for name, pool in zip(_names(pools), recorded, strict=True)
    ]
    with progress("Tables and figures") as move:
        made = make_report(studies, on_progress=move)
    if out is not None:
        write_report(made, out)
        remark(f"wrote {out}")
    if json == Path("-"):
        print_json(report_data(made))
    elif json is not None:
        write_text(json, json_text(report_data(made)))
        remark(f"wrote {json}")
    elif out is None:
        print_report(made, stdout())


def _read(paths: Sequence[Path], options: ComparisonOptions) -> "list[Pool]":
    """Read the pools, each with the pool that calibrates it.

    Raises:
        ConfigurationError: the same pool twice.
        PoolError: one of them cannot be read.
    """
    seen: dict[Path, Path] = {}
    for path in paths:
        first = seen.setdefault(path.resolve(), path)
        if first is not path:
            raise ConfigurationError(
                f"{path} is the pool {first} again; name each pool once"
            )
    return [options.read(path) for path in paths]


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the files' names without ending, with as many folders before them as make
    them different.
    """
    parts = [path.resolve().with_suffix("").parts for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(folders[-depth:]) for folders in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]  # they differ in their endings alone


def _check_outputs(outputs: Sequence[Path], pools: Sequence[Path]) -> None:
    files = [path.resolve() for path in outputs]
    if len(set(files)) < len(files):
        raise typer.BadParameter(
            f"{outputs[0]} is named for two outputs; name another file for one of them"
        )
    for path in outputs:
        if path.resolve() in [pool.resolve() for pool in pools]:
            raise typer.BadParameter(
                f"{path} is a pool that is read, and would be lost; name another file"
            )
