"""What the two stages contribute, and what ReASC is held against: by hand, and where it loses."""

from pathlib import Path

import pytest
from langchain_reasc_lab.replay import Estimate
from langchain_reasc_lab.replay.bootstrap import exact
from langchain_reasc_lab.replay.methods import MIXTURE, OFFLINE, ONLINE, SAFEGUARDED
from langchain_reasc_lab.report import Study
from pools.synthetic import question, response, write_lines

from lab.report.paper_checks import combined
from lab.report.studies import by_hand, cell, made, row, study
from langchain_reasc.exceptions import PoolError


def test_the_gate_by_hand(tmp_path: Path) -> None:
    # It accepts "sure", which is right, and "lured", which is wrong; the majority is right on both.
    table = made("stage1", by_hand(tmp_path / "p.jsonl"))
    share, accuracy, majority, lost = row(table, OFFLINE)
    assert (cell(share), cell(accuracy), cell(majority), cell(lost)) == (pytest.approx(200 / 3), 50, 100, -50)
    assert isinstance(majority, Estimate) and isinstance(lost, Estimate)
    assert majority.low == 100 * exact(2, 2).low  # of the two questions that were accepted
    assert (lost.low, lost.high) == (-100, 0)
    told = f"On the questions that it accepts, SC@4 answers 50.0 points more right than the gate of {OFFLINE}"
    assert any(note.startswith(told) for note in table.notes)


def test_a_gate_that_accepts_nothing_has_no_accuracy(tmp_path: Path) -> None:
    table = made("stage1", by_hand(tmp_path / "p.jsonl"))
    assert row(table, MIXTURE)[1:] == (None, None, None)  # three scores are too few for two components
    assert cell(row(table, MIXTURE)[0]) == 0
    assert f"The gate of {MIXTURE} accepts nothing." in table.notes
    assert any(
        note.startswith(f"The gate of {MIXTURE} was closed here: 3 responses are too few") for note in table.notes
    )
    assert row(table, SAFEGUARDED)[1:] == (None, None, None)


def test_stage_2_alone_is_looked_at_where_the_gate_accepts_nothing(tmp_path: Path) -> None:
    # "turns" is left: counted, 1 wins with 3 votes to 1; weighed, e^2.1 = 8.2 votes for 7 decide after two responses.
    table = made("stage2", by_hand(tmp_path / "p.jsonl"))
    share, accuracy, tokens, dearer, gained = row(table, "offline", "ASC (counts votes)")
    assert (cell(share), cell(accuracy), cell(tokens)) == (pytest.approx(100 / 3), 0, pytest.approx(25))
    assert dearer is gained is None
    assert isinstance(accuracy, Estimate)
    assert accuracy.high == 100 * exact(0, 1).high
    share, accuracy, tokens, dearer, gained = row(table, "offline", "ReASC (weighs them)")
    assert (cell(accuracy), cell(tokens), cell(gained)) == (100, pytest.approx(11), 100)
    assert cell(dearer) == pytest.approx(100 * (11 / 25 - 1))


def test_a_gate_that_accepts_everything_leaves_nothing_to_stage_2(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "p.jsonl",
        question("right", *[response("7", score=1.0)] * 4),
        question("wrong", *[response("1", score=0.0)] * 4),
        *[question(f"q{n}", *[response("7", score=2.0 + n)] * 4) for n in range(3)],
    )
    table = made("stage2", study(tmp_path / "p.jsonl", "recorded", size=2, shuffles=0, budget=4))
    assert {one[0] for one in table.rows} == {"mixture"}
    assert f"The gate of {OFFLINE} accepts every question, and leaves none to Stage 2." in table.notes


def test_each_stage_alone_by_hand(tmp_path: Path) -> None:
    table = made("ablation", by_hand(tmp_path / "p.jsonl"))
    expected = {
        "ASC": (2, (70 + 25 + 40) / 3),  # no count of four reaches 0.95 but 4 to 0
        # "sure": e^0.7 = 2.0 and 1 vote to 2; "lured": e^1.4 = 4.1 votes suffice at once, and are wrong
        "Stage 2 alone": (2, (70 + 11 + 10) / 3),
        "Gate, then counting": (1, (10 + 25 + 10) / 3),
        "ReASC": (2, (10 + 11 + 10) / 3),
    }
    for name, (right, spent) in expected.items():
        accuracy, tokens, dearer, gained = row(table, "offline", name)
        assert (cell(accuracy), cell(tokens)) == (pytest.approx(100 * right / 3), pytest.approx(spent)), name
        if name != "ASC":
            assert cell(dearer) == pytest.approx(100 * (spent / 45 - 1))
            assert cell(gained) == pytest.approx(100 * (right - 2) / 3)


def test_both_stages_together_are_the_row_of_the_main_comparison(studied: Study) -> None:
    ablation, main = made("ablation", studied), made("main", studied)
    for name, calibration in ((OFFLINE, "offline"), (MIXTURE, "mixture")):
        accuracy, _, _, tokens, _ = row(main, name)
        assert row(ablation, calibration, "ReASC")[:2] == (accuracy, tokens)


def test_scores_that_tell_nothing_calibrate_nothing(tmp_path: Path) -> None:
    write_lines(tmp_path / "p.jsonl", *[question(f"q{n}", *[response(str(n % 2), score=1.0)] * 4) for n in range(8)])
    same = study(tmp_path / "p.jsonl", "recorded", size=4, shuffles=0)
    for name in ("stage1", "stage2", "ablation", "mappings", "p_target", "scale"):
        with pytest.raises(PoolError, match="nothing could be calibrated on p: all 4 scores equal 1"):
            made(name, same)
    assert {one[0] for one in made("controls", same).rows} == {"ReASC (online)"}


def test_the_two_stages_add_up_to_the_whole(studied: Study) -> None:
    gate, left = made("stage1", studied), made("stage2", studied)
    for name, calibration in ((OFFLINE, "offline"), (MIXTURE, "mixture")):
        accepted, right = row(gate, name)[:2]
        share, of_the_rest = row(left, calibration, "ReASC (weighs them)")[:2]
        assert cell(accepted) + cell(share) == pytest.approx(100)
        whole = combined(cell(accepted) / 100, cell(right) if right is not None else 0.0, cell(of_the_rest))
        assert whole == pytest.approx(cell(row(made("main", studied), name)[0]))


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
