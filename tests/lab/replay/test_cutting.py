"""Samples that are cut in the middle, replayed from the token signals of a pool."""

from pathlib import Path

import numpy as np
import pytest
from langchain_reasc_lab.replay import (
    CUTTING,
    ONLINE,
    Arrangement,
    Method,
    MethodSettings,
    Pool,
    RecordedPool,
    cutting,
    read_pool,
    replay,
    splits,
)
from pools.synthetic import write_pool

from langchain_reasc.calibrating import PoolScores
from langchain_reasc.calibration import MINIMUM
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method import ASC, Cap, ConfidenceCut, Measure


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    return read_pool(write_pool(tmp_path_factory.mktemp("pool") / "p.sqlite", questions=120, separation=2.0))


def test_each_response_is_cut_where_its_own_signal_falls_below(pool: Pool) -> None:
    scores = PoolScores(pool)
    for threshold, window in ((-1.2, 8), (-0.5, 16), (5.0, 8), (-9.0, 8)):
        cut = ConfidenceCut("token_logprob", window, threshold)
        after = scores.cut_after(cut)
        assert pool.signals is not None
        for question, row in zip(pool.questions, after, strict=True):
            held = pool.signals.of(question.id)
            assert row.tolist() == [cut.tokens(one["token_logprob"]) or 0 for one in held]
    with pytest.raises(PoolError, match="no 'top_k' signal"):
        scores.cut_after(ConfidenceCut("top_k", 8, 1.0))


def test_what_is_cut_costs_its_tokens_and_casts_no_vote(pool: Pool) -> None:
    scores = PoolScores(pool)
    [split] = splits(pool, 0, shuffles=1, seed=3)
    arrangement = Arrangement(RecordedPool(pool, scores), split, split.tested, 16)
    [method] = cutting(scores, "auto", MethodSettings())
    assert method.learns is not None
    stream = arrangement.stream(method.learns, cut_quantile=method.cut_quantile)
    streamed, cells = stream.run(), arrangement.outcome(method)
    assert streamed.calibration and streamed.calibration.cut and not streamed.cut[:MINIMUM].any()
    cut = streamed.cut > 0
    assert cut[MINIMUM:].any() and not cut[:, 0].any() and (2 * cut.sum(axis=1) <= streamed.launched).all()
    for row, question in enumerate(split.tested):
        drawn = min(streamed.launched[row] + streamed.audited[row], 16)
        order = split.orders[question][:drawn]
        whole = [pool.questions[question].responses[at].completion_tokens for at in order]
        paid = [after or tokens for after, tokens in zip(streamed.cut[row], whole, strict=False)]
        assert cells[question, 1:3].tolist() == [drawn, sum(paid)]
        answers = [pool.questions[question].responses[at].answer for at in order[: streamed.launched[row]]]
        kept = [answer for answer, weak in zip(answers, cut[row], strict=False) if not weak]
        assert streamed.decisions[row].answer in kept
        assert streamed.decisions[row].samples == streamed.launched[row] - cut[row].sum()


def test_pools_with_token_signals_have_a_row_of_it(pool: Pool, tmp_path: Path) -> None:
    run = replay(pool, ["auto"], calibration_size=10)
    keys = [key for key in run.outcomes if key[0] in (ONLINE, CUTTING)]
    assert keys == [(ONLINE, "auto"), (CUTTING, "auto")]
    spent, less = (float(np.nansum(run.outcomes[key].column("tokens"))) for key in keys)
    assert less < spent
    named = replay(pool, [Measure("token_logprob", "mean")], calibration_size=30)
    bare = read_pool(write_pool(tmp_path / "bare.sqlite", signals=False, scores=True))
    recorded = replay(bare, ["recorded"], calibration_size=20)
    assert not [name for one in (named, recorded) for name, _ in one.outcomes if name == CUTTING]


def test_without_a_calibration_or_a_quantile_none_is_cut(pool: Pool) -> None:
    [split] = splits(pool, 0, shuffles=0, seed=0)
    arrangement = Arrangement(RecordedPool(pool, PoolScores(pool)), split, split.tested, 16)
    streamed = arrangement.stream([Measure("token_logprob", "mean")]).run()
    assert streamed.calibration and streamed.calibration.cut is None and not streamed.cut.any()
    asc = arrangement.decisions(Method("ASC", ASC() | Cap(16)))
    assert streamed.launched[:MINIMUM].tolist() == [one.samples for one in asc[:MINIMUM]]
