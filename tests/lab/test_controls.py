"""What ReASC is held against: by hand, and where it loses."""

from pathlib import Path

import pytest

from lab.pools_by_hand import by_hand, cell, made, row
from langchain_reasc.evaluation import Estimate
from langchain_reasc.evaluation.methods import OFFLINE, ONLINE
from langchain_reasc.lab.study import Study


def test_other_uses_of_the_same_responses_by_hand(tmp_path: Path) -> None:
    # Best of four: 7 with 1.0, 7 with 2.0, and 1 with 1.5. All four weighed: 3.0 to 2, 8.2 to 3, and 4.1 to 3.
    table = made("controls", by_hand(tmp_path / "p.jsonl"))
    for name in ("Best of 4 by score", "Weighted majority of all"):
        accuracy, tokens, gained = row(table, OFFLINE, name)
        assert (cell(accuracy), tokens) == (pytest.approx(200 / 3), 45), name
        assert isinstance(gained, Estimate)
        assert gained.value == 0
        assert gained.low < 0 < gained.high  # they never differed here, which three questions do not say of others
    accuracy, tokens, gained = row(table, OFFLINE, "pass@1")
    assert (cell(accuracy), cell(tokens), cell(gained)) == (*map(pytest.approx, (100 / 3, 25 / 3, 100 / 3)),)


def test_a_weighted_majority_pays_for_all_responses_of_its_weights(studied: Study) -> None:
    table = made("controls", studied)
    whole = row(table, OFFLINE, "SC@16")[1]
    assert row(table, OFFLINE, "Weighted majority of all")[1] == whole
    assert row(table, OFFLINE, "Best of 16 by score")[1] == whole


def test_asc_at_equal_cost_spends_what_the_row_does(studied: Study) -> None:
    table = made("controls", studied)
    rows = {one.method: one for one in studied.rows}
    for name in (OFFLINE, ONLINE):
        accuracy, tokens, gained = row(table, name, "ASC at equal cost")
        control = rows[name.replace("ReASC", "ASC at equal cost")]
        assert (cell(accuracy), tokens) == (100 * control.accuracy.value, control.tokens.value)
        assert cell(gained) == pytest.approx(100 * (rows[name].accuracy.value - control.accuracy.value))
        assert abs(cell(tokens) / cell(row(table, name, "(itself)")[1]) - 1) < 0.25  # what it spends rises by steps


def test_every_loss_is_told_and_nothing_else(studied: Study) -> None:
    table = made("controls", studied)
    lost = {(one[0], one[1]) for one in table.rows if one[4] is not None and cell(one[4]) < 0}
    told = {
        (method, control)
        for method, control in ((str(one[0]), str(one[1])) for one in table.rows)
        for note in table.notes
        if note.startswith(f"{control} answers ") and f" points more right than {method}: " in note
    }
    assert lost
    assert told == lost
