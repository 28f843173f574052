r"""Equality of mathematical answers by math-verify: one spelling for
``\frac{1}{\sqrt{2}}`` and ``\sqrt{2}/2``.

Some formulas take forever, and math-verify limits its time with signals, which work
only in the main thread. So math-verify runs in separate processes
(:mod:`.mathematics_worker`), started on demand. An answer that takes too long keeps its
plain spelling, and its process is replaced. The process pools of libraries do not fit:
they import the user's ``__main__`` again, or fork a process that has threads.
"""

import atexit
import json
import os
import queue
import re
import subprocess
import sys
import threading
import unicodedata
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from langchain_reasc.answers.forms import form_of, list_parts, named_value
from langchain_reasc.answers.notation import without_markup
from langchain_reasc.exceptions import MissingExtraError, missing_extra

SECONDS = 3.0
"""Seconds that an answer may take once the worker runs."""
_STARTING = 60.0
"""Seconds that the worker may take to import sympy."""
_LONGEST = 300
_PROCESSES = min(4, os.cpu_count() or 1)
_FUNCTIONS = "sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|exp|sqrt|pmatrix|bmatrix|matrix|begin|end"
_SMALL_WORDS = "to|of|in|if|is|or|at|by|no|on|so|as|an|be"
_WORDS = re.compile(
    rf"(?<![\\a-z])(?!(?:{_FUNCTIONS})(?![a-z]))(?:[a-z]{{3,}}|(?:{_SMALL_WORDS})(?![a-z]))",
    re.IGNORECASE,
)
_SYMBOLIC = re.compile(r"[a-zA-Z\\^√π∞∪∩]")
_NOT_READ_RIGHT = re.compile(
    r"!|_|\\overline|\\over(?![a-z])|\b0[xob]|[%°‰$?]|[a-zA-Z]\[|\(mod"
)
"""What math-verify reads past: it takes 1/2004! for 1/2006!, and 101_2 for 101_3."""
_SAYS_NOTHING = frozenset(("true", "false", "0=0", "nan", "zoo", "0"))
_TO_TEX = str.maketrans(
    {
        "π": "\\pi ",
        "∞": "\\infty ",
        "≤": "\\le ",
        "≥": "\\ge ",
        "×": "\\times ",
        "·": "\\cdot ",
        "−": "-",
        "±": "\\pm ",
        "∪": "\\cup ",
        "∩": "\\cap ",
    }
)
_STUCK = re.compile(r"(?<=\d)[a-zA-Z]")
_BRACED_ROOT = re.compile(r"√\s?\{")
_ROOT = re.compile(r"√\s?(\w+)")
_POWER = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹]+")


def require_math_verify() -> None:
    """Check that math-verify is installed, before any sample is paid for.

    Raises:
        MissingExtraError: math-verify, or the parser it needs, is not installed.
    """
    if not all(map(find_spec, ("math_verify", "antlr4"))):
        raise missing_extra("math", "math-verify")


def canonical_mathematics(answer: str) -> str:
    """Return the common spelling of all equal formulas, or that of :func:`written` if
    it is not found in time.

    There is no tolerance: ``0.333`` is not ``1/3``. A list is spelled part by part, and
    a name before an equals sign stays, so that only whole formulas are compared.
    """
    form = form_of(answer)
    if len(form.written) > _LONGEST or not _SYMBOLIC.search(form.written):
        return form.written
    if form.kind == "list":
        parts = list_parts(form.written)
        if len(parts) > 1:
            return ", ".join(map(canonical_mathematics, parts))
    equation = named_value(form.written)
    if equation:
        name, value = equation
        return f"{name} = {canonical_mathematics(value)}"
    # What has a unit or words is not a formula.
    if form.weaker or _WORDS.search(form.written):
        return form.written
    if _NOT_READ_RIGHT.search(form.written):
        return form.written
    try:
        spelling = _read_formula(_as_tex(without_markup(answer)))
    except queue.Empty:  # all workers are busy with other formulas
        return form.written
    if spelling is None or spelling.lower() in _SAYS_NOTHING:
        return form.written
    if _letters(spelling) < _letters(form.written):
        return form.written
    return spelling


def _letters(formula: str) -> set[str]:
    """Return the variables of a formula, none of which may get lost: math-verify reads
    6ab as 6.
    """
    letters = set(re.findall(r"(?<![a-zA-Z\\])[a-zA-Z](?![a-zA-Z])", formula))
    letters.update(_STUCK.findall(formula))
    return letters - {"e", "E", "i", "I"}


def _as_tex(formula: str) -> str:
    formula = _BRACED_ROOT.sub(r"\\sqrt{", formula)
    formula = _ROOT.sub(r"\\sqrt{\1}", formula)
    formula = _POWER.sub(
        lambda power: f"^{{{unicodedata.normalize('NFKC', power[0])}}}", formula
    )
    formula = formula.translate(_TO_TEX)
    return " ".join(formula.strip(" $.").split())


@lru_cache(maxsize=4096)
def _read_formula(formula: str) -> str | None:
    """Return the canonical spelling of a formula, or None if it is not a formula or
    took too long.

    Raises:
        queue.Empty: all workers are busy.
    """
    idle = _idle
    # the last one used: the others may never have to be started
    worker = idle.get(timeout=_STARTING)
    try:
        return worker.read_formula(formula)
    finally:
        idle.put(worker)


class _FormulaWorker:
    """A process that reads formulas, one at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def read_formula(self, formula: str) -> str | None:
        """See :func:`_read_formula`."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        try:
            reply: object = json.loads(self._reply(json.dumps(formula) + "\n", SECONDS))
        except (OSError, ValueError):
            self.kill()
            return None
        except BaseException:  # Ctrl-C: its reply would be taken for the next one's
            self.kill()
            raise
        return reply if isinstance(reply, str) else None

    def _start(self) -> None:
        self.kill()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                str(Path(__file__).with_name("mathematics_worker.py")),
                str(SECONDS),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is the caller's to handle
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        greeting = self._reply("", _STARTING)
        if greeting != '"ready"\n':
            self.kill()
            raise MissingExtraError(
                "math-verify could not be started: "
                f"{greeting.strip() or 'it ended at once'}"
            )

    def _reply(self, line: str, seconds: float) -> str:
        """Send a line to the process and return its reply, or an empty text if the
        process ends or is too slow.
        """
        process = self._process
        assert (
            process is not None
            and process.stdin is not None
            and process.stdout is not None
        )
        deadline = threading.Timer(seconds, process.kill)
        deadline.daemon = True
        deadline.start()
        try:
            process.stdin.write(line)
            process.stdin.flush()
            return process.stdout.readline()
        finally:
            deadline.cancel()

    def kill(self) -> None:
        """End the process."""
        process = self._process
        self._process = None
        if process is not None:
            process.kill()
            process.communicate()  # which closes its pipes, and waits for it


def _make_workers() -> None:
    global _idle, _workers
    _workers = [_FormulaWorker() for _ in range(_PROCESSES)]
    _idle = queue.LifoQueue()
    for worker in _workers:
        _idle.put(worker)


def _kill_workers() -> None:
    for worker in _workers:
        worker.kill()


_workers: list[_FormulaWorker]
_idle: "queue.LifoQueue[_FormulaWorker]"
_make_workers()
atexit.register(_kill_workers)
if hasattr(os, "register_at_fork"):
    # its parent's workers are not a child's
    os.register_at_fork(after_in_child=_make_workers)
