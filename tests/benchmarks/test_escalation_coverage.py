"""Whether escalation keeps its promise in made-up worlds: that their true rates are true, and that the study runs."""

import numpy as np
import pytest
from langchain_reasc_lab.escalation import play_by

from benchmarks.escalation_coverage import STREAMS, contradictions, cost, drawn_question, excess, main, run, worlds
from langchain_reasc.method import FirstConfident, Race, StoppingRule

WITHIN = 0.05


@pytest.mark.parametrize("rule", [Race(3), Race(1), FirstConfident(0.5)], ids=lambda rule: rule.name)
@pytest.mark.parametrize("name", ["yes or no", "large differs from itself", "scores mislead"])
def test_the_rates_of_a_world_are_those_of_its_questions(name: str, rule: StoppingRule) -> None:
    kinds, rng = worlds(WITHIN)[name].kinds, np.random.default_rng(0)
    questions = [drawn_question(kinds, rng) for _ in range(4000)]
    played = [play_by(rule, one) for one in questions]
    stood_by = [one.large[0].answer == one.large[1].answer for one in questions]
    contradicted = [each.differs and same for each, same in zip(played, stood_by, strict=True)]
    assert np.mean(contradicted) == pytest.approx(contradictions(kinds, rule), abs=0.02)
    differs = np.mean([each.differs for each in played]) - 1 + np.mean(stood_by)
    assert differs == pytest.approx(excess(kinds, rule), abs=0.035)
    assert np.mean([each.cost for each in played]) == pytest.approx(cost(kinds, rule), abs=0.03)


@pytest.mark.parametrize("name", worlds(WITHIN))
def test_no_answer_differs_more_often_than_contradictions_allow(name: str) -> None:
    for rule in (Race(3), Race(2), Race(1), FirstConfident(0.0)):
        kinds = worlds(WITHIN)[name].kinds
        assert excess(kinds, rule) <= contradictions(kinds, rule) + 1e-12


def test_a_rule_at_the_bound_is_hardly_ever_admitted_and_one_far_below_always() -> None:
    at_the_bound = [run("at the bound", seed, within=WITHIN, questions=300, after=1).above for seed in range(40)]
    assert np.mean(at_the_bound) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 40)
    assert all(run("no contradictions", seed, within=WITHIN, questions=300, after=1).admitted for seed in range(5))


def test_the_command_prints_a_row_for_each_world(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["half of the bound", "easy questions first"]
    assert main(["--runs", "2", "--questions", "150", "--after", "300", "--processes", "1", "--worlds", *chosen]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[4:6]] == [f"| {name}" for name in chosen]
    assert lines[-1].startswith("| easy questions first | ")


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_contradicts_as_often_as_its_name_says(name: str) -> None:
    stream, rng = STREAMS[name], np.random.default_rng(0)
    asked = stream.hardness(200_000, rng)
    assert len(asked) == 200_000
    rates = {hardness: contradictions(stream.kinds(hardness), Race(1)) for hardness in {0.0, 0.5, 1.0}}
    assert rates[0.5] == pytest.approx((rates[0.0] + rates[1.0]) / 2)
    sure = np.mean(asked) * stream.contradicted
    assert sure == pytest.approx(stream.rate, rel=0.1)
    assert name.startswith(f"{100 * stream.rate:.2g} %")


def test_the_command_prints_a_row_for_each_stream(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["10 %, the easy half first", "2 % in topics of 50"]
    few = ["--runs", "2", "--stream-questions", "150", "--processes", "1"]
    assert main([*few, "--streams", *chosen]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[-2:]] == [f"| {name}" for name in chosen]
    assert not any("at the bound" in line for line in lines)
