"""Processes that share a store, and are killed meanwhile, lose nothing and write nothing twice."""

import os
from pathlib import Path

import pytest

from benchmarks.shared_store import trial


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_killed_processes_lose_nothing(tmp_path: Path) -> None:
    outcome = trial(tmp_path / "online.sqlite", processes=4, questions=100, kills=15)
    assert outcome.holds, outcome
    assert outcome.acknowledged == 400 and outcome.kills >= 3
