"""A replayed stream learns and decides as a live one, question by question."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from langchain_reasc_lab.replay import (
    AUDITED,
    ONLINE,
    Arrangement,
    Method,
    MethodSettings,
    RecordedPool,
    Streamed,
    read_pool,
    splits,
    weighing,
)
from pools.synthetic import question, response, write_lines, write_pool

from langchain_reasc.calibrating import PoolScores
from langchain_reasc.calibration import ConsensusLearner
from langchain_reasc.method import ASC, Cap, Measure, decide

MEASURES = [Measure("token_logprob", "mean"), Measure("self_certainty", "mean")]


@pytest.fixture(scope="module")
def arrangement(tmp_path_factory: pytest.TempPathFactory) -> Arrangement:
    pool = read_pool(write_pool(tmp_path_factory.mktemp("pool") / "p.sqlite", questions=90))
    [split] = splits(pool, 0, shuffles=1, seed=3)
    return Arrangement(RecordedPool(pool, PoolScores(pool)), split, split.tested, 16)


def run(arrangement: Arrangement, measures: list[Measure]) -> Streamed:
    return arrangement.stream(measures).run()


@pytest.mark.parametrize("measures", [[], MEASURES], ids=["answers", "measures"])
def test_it_learns_and_decides_as_a_live_run(arrangement: Arrangement, measures: list[Measure]) -> None:
    stream, learner = arrangement.stream(measures), ConsensusLearner(measures)
    streamed = stream.run()
    for row in range(len(streamed.decisions)):
        known = learner.calibration
        rule = known.rule(on_missing_confidence="count") if known else ASC()
        responses = stream.responses(known.measure if known else None)[row]
        decision = decide(rule | Cap(16), responses)
        assert decision == streamed.decisions[row]
        observed = stream.observe(row, responses[: decision.samples], counted=known is None)
        learner.observe(replace(observed, decided=decision.samples))
        if learner.due:
            learner.adopt(learner.fit())


def test_the_first_questions_are_asks_and_audits_come_after(arrangement: Arrangement) -> None:
    streamed = run(arrangement, [])
    asc = arrangement.decisions(Method("ASC", ASC() | Cap(16)))
    assert streamed.decisions[:32] == asc[:32]
    assert streamed.audited.sum() == sum(row % AUDITED == 0 for row in range(32, 90))
    assert sum(one.samples for one in streamed.decisions[32:]) < sum(one.samples for one in asc[32:])
    assert streamed.calibration is not None and streamed.calibration.method == "consensus"


def test_recorded_scores_are_a_measure_to_learn_from(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    drawn = [[response(str(a), 10, score=float(a + rng.normal())) for a in rng.integers(0, 3, 16)] for _ in range(60)]
    lines = [question(f"q{at}", *responses) for at, responses in enumerate(drawn)]
    pool = read_pool(write_lines(tmp_path / "p.sqlite", *lines))
    scores, settings = PoolScores(pool), MethodSettings()
    [split] = splits(pool, 20, shuffles=0, seed=0)
    [online] = [one for one in weighing(pool, scores, split, "recorded", settings) if one.name == ONLINE]
    assert online.learns == ["recorded"]
    cells = Arrangement(RecordedPool(pool, scores), split, split.tested, 16).outcome(online)
    assert np.isfinite(cells[20:, 0]).all()
