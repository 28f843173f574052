"""Rows of every other rule: which there are, what is left out and why, and that they decide as they do live."""

from pathlib import Path

from langchain_reasc_lab.pools import read_pool
from langchain_reasc_lab.replay import OTHER_WEIGHING, MethodSettings, as_data, footnotes, replay, summarize

from lab.pools.synthetic import write_pool
from langchain_reasc.method import Measure

SIMPLE = ["SC@3", "Lead of 2", "Lead of 3", "Finite horizon (0.9)"]
COUNTING = [*SIMPLE, "Finite horizon (0.95)", "Cannot catch up", "ASC or cannot catch up"]
SIX = MethodSettings(max_samples=6)


def test_every_other_rule_has_its_row_where_it_is_asked_for(tmp_path: Path) -> None:
    pool = read_pool(write_pool(tmp_path / "p.sqlite", samples=6))
    specs = [Measure("self_certainty"), Measure("token_logprob")]
    run = replay(pool, specs, calibration_size=20, settings=SIX, rules="all")
    rows = summarize(run, resamples=20)
    certainty, logprob = (
        {row.method: row for row in rows if row.spec == one and row.method in OTHER_WEIGHING} for one in specs
    )
    assert [row.method for row in rows if row.spec is None][-len(COUNTING) :] == COUNTING
    assert list(certainty) == list(OTHER_WEIGHING)
    assert list(logprob) == ["CISC"]
    assert any("no row of DeepConf (top 90 %) by token_logprob" in line for line in footnotes(run, rows))
    assert {row["method"] for row in as_data(run, rows)["rows"]} >= {*COUNTING, *OTHER_WEIGHING}
    for name in OTHER_WEIGHING:
        assert certainty[name].samples.value == 6
    by_name = {row.method: row for row in rows}
    assert by_name["Cannot catch up"].accuracy == by_name["SC@6"].accuracy
    usual = {row.method for row in summarize(replay(pool, specs, calibration_size=20, settings=SIX), resamples=20)}
    assert not usual & {*COUNTING, *OTHER_WEIGHING}
    simple = summarize(replay(pool, settings=SIX, rules="simple"), resamples=20)
    assert [row.method for row in simple][-len(SIMPLE) :] == SIMPLE
    assert {row.method: row.samples.value for row in simple}["SC@3"] == 3
    uncalibrated = summarize(replay(pool, settings=SIX, rules="all"), resamples=20)
    assert [row.method for row in uncalibrated][-len(COUNTING) :] == COUNTING
