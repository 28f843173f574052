"""``reasc replay``: every method on the same recorded responses."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from langchain_reasc.cli.checks import all_signals, one_of, picture
from langchain_reasc.cli.console import print_json, progress, remark, stdout
from langchain_reasc.cli.options import AsJson, PoolPath, PTarget, Score, Seed, Window, measure_spec

if TYPE_CHECKING:
    from langchain_reasc.evaluation.metrics import Row
    from langchain_reasc.evaluation.replay import Replay
    from langchain_reasc.evaluation.scoring import MeasureSpec
    from langchain_reasc.pools.pool import Pool

__all__ = ["measures_for", "replay", "show"]

SignalChoice = Annotated[
    str | None,
    typer.Option(
        help="Token signal behind ReASC; auto chooses signal, score and window on the calibration questions, recorded "
        r"takes the pool's own scores. \[default: auto where the pool has signals, else recorded]"
    ),
]
AllSignals = Annotated[
    str | None,
    typer.Option(
        "--signals", metavar="all", help="all: rows for auto and for every signal of the pool.", callback=all_signals
    ),
]


def replay(
    pool: PoolPath,
    as_json: AsJson = False,
    shuffles: Annotated[int, typer.Option(min=0, help="Rearrange the pool this often; 0: recorded order.")] = 0,
    seed: Seed = 0,
    calibration_size: Annotated[int, typer.Option(min=2, help="Questions whose first response calibrates.")] = 128,
    calibration_responses: Annotated[
        int, typer.Option(min=1, help="Responses known of each: several show whether votes may be weighed.")
    ] = 1,
    signal: SignalChoice = None,
    signals: AllSignals = None,
    score: Score = "bottom_group",
    window: Window = 128,
    p_target: PTarget = 0.9,
    max_samples: Annotated[int, typer.Option(min=1, help="Budget of every method.")] = 16,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls", help="Rows of ASC at the cost of ReASC's, and with 4 samples at once; how good P(correct) is."
        ),
    ] = False,
    rules: Annotated[
        str,
        typer.Option(
            metavar="usual|all",
            help="all: rows of every other rule of the library as well.",
            callback=one_of("usual", "all"),
        ),
    ] = "usual",
    parameters: Annotated[
        float | None, typer.Option(metavar="N", help="Parameters of the model, for TFLOPs (2N per token).")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw accuracy against tokens.", callback=picture)
    ] = None,
    risk: Annotated[
        Path | None,
        typer.Option(
            "--plot-risk",
            metavar="PNG",
            help="Draw which share of answers is wrong where the unlikely ones are left out.",
            callback=picture,
        ),
    ] = None,
) -> None:
    """Compare pass@1, SC, ESC, ASC and ReASC on recorded responses, without the model.

    In recorded order, ReASC calibrates on the first responses to the first 128 questions, and all methods are compared
    on the rest. With --shuffles, questions and responses are rearranged and results averaged. A pool without scores or
    token signals compares the methods that count votes, on all its questions.

    [bold]Examples[/]

    reasc replay pool.sqlite

    reasc replay pool.sqlite --shuffles 30 --signals all

    reasc replay pool.sqlite --rules all

    reasc replay pool.sqlite --signal token_logprob --score mean --json > result.json
    """
    from langchain_reasc.pools.reading import read_pool

    if signals and signal:
        raise typer.BadParameter("--signals all has a row for every signal; leave out --signal")
    if signal is not None:
        measure_spec(signal, score, window)
    recorded = read_pool(pool)
    measures = measures_for(recorded, signal=signal, signals=signals, score=score, window=window)
    run, rows = run_replay(
        recorded,
        measures,
        shuffles=shuffles,
        seed=seed,
        calibration_size=calibration_size,
        calibration_responses=calibration_responses,
        max_samples=max_samples,
        p_target=p_target,
        controls=controls,
        rules=cast(Literal["usual", "all"], rules),
        parameters=parameters,
    )
    show(run, rows, as_json=as_json)
    if plot is not None:
        from langchain_reasc.evaluation.plots import plot_tradeoff

        remark(f"wrote {plot_tradeoff(rows, plot)}")
    if risk is not None:
        from langchain_reasc.evaluation.plots import plot_risk

        remark(f"wrote {plot_risk(rows, risk)}")


def run_replay(
    pool: "Pool",
    measures: "list[MeasureSpec]",
    *,
    shuffles: int,
    seed: int,
    calibration_size: int,
    calibration_responses: int = 1,
    max_samples: int = 16,
    p_target: float = 0.9,
    controls: bool = False,
    rules: Literal["usual", "all"] = "usual",
    parameters: float | None = None,
) -> "tuple[Replay, list[Row]]":
    """Replay with a progress bar, and sum up."""
    from langchain_reasc.evaluation.methods import MethodSettings
    from langchain_reasc.evaluation.metrics import summarize
    from langchain_reasc.evaluation.replay import replay as run_all

    settings = MethodSettings(
        max_samples=max_samples, p_target=p_target, seed=seed, calibration_responses=calibration_responses
    )
    with progress("Replaying", quiet=shuffles < 2) as move:
        run = run_all(
            pool,
            measures,
            shuffles=shuffles,
            seed=seed,
            calibration_size=calibration_size,
            settings=settings,
            controls=controls,
            rules=rules,
            on_progress=move,
        )
    return run, summarize(run, parameters=parameters)


def measures_for(
    pool: "Pool", *, signal: str | None, signals: str | None, score: str, window: int
) -> "list[MeasureSpec]":
    """The measures to replay; none where the pool has neither signals nor scores and none was asked for."""
    from langchain_reasc.method.confidence import Measure

    held = pool.signals.names if pool.signals else ()
    if signals:
        return (
            ["auto", *(Measure(name, score, window) for name in held)]
            if held
            else measures_for(pool, signal="recorded", signals=None, score=score, window=window)
        )
    if signal is None:
        if not held and not pool.has_scores:
            return []
        signal = "auto" if held else "recorded"
    return [measure_spec(signal, score, window)]


def show(run: "Replay", rows: "list[Row]", *, as_json: bool) -> None:
    """Print a replay for a person or a program."""
    if as_json:
        from langchain_reasc.evaluation.report import as_data

        print_json(as_data(run, rows))
    else:
        from langchain_reasc.evaluation.table import print_comparison

        print_comparison(run, rows, stdout())
