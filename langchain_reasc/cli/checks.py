"""Options that are checked before anything is computed or paid for."""

import os
from collections.abc import Callable
from pathlib import Path

import typer

__all__ = [
    "all_signals",
    "answer_spec",
    "format_name",
    "keep_apart",
    "one_of",
    "output_file",
    "output_folder",
    "preset_name",
    "probability",
    "text_output",
]


def probability(value: float) -> float:
    """An accuracy that can be asked for."""
    if not 0 < value < 1:
        raise typer.BadParameter(f"an accuracy lies between 0 and 1, such as 0.9 for 90 %; got {value:g}")
    return value


def all_signals(value: str | None) -> str | None:
    """What ``--signals`` takes."""
    if value not in (None, "all"):
        raise typer.BadParameter(f"takes 'all', got {value!r}")
    return value


def one_of(*names: str) -> Callable[[str], str]:
    """A check that a value is one of these names."""

    def checked(value: str) -> str:
        if value not in names:
            *others, last = map(repr, names)
            raise typer.BadParameter(f"takes {', '.join(others)} or {last}, got {value!r}")
        return value

    return checked


def answer_spec(value: str | None) -> str | None:
    """An extractor by name.

    Raises:
        ConfigurationError: there is none of this name, or its pattern is invalid.
    """
    from langchain_reasc.answers import extractor

    if value is not None:
        extractor(value)
    return value


def format_name(value: str) -> str:
    """A data set by name.

    Raises:
        ConfigurationError: there is none of this name.
    """
    from langchain_reasc.data import format_of

    if value != "auto":
        format_of(value, {})
    return value


def preset_name(value: str | None) -> str | None:
    """A preset by name.

    Raises:
        ConfigurationError: there is none of this name.
    """
    from langchain_reasc.data import preset_of

    if value not in (None, "auto"):
        preset_of(value)
    return value


def output_file(path: Path | None) -> Path | None:
    """A file that can be written; its folder is made when it is."""
    if path is None:
        return None
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; name a file in it")
    output_folder(path.parent)
    if path.exists() and not os.access(path, os.W_OK):
        raise typer.BadParameter(f"{path} may not be written")
    return path


def text_output(path: Path | None) -> Path | None:
    """A file that can be written, or ``-`` for stdout."""
    return path if path == Path("-") else output_file(path)


def keep_apart(out: Path, read: Path | None) -> None:
    """Refuse to write over what is read."""
    if read is not None and out.resolve() == read.resolve():
        raise typer.BadParameter(f"--out {out} is the file that is read, and would be lost; name another one")


def output_folder(path: Path) -> Path:
    """A folder that files can be put in, or that can be made."""
    nearest = next(one for one in (path, *path.absolute().parents) if one.exists())
    if not nearest.is_dir():
        raise typer.BadParameter(f"{nearest} is a file, not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"nothing may be written in {nearest}")
    return path
