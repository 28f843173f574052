"""Show, export and import recorded pools, and calibrate on them."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from langchain_reasc.cli.console import print_json, print_lines, remark
from langchain_reasc.cli.options import AsJson
from langchain_reasc_lab.cli.calibrate import calibrate
from langchain_reasc_lab.cli.options import PoolPath

if TYPE_CHECKING:
    from langchain_reasc_lab.pools import Pool

__all__ = ["COMMANDS", "calibrate", "export", "import_", "show"]


def show(pool: PoolPath, as_json: AsJson = False) -> None:
    """Show what a pool holds: questions, responses, model, signals, time, and how many
    tokens it took.

    [bold]Examples[/]

    reasc pool show pool.sqlite

    reasc pool show pool.sqlite --json
    """
    from langchain_reasc_lab.pools import read_pool, read_ungraded
    from langchain_reasc_lab.pools.tokens import count_lines, pool_tokens

    read = read_ungraded(pool)
    if any(question.references for question in read.questions):
        read = read_pool(pool)
    figures, tokens = _figures(read), pool_tokens(read)
    if as_json:
        print_json({**figures, "tokens": asdict(tokens), "notes": read.notes})
        return
    print_lines(_lines(figures))
    print_lines(count_lines(tokens, verb="Held"))
    for note in read.notes:
        remark(f"note: {note}")


def export(
    pool: PoolPath,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="The .jsonl file to write, which is not there yet."
        ),
    ],
) -> None:
    """Write a pool as JSON Lines for other programs: a question a line, token signals
    in a file beside it.

    `reasc pool import` reads it back, exactly.

    [bold]Examples[/]

    reasc pool export pool.sqlite responses.jsonl
    """
    from langchain_reasc_lab.pools import PoolStore
    from langchain_reasc_lab.pools.json_lines import write_json_lines

    if out.suffix.lower() != ".jsonl":
        raise typer.BadParameter(f"cannot write {out}: name a .jsonl file")
    beside = write_json_lines(PoolStore.open(pool), out)[1:]
    _remark_written(out, [f"token signals are in {path}" for path in beside])


def import_(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A pool as JSON Lines, or with --source a git checkout.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="The file to write, which is not there yet; with --source a folder.",
        ),
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
    """Make a pool of JSON Lines, of ours or of other programs, or of published
    recordings.

    [bold]Examples[/]

    reasc pool import responses.jsonl pool.sqlite

    reasc pool import consol-checkout recordings/ --source consol
    """
    from langchain_reasc_lab.pools.copying import new_pool
    from langchain_reasc_lab.pools.json_lines import read_json_lines
    from langchain_reasc_lab.pools.public import SOURCES, import_source

    if source is not None:
        written, left_out = import_source(source, path, out)
        known = SOURCES[source]
        terms = (
            "it has no licence: do not publish them"
            if known.license == "none"
            else f"licence: {known.license}"
        )
        remark(f"{known.repository}, {terms}")
        if left_out:
            remark(
                f"left out {len(left_out)} without recorded answers: "
                f"{', '.join(left_out)}"
            )
        remark(f"wrote {len(written)} recording{'s' * (len(written) > 1)} into {out}")
        return
    if out.suffix.lower() in (".jsonl", ".json"):
        raise typer.BadParameter(
            f"{out} would be an SQLite file: name it .sqlite; `reasc pool export` "
            "writes others"
        )
    with new_pool(out) as made:
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
        "seconds": (float(np.median(seconds)), float(np.quantile(seconds, 0.95)))
        if seconds
        else None,
        "model": pool.model,
        "metadata": pool.metadata,
    }


def _lines(figures: dict[str, Any]) -> Iterator[str]:
    from langchain_reasc_lab.pools.tokens import duration

    fewest, most, metadata = figures["fewest"], figures["most"], figures["metadata"]
    each = str(most) if fewest == most else f"{fewest} to {most}"
    yield f"Questions  {figures['questions']:,}, with {each} responses each"
    if figures["model"] is not None:
        yield f"Model      {figures['model']}{_settings(metadata)}"
    if metadata.get("created_at"):
        yield f"Recorded   {metadata['created_at']} by version {metadata.get('library_version')}"
    right = (
        "not graded"
        if figures["right"] is None
        else f"{figures['right']:.1%} of the responses right"
    )
    found = (
        f", found by {metadata['answer']}"
        if isinstance(metadata.get("answer"), str)
        else ""
    )
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
    settings = {name: sampling.get(name) for name in ("temperature", "max_tokens")} | {
        "seed": metadata.get("seed")
    }
    return "".join(
        f", {name} {value}" for name, value in settings.items() if value is not None
    )


COMMANDS: Final = (show, calibrate, export, import_)
