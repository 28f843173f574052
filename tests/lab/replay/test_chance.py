"""How often chance alone makes a rule look clearly worse."""

from pathlib import Path

import pytest
from langchain_reasc_lab.pools import read_pool
from langchain_reasc_lab.replay.chance import worse_by_chance
from langchain_reasc_lab.replay.methods import MethodSettings
from langchain_reasc_lab.replay.metrics import summarize
from langchain_reasc_lab.replay.replay import replay

from lab.pools.synthetic import question, response, write_lines


@pytest.mark.parametrize(("differing", "least", "most"), [(0, 0.0, 0.0), (4, 0.0, 0.0), (40, 0.01, 0.06)])
def test_few_differing_questions_are_never_clearly_worse_by_chance(
    tmp_path: Path, differing: int, least: float, most: float
) -> None:
    right, wrong = response("7"), response("1")
    steady, turning = [right] * 8, [wrong, wrong, *[right] * 6]
    questions = [question(f"{n}", *(turning if n < differing else steady)) for n in range(60)]
    pool = read_pool(write_lines(tmp_path / "p.sqlite", *questions))
    run = replay(pool, settings=MethodSettings(max_samples=8), rules="simple")
    [three] = [row for row in summarize(run) if row.method == "SC@3"]
    assert three.accuracy_vs_sc.value == pytest.approx(-differing / 60)
    assert least <= worse_by_chance(run, three) <= most
