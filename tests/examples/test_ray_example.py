"""The example of recording on Ray runs as it stands."""

import re
from pathlib import Path

import pytest
from test_examples import run, run_here

from langchain_reasc.pools import read_pool


@pytest.mark.slow  # a cluster's start
def test_it_records_and_reckons(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    done = run("ray_data.py", "--questions", "16", "--price", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "Ray keeps quiet"
    pool = read_pool(tmp_path / "ray-pool.sqlite")
    assert [len(question.responses) for question in pool.questions] == [4] * 16
    assert done.stdout.startswith("16 questions of 4 responses by 2 workers; ray-pool.sqlite has 16\n")
    hours, money = re.search(r"   1 replicas: ([\d.,]+) hours, ([\d.,]+) at 2 a replica-hour", done.stdout).groups()  # type: ignore[union-attr]
    assert float(money.replace(",", "")) == pytest.approx(2 * float(hours.replace(",", "")), abs=0.2)
    again = run("ray_data.py", "--questions", "16", cwd=tmp_path)
    assert again.returncode == 1 and again.stderr.startswith("error: nothing was left to measure")


def test_help_teaches() -> None:
    done = run_here("ray_data.py", "--help")
    assert done.returncode == 0 and "ray start --address" in done.stdout


def test_a_missing_model_is_one_line_without_a_traceback() -> None:
    done = run_here("ray_data.py", "--model", "absent.gguf")
    assert done.returncode == 1 and "absent.gguf" in done.stderr and "Traceback" not in done.stderr
