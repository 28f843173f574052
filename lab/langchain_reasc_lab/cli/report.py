"""``reasc report``: make the paper's tables and figures of recorded responses."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from langchain_reasc.cli.console import harmless, json_text, print_json, progress, remark, stdout
from langchain_reasc.cli.options import output_file
from langchain_reasc.exceptions import ConfigurationError, PoolError
from langchain_reasc_lab.cli.options import ComparisonOptions, Prices, text_output

if TYPE_CHECKING:
    from langchain_reasc_lab.pools import Pool
    from langchain_reasc_lab.report import Report


def report(
    pools: Annotated[
        list[Path] | None, typer.Argument(metavar="POOL...", help="Recorded pools, shown side by side.")
    ] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="HTML", help="A page that needs nothing else.", callback=output_file),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|-",
            help="As Markdown, the figures in a folder beside it; -: to stdout, without them.",
            callback=text_output,
        ),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="All tables in one file, a line a cell.", callback=output_file)
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE|-", help="Everything as JSON; -: to stdout.", callback=text_output)
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this table or figure; several may be given.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Say which tables and figures there are, and exit.")] = False,
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
        float | None, typer.Option(metavar="N", min=1, help="Parameters of the model, for TFLOPs (2N per token).")
    ] = None,
    prices: Prices = None,
    tokens_per_second: Annotated[
        float | None, typer.Option(metavar="R", min=1e-9, help="Rate of one sequence, for latencies.")
    ] = None,
) -> None:
    """Make the paper's tables and figures of your own recorded responses.

    Without --out, --markdown, --csv or --json, tables are printed, and figures told in words. What a pool cannot tell
    leaves a sentence in its place.

    [bold]Examples[/]

    reasc report pool.sqlite --out report.html

    reasc report small.sqlite large.sqlite --out report.html --json report.json

    reasc report pool.sqlite --only main --only histogram

    reasc report --list
    """
    from langchain_reasc_lab.report import Study, StudySettings, check_page_extra, chosen_entries, make_report

    if listed:
        _list()
        return
    if not pools:
        raise typer.BadParameter("name a pool, or several; `reasc record` makes one", param_hint="POOL...")
    _check_outputs(list(filter(None, (out, markdown, csv, json))), pools)
    entries = chosen_entries(only or ())
    if out is not None:
        check_page_extra()
    options.check()
    read = _read(pools, options)
    if prices is not None:
        _check_prices(prices, read)
    if shuffles is None:
        shuffles = 0 if all(pool.calibrating for pool in read) else StudySettings().shuffles
    settings = StudySettings(
        shuffles=shuffles,
        calibration_size=options.calibration_size,
        seed=options.seed,
        methods=options.settings(read),
        parameters=parameters,
        prices=prices,
        tokens_per_second=tokens_per_second,
    )
    studies = [
        Study(name, pool, next(iter(options.measures(pool)), None), settings)
        for name, pool in zip(_names(pools), read, strict=True)
    ]
    with progress("Tables and figures", quiet=len(entries) < 2) as move:
        made = make_report(studies, entries, on_progress=move)
    _print_problems(made)
    _write(made, out=out, markdown=markdown, csv=csv, json=json)


def _read(paths: Sequence[Path], options: ComparisonOptions) -> "list[Pool]":
    """Read the pools, each with the pool that calibrates it.

    Raises:
        ConfigurationError: the same pool twice.
        PoolError: one of them cannot be read.
    """
    seen: dict[Path, Path] = {}
    for path in paths:
        if (first := seen.setdefault(path.resolve(), path)) is not path:
            raise ConfigurationError(f"{path} is the pool {first} again; name each pool once")
    return [options.read(path) for path in paths]


def _check_prices(path: Path, pools: "Sequence[Pool]") -> None:
    """Check that the file has prices of the pools' models, before anything is computed.

    Raises:
        ConfigurationError: the file cannot be read, or has no price of one of the models.
    """
    from langchain_reasc_lab.pools.costs import read_prices

    known = read_prices(path)
    for pool in pools:
        if (model := pool.model) is None:
            raise ConfigurationError(f"{pool.path} does not say which model it is of, so --prices cannot be used on it")
        known.price_of(model)


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the files' names without ending, with as many folders before them as make them different."""
    parts = [path.resolve().with_suffix("").parts for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-depth:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]  # they differ in their endings alone


def _check_outputs(outputs: Sequence[Path], pools: Sequence[Path]) -> None:
    for path in outputs:
        if sum(other == path or other.resolve() == path.resolve() for other in outputs) > 1:
            raise typer.BadParameter(f"{path} is named for two outputs; name another file for one of them")
        if path.resolve() in (pool.resolve() for pool in pools):
            raise typer.BadParameter(f"{path} is a pool that is read, and would be lost; name another file")


def _list() -> None:
    from rich.table import Table as Grid
    from rich.text import Text

    from langchain_reasc_lab.report import contents

    grid = Grid(box=None, pad_edge=False, padding=(0, 1))
    for name in ("Name", "Kind", "In the paper", "Title"):
        grid.add_column(Text(name), overflow="fold", no_wrap=name != "Title")
    for entry in contents().values():
        grid.add_row(*map(Text, (entry.name, entry.kind, entry.paper or "-", entry.title)))
    stdout().print(grid)


def _print_problems(made: "Report") -> None:
    """Print what took how long, and what could not be made.

    Raises:
        PoolError: nothing could be made at all.
    """
    if all(part.is_empty for part in made.parts):
        problems = list(dict.fromkeys(problem for part in made.parts for problem in part.problems))
        raise PoolError(" ".join(["nothing could be made of this:", *problems[:3]]))
    missing: dict[str, list[str]] = {}
    for part in made.parts:
        for problem in part.problems:
            missing.setdefault(problem, []).append(part.entry.name)
    for problem, names in missing.items():
        remark(f"{', '.join(names)}: {problem}")
    if len(made.parts) > 1:
        slowest = sorted(made.parts, key=lambda part: -part.seconds)
        each = ", ".join(f"{part.entry.name} {part.seconds:.1f}" for part in slowest)
        remark(f"Seconds, what each computed first for others included: {each}")


def _write(made: "Report", *, out: Path | None, markdown: Path | None, csv: Path | None, json: Path | None) -> None:
    from langchain_reasc.cli.console import in_ascii
    from langchain_reasc_lab import report as rendering

    if not any((out, markdown, csv, json)):
        rendering.print_report(made, stdout(), spelled=in_ascii)
        return
    if out is not None:
        _save(out, rendering.report_page(made))
    if csv is not None:
        _save(csv, rendering.report_csv(made))
    if markdown == Path("-"):
        _save(markdown, rendering.report_markdown(made, None))
    elif markdown is not None:
        folder, drawn = markdown.with_name(f"{markdown.stem}-figures"), rendering.pictures(made)
        _save(markdown, rendering.report_markdown(made, folder.name if drawn else None))
        for name, picture in drawn.items():
            _save(folder / name, picture + "\n", quiet=True)
    if json == Path("-"):
        print_json(rendering.report_data(made))
    elif json is not None:
        _save(json, json_text(rendering.report_data(made)))


def _save(path: Path, text: str, *, quiet: bool = False) -> None:
    from langchain_reasc.files import write_atomically

    text = harmless(text)
    if path == Path("-"):
        typer.echo(text, nl=False)
        return
    text = text.encode("utf-8", "replace").decode("utf-8")  # half a character, as a model may write
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    if not quiet:
        remark(f"wrote {path}")
