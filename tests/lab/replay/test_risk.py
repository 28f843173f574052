"""What P(correct) is worth: calibration errors and risk-coverage curves by hand, and in replay."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from langchain_reasc_lab.pools import Pool, read_pool
from langchain_reasc_lab.replay import (
    OFFLINE,
    as_data,
    draw_risk,
    footnotes,
    likelihoods,
    replay,
    risk_of,
    save_figure,
    summarize,
)

from lab.pools.synthetic import question, response, write_lines, write_pool
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import Measure

NAN = float("nan")


def arrays(*rows: list[float]) -> np.ndarray:
    return np.array(rows, dtype=float)


def test_calibration_errors_by_hand() -> None:
    # Bins of width .1: {.05, .05}: 1 of 2 right, gap |.5 - .05|; {.95} x 2: both right, gap .05.
    risk = risk_of(arrays([0.05, 0.95, 0.05, 0.95]), arrays([1, 1, 0, 1]))
    assert risk is not None
    assert risk.ece_width == pytest.approx((0.45 + 0.05) / 2)
    assert risk.ece_quantile == pytest.approx((0.45 + 0.05) / 2)  # equal ones stay in one bin


def test_a_risk_coverage_curve_by_hand() -> None:
    risk = risk_of(arrays([0.9, 0.8, 0.3, NAN]), arrays([1, 0, 0, NAN]))
    assert risk is not None
    assert risk.risk == pytest.approx([0, 1 / 2, 2 / 3])
    assert risk.aurc == pytest.approx((0 + 1 / 2 + 2 / 3) / 3)


def test_arrangements_without_any_are_left_out() -> None:
    risk = risk_of(arrays([NAN, NAN], [0.5, 0.6]), arrays([1, 0], [1, 1]))
    assert risk is not None
    assert (risk.arrangements, risk.risk.tolist()) == (1, [0, 0])
    assert risk_of(arrays([NAN, NAN]), arrays([1, 0])) is None


def test_a_decision_without_an_answer_is_never_right() -> None:
    calibrating = arrays([0.5, 0], [0.6, 1], [0.8, 1], [NAN, NAN], [NAN, NAN])
    told = likelihoods(calibrating, arrays([NAN, NAN], [NAN, NAN], [NAN, NAN], [NAN, 0], [0.7, 1]))
    assert np.isnan(told[:3]).all()
    assert told[3] == 0.0 < told[4] < 1.0


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    return read_pool(write_pool(tmp_path_factory.mktemp("pool") / "p.sqlite", questions=120))


def test_replay_tells_it_of_every_method_from_other_questions(pool: Pool, tmp_path: Path) -> None:
    run = replay(pool, [Measure()], calibration_size=60, shuffles=2, controls=True)
    rows = summarize(run, resamples=20)
    for row in rows:
        risk = row.outcomes.risk
        assert risk is not None and risk.arrangements == 2
        assert len(risk.risk) == 60
        assert risk.risk[-1] == pytest.approx(1 - row.accuracy.value)
        assert 0 <= risk.ece_width < 0.3 and 0 <= risk.ece_quantile < 0.3
    by_name = {row.method: row.outcomes.risk for row in rows}
    assert by_name["SC@16"].aurc < 0.6 * by_name["SC@16"].risk[-1]  # the likely ones are right more often
    assert by_name["pass@1"].aurc == pytest.approx(by_name["pass@1"].risk[-1], abs=0.05)  # one vote tells nothing
    data = json.loads(json.dumps(as_data(run, rows)))["rows"]
    offline = next(row for row in data if row["method"] == OFFLINE)["p_correct"]
    assert offline["ece"].keys() == {"bins", "equal_width", "quantile"}
    assert len(offline["risk_coverage"]) == 60
    notes = "\n".join(footnotes(run, rows))
    assert "bins of equal width" in notes and "  SC@16: ECE " in notes and f"  {OFFLINE} by self_certainty" in notes
    assert save_figure(draw_risk(rows), tmp_path / "risk.png").stat().st_size > 10_000


@pytest.mark.slow  # replays twice
def test_labels_of_tested_questions_play_no_part(pool: Pool, tmp_path: Path) -> None:
    before = replay(pool, [Measure()], calibration_size=60)
    wrong = [replace(q, responses=tuple(replace(r, correct=False) for r in q.responses)) for q in pool.questions[60:]]
    spoiled = replace(pool, questions=(*pool.questions[:60], *wrong))
    after = replay(spoiled, [Measure()], calibration_size=60)
    for key, held in before.outcomes.items():
        np.testing.assert_array_equal(held.p_correct, after.outcomes[key].p_correct)


def test_without_calibration_questions_there_is_no_probability(tmp_path: Path) -> None:
    run = replay(read_pool(write_lines(tmp_path / "p.sqlite", question("a", response("7"), response("1")))))
    rows = summarize(run, resamples=20)
    assert {row.outcomes.risk for row in rows} == {None}
    assert as_data(run, rows)["rows"][0]["p_correct"] is None
    assert not any("P(correct)" in line for line in footnotes(run, rows))
    with pytest.raises(ConfigurationError, match="no P"):
        draw_risk(rows)
