"""Behaviour held fixed by golden files: what each test observes is compared with ``golden/*.json`` beside it.

``python -m pytest tests/characterization --write-golden`` writes them again; review the difference by eye.
"""

import difflib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runnable.conftest import AsyncRunner
from runnable.conftest import Runner as SyncRunner
from runnable.conftest import await_no_sampling_threads as assert_no_threads

GOLDEN = Path(__file__).parent / "golden"
_READ: dict[Path, dict[str, Any]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="write golden/*.json anew instead of comparing")


def _rounded(value: Any, digits: int) -> Any:
    """The value as JSON has it, floats to so many significant digits."""
    if isinstance(value, dict):
        return {str(key): _rounded(one, digits) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one, digits) for one in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    return value


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare a value with the golden one; what holds in both modes has one golden value for both."""
    path = GOLDEN / f"{Path(request.node.fspath).stem.removeprefix('test_')}.json"

    def compare(value: Any, name: str = "", digits: int = 9) -> None:
        key = request.node.name.removeprefix("test_")
        for mode in ("sync", "async"):
            key = key.replace(f"[{mode}-", "[").replace(f"-{mode}]", "]").replace(f"[{mode}]", "")
        key += f" {name}" if name else ""
        value = json.loads(json.dumps(_rounded(value, digits)))
        if path not in _READ:
            _READ[path] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        known = _READ[path]
        if request.config.getoption("--write-golden", default=False):
            known[key] = value
            path.parent.mkdir(exist_ok=True)
            path.write_text(_text(dict(sorted(known.items())), 800) + "\n", encoding="utf-8")
        elif known.get(key) != value:
            before, now = (_text(one, 110).splitlines() for one in (known.get(key), value))
            pytest.fail("\n".join([key, *difflib.unified_diff(before, now, "golden", "now", lineterm="", n=2)]))

    return compare


def _text(value: Any, width: int, indent: str = "") -> str:
    """JSON, with what fits in a line on one."""
    line = json.dumps(value, ensure_ascii=False)
    if (len(line) + len(indent) <= width and indent) or not isinstance(value, dict | list) or not value:
        return line
    inner = f"{indent} "
    if isinstance(value, dict):
        parts, ends = [f"{json.dumps(key)}: {_text(one, width, inner)}" for key, one in value.items()], "{}"
    else:
        parts, ends = [_text(one, width, inner) for one in value], "[]"
    return ends[0] + "\n" + ",\n".join(f"{inner}{part}" for part in parts) + f"\n{indent}{ends[1]}"


class Runner:
    """Calls a method, or its asynchronous twin in an event loop of its own that must be left without tasks."""

    def __init__(self, mode: str) -> None:
        self.mode, self.is_async = mode, mode == "async"
        self._runner = AsyncRunner() if self.is_async else SyncRunner()

    def __call__(self, runnable: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """What ``runnable.method`` gives; streams are collected."""
        return self._runner.call(getattr(runnable, f"a{method}" if self.is_async else method), *args, **kwargs)


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Iterator[Runner]:
    yield Runner(request.param)
    assert_no_threads()
