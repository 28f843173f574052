"""A short run of ``python -m benchmarks.defaults``."""

from pathlib import Path

import pytest
from lab.pools.synthetic import json_lines, question, response, write_pool

from benchmarks.defaults import VALUES, main


def test_the_default_is_what_others_are_compared_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "abcd":
        write_pool(tmp_path / f"{name}.sqlite", questions=30, samples=8, signals=False, seed=ord(name))
    json_lines(tmp_path / "single.jsonl", question("q", response("7")))
    main([str(tmp_path), "--shuffles", "1"])
    said = capsys.readouterr().out
    assert said.startswith("2 and 2 recordings, 1 shuffles (seed 0)")
    assert said.count("(default)") == 3 and all(f"\n{parameter} " in said for parameter in VALUES)
    tokens = {line.split()[0]: float(line.split()[1]) for line in said.split("\n\n")[1].splitlines()[2:]}
    assert tokens["0.9"] <= tokens["0.95"] <= 1 <= tokens["0.98"] <= tokens["0.99"] and tokens["0.9"] < tokens["0.99"]
    assert said.count(" 1.00 ") >= 8  # of the default, on both halves
