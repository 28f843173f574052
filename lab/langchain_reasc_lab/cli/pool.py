"""Show, merge, export and import recorded pools, and calibrate on them."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from langchain_reasc.cli.console import print_json, print_lines, remark
from langchain_reasc.cli.options import AsJson
from langchain_reasc_lab.cli.calibrate import calibrate
from langchain_reasc_lab.cli.options import PoolPath, Prices

if TYPE_CHECKING:
    from langchain_reasc_lab.pools import Pool

__all__ = ["COMMANDS", "calibrate", "export", "import_", "merge", "show"]


def show(pool: PoolPath, prices: Prices = None, as_json: AsJson = False) -> None:
    """Show what a pool holds: questions, responses, model, signals, time, and what it has cost.

    [bold]Examples[/]

    reasc pool show pool.sqlite

    reasc pool show pool.sqlite --prices prices.toml --json
    """
    from langchain_reasc_lab.pools import read_pool, read_ungraded
    from langchain_reasc_lab.pools.costs import bill_lines, pool_bill, read_prices

    known = None if prices is None else read_prices(prices)
    read = read_ungraded(pool)
    if any(question.references for question in read.questions):
        read = read_pool(pool)
    figures, bill = _figures(read), pool_bill(read)
    price, currency = (known.price_of(str(read.model)), known.currency) if known else (None, "")
    if as_json:
        cost = {"cost": price.cost_of(bill), "currency": currency} if price else {}
        print_json({**figures, "bill": asdict(bill), "notes": read.notes, **cost})
        return
    print_lines(_lines(figures))
    print_lines(bill_lines(bill, price, currency, verb="Held"))
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
    from langchain_reasc_lab.pools import PoolStore
    from langchain_reasc_lab.pools.json_lines import write_json_lines
    from langchain_reasc_lab.pools.parquet import write_folder, write_parquet

    kind = out.suffix.lower()
    if kind not in (".parquet", ".jsonl", ""):
        raise typer.BadParameter(f"cannot write {out}: name a .parquet file, a .jsonl file or a folder")
    store, notes = PoolStore.open(pool), list[str]()
    if kind == ".parquet":
        write_parquet(store, out)
    elif kind == ".jsonl":
        beside = write_json_lines(store, out)[1:]
        notes += [f"token signals are in {path}" for path in beside]
    else:
        notes += [f"{write_folder(store, out)} files of at most 1,024 questions"]
    _remark_written(out, notes)


def import_(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="What `reasc pool export` wrote, a pool of JSON Lines, or with --source a git checkout.",
        ),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The file to write, which is not there yet; with --source a folder.")
    ],
    *,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Read recordings of other people's models from a checkout of the repository that published them: "
            "consol, mot, epoch, cruxeval, ranked_votes.",
        ),
    ] = None,
) -> None:
    """Make a pool of what was exported, of JSON Lines that other programs wrote, or of published recordings.

    [bold]Examples[/]

    reasc pool import responses.parquet pool.sqlite

    reasc pool import responses.jsonl pool.sqlite

    reasc pool import consol-checkout recordings/ --source consol
    """
    from langchain_reasc_lab.pools.json_lines import read_json_lines
    from langchain_reasc_lab.pools.merging import new_pool
    from langchain_reasc_lab.pools.parquet import read_parquet
    from langchain_reasc_lab.pools.public import SOURCES, import_source

    if source is not None:
        written, left_out = import_source(source, path, out)
        known = SOURCES[source]
        terms = "it has no licence: do not publish them" if known.license == "none" else f"licence: {known.license}"
        remark(f"{known.repository}, {terms}")
        if left_out:
            remark(f"left out {len(left_out)} without recorded answers: {', '.join(left_out)}")
        remark(f"wrote {len(written)} recording{'s' * (len(written) > 1)} into {out}")
        return
    if out.suffix.lower() in (".jsonl", ".json", ".parquet"):
        raise typer.BadParameter(f"{out} would be an SQLite file: name it .sqlite; `reasc pool export` writes others")
    notes: list[str] = []
    with new_pool(out) as made:
        if path.suffix.lower() == ".parquet" or path.is_dir():
            read_parquet(path, made)
        else:
            notes = read_json_lines(path, made)
    _remark_written(out, notes)


def _remark_written(out: Path, notes: list[str]) -> None:
    for note in notes:
        remark(f"note: {note}")
    remark(f"wrote {out}")


def _figures(pool: "Pool") -> dict[str, Any]:
    """Return a pool in figures, by the names that --json prints."""
    import numpy as np

    sizes = [len(question.responses) for question in pool.questions]
    responses = list(pool.responses)
    graded = [one.correct for one in responses if one.correct is not None]
    seconds = [one.seconds for one in responses if one.seconds is not None]
    return {
        "questions": len(sizes),
        "responses": len(responses),
        "fewest": min(sizes),
        "most": max(sizes),
        "right": sum(graded) / len(graded) if len(graded) == len(responses) else None,
        "without_answer": sum(one.answer is None for one in responses),
        "cut_off": sum(one.cut_off for one in responses),
        "signals": pool.signals.names if pool.signals else (),
        "with_signals": sum(one.signal_tokens > 0 for one in responses),
        "seconds": (float(np.median(seconds)), float(np.quantile(seconds, 0.95))) if seconds else None,
        "model": pool.model,
        "metadata": pool.metadata,
    }


def _lines(figures: dict[str, Any]) -> Iterator[str]:
    from langchain_reasc_lab.pools.costs import duration

    fewest, most, metadata = figures["fewest"], figures["most"], figures["metadata"]
    each = str(most) if fewest == most else f"{fewest} to {most}"
    yield f"Questions  {figures['questions']:,}, with {each} responses each"
    if figures["model"] is not None:
        yield f"Model      {figures['model']}{_settings(metadata)}"
    if metadata.get("created_at"):
        yield f"Recorded   {metadata['created_at']} by version {metadata.get('library_version')}"
    right = "not graded" if figures["right"] is None else f"{figures['right']:.1%} of the responses right"
    found = f", found by {metadata['answer']}" if isinstance(metadata.get("answer"), str) else ""
    yield f"Answers    {right}, {figures['without_answer']:,} without one, {figures['cut_off']:,} cut off{found}"
    if metadata.get("grader"):
        yield f"Grader     {metadata['grader']}"
    if figures["signals"]:
        yield f"Signals    {', '.join(figures['signals'])}"
    if figures["with_signals"] < figures["responses"]:
        yield f"           {figures['responses'] - figures['with_signals']:,} responses have none"
    if figures["seconds"]:
        median, slow = figures["seconds"]
        yield f"Time       a response took {duration(median)} (median), 95 % at most {duration(slow)}"


def _settings(metadata: dict[str, Any]) -> str:
    sampling = metadata.get("fingerprint", {}).get("sampling") or {}
    settings = {name: sampling.get(name) for name in ("temperature", "max_tokens")} | {"seed": metadata.get("seed")}
    return "".join(f", {name} {value}" for name, value in settings.items() if value is not None)


COMMANDS: Final = (show, calibrate, merge, export, import_)
