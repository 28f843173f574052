"""The main comparison against numbers worked out by hand, and against ``reasc replay``."""

from pathlib import Path

import pytest
from langchain_reasc_lab.replay import Estimate, replay, summarize
from langchain_reasc_lab.replay.bootstrap import exact
from langchain_reasc_lab.replay.methods import EQUAL_COST, MIXTURE, OFFLINE, ONLINE
from langchain_reasc_lab.report import Study
from pools.synthetic import question, response, write_lines, write_pool

from lab.report.studies import by_hand, cell, made, row, study, synthetic
from langchain_reasc.exceptions import PoolError


def test_the_main_comparison_by_hand(tmp_path: Path) -> None:
    table = made("main", by_hand(tmp_path / "p.jsonl"))
    names = [column.name for column in table.columns]
    assert names == ["Method", "Accuracy %", "Δ to ASC", "Samples", "Tokens", "vs SC %"]
    # tokens of all responses: 70, 25 and 40; of the first ones: 10, 5 and 10; ReASC sees 1, 2 and 1 of them
    accuracy, _, samples, tokens, saved = row(table, OFFLINE)
    assert cell(accuracy) == pytest.approx(200 / 3)
    assert cell(samples) == pytest.approx(4 / 3)
    assert cell(tokens) == pytest.approx((10 + 11 + 10) / 3)
    assert cell(saved) == pytest.approx(100 * (31 / 135 - 1))
    accuracy, _, samples, tokens, saved = row(table, "SC@4")
    assert (cell(accuracy), samples, cell(tokens), saved) == (pytest.approx(200 / 3), 4, 45, None)
    accuracy, _, samples, tokens, saved = row(table, "pass@1")
    assert (cell(accuracy), samples, cell(tokens)) == (pytest.approx(100 / 3), 1, pytest.approx(25 / 3))
    # of three questions with one right answer, resamples hold between none and three right ones
    assert isinstance(accuracy, Estimate)
    assert (accuracy.low, accuracy.high) == (0, 100)


def test_costs_are_two_flops_per_parameter_and_token(tmp_path: Path) -> None:
    table = made("main", by_hand(tmp_path / "p.jsonl", parameters=2e9))
    *_, tflops, per_cost = row(table, OFFLINE)
    assert [column.name for column in table.columns][-2:] == ["TFLOPs", "Acc/TF"]
    assert cell(tflops) == pytest.approx(4e9 * 31 / 3 / 1e12)
    assert cell(per_cost) == pytest.approx(200 / 3 / cell(tflops))
    assert row(table, "pass@1")[-1] is None
    assert "N = 2,000,000,000, as given." in " ".join(table.notes)


