"""Tables of one pool agree with each other, and with ``reasc replay``."""

from pathlib import Path

import pytest
from langchain_reasc_lab.replay import (
    CALIBRATED,
    EQUAL_COST,
    MIXTURE,
    OFFLINE,
    ONLINE,
    replay,
    summarize,
)
from langchain_reasc_lab.report import Study
from langchain_reasc_lab.report.sensitivity import SCALES

from lab.report.studies import cell, made, row, synthetic

BOTH = ((OFFLINE, "offline"), (MIXTURE, "mixture"))


def test_the_numbers_are_those_of_a_replay(studied: Study) -> None:
    rows = summarize(replay(studied.pool, ["recorded"], shuffles=2, calibration_size=16))
    table = made("main", studied)
    assert [one[0] for one in table.rows] == [one.method for one in rows]
    assert not {one[0] for one in table.rows} & set(EQUAL_COST.values()), "controls have a table of their own"
    for one in rows:
        accuracy, difference, samples, tokens, saved = row(table, one.method)
        assert (accuracy, difference) == (one.accuracy.percent, one.accuracy_vs_asc.percent)
        assert (samples, tokens) == (one.samples.value, one.tokens.value)
        assert saved is None or cell(saved) == pytest.approx(100 * (one.tokens_vs_sc.value - 1))


def test_what_is_chosen_by_default_is_the_row_of_the_main_comparison(studied: Study) -> None:
    main, scale, mappings = (made(name, studied) for name in ("main", "scale", "mappings"))
    accuracy, _, _, tokens, _ = row(main, OFFLINE)
    assert row(made("p_target", studied), "offline", 0.9)[:2] == (accuracy, tokens)
    assert row(scale, "offline", 0.7)[:2] == (accuracy, tokens)
    assert row(mappings, "offline", "reasc: max(1, exp(λz))")[:2] == (accuracy, tokens)
    assert [one[1] for one in scale.rows] == [*SCALES, *SCALES]
    assert row(scale, "offline", 0.0) == row(mappings, "offline", "count: 1"), "votes are counted"
    for name, calibration in BOTH:
        accuracy, _, _, tokens, _ = row(main, name)
        assert row(made("ablation", studied), calibration, "ReASC")[:2] == (accuracy, tokens)


def test_all_calibration_sizes_are_tested_on_the_same_questions(tmp_path: Path) -> None:
    studied = synthetic(tmp_path / "p.sqlite", 66, size=128, shuffles=1)  # too few for the report's own calibration
    table = made("calibration_size", studied)
    assert [one[0] for one in table.rows] == [16, 32]
    assert any("tested on the same 34 questions" in note for note in table.notes)
    rows = summarize(replay(studied.pool, ["recorded"], shuffles=1, calibration_size=32))
    [whole] = [one for one in rows if one.method == OFFLINE]
    accuracy, tokens, _, gained, _ = row(table, 32)
    assert (accuracy, tokens) == (whole.accuracy.percent, whole.tokens.value)
    assert cell(gained) == pytest.approx(100 * whole.accuracy_vs_asc.value)


def test_the_two_stages_add_up_to_the_whole(studied: Study) -> None:
    gate, left = made("stage1", studied), made("stage2", studied)
    for name, calibration in BOTH:
        accepted, right = row(gate, name)[:2]
        share, of_the_rest = row(left, calibration, "ReASC (weighs them)")[:2]
        assert cell(accepted) + cell(share) == pytest.approx(100)
        accepted_right = cell(accepted) * (cell(right) if right is not None else 0.0)
        whole = (accepted_right + cell(share) * cell(of_the_rest)) / 100
        assert whole == pytest.approx(cell(row(made("main", studied), name)[0]))


def test_controls_spend_what_they_say(studied: Study) -> None:
    table = made("controls", studied)
    whole = row(table, OFFLINE, "SC@16")[1]
    for name in ("Weighted majority of all", "Best of 16 by score"):
        assert row(table, OFFLINE, name)[1] == whole
    rows = {one.method: one for one in studied.rows}
    for name in (OFFLINE, CALIBRATED, ONLINE):
        itself = row(table, name, "(itself)")
        assert itself[:2] == (rows[name].accuracy.percent, rows[name].tokens.value), "as in the main comparison"
    for name in (OFFLINE, ONLINE):
        accuracy, tokens, gained = row(table, name, "ASC at equal cost")
        control = rows[EQUAL_COST[name]]
        assert (accuracy, tokens) == (control.accuracy.percent, control.tokens.value)
        assert cell(gained) == pytest.approx(100 * (rows[name].accuracy.value - control.accuracy.value))
        assert abs(cell(tokens) / cell(row(table, name, "(itself)")[1]) - 1) < 0.25  # what it spends rises by steps
