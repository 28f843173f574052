"""Support for notebooks: short tracebacks of errors, and a progress bar below a cell."""

import sysconfig
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from types import FrameType
from typing import Any, Final

_INSTALLED: Final = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_PAUSE: Final = 0.1  # seconds between two pictures of the bar


class ShortTraceback(Exception):
    """Errors for which IPython shows only the caller's lines. An error with a cause keeps its traceback."""

    @property
    def _render_traceback_(self) -> Callable[[], list[str]]:
        """Return the lines that IPython prints instead of a traceback."""
        if self.__cause__ is not None:
            raise AttributeError("_render_traceback_")
        return self._in_notebook

    def _in_notebook(self) -> list[str]:
        own = (step for step in traceback.walk_tb(self.__traceback__) if _is_callers(step[0]))
        return [*map(str.rstrip, traceback.StackSummary.extract(own).format()), f"{type(self).__name__}: {self}"]


def _is_callers(frame: FrameType) -> bool:
    """Return whether this is the caller's own code, not that of this package or an installed one."""
    ours = frame.f_globals.get("__name__", "").startswith("langchain_reasc")
    return not ours and not frame.f_code.co_filename.startswith((*_INSTALLED, "<frozen"))


def notebook_bar(total: int) -> Callable[[int, int], None]:
    """Show a bar in plain HTML below the cell, and return the function that moves it (rich's bar needs ipywidgets)."""
    display = import_module("IPython.display").display
    began = last = time.monotonic()

    def picture(done: int) -> dict[str, str]:
        text = f"Answering {done}/{total} {timedelta(seconds=round(time.monotonic() - began))}"
        return {"text/plain": text, "text/html": f"<progress value='{done}' max='{total}'></progress> {text}"}

    handle: Any = display(picture(0), raw=True, display_id=True)

    def update(done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= _PAUSE:
            last = time.monotonic()
            handle.update(picture(done), raw=True)

    return update