def test_money_is_that_of_the_prompts_and_of_what_was_generated(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('currency = "EUR"\n[models."Qwen2.5-7B"]\ninput = 1.0\noutput = 10.0\n')
    told = {"fingerprint": {"model": "Qwen2.5-7B"}}
    questions = [question(f"q{n}", *[response("7", 40, prompt_tokens=20)] * 4) for n in range(3)]
    write_lines(tmp_path / "p.jsonl", {"metadata": told}, *questions)
    table = made("main", study(tmp_path / "p.jsonl", None, budget=4, prices=prices))
    column = [column.name for column in table.columns].index("EUR/1,000")
    costs = {one[0]: one[column] for one in table.rows}
    assert (costs["pass@1"], costs["SC@4"]) == (pytest.approx(0.02 + 0.4), pytest.approx(4 * (0.02 + 0.4)))
    write_lines(tmp_path / "mute.jsonl", {"metadata": told}, question("q", *[response("7", 40)] * 4))
    table = made("main", study(tmp_path / "mute.jsonl", None, budget=4, prices=prices))
    assert "EUR/1,000" not in [column.name for column in table.columns]


def test_n_is_read_from_the_pool(tmp_path: Path) -> None:
    write_pool(tmp_path / "p.jsonl", 10, signals=False, metadata={"parameters": 3_000_000_000})
    table = made("main", study(tmp_path / "p.jsonl", None, size=8, shuffles=0))
    assert "TFLOPs" in [column.name for column in table.columns]
    assert "as the pool says" in " ".join(table.notes)


def test_pools_are_compared_in_tokens_where_n_is_not_known_of_all(tmp_path: Path) -> None:
    write_pool(tmp_path / "known.jsonl", 10, signals=False, metadata={"fingerprint": {"model": "Qwen2.5-7B"}})
    write_pool(tmp_path / "unknown.jsonl", 10, signals=False)
    pools = [study(tmp_path / f"{name}.jsonl", None, size=8, shuffles=0) for name in ("known", "unknown")]
    table = made("main", *pools)
    assert [column.name for column in table.columns][:3] == ["Pool", "Method", "Accuracy %"]
    assert "TFLOPs" not in [column.name for column in table.columns]
    assert [one[0] for one in table.rows] == ["known"] * 6 + ["unknown"] * 6
    assert "of known it is 7,000,000,000" in " ".join(table.notes)


@pytest.mark.parametrize("shuffles", [0, 2])
def test_the_numbers_are_those_of_a_replay(tmp_path: Path, shuffles: int) -> None:
    studied = synthetic(tmp_path / "p.jsonl", shuffles=shuffles)
    rows = summarize(replay(studied.pool, ["recorded"], shuffles=shuffles, calibration_size=16))
    table = made("main", studied)
    assert [one[0] for one in table.rows] == [one.method for one in rows]
    for one in rows:
        accuracy, difference, samples, tokens, saved = row(table, one.method)
        assert isinstance(accuracy, Estimate)
        expected = (one.accuracy.value, one.accuracy.low, one.accuracy.high)
        assert (accuracy.value, accuracy.low, accuracy.high) == tuple(100 * part for part in expected)
        assert (samples, tokens) == (one.samples.value, one.tokens.value)
        assert cell(difference) == 100 * one.accuracy_vs_asc.value
        if saved is not None:
            assert cell(saved) == pytest.approx(100 * (one.tokens_vs_sc.value - 1))


def test_calibrations_are_made_once_for_all_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from langchain_reasc_lab.report import study as module

    made_of = []

    def counted(*arguments: object, **options: object) -> object:
        made_of.append(arguments)
        return original(*arguments, **options)  # type: ignore[arg-type]

    original = module.calibrated_on
    monkeypatch.setattr(module, "calibrated_on", counted)
    studied = synthetic(tmp_path / "p.jsonl", shuffles=2)
    for name in ("main", "stage1", "ablation", "mappings", "controls", "scale"):
        made(name, studied)
    assert len(made_of) == 2


def test_where_reasc_is_less_accurate_a_note_says_so(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "p.jsonl",
        question("right", *[response("7", score=1.0)] * 4),
        question("wrong", *[response("1", score=0.0)] * 4),
        *[question(f"lured {n}", response("1", score=1.5), *[response("7", score=0.0)] * 3) for n in range(3)],
    )
    notes = made("main", study(tmp_path / "p.jsonl", "recorded", size=2, shuffles=0, budget=4)).notes
    [told] = [note for note in notes if note.startswith(f"ASC answers 100.0 points more right than {OFFLINE}")]
    assert told.endswith("the difference is [+100.0, +100.0].")


def test_the_intervals_by_hand(tmp_path: Path) -> None:
    table = made("intervals", by_hand(tmp_path / "p.jsonl"))
    accuracy, low, high, questions = row(table, OFFLINE)
    alone = exact(2, 3)
    assert isinstance(accuracy, Estimate)
    assert accuracy.value == pytest.approx(200 / 3)
    assert (accuracy.low, accuracy.high) == (0, 100)
    assert (low, high, questions) == (100 * alone.low, 100 * alone.high, 3)


def test_tasks_have_a_row_for_each_pool_and_method_of_the_paper(tmp_path: Path) -> None:
    pools = [synthetic(tmp_path / f"{name}.jsonl") for name in ("letters", "strategy")]
    table = made("tasks", *pools)
    methods = ["SC@16", "ESC (w=4)", "ASC", OFFLINE, ONLINE, MIXTURE]
    assert [tuple(one[:2]) for one in table.rows] == [(pool.name, name) for pool in pools for name in methods]
    with pytest.raises(PoolError, match="the main comparison has the methods on this one"):
        made("tasks", pools[0])


def test_no_control_is_among_the_methods(studied: Study) -> None:
    shown = {one[0] for one in made("main", studied).rows}
    assert not shown & set(EQUAL_COST.values())
