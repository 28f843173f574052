"""How far a batch has come, shown or told."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

__all__ = ["Progress", "shown"]

Progress = bool | Callable[[int, int], None] | None
"""Whether a bar is shown, on stderr in a terminal or below the cell of a notebook; or a function that is called with
(inputs answered, inputs)."""
_PAUSE: Final = 0.1  # seconds between two pictures in a notebook


@contextmanager
def shown(progress: Progress, total: int) -> Iterator[Callable[[], None]]:
    """Gives what is called for each input that has been answered."""
    if progress is True:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        if not console.is_jupyter:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            with Bar(*columns, console=console, disable=not console.is_terminal) as bar:
                task = bar.add_task("Answering", total=total)
                yield lambda: bar.advance(task)
            return
        progress = _in_notebook(total)
    done = 0

    def move() -> None:
        nonlocal done
        done += 1
        if callable(progress):
            progress(done, total)

    yield move


def _in_notebook(total: int) -> Callable[[int, int], None]:
    """Shows a bar below the cell, by HTML alone: rich's own needs ipywidgets, and is not kept with the notebook."""
    display = import_module("IPython.display").display
    began = time.monotonic()

    def picture(done: int) -> dict[str, str]:
        text = f"Answering {done}/{total} {timedelta(seconds=round(time.monotonic() - began))}"
        return {"text/plain": text, "text/html": f"<progress value='{done}' max='{total}'></progress> {text}"}

    handle: Any = display(picture(0), raw=True, display_id=True)
    last = began

    def show(done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= _PAUSE:
            last = time.monotonic()
            handle.update(picture(done), raw=True)

    return show
