"""Rows of every other rule: which there are, what is left out and why, and that they decide as they do live."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from langchain_reasc_lab.replay import OTHER_WEIGHING, MethodSettings, as_data, footnotes, read_pool, replay, summarize
from langchain_reasc_lab.rules import CISC, DeepConfFilter, DistriVoting
from pools.synthetic import question, response, write_lines, write_pool

from langchain_reasc.method import Cap, Decision, Measure, Response, StoppingRule, decide, support

COUNTING = ["Finite horizon (0.95)", "Cannot catch up", "ASC or cannot catch up", "Majority certificate", "L = 3"]
SIX = MethodSettings(max_samples=6)


def test_every_other_rule_has_its_row_where_it_is_asked_for(tmp_path: Path) -> None:
    pool = read_pool(write_pool(tmp_path / "p.jsonl", samples=6))
    specs = [Measure("self_certainty"), Measure("token_logprob")]
    run = replay(pool, specs, calibration_size=20, settings=SIX, rules="all")
    rows = summarize(run, resamples=20)
    certainty, logprob = (
        {row.method: row for row in rows if row.spec == one and row.method in OTHER_WEIGHING} for one in specs
    )
    assert [row.method for row in rows if row.spec is None][-5:] == COUNTING
    assert tuple(certainty) == OTHER_WEIGHING
    assert list(logprob) == ["Bayesian vote (0.99)", "CGES", "CISC"]
    assert any("no row of DeepConf (top 90 %) by token_logprob" in line for line in footnotes(run, rows))
    assert {row["method"] for row in as_data(run, rows)["rows"]} >= {*COUNTING, *OTHER_WEIGHING}
    for name in OTHER_WEIGHING[2:]:
        assert certainty[name].samples.value == 6
    by_name = {row.method: row for row in rows}
    assert by_name["Cannot catch up"].accuracy == by_name["SC@6"].accuracy
    usual = {row.method for row in summarize(replay(pool, specs, calibration_size=20, settings=SIX), resamples=20)}
    assert not usual & {*COUNTING, *OTHER_WEIGHING}


def test_without_calibration_questions_there_is_no_l_of_three(tmp_path: Path) -> None:
    pool = read_pool(write_lines(tmp_path / "p.jsonl", question("a", response("7"), response(None), response("7"))))
    rows = summarize(replay(pool, settings=SIX, rules="all"), resamples=20)
    assert [row.method for row in rows][-4:] == COUNTING[:4]


def test_where_nothing_tells_odds_the_rows_are_left_out_and_it_is_said(tmp_path: Path) -> None:
    right, wrong = (response(answer, score=0.5) for answer in "71")
    pool = read_pool(write_lines(tmp_path / "p.jsonl", *(question(f"q{n}", right, wrong, right) for n in range(5))))
    run = replay(pool, ["recorded"], calibration_size=3, settings=SIX, rules="all")
    rows = summarize(run, resamples=20)
    assert {row.method for row in rows} & {*OTHER_WEIGHING} == {*OTHER_WEIGHING[2:]}
    assert "no row of Bayesian vote (0.99) by recorded, CGES by recorded: odds are learned" in " ".join(run.notes)


@pytest.mark.parametrize("rule", [CISC(), DeepConfFilter(), DistriVoting()], ids=str)
def test_rules_that_never_stop_are_called_once(rule: StoppingRule, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [0.9, 0.2, 0.5, 0.7, 0.1]
    pool = [
        [Response(answer, score, kind=kind) for answer, score in zip(answers, scores, strict=False)]
        for answers in ([], ["a"], [None] * 5, ["a", "b", "b", None, "a"], ["a", "b", "a", "b", "b"])
        for kind in (None, "x")
    ]
    pool.append([Response("a", 0.5, alone=True), Response("b", 0.5)])
    asked = 0
    ask = type(rule).__call__

    def counted(self: StoppingRule, responses: Sequence[Response]) -> Decision:
        nonlocal asked
        asked += 1
        return ask(self, responses)

    monkeypatch.setattr(type(rule), "__call__", counted)
    for responses in pool:
        capped = "budget" if len(responses) > 3 else None
        expected = "alone" if responses and responses[0].alone else capped
        assert decide(rule | Cap(4), responses).reason == expected
    assert asked <= 4 * len(pool)  # a vote on kinds asks three times
    asked = 0
    plain = [Response("a", score) for score in scores]
    decide(rule | Cap(4), plain)
    assert asked == 1


def test_evidence_below_zero_supports_nothing() -> None:
    told = Decision(stop=False, answer="a", reason=None, samples=2, evidence={"a": -0.5, "b": -1.5})
    assert support(told) == 0.5
