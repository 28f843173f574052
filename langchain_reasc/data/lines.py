"""The lines of a text file, compressed or not, and where in it something is wrong."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from langchain_reasc.exceptions import ConfigurationError

__all__ = ["kind_of", "lines_of"]

_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def kind_of(path: Path) -> str:
    """What a file's name says it holds, such as ``.csv``; of a compressed one, what is in it."""
    inner = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return inner.suffix.lower()


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Each line with its number from 1, its end included; one line is in memory at a time.

    Args:
        path: a text in UTF-8, with or without a byte order mark; compressed by gzip where its name ends in ``.gz``.

    Raises:
        ConfigurationError: no such file, it cannot be read, is not UTF-8, or its compressed data are cut off.
    """
    at = 0
    try:
        with _opened(path) as file:
            for at, line in enumerate(file, 1):
                yield at, _decoded(line.removeprefix(_BOM) if at == 1 else line, f"{path}, line {at}")
    except FileNotFoundError:
        raise ConfigurationError(f"no questions at {path}: there is no such file") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path} is a folder; name a file in it") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"cannot read questions from {path} after line {at}: {error}") from error


def _opened(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix.lower() == ".gz" else path.open("rb")


def _decoded(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        shown: Any = line[error.start : error.start + 1]
        seems = "UTF-16" if line.startswith(_UTF_16) else "another encoding, such as Latin-1"
        raise ConfigurationError(
            f"{where} is not UTF-8 (byte {shown!r} at {error.start}): the file seems to be in {seems}; save it as UTF-8"
        ) from None
