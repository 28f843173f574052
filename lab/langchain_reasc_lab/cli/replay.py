"""``reasc replay``: every method on the same recorded responses."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, cast

import typer

from langchain_reasc.cli.console import print_json, progress, remark, stdout
from langchain_reasc.cli.options import AsJson, PTarget, Score, Seed, Window, measure_spec, one_of
from langchain_reasc_lab.cli.options import AllSignals, CalibrationPool, CalibrationSize, MaxSamples, PoolPath, picture

if TYPE_CHECKING:
    from langchain_reasc.calibrating import MeasureSpec
    from langchain_reasc.pools import Pool
    from langchain_reasc_lab.replay.metrics import Row
    from langchain_reasc_lab.replay.replay import Replay

__all__ = ["DEFAULT_CALIBRATION_SIZE", "measures_for", "pool_to_test", "replay", "show"]

DEFAULT_CALIBRATION_SIZE: Final = 128

SignalChoice = Annotated[
    str | None,
    typer.Option(
        help="Token signal behind ReASC; auto chooses signal, score and window on the calibration questions, recorded "
        r"takes the pool's own scores. \[default: auto where the pool has signals, else recorded]"
    ),
]


def replay(
    pool: PoolPath,
    as_json: AsJson = False,
    shuffles: Annotated[int, typer.Option(min=0, help="Rearrange the pool this often; 0: recorded order.")] = 0,
    seed: Seed = 0,
    calibration_size: CalibrationSize = None,
    calibration_pool: CalibrationPool = None,
    calibration_responses: Annotated[
        int, typer.Option(min=1, help="Responses known of each: several show whether votes may be weighed.")
    ] = 1,
    signal: SignalChoice = None,
    signals: AllSignals = None,
    score: Score = "bottom_group",
    window: Window = 128,
    p_target: PTarget = 0.9,
    max_samples: MaxSamples = None,
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
    """Compare ReASC and other methods on recorded responses, without the model.

    In recorded order, ReASC calibrates on the first responses to the first 128 questions, and all methods are compared
    on the rest; or on all, where another pool calibrates, as beside the demo's test pool. With --shuffles, questions
    and responses are rearranged and results averaged. A pool without scores or token signals compares the methods that
    count votes, on all its questions.

    [bold]Examples[/]

    reasc replay pool.sqlite

    reasc replay pool.sqlite --shuffles 30 --signals all

    reasc replay pool.sqlite --rules all

    reasc replay pool.sqlite --signal token_logprob --score mean --json > result.json
    """
    from langchain_reasc_lab.replay.replay import budget_of

    if signals and signal:
        raise typer.BadParameter("--signals all has a row for every signal; leave out --signal")
    if signal is not None:
        measure_spec(signal, score, window)
    recorded = pool_to_test(pool, calibration_pool, calibration_size)
    measures = measures_for(recorded, signal=signal, signals=signals, score=score, window=window)
    run, rows = run_replay(
        recorded,
        measures,
        shuffles=shuffles,
        seed=seed,
        calibration_size=recorded.calibrating or calibration_size or DEFAULT_CALIBRATION_SIZE,
        calibration_responses=calibration_responses,
        max_samples=budget_of([recorded], max_samples),
        p_target=p_target,
        controls=controls,
        rules=cast(Literal["usual", "all"], rules),
        parameters=parameters,
    )
    show(run, rows, as_json=as_json)
    if plot is not None:
        from langchain_reasc_lab.replay.plots import plot_tradeoff

        remark(f"wrote {plot_tradeoff(rows, plot)}")
    if risk is not None:
        from langchain_reasc_lab.replay.plots import plot_risk

        remark(f"wrote {plot_risk(rows, risk)}")


def pool_to_test(path: Path, calibration_pool: Path | None, calibration_size: int | None) -> "Pool":
    """Read a pool, behind the questions of another one that calibrate, where one is named or lies beside it.

    Raises:
        ConfigurationError: both a pool and a number of questions to calibrate on.
        PoolError: one of them cannot be read, or the calibration pool that was named does not go with the other.
    """
    from langchain_reasc.exceptions import ConfigurationError, PoolError
    from langchain_reasc_lab.pools import read_pool
    from langchain_reasc_lab.pools.reading import CALIBRATION_POOL

    pool, beside = read_pool(path), path.with_name(CALIBRATION_POOL)
    if calibration_pool is not None:
        if calibration_size is not None:
            raise ConfigurationError(
                "--calibration-pool calibrates on all of its questions, --calibration-size on some of the tested pool; "
                "leave out one of them"
            )
        return _calibrated_on(pool, read_pool(calibration_pool))
    if calibration_size is not None or not beside.exists() or beside.resolve() == path.resolve():
        return pool
    try:
        return _calibrated_on(pool, read_pool(beside))
    except PoolError as error:
        remark(f"not calibrated on {beside}: {error}")
        return pool


def _calibrated_on(pool: "Pool", calibrating: "Pool") -> "Pool":
    from langchain_reasc.exceptions import PoolError

    then, now = (one.metadata.get("fingerprint") for one in (calibrating, pool))
    if then and now and then != now:
        names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
        raise PoolError(
            f"{calibrating.path} was recorded otherwise than {pool.path} (their {', '.join(names)} differ), so what it "
            "teaches does not hold there"
        )
    joined = pool.calibrated_on(calibrating)
    if not (joined.signals or (pool.has_scores and calibrating.has_scores)):
        raise PoolError(f"{calibrating.path} and {pool.path} share no token signal and no scores")
    return joined


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
    """Replay under a progress bar, and summarize."""
    from langchain_reasc_lab.replay.methods import MethodSettings
    from langchain_reasc_lab.replay.metrics import summarize
    from langchain_reasc_lab.replay.replay import replay as run_all

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
    """Return the measures to replay; none where the pool has neither signals nor scores and none was given."""
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
        from langchain_reasc_lab.replay.metrics import as_data

        print_json(as_data(run, rows))
    else:
        from langchain_reasc_lab.replay.table import print_comparison

        print_comparison(run, rows, stdout())
