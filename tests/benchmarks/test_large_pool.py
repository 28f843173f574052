"""A large pool in small memory: what grows with it is what decisions need, not texts and token signals."""

from pathlib import Path

import pytest
from langchain_reasc_lab.pools import read_pool

from benchmarks.large_pool import Step, main, measured, slope, write


def test_what_is_made_can_be_read_back(tmp_path: Path) -> None:
    pool = read_pool(write(tmp_path / "p.sqlite", 3, tokens=40, samples=2))
    assert len(pool.questions) == 3 and pool.signals is not None
    for question in pool.questions:
        assert [len(values["top_k"]) for values in pool.signals.of_question(question.id)] == [
            response.completion_tokens for response in question.responses
        ]
        assert len(pool.texts(question.id)) == len(question.responses) == 2


def test_growth_is_per_response() -> None:
    steps = [Step("read", 100, 1.0, 50_000_000), Step("read", 200, 2.0, 50_160_000)]
    assert slope(steps) == 100


@pytest.mark.slow
def test_it_prints_what_it_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--questions", "4", "8", "--tokens", "50", "--steps", "read", "--folder", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "questions (on disk)" in printed and "bytes a response" in printed
    assert all(len(line) <= 80 for line in printed.splitlines()) and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_memory_does_not_grow_with_texts_and_signals(tmp_path: Path) -> None:
    """Between the two sizes there are 128 MB of them, and 2,400 responses."""
    steps = ["write", "read", "replay, one signal", "replay, auto", "calibrate"]
    small, large = (
        {step.name: step.peak for step in measured(tmp_path / f"{questions}.sqlite", questions, steps=steps)}
        for questions in (50, 200)
    )
    grown = {name: (large[name] - small[name]) / 1e6 for name in small}
    assert max(grown.values()) < 32, grown
