"""The fast tier leaves out what it should, and starts no process."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiers import FAST, leaves_out, mark


class Item:
    """What pytest tells of a collected test."""

    def __init__(self, name: str, *markers: str, folder: str = "method", fixtures: Any = (), **parameters: Any) -> None:
        self.nodeid, self.path, self.markers = name, Path("tests", folder, "test_x.py"), [*markers]
        self.fixturenames, self.callspec = fixtures, SimpleNamespace(params=parameters)

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.markers else None

    def add_marker(self, marker: Any) -> None:
        self.markers.append(marker.name)


def marked(*items: Item) -> list[tuple[str, bool]]:
    """Return the tests that are left, and whether the fast tier leaves them out."""
    left: list[Any] = [*items]
    mark(left)
    return [(item.nodeid, "full" in item.markers) for item in left]


def test_each_case_runs_in_one_way_and_each_way_has_cases() -> None:
    ways = {"sync": SimpleNamespace(is_async=False), "async": SimpleNamespace(is_async=True)}
    items = [Item(f"test_x[{way}-{at}]", runner=ways[way], at=at) for at in range(40) for way in ways]
    kept = [name for name, left_out in marked(*items) if not left_out]
    assert sorted(name.partition("-")[2] for name in kept) == sorted(f"{at}]" for at in range(40))
    assert 10 < sum("[sync-" in name for name in kept) < 30


def test_a_case_of_one_way_stays() -> None:
    items = [
        Item("test_x[a-async]", mode="async"),
        Item("test_x[b-sync]", mode="sync"),
        Item("test_y[True]", face=True),
    ]
    assert not any(left_out for _, left_out in marked(*items))


def test_what_is_marked_as_sync_only_is_not_run_in_an_event_loop() -> None:
    items = [Item(f"test_x[{way}]", "sync_only", mode=way) for way in ("sync", "async")]
    assert marked(*items) == [("test_x[sync]", False)]


def test_a_folder_and_a_fixture_mark_their_tests() -> None:
    replaying, serving = Item("test_x", folder="replay"), Item("test_y", fixtures=["real_server"])
    assert marked(replaying, serving, Item("test_z")) == [("test_x", True), ("test_y", True), ("test_z", False)]


def forks() -> None:
    if not os.fork():
        os._exit(0)


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run([sys.executable, "-V"]),
        lambda: os.system("true"),
        lambda: multiprocessing.get_context("spawn").Process(target=print).start(),
        pytest.param(forks, marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")),
    ],
)
def test_a_fast_test_that_starts_a_process_fails(start: Callable[[], Any]) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"mark it with @pytest\.mark\.full"):
        start()


@pytest.mark.full
def test_another_one_may() -> None:
    assert subprocess.run([sys.executable, "-V"], capture_output=True).returncode == 0


def test_folders_that_the_fast_tier_leaves_out_are_not_even_read() -> None:
    assert leaves_out(Path("tests/lab/replay"), FAST)
    assert not leaves_out(Path("tests/lab/replay"), "not slow") and not leaves_out(Path("tests/method"), FAST)
    assert f"-m '{FAST}'" in (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
