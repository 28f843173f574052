"""A short run of ``python -m benchmarks.frontier``."""

from pathlib import Path

import pytest
from lab.pools.synthetic import write_pool

from benchmarks.frontier import COUNTED, POOLS, SCORED, main, rules


@pytest.mark.full
def test_each_rule_has_a_line_on_each_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        write_pool(tmp_path / f"{name}.sqlite", questions=40, samples=8, seed=ord(name[0]))
    main([str(tmp_path), "--shuffles", "2", "--only", "two"])
    head, table = capsys.readouterr().out.split("\n\n")
    title, *lines = table.splitlines()
    assert head.startswith("2 shuffles (seed 0)") and title.startswith("two, 40 questions")
    assert len(lines) == len(rules(8)) + len(COUNTED) + len(SCORED) + 1
    tokens = {line[:34].strip(): float(line[34:].split()[0]) for line in lines}
    assert tokens["counts 0.95"] < tokens["counts 0.985"] < tokens["ASC"] < 1
    assert tokens["counts and scores 0.9"] < tokens["counts and scores 0.98"] <= 1


def test_the_small_pools_are_there() -> None:
    assert {path.name.split(".")[0] for path in POOLS.glob("*.gz")} == {
        "gemma",
        "shipped",
        "shipped_new",
        "smol_arithmetic",
        "smol_choice",
        "smol_facts2",
        "smol_words",
    }
