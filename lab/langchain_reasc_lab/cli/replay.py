"""``reasc replay``: run every method on the same recorded responses."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_reasc.cli.console import print_json, progress, remark, stdout
from langchain_reasc.cli.options import AsJson, one_of
from langchain_reasc_lab.cli.escalation import EscalationOptions
from langchain_reasc_lab.cli.options import (
    AllSignals,
    ComparisonOptions,
    PoolPath,
    picture,
)

if TYPE_CHECKING:
    from langchain_reasc_lab.pools import MeasureSpec, Pool
    from langchain_reasc_lab.replay.metrics import Row
    from langchain_reasc_lab.replay.replay import Replay


def replay(
    pool: PoolPath,
    *,
    as_json: AsJson = False,
    shuffles: Annotated[
        int,
        typer.Option(min=0, help="Rearrange the pool this often; 0: recorded order."),
    ] = 0,
    options: ComparisonOptions,
    calibration_responses: Annotated[
        int,
        typer.Option(
            min=1,
            help="Responses known of each calibration question: the default rule needs several.",
        ),
    ] = 4,
    signals: AllSignals = None,
    controls: Annotated[
        bool,
        typer.Option(
            help="Rows of ASC at the cost of ReASC's, and with 4 samples at once; how good P(correct) is."
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
        float | None,
        typer.Option(
            metavar="N", help="Parameters of the model, for TFLOPs (2N per token)."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="PNG", help="Draw accuracy against tokens.", callback=picture
        ),
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
    escalation: EscalationOptions,
) -> None:
    """Compare ReASC and other methods on recorded responses, without the model.

    In recorded order, ReASC calibrates on the first responses to the first 128
    questions, or to half of fewer than 256, and all methods are compared on the rest;
    or on all, where another pool calibrates, as beside the demo's test pool. With
    --shuffles, questions and responses are rearranged and results averaged. A pool
    without scores or token signals, or of fewer than 32 questions, compares the methods
    that need no calibration, on all its questions.

    With --escalate-to, POOL is a small model's, and the ways are compared to ask a
    large one only where it must be.

    [bold]Examples[/]

    reasc replay pool.sqlite

    reasc replay pool.sqlite --shuffles 30 --signals all

    reasc replay pool.sqlite --rules all

    reasc replay pool.sqlite --signal token_logprob --score mean --json > result.json

    reasc replay small.sqlite --escalate-to large.sqlite --price-ratio 30 --shuffles 24
    """
    from langchain_reasc_lab.replay.metrics import as_data
    from langchain_reasc_lab.replay.table import print_comparison
    from langchain_reasc_lab.replay.verdict import verdict_as_data

    if signals and options.signal:
        raise typer.BadParameter(
            "--signals all has a row for every signal; leave out --signal"
        )
    options.check()
    escalation.check(
        signals=signals,
        controls=controls,
        rules=rules != "usual",
        parameters=parameters is not None,
        plot_risk=risk is not None,
        calibration_size=options.calibration_size is not None,
        calibration_pool=options.calibration_pool is not None,
    )
    if escalation.escalate_to is not None:
        escalation.run(pool, options, shuffles=shuffles, as_json=as_json, plot=plot)
        return
    recorded = options.read(pool)
    run, rows = run_replay(
        recorded,
        options.measures(recorded, all_signals=bool(signals)),
        parameters=parameters,
        shuffles=shuffles,
        seed=options.seed,
        calibration_size=options.calibration_size,
        settings=options.settings(
            [recorded], calibration_responses=calibration_responses
        ),
        controls=controls,
        rules=rules,
    )
    if as_json:
        print_json({"verdict": verdict_as_data(run, rows), **as_data(run, rows)})
    else:
        print_comparison(run, rows, stdout())
    if plot is not None:
        from langchain_reasc_lab.replay.plots import draw_tradeoff, save_figure

        remark(f"wrote {save_figure(draw_tradeoff(rows), plot)}")
    if risk is not None:
        from langchain_reasc_lab.replay.plots import draw_risk, save_figure

        remark(f"wrote {save_figure(draw_risk(rows), risk)}")


def run_replay(
    pool: "Pool",
    measures: "list[MeasureSpec]",
    *,
    parameters: float | None = None,
    shuffles: int,
    **how: Any,
) -> "tuple[Replay, list[Row]]":
    """Replay under a progress bar, and summarize; ``how`` is as for
    ``langchain_reasc_lab.replay.replay``.
    """
    from langchain_reasc_lab.replay.metrics import summarize
    from langchain_reasc_lab.replay.replay import replay as replay_pool

    with progress("Replaying", quiet=shuffles < 2) as move:
        run = replay_pool(pool, measures, shuffles=shuffles, on_progress=move, **how)
    return run, summarize(run, parameters=parameters)
