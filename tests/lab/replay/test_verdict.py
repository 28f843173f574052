"""The verdict on a replay: what it claims is what the numbers bear out, also where they bear out nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.test_commands import reasc
from langchain_reasc_lab.report import make_report

from lab.pools.synthetic import question, response, write_lines
from lab.report.studies import study

Lines = list[dict[str, Any]]


def agreeing(count: int) -> Lines:
    """Questions to which all 16 responses are right."""
    return [question(f"same {n}", *[response("7", 10)] * 16) for n in range(count)]


def calibrating(count: int = 128) -> Lines:
    """Questions of which every other one is answered differently each time, and wrong; the score tells which."""
    rng = np.random.default_rng(0)
    lines = []
    for n in range(count):
        answers = [str(100 + k) for k in range(16)] if n % 2 else ["7"] * 16
        scores = (1.0 - n % 2 + 0.01 * rng.normal(size=16)).tolist()
        drawn = zip(answers, scores, strict=True)
        lines.append(question(f"c{n}", *(response(answer, 10, score=score) for answer, score in drawn)))
    return lines


def led(first: str, others: str, count: int) -> Lines:
    """Questions whose first response is trusted alone, and the other 15 say something else."""
    rest = [response(others, 10, score=0.0)] * 15
    return [question(f"led {n}", response(first, 10, score=2.0), *rest) for n in range(count)]


@pytest.mark.parametrize(
    ("lines", "measure", "begins", "holds"),
    [
        (
            agreeing(400),
            None,
            "Asking once: 100 % right. ReASC: 100 %, for 4.0 times the tokens. Always 16: 100 %, for 16 times.",
            [
                "Votes do not help: always 16 has +0.0 points [95 %: -0.9, +0.9] to asking once.",
                "ReASC is as accurate as always 16, within ±0.9 points, for 75 % fewer tokens.",
                "ReASC was not calibrated here",
                "What to do: ask once.",
            ],
        ),
        (
            agreeing(40),
            None,
            "Asking once: 100 %",
            [
                "Whether votes help is not clear",
                "Whether ReASC is as accurate as always 16 is not clear",
                "What to do: record more questions",
            ],
        ),
        (
            agreeing(1),
            None,
            "Asking once: 100 %",
            ["1 tested question does not", "not calibrated here", "What to do: record more"],
        ),
        (
            [*calibrating(), *led("1", "7", 40)],
            "recorded",
            "Asking once: 0 % right. ReASC: 0 %, for 1.0 times the tokens. Always 16: 100 %, for 16 times.",
            ["Votes help: ", "less accurate than always 16, by 100.0 points [87.5, 100.0], for 94 %", "do: always 16"],
        ),
        (
            [*calibrating(), *led("7", "1", 40)],
            "recorded",
            "Asking once: 100 % right. ReASC: 100 %, for 1.0 times",
            ["Votes do harm: ", "What to do: ask once.", "more accurate than always 16"],
        ),
        (calibrating(20), "recorded", "Asking once: 50 %", ["20 tested questions do not tell methods apart"]),
        ([question(f"q{n}", *[response("7")] * 4) for n in range(40)], None, "", ["Always 4: 100 %, for 4.0 times."]),
        (
            [question(f"q{n}", response("7")) for n in range(40)],
            None,
            "Asking once: 100 % right.",
            ["does not tell what votes do", "What to do: record several responses"],
        ),
        (
            [question(f"q{n}", *[response("7" if k % 4 else f"{k}") for k in range(16)]) for n in range(400)],
            None,
            "Asking once: 0 % right. ReASC: 100 %",
            ["Votes help: ", "What to do: vote with ReASC"],
        ),
    ],
)
def test_the_verdict_claims_what_the_numbers_bear_out(
    tmp_path: Path, lines: Lines, measure: str | None, begins: str, holds: list[str]
) -> None:
    studied = study(write_lines(tmp_path / "p.sqlite", *lines), measure, size=128)
    [sentences] = make_report([studied], []).verdicts
    assert sentences[0].startswith(begins) and all(one in " ".join(sentences) for one in holds)


def test_the_data_of_a_replay_has_the_figures_of_the_first_sentence(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.sqlite", *calibrating(), *led("1", "7", 40))
    shown, data = reasc("replay", path).stdout, json.loads(reasc("replay", path, "--json").stdout)
    figures, rows = data["verdict"]["figures"], {(row["method"], str(row["measure"])): row for row in data["rows"]}
    right = {name: f"{100 * one['accuracy']:.0f} %" for name, one in figures.items()}
    times = {name: one["tokens_vs_once"] for name, one in figures.items()}
    first = (
        f"Asking once: {right['Asking once']} right. ReASC: {right['ReASC']}, for {times['ReASC']:.1f} times the "
        f"tokens. Always 16: {right['Always 16']}, for {times['Always 16']:.0f} times."
    )
    assert data["verdict"]["sentences"][0] == first and " ".join(shown.split()).startswith(first)
    for one in figures.values():
        assert rows[one["method"], str(one["measure"])]["accuracy"]["value"] == one["accuracy"]


def test_each_pool_has_its_own(tmp_path: Path) -> None:
    pools = [study(write_lines(tmp_path / f"{n}.sqlite", *agreeing(n)), None) for n in (3, 4)]
    assert len(make_report(pools, []).verdicts) == 2
