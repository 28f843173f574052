"""What a judge has said, kept as soon as it is paid for: an interrupted grading goes on, and a dry run is not lost.

JSON Lines beside the pool, one verdict a line. What was asked is recognised by a hash of the whole prompt, so that
another question, label, answer or wording is another line, and the same one is never paid for again.
"""

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

from langchain_reasc.exceptions import PoolError
from langchain_reasc.untrusted import open_file, parse_json

__all__ = ["JudgedFile"]

_SHOWN = 200  # characters of an answer, for a person who reads the file


class JudgedFile:
    """Verdicts by what was asked of whom. Several threads may use it at once.

    Args:
        path: the file; made with the first verdict. None keeps them in memory only.

    Raises:
        PoolError: the file cannot be read, or not be written: what a judge is paid for would be lost.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._verdicts: dict[tuple[str, str], bool] = {}
        self._torn = False
        if self._path is not None:
            self._read(self._path)
            if not os.access(self._path if self._path.exists() else self._path.parent, os.W_OK):
                raise PoolError(f"{self._path} cannot be written, where a judge's verdicts are kept as they come")

    @classmethod
    def beside(cls, pool: Path) -> "JudgedFile":
        """The one that belongs to a pool: ``pool.judged.jsonl``."""
        return cls(pool.with_suffix(".judged.jsonl"))

    def verdict(self, judge: str, asked: str) -> bool | None:
        """What a judge said when it was asked this; None where it was not, or nothing came of it."""
        with self._lock:
            return self._verdicts.get((judge, _hash(asked)))

    def keep(self, judge: str, asked: str, answer: str, correct: bool) -> None:
        """Keep what a judge has said.

        Raises:
            OSError: the file cannot be written.
        """
        key = _hash(asked)
        line = {"judge": judge, "asked": key, "answer": answer[:_SHOWN], "correct": correct}
        with self._lock:
            self._verdicts[judge, key] = correct
            if self._path is not None:
                text = json.dumps(line, ensure_ascii=False)
                with self._path.open("a", encoding="utf-8", errors="replace") as file:
                    file.write(f"\n{text}\n" if self._torn else f"{text}\n")
                self._torn = False

    def _read(self, path: Path) -> None:
        try:
            with open_file(path) as file:
                text = file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return
        except OSError as error:
            raise PoolError(f"cannot read the judge's verdicts in {path}: {error.strerror or error}") from error
        self._torn = not text.endswith("\n") and bool(text)  # killed while it was written
        for line in text.split("\n"):
            if (held := _parsed(line)) is not None:
                self._verdicts[held["judge"], held["asked"]] = held["correct"]


def _parsed(line: str) -> dict[str, Any] | None:
    """A line, or None where it holds no verdict: it is then asked for again."""
    try:
        held = parse_json(line)
    except ValueError:
        return None
    whole = isinstance(held, dict) and isinstance(held.get("correct"), bool)
    return held if whole and all(isinstance(held.get(name), str) for name in ("judge", "asked")) else None


def _hash(asked: str) -> str:
    return hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()[:32]
