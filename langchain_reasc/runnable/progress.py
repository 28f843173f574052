"""How far a batch has come, shown or told."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Progress", "shown"]

Progress = bool | Callable[[int, int], None] | None
"""Whether a bar is shown on stderr (in a terminal); or a function that is called with (inputs answered, inputs)."""


@contextmanager
def shown(progress: Progress, total: int) -> Iterator[Callable[[], None]]:
    """Gives what is called for each input that has been answered."""
    if progress is True:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Bar(*columns, console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("Answering", total=total)
            yield lambda: bar.advance(task)
        return
    done = 0

    def move() -> None:
        nonlocal done
        done += 1
        if callable(progress):
            progress(done, total)

    yield move
