"""Answers that are equal as mathematics: one spelling for ``\\frac{1}{\\sqrt{2}}`` and ``\\sqrt{2}/2``, by math-verify.

math-verify limits its time with signals, which raise outside of the main thread, and some formulas would take for ever.
So it runs in processes of its own (:mod:`.mathematics_worker`), started as answers need them. An answer that takes
longer than it may keeps its plain spelling, and its process is replaced.
"""

import atexit
import json
import os
import queue
import re
import subprocess
import sys
import threading
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langchain_reasc.answers.marks import in_plain_marks
from langchain_reasc.answers.normalize import normalize
from langchain_reasc.answers.numbers import read_quantity
from langchain_reasc.exceptions import MissingExtraError, missing_extra

__all__ = ["canonical_mathematics", "require_math_verify"]

SECONDS = 3.0
"""An answer may take, once the worker runs."""
_STARTING = 60.0
"""Seconds that the worker may take to import sympy."""
_LONGEST = 300
_PROCESSES = min(4, os.cpu_count() or 1)
_FUNCTIONS = "sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|exp|sqrt|pmatrix|bmatrix|matrix"
_WORDS = re.compile(rf"(?<![\\a-z])(?!(?:{_FUNCTIONS})(?![a-z]))[a-z]{{3,}}", re.IGNORECASE)
_OR = re.compile(r"\s+(?:or|and)\s+")


def require_math_verify() -> None:
    """Say what to install, before anything is paid for.

    Raises:
        MissingExtraError: math-verify, or the parser it needs, is not installed.
    """
    if not all(map(find_spec, ("math_verify", "antlr4"))):
        raise missing_extra("math", "math-verify")


def canonical_mathematics(answer: str) -> str:
    """The spelling that all equal answers share, as far as can be found in a few seconds; else :func:`normalize`'s.

    No tolerance: ``0.333`` is not ``1/3``.
    """
    plain = normalize(answer)
    if len(plain) < 2 or len(plain) > _LONGEST or read_quantity(plain) is not None or _WORDS.search(plain):
        return plain
    try:
        found = _key(_OR.sub(", ", " ".join(in_plain_marks(answer).strip(" $.").split())))
    except TimeoutError:
        return plain
    return plain if found is None else normalize(found)


@lru_cache(maxsize=4096)
def _key(formula: str) -> str | None:
    return _WORKERS.key(formula)


class _Workers:
    """A few processes, so that a formula that takes long holds up one question and not all. Any thread may ask."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: a forked child's workers are not its parent's."""
        self._idle = [_Worker() for _ in range(_PROCESSES)]
        self._all, self._free = tuple(self._idle), threading.Semaphore(_PROCESSES)

    def key(self, formula: str) -> str | None:
        """The canonical spelling of a formula; None where it is none, or took too long.

        Raises:
            TimeoutError: all processes are busy with others.
        """
        if not self._free.acquire(timeout=SECONDS):
            raise TimeoutError
        worker = self._idle.pop()  # the last one used: the others may never have to be started
        try:
            return worker.key(formula)
        finally:
            self._idle.append(worker)
            self._free.release()

    def kill(self) -> None:
        """End all processes."""
        for worker in self._all:
            worker.kill()


class _Worker:
    """A process that reads formulas, one at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._replies: queue.SimpleQueue[str] = queue.SimpleQueue()

    def key(self, formula: str) -> str | None:
        """See :meth:`_Workers.key`."""
        try:
            process = self._running()
            assert process.stdin is not None
            process.stdin.write(json.dumps(formula) + "\n")
            process.stdin.flush()
            reply: Any = json.loads(self._replies.get(timeout=SECONDS))
        except (queue.Empty, OSError, ValueError):
            self.kill()
            return None
        except BaseException:  # Ctrl-C: its reply would be taken for the next one's
            self.kill()
            raise
        return reply if isinstance(reply, str) else None

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.kill()
        process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("mathematics_worker.py")), str(SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is the caller's to handle
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        replies: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._process, self._replies = process, replies
        threading.Thread(target=_pass_on, args=(process, replies), name="math-verify", daemon=True).start()
        if (greeting := replies.get(timeout=_STARTING)) != '"ready"\n':
            self.kill()
            raise MissingExtraError(f"math-verify could not be started: {greeting.strip() or 'it ended at once'}")
        return process

    def kill(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


def _pass_on(process: "subprocess.Popen[str]", replies: "queue.SimpleQueue[str]") -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            replies.put(line)
    replies.put("")  # it ended: nobody is to wait for more


_WORKERS = _Workers()
atexit.register(_WORKERS.kill)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WORKERS.forget)
