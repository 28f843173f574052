"""Show how far a batch has come, in a terminal or a notebook."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

Progress = bool | Callable[[int, int], None] | None
"""Whether a bar is shown, on stderr in a terminal or below the cell of a notebook
(which needs ipywidgets); or a function that is called with (inputs answered, inputs).
"""


@contextmanager
def show_progress(progress: Progress, total: int) -> Iterator[Callable[[], None]]:
    """Show how far a batch has come; yield what is called for each input that has been
    answered.
    """
    if progress is True:
        with _bar(total) as move:
            yield move
        return
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if callable(progress):
            progress(done, total)

    yield advance


@contextmanager
def _bar(total: int) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    is_visible = console.is_terminal or console.is_jupyter
    bar = Bar(*columns, console=console, disable=not is_visible)
    # For a disabled bar, older versions of rich print an empty line.
    with bar if is_visible else nullcontext():
        task = bar.add_task("Answering", total=total)
        yield lambda: bar.advance(task)
