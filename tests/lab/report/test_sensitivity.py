"""How much depends on choices: what each row is, and what it is equal to."""

from pathlib import Path

import pytest
from langchain_reasc_lab.replay import replay, summarize
from langchain_reasc_lab.replay.methods import OFFLINE, MethodSettings
from langchain_reasc_lab.report import Study
from langchain_reasc_lab.report.sensitivity import P_TARGETS, SCALES
from pools.synthetic import question, response, write_lines, write_pool

from lab.report.studies import by_hand, cell, made, row, study, synthetic
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.evidence import WEIGHTS


def test_mappings_by_hand(tmp_path: Path) -> None:
    # The gate settles "sure" and "lured" with 10 tokens each. "turns" has scores 0 2 0 0, with μ = σ = 0.5 and λ = 0.7:
    expected = {
        "count: 1": (0, 25),
        "mean: S / μ": (1, 11),  # 0 4: 1 - ½^5 = 0.97
        "sigmoid: 1 / (1 + exp(-λz))": (0, 25),  # 0.33 0.89 0.33 0.33
        "exponential: exp(λz)": (1, 11),  # 0.50 8.17
        "reasc: max(1, exp(λz))": (1, 11),  # 1 8.17
    }

    table = made("mappings", by_hand(tmp_path / "p.jsonl"))
    assert len({one[1] for one in table.rows}) == len(WEIGHTS) + 1
    for name, (right, tokens) in expected.items():
        accuracy, spent, _, _ = row(table, "offline", name)
        assert (cell(accuracy), cell(spent)) == (pytest.approx(100 * (1 + right) / 3), pytest.approx((20 + tokens) / 3))


def test_a_mapping_that_the_scores_cannot_have_says_so(tmp_path: Path) -> None:
    lines = [
        question(f"q{n}", *[response("7" if (n + at) % 3 else "1", score=-5.0 + (n + at) % 3) for at in range(4)])
        for n in range(12)
    ]
    write_lines(tmp_path / "p.jsonl", *lines)
    table = made("mappings", study(tmp_path / "p.jsonl", "recorded", size=6, shuffles=0))
    assert row(table, "offline", "mean: S / μ") == (None, None, None, None)
    assert any("mean: S / μ by the offline calibration cannot be had: weight='mean'" in note for note in table.notes)
    assert cell(row(table, "offline", "sigmoid: 1 / (1 + exp(-λz))")[0]) > 0


def test_what_is_chosen_by_default_is_the_row_of_the_main_comparison(studied: Study) -> None:
    main = row(made("main", studied), OFFLINE)
    accuracy, _, _, tokens, _ = main
    assert row(made("p_target", studied), "offline", 0.9)[:2] == (accuracy, tokens)
    assert row(made("scale", studied), "offline", 0.7)[:2] == (accuracy, tokens)
    assert row(made("mappings", studied), "offline", "reasc: max(1, exp(λz))")[:2] == (accuracy, tokens)


def test_at_scale_zero_votes_are_counted(studied: Study) -> None:
    scale = made("scale", studied)
    assert [one[1] for one in scale.rows] == [*SCALES, *SCALES]
    assert row(scale, "offline", 0.0) == row(made("mappings", studied), "offline", "count: 1")


def test_another_target_is_what_a_replay_with_it_gives(studied: Study) -> None:
    table = made("p_target", studied)
    assert [one[1] for one in table.rows] == [*P_TARGETS, *P_TARGETS]
    for target in P_TARGETS[1:]:
        settings = MethodSettings(p_target=target)
        rows = summarize(replay(studied.pool, ["recorded"], shuffles=2, calibration_size=16, settings=settings))
        for one in rows:
            if one.method in ("ReASC (offline)", "ReASC (mixture)"):
                accuracy, tokens, _, _ = row(table, one.method[7:-1], target)
                assert (cell(accuracy), tokens) == (100 * one.accuracy.value, one.tokens.value)


def test_all_calibration_sizes_are_tested_on_the_same_questions(tmp_path: Path) -> None:
    studied = synthetic(tmp_path / "p.jsonl", 70)
    table = made("calibration_size", studied)
    assert [one[0] for one in table.rows] == [16, 32]
    assert any("tested on the same 38 questions" in note for note in table.notes)
    # the largest is what a replay of that size gives; a smaller one gives the same tokens only by chance
    rows = summarize(replay(studied.pool, ["recorded"], shuffles=2, calibration_size=32))
    [whole] = [one for one in rows if one.method == OFFLINE]
    accuracy, tokens, _, gained, _ = row(table, 32)
    assert (cell(accuracy), tokens) == (100 * whole.accuracy.value, whole.tokens.value)
    assert cell(gained) == pytest.approx(100 * whole.accuracy_vs_asc.value)


def test_the_cost_of_a_calibration_is_that_of_its_first_responses(tmp_path: Path) -> None:
    lines = [
        question(f"q{n}", *[response("7" if (n + at) % 3 else "1", 10 + n, score=float((n + at) % 3)) for at in (0, 1)])
        for n in range(32)
    ]
    write_lines(tmp_path / "p.jsonl", *lines)
    table = made("calibration_size", study(tmp_path / "p.jsonl", "recorded", size=4, shuffles=0))
    assert row(table, 16)[-1] == sum(10 + n for n in range(16))


def test_sizes_need_no_more_questions_than_they_use(tmp_path: Path) -> None:
    few = synthetic(tmp_path / "few.jsonl", 40, size=128)  # too few for the report's own calibration
    assert [one[0] for one in made("calibration_size", few).rows] == [16]
    write_pool(tmp_path / "fewer.jsonl", 31, signals=False, scores=True)
    with pytest.raises(PoolError, match="fewer holds 31 questions; the smallest calibration is on 16"):
        made("calibration_size", study(tmp_path / "fewer.jsonl", "recorded", size=8, shuffles=0))
