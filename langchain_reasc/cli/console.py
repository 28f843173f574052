"""Consoles and progress bars: results on stdout; progress, remarks and errors on
stderr.

Texts of models, servers and files may contain control characters, which move a
terminal's cursor, set the clipboard, or reverse the direction of writing. They are
replaced before printing, and so are the secrets that a command was given.
"""

import codecs
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from langchain_reasc.exceptions import ConfigurationError

if TYPE_CHECKING:
    from pydantic import SecretStr
    from rich.console import Console
    from rich.segment import Segment

_WIDTH: Final = 100  # of tables without a terminal
_EVERY: Final = 30.0  # seconds between two lines of progress without a terminal
# C0 without tab and newline, DEL, C1, and the overrides of the direction of writing.
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Anything shorter is in many a message by chance.
_SHORTEST_SECRET: Final = 6
_secrets: Final[set[str]] = set()
_OPTIONS: Final[dict[str, str | Callable[[re.Match[str]], str]]] = {
    r"allow_fingerprint_mismatch=True": "--allow-mismatch",
    r"rename the field, or name it with read_questions\(\.\.\., (\w+)_field=\.\.\.\)": r"name it with --\1-field",
    r"question_field and answer_field": "--question-field and --answer-field",
    r"pass calibration=None to count votes": "count votes with `reasc ask --calibration none`",
    r"on_missing_confidence='count'": "--calibration none",
    r"\b(answer|answer_field|max_samples|max_tokens)=\.\.\.": lambda match: (
        f"--{match[1].replace('_', '-')}"
    ),
    r"\banswer='([\w,]+)'(?: \(or a list\))?": r"--answer \1",
    r"(?:, or|,) pass a function from text to an answer|, or load the model with n_ctx=[\d,]+ or more": "",
    r"\(api_key=\.\.\.\)": "(--key-variable NAME)",
    r"\bprices (?=takes)": "--price-ratio ",
    r"\bwithin=(?=\d)": "--within ",
    r", or give the chat model itself": ", or give a GGUF file",
    r"pass chat_template='\.\.\.' \(Jinja\)": "give one with --chat-template FILE",
}
"""Arguments of Python in the library's messages -> options of the commands."""
_ASKING: Final = re.compile(
    r"(?<![\w-])--(?:answer|answer-field|max-samples|max-tokens)\b(?!-)"
)
_ASCII: Final = str.maketrans(
    {
        "Δ": "Delta",
        "±": "+-",
        "−": "-",
        "–": "-",
        "—": "-",
        "…": "...",
        "≥": ">=",
        "≤": "<=",
        "½": "1/2",
        "×": "x",
        "μ": "mu",
        "σ": "sigma",
        "τ": "tau",
        "λ": "lambda",
        "’": "'",
        "‘": "'",
        "“": '"',
        "”": '"',
        "•": "*",
        "→": "->",
    }
)
_SPELLED_OUT: Final = "langchain_reasc.spelled_out"


def secret_in(variable: str) -> "SecretStr":
    """Return the value of an environment variable, and never print it from now on.

    Raises:
        ConfigurationError: the variable is not set, or this is not the name of one, but
            perhaps the secret itself.
    """
    from pydantic import SecretStr

    # The key itself may be given by mistake, so it is not repeated here.
    if not re.fullmatch(r"[A-Za-z_]\w*", variable):
        raise ConfigurationError(
            "give the name of the environment variable that holds the key, such as "
            "OPENAI_API_KEY, not the key itself"
        )
    value = os.environ.get(variable)
    if not value:
        raise ConfigurationError(f"the environment variable {variable} is not set")
    # Messages of servers may repeat it.
    _secrets.add(value)
    return SecretStr(value)


def in_options(text: str, asked_by: str = "") -> str:
    """Replace arguments of Python in a message by options of the commands, and hide
    secrets.

    Args:
        text: the message.
        asked_by: the command that asks the model, if this one does not and so lacks the
            options of asking.
    """
    for argument, option in _OPTIONS.items():
        text = re.sub(argument, option, text)
    if asked_by:
        text = _ASKING.sub(rf"{asked_by} \g<0>", text)
        text = text.replace("reasc record --max-samples", "reasc record --samples")
    for secret in _secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text


