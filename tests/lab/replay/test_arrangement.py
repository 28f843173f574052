"""A pool on arrays costs and answers what it does response by response."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_reasc_lab.pools import Pool, PoolScores, read_pool
from langchain_reasc_lab.replay import (
    COLUMNS,
    Arrangement,
    Cells,
    Method,
    MethodSettings,
    RecordedPool,
    Split,
    asc_at_once,
    counting,
    splits,
    weighing,
)

from lab.pools.synthetic import append_signals, question, response, write_lines, write_pool
from langchain_reasc.method import SCORES, Measure, decide, rule_in_use, support


def _uneven(path: Path) -> Path:
    """Every kind of gap: no answer, no score, cut off, no prompt tokens, few responses, calls of tools."""
    rng = np.random.default_rng(3)
    call = json.dumps([{"args": {"q": 1}, "name": "search"}])
    lines = []
    for number in range(50):
        answers: list[str | None] = ["7", "7", "7", "1", "2", None]
        if number % 10 == 0:
            answers.append(call)
        held = []
        for _ in range(int(rng.integers(1, 20))):
            answer = answers[int(rng.integers(len(answers)))]
            more: dict[str, Any] = {"cut_off": bool(rng.random() < 0.1)}
            if rng.random() < 0.95:
                more["score"] = float(rng.normal(answer == "7"))
            if rng.random() < 0.98:
                more["prompt_tokens"] = int(rng.integers(5, 9))
            held.append(response(answer, int(rng.integers(0, 50)), **more))
        lines.append(question(f"q{number}", *held))
    return write_lines(path, *lines)


def _one_by_one(pool: Pool, scores: PoolScores, method: Method, split: Split, budget: int) -> Cells:
    """The same, as plainly as can be."""
    cells = np.full((len(pool.questions), len(COLUMNS)), np.nan)
    for at in split.tested:
        order = split.orders[at][:budget]
        recorded, seen = pool.questions[at].responses, scores.responses(method.measure)[at]
        rule = rule_in_use(method.rule, budget) if method.in_use else method.rule
        decision = decide(rule, [seen[i] for i in order])
        used = [recorded[i] for i in order[: decision.samples]]
        prompts = [np.nan if one.prompt_tokens is None else one.prompt_tokens for one in used]
        right = next(one.correct for one in recorded if one.answer == decision.answer)
        tokens = sum(one.completion_tokens for one in used)
        supported = np.nan if support(decision) is None else support(decision)
        cells[at] = (bool(right), decision.samples, tokens, sum(prompts), decision.reason == "gate", supported)
    return cells


@pytest.mark.parametrize("uneven", [True, False])
def test_every_method_does_what_it_does_one_by_one(tmp_path: Path, uneven: bool) -> None:
    path = tmp_path / "p.sqlite"
    pool = read_pool(_uneven(path) if uneven else write_pool(path, questions=50))
    scores, settings = PoolScores(pool), MethodSettings(max_samples=12)
    recorded = RecordedPool(pool, scores)
    for split in splits(pool, 25, shuffles=1, seed=0):
        arrangement = Arrangement(recorded, split, split.tested, 12)
        methods = counting(settings)
        for spec in ["recorded"] if uneven else ["auto", Measure("token_logprob", "mean")]:
            methods += weighing(pool, scores, split, spec, settings)  # type: ignore[arg-type]
        assert len(methods) > 5
        for method in (one for one in methods if one.learns is None):  # test_stream.py has the others
            expected = _one_by_one(pool, scores, method, split, 12)
            np.testing.assert_array_equal(arrangement.outcome(method), expected, err_msg=method.name)


def test_four_at_once_pay_for_the_last_wave_and_decide_alike(tmp_path: Path) -> None:
    sure = question("sure", *[response("7", 10 + n) for n in range(16)])  # stops at 4, a whole wave
    late = question("late", response("1", 1), *[response("7", 10)] * 7)  # 6 to 1 at the seventh: 8 are launched
    few = question("few", response("1", 1), *[response("7", 10)] * 5)  # the last wave has two
    pool = read_pool(write_lines(tmp_path / "p.sqlite", sure, late, few))
    settings = MethodSettings()
    [split] = splits(pool, 0, shuffles=0, seed=0)
    arrangement = Arrangement(RecordedPool(pool, PoolScores(pool)), split, split.tested, 16)
    cells = arrangement.outcome(asc_at_once(settings))
    assert cells[:, :3].tolist() == [[1, 4, 46], [1, 8, 71], [1, 6, 51]]
    asc = next(method for method in counting(settings) if method.name == "ASC")
    assert arrangement.outcome(asc)[:, :3].tolist() == [[1, 4, 46], [1, 7, 61], [1, 6, 51]]


@pytest.mark.parametrize("right", [True, False])
def test_of_equal_answers_the_first_recorded_one_says_whether_they_are_right(tmp_path: Path, right: bool) -> None:
    held = [response("7", correct=right), *[response("7", correct=not right)] * 7]
    pool = read_pool(write_lines(tmp_path / "p.sqlite", *[question(f"q{n}", *held) for n in range(4)]))
    for split in splits(pool, 0, shuffles=3, seed=0):
        arrangement = Arrangement(RecordedPool(pool, PoolScores(pool)), split, split.tested, 8)
        for method in counting(MethodSettings(max_samples=8)):
            assert (arrangement.outcome(method)[:, 0] == right).all()


@pytest.mark.parametrize("score", SCORES)
def test_scores_of_all_are_those_of_each_to_the_last_bit(tmp_path: Path, score: str) -> None:
    rng = np.random.default_rng(5)
    path = write_pool(tmp_path / "p.sqlite", questions=20, signals=False)
    for number in range(20):
        held = [{"top_k": rng.normal(3, 1, int(length))} for length in rng.integers(0, 40, 16)]
        held[number % 16]["top_k"][:1] = np.nan
        append_signals(path, f"q{number}", [{}] * 16 if number == 7 else held)
    pool, measure = read_pool(path), Measure("top_k", score, 9)
    assert pool.signals is not None
    for row, one in zip(PoolScores(pool).scores(measure), pool.questions, strict=True):
        for got, signals in zip(row, pool.signals.of_question(one.id), strict=True):
            values = signals.get("top_k", np.empty(0))
            assert got == (measure(signals) if values.size and np.isfinite(values).all() else None)
