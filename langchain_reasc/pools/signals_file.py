"""Token signals beside a pool of JSON Lines: ``pool.jsonl`` has ``pool.signals.gz``, which earlier recordings wrote.

The file is a sequence of gzip members, each one JSON line: ``{"id", "lengths": [tokens of each response],
"signals": {name: base64 of the responses' float32 values, little-endian, one after the other}}``. A member cut off by a
kill is left out, and of two with one id the later one counts. ``zcat`` shows them.
"""

import base64
import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import PoolError
from langchain_reasc.untrusted import open_file, parse_json

__all__ = ["signals_in", "signals_path"]

_LONGEST: Final = 256 << 20  # bytes of the signals of a question; they take a few thousand a response

Signals = dict[str, npt.NDArray[np.float32]]


def signals_path(pool: str | os.PathLike[str]) -> Path:
    """Where the signals of such a pool lie."""
    return Path(pool).with_suffix(".signals.gz")


def signals_in(path: Path) -> Iterator[tuple[str, list[Signals]]]:
    """Each question's id, and the signals of each of its responses: name -> shape (T,); none where it has none.

    Raises:
        PoolError: unreadable, damaged elsewhere than at its end, or not what a recording wrote.
    """
    for number, line in _lines(path):
        try:
            record = parse_json(line)
            question, lengths = str(record["id"]), [int(length) for length in record["lengths"]]
            held = {
                name: _decoded(path, question, name, text, sum(lengths)) for name, text in record["signals"].items()
            }
        except PoolError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PoolError(
                f"{path}: member {number} is not a line of token signals ({error!r}); it was not written by "
                "`reasc record`, move it away to replay without signals"
            ) from None
        ends = np.cumsum(lengths, dtype=np.int64)[:-1]
        parts = {name: np.split(values, ends) for name, values in held.items()}
        yield (
            question,
            [
                {name: arrays[at] for name, arrays in parts.items()} if length else {}
                for at, length in enumerate(lengths)
            ],
        )


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with open_file(path) as packed, gzip.open(packed) as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST + 1), b""), start=1):
                if len(line) > _LONGEST:
                    raise PoolError(f"{path}, line {number} holds more than {_LONGEST >> 20} MiB; move the file away")
                yield number, line
    except EOFError:  # the recorder was killed while it wrote the last member
        return
    except (zlib.error, gzip.BadGzipFile) as error:
        if "(b'\\x1f')" in str(error):  # killed after the first byte of the last member
            return
        raise PoolError(f"{path} is damaged ({error}); move it away to replay without token signals") from None
    except OSError as error:
        raise PoolError(f"cannot read the token signals {path}: {error.strerror or error}") from error


def _decoded(path: Path, question: str, name: str, text: str, tokens: int) -> npt.NDArray[np.float32]:
    try:
        values = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
    except ValueError as error:
        raise PoolError(f"{path}: signal {name!r} of question {question!r} cannot be decoded: {error}") from None
    if values.size != tokens:
        raise PoolError(
            f"{path}: signal {name!r} of question {question!r} has {values.size} values for {tokens} tokens"
        )
    return values
