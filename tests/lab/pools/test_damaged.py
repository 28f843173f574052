"""Files that are no pool, or no longer one, or one of a version to come: they are refused, and never a crash."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from langchain_reasc_lab.pools import PoolStore, read_pool

from lab.pools.test_store import filled
from langchain_reasc.exceptions import PoolError


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("PRAGMA user_version = 2", r"p\.sqlite .*newer version.*format 2, here is 1"),
        ("CREATE TABLE responses (text)", r"p\.sqlite .*no pool"),
    ],
    ids=["a pool of a later version", "another database"],
)
def test_what_is_no_pool_of_ours_is_not_touched(tmp_path: Path, change: str, says: str) -> None:
    path = filled(tmp_path / "p.sqlite") if change.startswith("PRAGMA") else tmp_path / "p.sqlite"
    with sqlite3.connect(path) as sql:
        sql.execute(change)
    before = path.read_bytes()
    for opening in (PoolStore.open, PoolStore.create, read_pool):
        with pytest.raises(PoolError, match=says):
            opening(path)
    assert path.read_bytes() == before


def test_a_pool_that_was_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = filled(tmp_path / "whole.sqlite").read_bytes()
    cut = tmp_path / "cut.sqlite"
    rng = np.random.default_rng(0)
    for size in [
        0,
        15,
        16,
        17,
        99,
        100,
        512,
        4095,
        4096,
        8192,
        len(whole) - 1,
        *rng.integers(16, len(whole), 20).tolist(),
    ]:
        cut.write_bytes(whole[:size])
        with pytest.raises(PoolError, match=r"cut\.sqlite: .*damaged" if size > 15 else r"cut\.sqlite"):
            read_pool(cut)
