"""Replay: numbers checked by hand, the split, the rows, and what may not change them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_reasc_lab.pools import calibrated_on, read_pool
from langchain_reasc_lab.replay import (
    AGREEMENT,
    CALIBRATED,
    HORIZON,
    MIXTURE,
    OFFLINE,
    Estimate,
    MethodSettings,
    Replay,
    Row,
    live_rule,
    replay,
    splits,
    summarize,
)

from lab.pools.synthetic import BY_HAND, question, response, write_lines, write_pool
from langchain_reasc.exceptions import ConfigurationError, PoolError
from langchain_reasc.method import Measure

FOUR = MethodSettings(max_samples=4)


def _rows(run: Replay) -> dict[str, Row]:
    return {row.method: row for row in summarize(run, resamples=200)}


def test_a_tiny_pool_by_hand(tmp_path: Path) -> None:
    # Calibration: μ = σ = 0.5, τ_gate = max(1, 1). "sure": gate at its first response. "turns": 1 goes on with weight
    # 1; 7 scores z = 3, weight e^2.1 = 8.17, P(8.17 over 1) > 0.95, so it stops at 2.
    pool = read_pool(write_lines(tmp_path / "p.sqlite", *BY_HAND))
    rows = _rows(replay(pool, ["recorded"], calibration_size=2, settings=FOUR))

    expected = {  # accuracy, samples, tokens per question
        "pass@1": (0.5, 1.0, (10 + 5) / 2),
        "SC@4": (0.5, 4.0, (70 + 25) / 2),  # 7 1 1 7: the tie goes to 7, seen first; 1 7 1 1: wrong
        "ESC (w=4)": (0.5, 4.0, (70 + 25) / 2),  # no window of four agrees
        "ASC": (0.5, 4.0, (70 + 25) / 2),  # no count reaches 0.95
        OFFLINE: (1.0, 1.5, (10 + 11) / 2),
    }
    for name, numbers in expected.items():
        row = rows[name]
        assert (row.accuracy.value, row.samples.value, row.tokens.value) == pytest.approx(numbers), name
    reasc = rows[OFFLINE]
    assert reasc.gated == 0.5
    assert reasc.accuracy_vs_asc.value == pytest.approx(0.5)
    assert reasc.tokens_vs_sc.value == pytest.approx(10.5 / 47.5)
    assert reasc.tokens_vs_asc.value == pytest.approx(10.5 / 47.5)
    # One of two questions is gained, none lost: from [.013, .987] and [0, .842], the distances squared and added.
    low, high = 0.5 - np.hypot(0.5 - 0.01258, 0.84189), 0.98742
    assert (reasc.accuracy_vs_asc.low, reasc.accuracy_vs_asc.high) == pytest.approx((low, high), abs=1e-5)
    assert rows["ASC"].accuracy_vs_asc == Estimate(0.0, 0.0, 0.0)


def test_recorded_calls_are_decided_on_by_kind_as_they_were_live(tmp_path: Path) -> None:
    calls = [json.dumps([{"args": {"q": q}, "name": "search"}]) for q in "abc"]
    asked = question("a", response("5"), response(calls[0]), response(calls[1]), response("5"), reference=calls[0])
    split = question("b", response("5"), *map(response, calls), reference=calls[0])
    row = _rows(replay(read_pool(write_lines(tmp_path / "p.sqlite", asked, split)), settings=FOUR))["SC@4"]
    assert row.accuracy.value == 0.5  # two against two go to the first; three against one to the calls


def test_recorded_order_calibrates_on_first_responses_of_the_first_questions_only(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.sqlite", questions=40)
    run = replay(read_pool(path), [Measure()], calibration_size=30)

    assert run.tested == 10
    for held in run.outcomes.values():
        tested = ~np.isnan(held.cells[0, :, 0])
        assert tested.tolist() == [False] * 30 + [True] * 10
    pool = read_pool(path)
    [calibration] = run.outcomes[OFFLINE, Measure()].calibrations
    assert pool.signals is not None
    firsts = [Measure()(pool.signals.of_question(held.id)[0]) for held in pool.questions[:30]]
    assert calibration.n == 30
    assert calibration.mean == pytest.approx(np.mean(firsts))
    assert calibration.accuracy == np.mean([held.responses[0].correct for held in pool.questions[:30]])
    # online: the first responses of the tested questions
    assert run.outcomes[MIXTURE, Measure()].calibrations[0].n == 10


@pytest.mark.parametrize(
    ("questions", "calibrating", "noted"),
    [
        (258, 128, None),
        (100, 50, "50 of the 100 questions calibrate, as 128 would leave too few to test"),
        (40, 20, "20 of the 40 questions calibrate"),
        (31, 0, "31 questions are too few to calibrate on, so only methods that need no calibration are compared"),
        (2, 0, "2 questions are too few"),
        (1, 0, "1 question is too few"),
    ],
)
def test_half_of_a_small_pool_calibrates_or_nothing_does(
    tmp_path: Path, questions: int, calibrating: int, noted: str | None
) -> None:
    pool = read_pool(write_pool(tmp_path / "p.sqlite", questions, 2, signals=False, scores=True))
    run = replay(pool, ["recorded"])
    assert (run.calibration_size, run.tested) == (calibrating, questions - calibrating)
    rows = {row.method for row in summarize(run, resamples=20)}
    assert {"pass@1", "SC@16", "ASC", HORIZON, AGREEMENT} <= rows and (CALIBRATED in rows) == (calibrating > 0)
    assert (
        any(note.startswith(noted) for note in run.notes) if noted else not any("calibrat" in one for one in run.notes)
    )


def test_a_pool_without_scores_compares_counting_methods_on_all_questions_by_their_costs(tmp_path: Path) -> None:
    run = replay(read_pool(write_pool(tmp_path / "p.sqlite", questions=5, signals=False)))
    rows = {row.method: row for row in summarize(run, parameters=3e9, resamples=200)}
    assert list(rows) == ["pass@1", "SC@16", "ESC (w=4)", "ASC", HORIZON, AGREEMENT]
    assert (run.tested, run.calibration_size) == (5, 0)
    assert rows["SC@16"].prompt_tokens == 160, "those of each sample that is used"
    assert rows["ASC"].prompt_tokens == pytest.approx(10 * rows["ASC"].samples.value)
    assert rows["SC@16"].tflops == pytest.approx(6e9 * rows["SC@16"].tokens.value / 1e12), "two per parameter and token"


def test_where_one_response_shows_no_agreement_the_papers_rule_is_guarded(tmp_path: Path) -> None:
    """As ``calibrate(max_samples=1)`` makes it: of a weak signal it counts votes, and the paper keeps its row."""
    pool = read_pool(write_pool(tmp_path / "p.sqlite", questions=120, separation=0.0))
    settings = MethodSettings(calibration_responses=1)
    run = replay(pool, [Measure()], calibration_size=60, settings=settings)
    rows = _rows(run)

    [made] = run.outcomes[CALIBRATED, Measure()].calibrations
    assert made.fallback and not made.by_agreement
    cells = {name: run.outcomes[name, spec].cells for name, spec in run.outcomes}
    np.testing.assert_array_equal(cells[CALIBRATED][:, :, :4], cells["ASC"][:, :, :4])
    assert rows[OFFLINE].tokens.value < rows[CALIBRATED].tokens.value
    name, why = live_rule(run, Measure())
    assert name == CALIBRATED
    assert "AUROC" in why and "agreement" not in why


@pytest.mark.parametrize("responses", [1, 4])
def test_a_response_without_a_score_is_a_vote(tmp_path: Path, responses: int) -> None:
    rng = np.random.default_rng(0)
    drawn = [[(hit, 2.0 * hit + float(rng.normal())) for hit in rng.random(4) < 0.7] for _ in range(60)]
    lines = [
        question(f"q{at}", *(response("7" if hit else "8", score=score) for hit, score in one))
        for at, one in enumerate(drawn)
    ]
    lines += [question(f"r{at}", *[response("7")] * 4) for at in range(20)]
    pool = read_pool(write_lines(tmp_path / "p.sqlite", *lines))
    settings = MethodSettings(max_samples=4, calibration_responses=responses)
    run = replay(pool, ["recorded"], calibration_size=60, settings=settings)
    [made] = run.outcomes[CALIBRATED, "recorded"].calibrations
    assert made.by_agreement == (responses > 1)
    assert not run.outcomes[CALIBRATED, "recorded"].problems
    assert 1 < _rows(run)[CALIBRATED].samples.value <= 4


def test_what_runs_by_default_has_a_row_beside_the_papers(tmp_path: Path) -> None:
    pool = read_pool(write_pool(tmp_path / "p.sqlite", questions=160, separation=2.0))
    runs = {}
    for responses in (1, 4):
        settings = MethodSettings(calibration_responses=responses)
        runs[responses] = replay(pool, [Measure()], calibration_size=128, settings=settings)
    one, four = (run.outcomes[CALIBRATED, Measure()].calibrations[0] for run in runs.values())
    assert one.within is None and one.rule().weight == "count"  # type: ignore[attr-defined]
    assert four.by_agreement and four.rule().reads_scores
    assert live_rule(runs[1], Measure())[0] == CALIBRATED
    assert _rows(runs[1])[OFFLINE].tokens.value < _rows(runs[1])[CALIBRATED].tokens.value
    assert live_rule(runs[4], Measure()) == (CALIBRATED, "the agreement rule decides, by answers and scores")
    papers = [run.outcomes[OFFLINE, Measure()].cells for run in runs.values()]
    np.testing.assert_array_equal(*papers)


def test_auto_chooses_on_the_calibration_questions_alone(tmp_path: Path) -> None:
    chosen = []
    for tested in (20, 60):  # the same calibration questions, other tested ones
        path = write_pool(tmp_path / f"p{tested}.sqlite", 60 + tested, 4)
        run = replay(read_pool(path), ["auto"], calibration_size=60)
        chosen.append(run.outcomes[OFFLINE, "auto"].calibrations[0].measure)
    assert chosen[0] == chosen[1]


@pytest.mark.slow  # replays several arrangements
def test_shuffles_move_questions_and_responses_and_are_reproducible(tmp_path: Path) -> None:
    pool = read_pool(write_pool(tmp_path / "p.sqlite", questions=30))
    first, second = splits(pool, 10, shuffles=2, seed=5)
    assert sorted([*first.calibration, *first.tested]) == list(range(30))
    assert list(first.calibration) != list(second.calibration)
    assert first.orders[0] != second.orders[0]
    assert sorted(first.orders[0]) == list(range(16))
    assert next(splits(pool, 10, shuffles=1, seed=5)) == first
    assert next(splits(pool, 10, shuffles=1, seed=6)) != first

    runs = [
        summarize(replay(pool, [Measure()], shuffles=2, seed=seed, calibration_size=10), resamples=50)
        for seed in (5, 5, 6)
    ]
    numbers = [[(row.accuracy, row.tokens, row.accuracy_vs_asc) for row in rows] for rows in runs]
    assert numbers[0] == numbers[1]
    assert numbers[0] != numbers[2]


def test_questions_of_a_calibration_pool_are_never_tested(tmp_path: Path) -> None:
    beside = write_lines(tmp_path / "c.sqlite", *(question(f"c{n}", response("7", score=1.0)) for n in range(5)))
    tested = write_lines(tmp_path / "p.sqlite", *(question(f"q{n}", response("7", score=1.0)) for n in range(4)))
    pool = calibrated_on(read_pool(tested), read_pool(beside))
    for split in splits(pool, 3, shuffles=2, seed=0):
        assert sorted(split.tested) == [5, 6, 7, 8] and set(split.calibration) <= {0, 1, 2, 3, 4}


def test_a_calibration_that_is_impossible_counts_votes_and_says_so(tmp_path: Path) -> None:
    same = [question(f"q{n}", *[response("7", score=1.0)] * 4) for n in range(6)]
    run = replay(read_pool(write_lines(tmp_path / "p.sqlite", *same)), ["recorded"], calibration_size=3, settings=FOUR)
    held = run.outcomes[OFFLINE, "recorded"]
    assert "scores equal" in held.problems[0]
    np.testing.assert_array_equal(held.cells, run.outcomes["ASC", None].cells)


def test_responses_without_a_score_are_one_vote_and_do_not_calibrate(tmp_path: Path) -> None:
    lines = [json.dumps(line).replace('"score": 0.0', '"score": null') for line in BY_HAND]
    pool = read_pool(write_lines(tmp_path / "p.sqlite", question("more", response("1", score=0.5)), *lines))
    run = replay(pool, ["recorded"], calibration_size=3, settings=FOUR)
    assert any("10 responses have no score" in note for note in run.notes)
    assert not any("fewer than 4" in note for note in run.notes)  # "more" has one, but only calibrates
    assert run.outcomes[OFFLINE, "recorded"].calibrations[0].n == 2


def test_too_little_or_the_wrong_thing_is_refused(tmp_path: Path) -> None:
    pool = read_pool(write_pool(tmp_path / "p.sqlite", questions=10))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"measures": [Measure()], "calibration_size": 12}, "10 questions; a calibration on 12 leaves none"),
        ({"measures": [Measure()], "calibration_size": 1}, "at least 2 questions, got 1"),
        ({"shuffles": -1}, "got -1"),
        ({"measures": [Measure("top_k")], "calibration_size": 5}, "no 'top_k' signal"),
        ({"measures": ["recorded"], "calibration_size": 5}, "no recorded scores"),
    ]
    for options, says in cases:
        with pytest.raises((ConfigurationError, PoolError), match=says):
            replay(pool, **options)
