"""Pools that nobody thought of: every table is made or refused in a sentence, and never crashes."""

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_reasc_lab.replay import Estimate
from langchain_reasc_lab.replay.methods import OFFLINE
from langchain_reasc_lab.report import Study, make_report

from lab.pools.synthetic import question, response, write_lines, write_pool
from lab.report.studies import entry_of, made, row, study
from langchain_reasc.exceptions import PoolError

TABLES = (
    *("main", "intervals", "stage1", "stage2", "ablation", "controls"),
    *("mappings", "p_target", "scale", "calibration_size"),
)
COUNTING = {"main", "intervals"}  # that need no scores
Answer = Callable[[int, int], str | None]


def _mixed(number: int, at: int) -> str:
    return "7" if (number + at) % 3 else "1"


def _questions(number: int, answer: Answer, responses: Callable[[int], int], **fixed: Any) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(number)
    for one in range(number):
        drawn = [
            response(answer(one, at), int(rng.integers(5, 20)), **{"score": float(rng.normal()), **fixed})
            for at in range(responses(one))
        ]
        yield question(f"q{one}", *drawn)


def _odd(
    path: Path, number: int, answer: Answer = _mixed, responses: Callable[[int], int] = lambda n: 5, **more: Any
) -> Study:
    size = more.pop("size", 8)
    write_lines(path, *_questions(number, answer, responses, **more))
    return study(path, "recorded", size=size, shuffles=1, budget=6)


POOLS: dict[str, Callable[[Path], Study]] = {
    "all right": lambda path: _odd(path, 36, lambda n, at: "7"),
    "all wrong": lambda path: _odd(path, 36, lambda n, at: str(at % 2)),
    "no answers": lambda path: _odd(path, 36, lambda n, at: None),
    "of different lengths": lambda path: _odd(path, 36, responses=lambda n: 1 + n % 7),
    "no tokens": lambda path: _odd(path, 36, completion_tokens=0),
    "one question": lambda path: _odd(path, 1),
    "smaller than its calibration": lambda path: _odd(path, 36, size=128),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", POOLS)
def test_every_table_and_the_verdict_are_made_or_say_why_not(tmp_path: Path, name: str) -> None:
    studied = POOLS[name](tmp_path / "odd.sqlite")
    [[*verdict]] = make_report([studied], [entry_of("main")]).verdicts
    assert verdict[-1].endswith(".") and not re.search(r"\b(nan|inf)\b", " ".join(verdict))
    for table in TABLES:
        try:
            rows = made(table, studied).rows
        except PoolError as error:
            assert name in ("one question", "smaller than its calibration")
            assert str(error).startswith("odd holds ") and table not in COUNTING
            continue
        assert rows
        for held in (one for cells in rows for one in cells if isinstance(one, Estimate)):
            if math.isnan(held.low):  # one shuffle does not show what else would have been learned
                assert table in ("main", "intervals", "controls") and math.isfinite(held.value), table
                continue
            assert -100 <= held.low <= held.high <= 100
            assert held.low - 0.1 <= held.value <= held.high + 0.1


def test_all_right_and_all_wrong_are_no_certainty(tmp_path: Path) -> None:
    right, wrong = (POOLS[name](tmp_path / f"{name[4:]}.sqlite") for name in ("all right", "all wrong"))
    lucky, unlucky = (row(made("main", pool), "ASC")[0] for pool in (right, wrong))
    assert isinstance(lucky, Estimate) and isinstance(unlucky, Estimate)
    assert lucky.value == lucky.high == 100 and 80 < lucky.low < 99
    assert unlucky.value == unlucky.low == 0 and 1 < unlucky.high < 20
    assert any(
        note.startswith(f"The gate of {OFFLINE} was closed here: none of the 8") for note in made("main", wrong).notes
    )


def test_a_pool_without_scores_compares_the_methods_that_count(tmp_path: Path) -> None:
    write_pool(tmp_path / "plain.sqlite", 12, 4, signals=False)
    plain = study(tmp_path / "plain.sqlite", None, size=8, shuffles=0)
    table = made("main", plain)
    methods = [str(one[0]).partition(" ")[0] for one in table.rows]
    assert methods == ["pass@1", "SC@16", "ESC", "ASC", "Finite", "Agreement"]
    assert any(note.startswith("plain: 12 questions tested in recorded order.") for note in table.notes)
    for name in set(TABLES) - COUNTING:
        with pytest.raises(PoolError, match="plain has neither scores nor token signals"):
            made(name, plain)


def test_what_a_pool_without_log_probabilities_lacks_is_what_its_recording_foretells(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "a.sqlite", 60, signals=False)
    report = make_report([study(path, None, size=16, shuffles=1, budget=8)])
    assert [part.entry.by_votes for part in report.parts] == [bool(part.tables) for part in report.parts]
