"""A replayed stream learns and decides as a live one, question by question."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from langchain_reasc_lab.pools import PoolScores, read_pool
from langchain_reasc_lab.replay import (
    AUDITED,
    HORIZON,
    ONLINE,
    Arrangement,
    Method,
    MethodSettings,
    RecordedPool,
    Streamed,
    splits,
    weighing,
)

from lab.pools.synthetic import question, response, write_lines, write_pool
from langchain_reasc.calibration import AnsweredQuestion, ConsensusCalibrator
from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.method import ASC, Cap, FiniteHorizon, Measure, decide

MEASURES = [Measure("token_logprob", "mean"), Measure("self_certainty", "mean")]


@pytest.fixture(scope="module")
def arrangement(tmp_path_factory: pytest.TempPathFactory) -> Arrangement:
    pool = read_pool(write_pool(tmp_path_factory.mktemp("pool") / "p.sqlite", questions=90))
    [split] = splits(pool, 0, shuffles=1, seed=3)
    return Arrangement(RecordedPool(pool, PoolScores(pool)), split, split.tested, 16)


def run(arrangement: Arrangement, measures: list[Measure]) -> Streamed:
    return arrangement.stream(measures).run()


class Recorded(NamedTuple):
    """A response whose score is known."""

    scores: dict[Measure, float]

    def score(self, measure: Measure) -> float:
        if measure not in self.scores:
            raise LogprobsUnavailable("not recorded")
        return self.scores[measure]

    def provenance(self, signal: str) -> dict[str, None]:
        return {"top_k": None, "vocabulary_size": None}


@pytest.mark.parametrize("measures", [[], MEASURES[:1]], ids=["answers", "measures"])
def test_it_learns_and_decides_as_a_live_run(arrangement: Arrangement, measures: list[Measure]) -> None:
    stream = arrangement.stream(measures)
    streamed = stream.run()
    live = ConsensusCalibrator(measure=measures[0] if measures else None)
    for row, replayed in enumerate(streamed.decisions):
        known = live.calibration
        rule = known.rule() if known else FiniteHorizon()
        responses = stream.responses(known.measure if known else None)[row]
        decision = decide(rule | Cap(16), responses)
        assert decision == replayed
        audited = known is not None and row % AUDITED == 0
        assert streamed.audited[row] == audited
        drawn = responses[: decision.samples + audited]
        readings = [
            Recorded(dict(zip(measures, (score[row, at] for score in stream.scores), strict=True)))
            for at in range(len(drawn))
        ]
        live.observe(
            AnsweredQuestion.from_decision([one.answer for one in drawn], readings, decision), learned=known is not None
        )
        assert live.wait(20)
    assert streamed.alarms == {} and live.calibration is not None is not streamed.calibration


def test_the_first_questions_are_asks_and_audits_come_after(arrangement: Arrangement) -> None:
    streamed = run(arrangement, [])
    untrained = arrangement.decisions(Method(HORIZON, FiniteHorizon() | Cap(16)))
    asc = arrangement.decisions(Method("ASC", ASC() | Cap(16)))
    assert streamed.decisions[:16] == untrained[:16]
    assert streamed.audited.sum() == sum(row % AUDITED == 0 for row in range(16, 90))
    assert sum(one.samples for one in streamed.decisions[16:]) < sum(one.samples for one in asc[16:])
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
