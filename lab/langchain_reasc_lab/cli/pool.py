"""Recorded pools: what they hold, several as one, and for other programs."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from langchain_reasc.cli.console import print_json, remark, stdout
from langchain_reasc.cli.cost_lines import billed, duration
from langchain_reasc.cli.options import AsJson, PoolPath, Prices

if TYPE_CHECKING:
    from langchain_reasc.pools.pool import Pool
    from langchain_reasc_lab.pools.summary import Summary

__all__ = ["COMMANDS", "convert", "export", "import_", "merge", "show"]

Out = Annotated[Path, typer.Argument(metavar="OUT", help="The file to write, which is not there yet.")]


def show(pool: PoolPath, prices: Prices = None, as_json: AsJson = False) -> None:
    """Show what a pool holds: questions, responses, model, signals, time, and what it has cost.

    [bold]Examples[/]

    reasc pool show pool.sqlite

    reasc pool show pool.sqlite --prices prices.toml --json
    """
    from langchain_reasc.pools.prices import read_prices
    from langchain_reasc_lab.pools.summary import pool_bill, summary

    known = None if prices is None else read_prices(prices)
    read = _read(pool)
    figures, bill = summary(read), pool_bill(read)
    price = None if known is None else known.of(str(figures.model))
    if as_json:
        told = asdict(figures) | {"bill": asdict(bill), "notes": read.notes}
        print_json(told | ({"cost": price.of(bill), "currency": known.currency} if price and known else {}))
        return
    for line in _shown(figures):
        stdout().print(line, soft_wrap=True, markup=False)
    for line in billed(bill, price, known.currency if known else "", verb="Held"):
        stdout().print(line, soft_wrap=True, markup=False)
    for note in read.notes:
        remark(f"note: {note}")


def merge(
    first: Annotated[Path, typer.Argument(metavar="A", help="A pool.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another one of the same model and prompt.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="C", help="The pool to write, which is not there yet.")],
) -> None:
    """Put two pools of the same model and prompt together.

    A question that both hold comes once: with the longer recording where both drew with the same seed, and with the
    responses of both where they drew with different ones.

    [bold]Examples[/]

    reasc pool merge first-half.sqlite second-half.sqlite --out pool.sqlite
    """
    from langchain_reasc_lab.pools.merging import merge_pools

    merged = merge_pools(first, second, out)
    shared = f"; of {merged.shared:,} that both hold " if merged.shared else ""
    if shared:
        shared += "the responses are put together" if merged.appended else "the longer recording counts"
    remark(f"{out} has {merged.questions:,} questions with {merged.responses:,} responses{shared}")
    if merged.fewest != merged.most:
        remark(f"note: its questions have from {merged.fewest} to {merged.most} responses each")


def export(
    pool: PoolPath,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="A .parquet or .jsonl file, or a folder, which is not there yet.")
    ],
) -> None:
    """Write a pool for other programs: Parquet, JSON Lines, or a folder that Hugging Face's datasets load.

    Parquet has a row for each response; JSON Lines a question a line, and token signals in a file beside it. A folder
    has Parquet files of 1,024 questions each: datasets.load_dataset("folder"). `reasc pool import` reads all of them
    back, exactly.

    [bold]Examples[/]

    reasc pool export pool.sqlite responses.parquet

    reasc pool export pool.sqlite responses.jsonl

    reasc pool export pool.sqlite folder/
    """
    from langchain_reasc.pools.reading import open_pool
    from langchain_reasc_lab.pools.columns import write_columns, write_folder
    from langchain_reasc_lab.pools.json_lines_out import write_json_lines

    kind = out.suffix.lower()
    if kind not in (".parquet", ".jsonl", ""):
        raise typer.BadParameter(f"{out} is no kind that is written: it ends in .parquet or .jsonl, or is a folder")
    store, notes = open_pool(pool)
    if kind == ".parquet":
        write_columns(store, out)
    elif kind == ".jsonl":
        beside = write_json_lines(store, out)[1:]
        notes += [f"token signals are in {path}" for path in beside]
    else:
        notes += [f"{write_folder(store, out)} files of at most 1,024 questions"]
    _ready(out, notes)


def import_(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="What `reasc pool export` wrote, or a pool of JSON Lines.")
    ],
    out: Out,
) -> None:
    """Make a pool of what was exported, or of JSON Lines that others wrote.

    [bold]Examples[/]

    reasc pool import responses.parquet pool.sqlite
    """
    from langchain_reasc_lab.pools.columns import read_columns
    from langchain_reasc_lab.pools.copying import new_pool

    _is_pool(out)
    if source.suffix.lower() != ".parquet" and not source.is_dir():
        convert(source, out)
        return
    with new_pool(out) as made:
        read_columns(source, made)
    _ready(out, [])


def convert(source: Annotated[Path, typer.Argument(metavar="OLD", help="A pool of JSON Lines.")], out: Out) -> None:
    """Make a pool of JSON Lines, as earlier versions recorded them, one that recording can go on with.

    [bold]Examples[/]

    reasc pool convert old.jsonl pool.sqlite
    """
    from langchain_reasc_lab.pools.copying import convert as written

    _is_pool(out)
    _ready(out, written(source, out))


def _is_pool(out: Path) -> None:
    if out.suffix.lower() in (".jsonl", ".json", ".parquet"):
        raise typer.BadParameter(f"{out} would be an SQLite file: name it .sqlite; `reasc pool export` writes others")


def _ready(out: Path, notes: list[str]) -> None:
    for note in notes:
        remark(f"note: {note}")
    remark(f"wrote {out}")


def _read(path: Path) -> "Pool":
    """The pool, graded where it can be."""
    from langchain_reasc.pools.reading import read_pool, read_stored

    stored = read_stored(path)
    return read_pool(path) if any(question.references for question in stored.questions) else stored


def _shown(figures: "Summary") -> Iterator[str]:
    each = str(figures.most) if figures.fewest == figures.most else f"{figures.fewest} to {figures.most}"
    yield f"Questions  {figures.questions:,}, with {each} responses each"
    told = figures.metadata
    if figures.model is not None:
        yield f"Model      {figures.model}{_settings(told)}"
    if told.get("created_at"):
        yield f"Recorded   {told['created_at']} by version {told.get('library_version')}"
    right = "not graded" if figures.right is None else f"{figures.right:.1%} of the responses right"
    found = f", found by {told['answer']}" if isinstance(told.get("answer"), str) else ""
    yield f"Answers    {right}, {figures.without_answer:,} without one, {figures.cut_off:,} cut off{found}"
    if told.get("grader"):
        yield f"Grader     {told['grader']}"
    if figures.signals:
        yield f"Signals    {', '.join(figures.signals)}"
    if figures.with_signals < figures.responses:
        yield f"           {figures.responses - figures.with_signals:,} responses have none"
    if figures.seconds:
        median, slow = figures.seconds
        yield f"Time       a response took {duration(median)} (median), 95 % at most {duration(slow)}"


def _settings(metadata: dict[str, Any]) -> str:
    sampling = metadata.get("fingerprint", {}).get("sampling") or {}
    told = [f"{name} {sampling[name]}" for name in ("temperature", "max_tokens") if sampling.get(name) is not None]
    seed = metadata.get("seed")
    return "".join(f", {one}" for one in [*told, *([] if seed is None else [f"seed {seed}"])])


COMMANDS: Final = (show, merge, export, import_, convert)
