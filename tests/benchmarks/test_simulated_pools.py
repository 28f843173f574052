"""What configurations lose on simulated pools: ``decide`` on each question, and a seeded 25 of the 1,000 pools."""

import json
from typing import Any

import numpy as np
import pytest
from langchain_reasc_lab.simulation.answers import ANSWERS
from langchain_reasc_lab.simulation.pools import Responses, kind_of, simulated_pool
from langchain_reasc_lab.simulation.signals import SIGNAL_KINDS

from benchmarks.configurations import CONFIGURATIONS, as_asc_left_it, decisions
from benchmarks.simulated_pools import MEAN_LOSS, Outcome, compared, main, run, verdict
from langchain_reasc.method import ASC, Cap, Decision, FiniteHorizon, StoppingRule, decide

HORIZON = "Finite horizon (.97)"


def _one_by_one(rule: StoppingRule, responses: Responses, measure: int = 0) -> list[Decision]:
    capped = rule | Cap(responses.answers.shape[1])
    return [decide(capped, responses.to_question(question, measure)) for question in range(len(responses))]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_configuration_decides_as_one_by_one(name: str) -> None:
    for index in (3, 9, 21):
        pool = simulated_pool(index, questions=100, seed=5)
        rule, measure = CONFIGURATIONS[name](pool.warm_up)
        samples, answers = decisions(rule, pool.tested, measure)
        expected = _one_by_one(rule, pool.tested, measure)
        assert samples.tolist() == [decision.samples for decision in expected]
        assert answers.tolist() == [-1 if one.answer is None else int(one.answer) for one in expected]


def test_loss_and_tokens_are_those_of_decisions_one_by_one() -> None:
    pool = simulated_pool(23, questions=300, seed=2)
    figures = {}
    for name, rule in (("ASC", ASC()), (HORIZON, FiniteHorizon(0.97))):
        made = _one_by_one(rule, pool.tested)
        right = np.mean([decision.answer == str(at) for decision, at in zip(made, pool.tested.right, strict=True)])
        spent = sum(pool.tested.tokens[at, : decision.samples].sum() for at, decision in enumerate(made))
        figures[name] = right, spent
    (outcome,) = compared(23, seed=2, questions=300, configurations=[HORIZON])
    assert outcome.loss == pytest.approx(100 * (figures["ASC"][0] - figures[HORIZON][0]))
    assert outcome.tokens == pytest.approx(figures[HORIZON][1] / figures["ASC"][1])
    assert (outcome.answers, outcome.signal) == (pool.kind.answers, pool.kind.signal)
    assert outcome.warm_up == len(pool.warm_up)


def test_asc_leaves_what_it_asked_for() -> None:
    warm_up = simulated_pool(8, questions=1).warm_up
    left, made = list(as_asc_left_it(warm_up)), _one_by_one(ASC(), warm_up)
    assert [len(answers) for answers, _ in left] == [decision.samples for decision in made]
    assert all(scores.shape == (8, len(answers)) for answers, scores in left)
    assert any(None in answers for answers, _ in left) and -1 not in {one for answers, _ in left for one in answers}


def test_on_easy_pools_agreement_takes_few_samples_and_loses_little() -> None:
    pool = simulated_pool(7, questions=1000)
    assert pool.kind.answers == "near-perfect"
    agreement, _ = CONFIGURATIONS["Agreement (counts)"](pool.warm_up)

    def figures(rule: StoppingRule) -> tuple[float, float]:
        samples, answers = decisions(rule, pool.tested)
        return float(samples.mean()), 100 * float((answers == pool.tested.right).mean())

    (samples, agreed), (_, asc) = figures(agreement), figures(ASC())
    assert 1.9 < samples < 3.0 and agreed > asc - MEAN_LOSS


def _outcome(loss: float, answers: str = "Dirichlet", signal: str = "none") -> Outcome:
    return Outcome(0, answers, signal, 16, HORIZON, loss, 0.9)


def test_a_verdict_is_on_the_mean_of_every_kind_and_on_the_share_of_all_pools() -> None:
    fine = [_outcome(0.0, answers, signal) for answers in ANSWERS for signal in SIGNAL_KINDS]
    assert verdict("x", fine)[0]
    few = [_outcome(1.2, answers, signal) for answers, signal in zip(list(ANSWERS)[:4], SIGNAL_KINDS, strict=False)]
    assert verdict("x", fine + few)[0]  # 4 of 94 pools, and .12 on average over a kind
    held, told = verdict("x", [_outcome(0.31, "two modes") if one.answers == "two modes" else one for one in fine])
    assert not held and "0.31" in told and "(two modes)" in told
    ones = [_outcome(1.1, answers, signal) for answers, signal in zip(ANSWERS, SIGNAL_KINDS, strict=False)]
    gains = [_outcome(-9.0, answers, signal) for answers in ANSWERS for signal in SIGNAL_KINDS]
    held, told = verdict("x", ones + gains)
    assert not held and "9.1% of pools" in told  # gains elsewhere do not make up for these


DEFAULTS = [HORIZON, "Agreement (counts)", "ReASC (online)"]


def test_no_default_loses_on_average_over_all_kinds_of_answers() -> None:
    outcomes = [found for pool in run(10, questions=500, configurations=DEFAULTS) for found in pool]
    assert {outcome.answers for outcome in outcomes} == set(ANSWERS)
    for name in DEFAULTS:
        losses = [outcome.loss for outcome in outcomes if outcome.configuration == name]
        assert np.mean(losses) <= MEAN_LOSS, name


@pytest.mark.slow  # as many questions as it takes to bound the loss of each kind
def test_no_default_loses_more_than_it_may_on_a_seeded_25() -> None:
    outcomes = [found for pool in run(25, questions=3000, configurations=DEFAULTS) for found in pool]
    for name in DEFAULTS:
        held, line = verdict(name, [outcome for outcome in outcomes if outcome.configuration == name])
        assert held, line


def test_pools_of_a_kind_are_those_of_a_whole_run() -> None:
    options: Any = {"questions": 50, "configurations": [HORIZON]}
    some = [one for found in run(3, jobs=2, kinds=["hopeless", "inverted"], **options) for one in found]
    every = {one.pool: one for found in run(30, **options) for one in found}
    assert len(some) == 3 and all(one == every[one.pool] for one in some)
    assert all(one.answers == "hopeless" or one.signal == "inverted" for one in some)


def test_the_command_prints_tables_for_80_columns_and_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--jobs", "1", "--questions", "300", "--configurations", HORIZON]
    assert main(["--pools", "2", "--seed", "1", *options]) == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert max(map(len, lines)) <= 80 and lines[0].strip() == HORIZON and "mean loss" in lines[1]
    assert any(line.startswith("Dirichlet ") for line in lines) and f"{HORIZON} HOLDS" in told.out
    assert main(["--pools", "1", *options, "--json"]) == 0
    (outcome,) = json.loads(capsys.readouterr().out)
    assert outcome["configuration"] == HORIZON and outcome["answers"] == kind_of(0).answers
