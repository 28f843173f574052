"""The tiers of tests: what `make test` leaves to `make test-all`, and a guard.

A test belongs to the fast tier unless it is marked ``slow`` or ``full``. Marked here are the tests of some folders and
fixtures, and one way of each test that runs both synchronously and in an event loop. Other tests are marked where they
stand. The guard fails a test of the fast tier that starts a process.
"""

import multiprocessing.process
import os
import platform
import subprocess
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

FULL_FIXTURES = frozenset(("child", "disk", "real_server", "site", "trials"))
"""Fixtures that start a process or a real server."""
FULL_FOLDERS = frozenset(("benchmarks", "characterization", "escalation", "replay", "report"))
"""Folders whose tests compute for long."""
FAST = "not slow and not full"
"""How `make test` asks for its tests."""

_WAY_PARAMETERS = ("runner", "face", "run", "mode", "is_async")
"""Parameters of tests and fixtures that say whether a test runs in an event loop."""
_WAYS = ("sync", "async")
_running: pytest.Item | None = None


def mark(items: list[pytest.Item]) -> None:
    """Drop what ``sync_only`` excludes, and mark the tests that the fast tier leaves out."""
    items[:] = [item for item in items if not (_way(item) == "async" and item.get_closest_marker("sync_only"))]
    cases = defaultdict[str, dict[str, pytest.Item]](dict)
    for item in items:
        if item.path.parent.name in FULL_FOLDERS or FULL_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.full)
        if way := _way(item):
            cases[_case(item, way)][way] = item
    for case, ways in cases.items():
        if len(ways) == len(_WAYS):
            # Half of the cases run in each way, always the same half: a fault of one way alone meets many of them.
            left_out = _WAYS[zlib.crc32(case.encode()) % len(_WAYS)]
            ways[left_out].add_marker(pytest.mark.full)


def leaves_out(path: Path, chosen: str) -> bool:
    """Return whether a folder need not be collected, because none of its tests is among the chosen ones."""
    return chosen == FAST and path.name in FULL_FOLDERS


def _way(item: pytest.Item) -> str | None:
    """Return "sync" or "async" for a test that a parameter runs in one of these ways."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    for name in _WAY_PARAMETERS:
        if name in parameters:
            value = getattr(parameters[name], "is_async", parameters[name])
            return "async" if value in (True, "async") else "sync"
    return None


def _case(item: pytest.Item, way: str) -> str:
    """Return the id of a test without its way: the same for both."""
    function, _, parameters = item.nodeid.partition("[")
    parts = sorted(parameters.removesuffix("]").split("-"))
    if way in parts:
        parts.remove(way)
    return "-".join([function, *parts])


def may_start_processes() -> bool:
    """Return whether no test runs, or one that is marked ``full`` or ``slow``."""
    return _running is None or any(_running.get_closest_marker(name) for name in ("full", "slow"))


@contextmanager
def running(item: pytest.Item | None) -> Iterator[None]:
    """Tell the guard which test runs; None: what runs is not guarded."""
    global _running
    before = _running
    _running = item
    try:
        yield
    finally:
        _running = before


def guard(patch: pytest.MonkeyPatch) -> None:
    """Let a test of the fast tier fail if it starts a process."""
    platform.processor()  # starts a process once, and remembers what it says
    starting: list[tuple[Any, str]] = [
        (subprocess.Popen, "__init__"),
        (multiprocessing.process.BaseProcess, "start"),
        *((os, name) for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system") if hasattr(os, name)),
    ]
    for owner, name in starting:
        patch.setattr(owner, name, _refused_in_the_fast_tier(getattr(owner, name)))


def _refused_in_the_fast_tier(start: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not may_start_processes() and not _looks_around(args):
            pytest.fail(f"a test of the fast tier starts a process {args[-1:]}: mark it with @pytest.mark.full")
        return start(*args, **kwargs)

    return checked


def _looks_around(args: Sequence[Any]) -> bool:
    """Whether matplotlib asks which fonts a new machine has, or Python where a library is."""
    return bool(args) and isinstance(args[-1], list) and args[-1][0] in ("fc-list", "/sbin/ldconfig")


def in_this_process(patch: pytest.MonkeyPatch) -> None:
    """Let tests of the fast tier do in this process what the package does in others: read formulas, load files."""
    from langchain_reasc.answers import mathematics, mathematics_worker

    in_worker = mathematics._FormulaWorker.read_formula

    def read_formula(worker: mathematics._FormulaWorker, formula: str) -> str | None:
        if may_start_processes():
            return in_worker(worker, formula)
        try:
            return mathematics_worker.canonical(formula)
        except Exception:  # not a formula
            return None

    patch.setattr(mathematics._FormulaWorker, "read_formula", read_formula)
    if find_spec("langchain_reasc_llama_cpp"):
        _load_in_this_process(patch)


def _load_in_this_process(patch: pytest.MonkeyPatch) -> None:
    from langchain_reasc_llama_cpp.native import model, safe_kernels

    check_loading, try_kernels = model.check_loading, safe_kernels._run

    def check_loading_unless_fast(*args: Any) -> None:
        if may_start_processes():
            check_loading(*args)

    def try_kernels_unguarded(*args: Any) -> str:
        with running(None):  # once for each machine with AMX: without a trial no model could be loaded there
            return try_kernels(*args)

    patch.setattr(model, "check_loading", check_loading_unless_fast)
    patch.setattr(safe_kernels, "_run", try_kernels_unguarded)