def harmless(text: str) -> str:
    """Replace each control character by a picture such as "␛", except tabs and
    newlines.
    """
    return _CONTROL.sub(_picture, text)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def json_text(data: Any, *, ascii_only: bool = False) -> str:
    """Return an indented JSON document with escaped control characters."""
    text = json.dumps(data, indent=2, ensure_ascii=ascii_only) + "\n"
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def in_ascii(text: str) -> str:
    """Return a text in ASCII, as :func:`prepare_streams` spells it."""
    return text.encode("ascii", _SPELLED_OUT).decode("ascii")


def prepare_streams() -> None:
    """Spell out characters that stdout or stderr cannot encode, and make libraries'
    warnings :func:`harmless`.
    """
    for stream in (sys.stdout, sys.stderr):
        # Another object than a text file was put there on purpose.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_SPELLED_OUT)
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_HarmlessFormatter())


class _HarmlessFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return harmless(super().format(record))


def stdout() -> "Console":
    """Return the console for results."""
    return _console(stderr=False)


def stderr() -> "Console":
    """Return the console for everything else."""
    return _console(stderr=True)


def remark(text: str) -> None:
    """Print a remark for the user to stderr."""
    from rich.markup import escape

    stderr().print(
        f"[dim]{escape(in_options(text))}[/]", soft_wrap=True, highlight=False
    )


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of a result."""
    for line in lines:
        stdout().print(line, soft_wrap=True, markup=False)


def print_error(error: Exception) -> None:
    """Print an error in one line."""
    from rich.markup import escape

    text = escape(in_options(" ".join(str(error).split())))
    stderr().print(f"[bold red]error:[/] {text}", soft_wrap=True, highlight=False)


def ending(text: str) -> str:
    """Return the end of a text in quotes, on one line."""
    line = " ".join(text.split())
    return repr(line) if len(line) <= 60 else f"...{line[-60:]!r}"


def print_json(data: Any) -> None:
    """Print one indented JSON document on stdout."""
    has_unicode = str(sys.stdout.encoding).lower().startswith("utf")
    sys.stdout.write(json_text(data, ascii_only=not has_unicode))


@contextmanager
def progress(
    title: str, *, quiet: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr. Yield a function that moves it, called with (done,
    total).

    If stderr is not a terminal, print a line every half minute and at the end instead.
    With ``quiet``, print nothing.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = stderr()
    has_bar = console.is_terminal and not quiet
    prints_lines = not console.is_terminal and not quiet
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not has_bar,
    )
    reached = (0, 0)
    printed_at = time.monotonic()
    # For a disabled bar, older versions of rich print an empty line.
    with bar if has_bar else nullcontext():
        task = bar.add_task(title, total=None)

        def move(done: int, total: int) -> None:
            nonlocal reached, printed_at
            reached = (done, total)
            bar.update(task, completed=done, total=total)
            is_due = time.monotonic() - printed_at >= _EVERY
            if prints_lines and is_due and done < total:
                printed_at = time.monotonic()
                remark(f"{title}: {done} of {total}")

        yield move
    if prints_lines:
        remark(f"{title}: {reached[0]} of {reached[1]}")


def _console(*, stderr: bool) -> "Console":
    console = _console_class()(stderr=stderr, highlight=False)
    # Without a terminal, rich would take 80 columns and cut tables.
    if console.is_terminal:
        return console
    return _console_class()(stderr=stderr, highlight=False, width=_WIDTH)


@cache
def _console_class() -> "type[Console]":
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class HarmlessConsole(Console):
        """A console that prints its own colours, but no control characters of texts."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> "Iterable[Segment]":
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else harmless(text), style, control)

    return HarmlessConsole


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    plain = error.object[error.start : error.end].translate(_ASCII)
    return plain.encode("ascii", "backslashreplace").decode("ascii"), error.end


codecs.register_error(_SPELLED_OUT, _spell_out)
