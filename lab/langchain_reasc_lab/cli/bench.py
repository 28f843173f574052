"""``reasc bench``: every rule on every recording of a folder."""

from pathlib import Path
from typing import Annotated

import typer

from langchain_reasc.cli.console import print_json, print_lines, progress, remark
from langchain_reasc.cli.options import AsJson, Seed
from langchain_reasc.exceptions import PoolError
from langchain_reasc_lab.cli.options import picture


def bench(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Recordings: .jsonl, .jsonl.gz, and pools of `reasc record`.",
        ),
    ],
    *,
    as_json: AsJson = False,
    shuffles: Annotated[
        int, typer.Option(min=0, help="Rearrange each this often; 0: recorded order.")
    ] = 10,
    seed: Seed = 0,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="PNG",
            help="Draw tokens and points of each recording beside always asking.",
            callback=picture,
        ),
    ] = None,
) -> None:
    """Compare rules on every recording of a folder, without a model.

    Of each recording, the table says whether votes help at all, and what each rule
    would have spent and lost, beside simple ones: three votes (SC@3), a lead of two or
    three, and the default rule at a confidence of 0.9. ReASC by confidence has rows
    where a recording has scores or token signals; up to 128 questions, at most half,
    then calibrate. At most 16 responses to a question are used. At the end are all
    recordings in numbers; recordings that share questions, by text or by id, count as
    one set of questions. `reasc pool import --source` makes recordings of public
    repositories.

    [bold]Examples[/]

    reasc bench recordings/

    reasc bench recordings/ --plot bench.png --json > bench.json
    """
    from langchain_reasc_lab.replay.recordings import recordings_in, replay_recordings
    from langchain_reasc_lab.replay.recordings_summary import recordings_as_data
    from langchain_reasc_lab.replay.recordings_table import table_lines

    with progress("Replaying recordings") as move:
        results, left_out = replay_recordings(
            recordings_in(folder), shuffles=shuffles, seed=seed, on_progress=move
        )
    if as_json:
        print_json(recordings_as_data(results, left_out, shuffles=shuffles, seed=seed))
    else:
        print_lines(table_lines(results, left_out, shuffles=shuffles, seed=seed))
    if not results:
        raise PoolError(f"none of the files in {folder} could be compared")
    if plot is not None:
        from langchain_reasc_lab.replay.plots import draw_recordings, save_figure

        remark(f"wrote {save_figure(draw_recordings(results), plot)}")
