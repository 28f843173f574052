"""Where commands print: results on stdout; progress, remarks and errors on stderr.

What models, servers and files say may hold characters that a terminal obeys: that move the cursor, set the clipboard,
or turn the direction of writing. None of them is printed; others stand in their place.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from langchain_reasc.cli.wording import in_options

if TYPE_CHECKING:
    from rich.console import Console
    from rich.segment import Segment

__all__ = ["ending", "harmless", "json_text", "log_harmlessly", "print_json", "progress", "remark", "stderr", "stdout"]

_WIDTH = 100  # of tables where there is no terminal to ask
# C0 but for tab and newline, DEL, C1, and what overrides the direction of writing
_OBEYED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """A text with a picture, such as "␛", in place of each character that a terminal obeys; tabs and newlines stay."""
    return _OBEYED.sub(lambda found: _picture(ord(found[0])), text)


def json_text(data: Any, *, ascii_only: bool = False) -> str:
    """An indented JSON document, with escapes in place of characters that a terminal obeys."""
    import json

    written = json.dumps(data, indent=2, ensure_ascii=ascii_only) + "\n"
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def log_harmlessly() -> None:
    """Let the warnings of libraries through to stderr as everything else goes there."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_HarmlessFormatter())


class _HarmlessFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return harmless(super().format(record))


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
    import sys

    spelled_out = not str(sys.stdout.encoding).lower().startswith("utf")  # escapes say what no other letters do
    sys.stdout.write(json_text(data, ascii_only=spelled_out))


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
    console = _console_class()(stderr=stderr, highlight=False)
    return console if console.is_terminal else _console_class()(stderr=stderr, highlight=False, width=_WIDTH)


@cache
def _console_class() -> "type[Console]":
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class HarmlessConsole(Console):
        """Prints its own colours, and no character of a text that a terminal obeys."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> "Iterable[Segment]":
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else harmless(text), style, control)

    return HarmlessConsole


def _picture(code: int) -> str:
    """Of a control character its symbol in Unicode, where it has one."""
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"
