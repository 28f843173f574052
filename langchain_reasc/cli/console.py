"""Where commands print: results on stdout; progress, remarks and errors on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from langchain_reasc.cli.wording import in_options

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ending", "print_json", "progress", "remark", "stderr", "stdout"]

_WIDTH = 100  # of tables where there is no terminal to ask


def stdout() -> "Console":
    """The console for results: stdout."""
    return _console(stderr=False)


def stderr() -> "Console":
    """The console for everything else: stderr."""
    return _console(stderr=True)


def remark(text: str) -> None:
    """Something the user should know, beside the result."""
    from rich.markup import escape

    stderr().print(f"[dim]{escape(in_options(text))}[/]", soft_wrap=True, highlight=False)


def ending(text: str) -> str:
    """How a text ends, on one line and in quotes."""
    line = " ".join(text.split())
    return repr(line) if len(line) <= 60 else f"...{line[-60:]!r}"


def print_json(data: Any) -> None:
    """One indented JSON document on stdout."""
    import json
    import sys

    spelled_out = not str(sys.stdout.encoding).lower().startswith("utf")  # escapes say what no other letters do
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=spelled_out) + "\n")


@contextmanager
def progress(title: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, moved by calling what it yields with (done, total).

    Where stderr is no terminal there is no bar; a line at the end says what was done. ``quiet``: neither.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = stderr()
    reached = (0, 0)
    shown = console.is_terminal and not quiet
    bar = Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console, disable=not shown)
    with bar if shown else nullcontext():  # where it is disabled, older versions of rich print an empty line for it
        task = bar.add_task(title, total=None)

        def move(done: int, total: int) -> None:
            nonlocal reached
            reached = (done, total)
            bar.update(task, completed=done, total=total)

        yield move
    if not (quiet or console.is_terminal):
        remark(f"{title}: {reached[0]} of {reached[1]}")


def _console(*, stderr: bool) -> "Console":
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=_WIDTH)
