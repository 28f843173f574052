"""The lines of a text file, compressed or not, and where in it something is wrong."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, cast

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.untrusted import open_file

__all__ = ["kind_of", "lines_of"]

_MOST: Final = 256 << 20  # bytes
_RATIO: Final = 100  # of a text to what it takes compressed; JSON takes a tenth
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
        ConfigurationError: no such file, it cannot be read, is not UTF-8, its compressed data are cut off, or it holds
            more than questions do.
    """
    at = 0
    try:
        with open_file(path) as packed, _unpacked(packed, path) as file:
            for at, line in enumerate(_bounded(file, _most(path)), 1):
                yield at, _decoded(line.removeprefix(_BOM) if at == 1 else line, f"{path}, line {at}")
    except FileNotFoundError:
        raise ConfigurationError(f"no questions at {path}: there is no such file") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path} is a folder; name a file in it") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"cannot read questions from {path} after line {at}: {error}") from error


def _unpacked(file: IO[bytes], path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(file, "rb")) if path.suffix.lower() == ".gz" else file


def _most(path: Path) -> int:
    """Bytes of text that are read; a small compressed file may hold a thousand times what it takes on disk."""
    packed = path.suffix.lower() == ".gz"
    return min(_MOST, max(_MOST // 4, _RATIO * path.stat().st_size)) if packed else _MOST


def _bounded(file: IO[bytes], most: int) -> Iterator[bytes]:
    """The lines, never more of them in memory than so many bytes."""
    left = most
    while line := file.readline(left + 1):
        if (left := left - len(line)) < 0:
            raise OSError(f"it holds more than {most >> 20} MiB of text; name a smaller file")
        yield line


def _decoded(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        shown: Any = line[error.start : error.start + 1]
        seems = "UTF-16" if line.startswith(_UTF_16) else "another encoding, such as Latin-1"
        raise ConfigurationError(
            f"{where} is not UTF-8 (byte {shown!r} at {error.start}): the file seems to be in {seems}; save it as UTF-8"
        ) from None
