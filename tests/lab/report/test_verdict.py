"""The first sentence of a report: what it claims is what the numbers bear out, also where they bear out nothing."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_reasc_lab.report import Study, chosen_entries, make_report
from pools.synthetic import question, response, write_lines

from lab.report.studies import study
from lab.report.test_odd_pools import POOLS

Lines = list[dict[str, Any]]


def told(*studies: Study) -> list[str]:
    report = make_report(studies, chosen_entries(["main"]))
    return [" ".join(sentences) for sentences in report.verdicts]


def agreeing(count: int) -> Lines:
    """Questions to which all 16 responses are right."""
    return [question(f"same {n}", *[response("7", 10)] * 16) for n in range(count)]


def calibrating(count: int = 128) -> Lines:
    """Questions of which every other one is wrong, and the score tells which."""
    rng = np.random.default_rng(0)
    return [
        question(f"c{n}", *[response("71"[n % 2], 10, score=1.0 - n % 2 + 0.01 * float(rng.normal()))] * 16)
        for n in range(count)
    ]


def led(first: str, others: str, count: int) -> Lines:
    """Questions whose first response is trusted alone, and the other 15 say something else."""
    rest = [response(others, 10, score=0.0)] * 15
    return [question(f"led {n}", response(first, 10, score=1.0), *rest) for n in range(count)]


@pytest.mark.parametrize(
    ("lines", "measure", "begins", "holds"),
    [
        (agreeing(160), None, "Finite horizon (0.97) is as accurate as all 16 samples of each", "within ±2.3 points"),
        (agreeing(160), None, "", "for 75 % [75, 75] fewer tokens."),
        (agreeing(160), None, "", "Nor is it clear that more than one response helps here"),
        (agreeing(160), None, "", "as ReASC could not be tried: p has neither scores nor token signals"),
        (agreeing(40), None, "40 questions cannot tell whether Finite horizon (0.97) is as accurate as all 16", ""),
        (agreeing(3), None, "3 questions cannot tell methods apart: Finite horizon (0.97) answers 100.0 %", ""),
        (agreeing(1), None, "1 question cannot tell methods apart", "Record 30 or more."),
        ([*calibrating(), *led("1", "7", 40)], "recorded", "ReASC (offline", "is less accurate than all 16 samples"),
        ([*calibrating(), *led("1", "7", 40)], "recorded", "", "by 100.0 points [100.0, 100.0], for 94 %"),
        ([*calibrating(), *led("7", "1", 40)], "recorded", "ReASC (offline", "is more accurate than all 16 samples"),
        ([*calibrating(), *led("7", "1", 40)], "recorded", "", "Beside ASC, which counts votes"),
        (calibrating(20), "recorded", "20 questions cannot tell", "a calibration on 128 leaves none to test"),
    ],
)
def test_the_verdict_claims_what_the_numbers_bear_out(
    tmp_path: Path, lines: Lines, measure: str | None, begins: str, holds: str
) -> None:
    write_lines(tmp_path / "p.jsonl", *lines)
    [verdict] = told(study(tmp_path / "p.jsonl", measure, size=128))
    assert verdict.startswith(begins) and holds in verdict


def test_samples_are_as_many_as_were_recorded(tmp_path: Path) -> None:
    write_lines(tmp_path / "p.jsonl", *[question(f"q{n}", *[response("7")] * 4) for n in range(160)])
    assert "all 4 samples of each question" in told(study(tmp_path / "p.jsonl", None))[0]


@pytest.mark.parametrize("name", POOLS)
def test_every_pool_has_a_verdict_without_empty_numbers(tmp_path: Path, name: str) -> None:
    studied = POOLS[name](tmp_path / "odd.jsonl")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [verdict] = told(studied)
    assert verdict.endswith(".") and "nan" not in verdict and "inf" not in verdict


@pytest.mark.parametrize(("asked", "verdicts"), [(["main"], 2), (["intervals"], 0)])
def test_each_pool_has_its_own_where_methods_are_compared(tmp_path: Path, asked: list[str], verdicts: int) -> None:
    paths = [write_lines(tmp_path / f"{name}.jsonl", *agreeing(count)) for name, count in (("a", 40), ("b", 160))]
    report = make_report([study(path, None) for path in paths], chosen_entries(asked))
    assert len(report.verdicts) == verdicts
