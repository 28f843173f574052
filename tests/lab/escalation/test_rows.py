"""The comparison: rows that learn decide as live, cost what they say, and are refused where they do not pay."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from langchain_reasc_lab.escalation import (
    Answered,
    CascadeRow,
    Comparison,
    JoinedQuestion,
    Majority,
    compare_cascades,
    learn,
    play_by,
)

from lab.escalation.pairs import made
from langchain_reasc.calibration import DEFAULT_RACE, LearnedEscalation, Shadowed
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import Response, StoppingRule, decide


def named(found: Comparison) -> dict[str, CascadeRow]:
    return {row.name: row for row in found.rows}


def live(
    questions: Sequence[JoinedQuestion], drawn: Sequence[float], known: LearnedEscalation
) -> tuple[float, LearnedEscalation]:
    """Answer questions as a run that asks the models: one response after another, each paid for when it is asked."""
    spent = 0.0

    def ask(model: Iterator[Answered]) -> str | None:
        nonlocal spent
        one = next(model)
        spent += one.cost
        return one.answer

    def sample(rule: StoppingRule, model: Iterator[Answered]) -> tuple[list[str | None], bool]:
        given = [ask(model)]
        while not (decision := decide(rule, [Response(one) for one in given])).stop:
            given.append(ask(model))
        return given, not decision.undecided

    for question, number in zip(questions, drawn, strict=True):
        course, small, large = known.course(number, 0.05), iter(question.small), iter(question.large)
        if not course.shadowed:
            if course.rule is None or not sample(course.rule, small)[1]:
                ask(large)
            continue
        answers = [ask(large)]
        given, _ = sample(known.shadow_rule(answers[0]), small)
        costs = question.small[0].cost, question.large[0].cost
        if known.asks_again(Shadowed(*numbered(given, answers), costs=costs)):
            answers.append(ask(large))
        known = known.after(Shadowed(*numbered(given, answers), costs=costs))
    return spent, known


def numbered(*answers: list[str | None]) -> list[tuple[int | None, ...]]:
    """Return the answers of several models as numbers, equal ones for equal answers."""
    every = [one for each in answers for one in each]
    return [tuple(None if one is None else every.index(one) for one in each) for each in answers]


@pytest.mark.parametrize(("small", "pays"), [((0.3, 0.1), False), ((0.97, 0.3), True)])
@pytest.mark.parametrize("seed", range(2))
def test_a_replay_decides_and_pays_as_a_live_run(
    tmp_path: Path, small: tuple[float, float], pays: bool, seed: int
) -> None:
    pair = made(tmp_path, questions=250, seed=seed, small=small)
    drawn = np.random.default_rng(seed).random(250).tolist()
    played, known = learn(pair.questions, drawn, LearnedEscalation(within=0.1))
    spent, then = live(pair.questions, drawn, LearnedEscalation(within=0.1))
    assert sum(one.cost for one in played) == pytest.approx(spent)
    assert known == then
    assert sum(one.shadowed for one in played) == known.rows > 10
    assert (known.rule is not None) is pays and any(not one.escalated for one in played) is pays


@pytest.mark.full
def test_where_the_small_model_rivals_the_large_one_it_saves_what_it_promises(tmp_path: Path) -> None:
    found = compare_cascades(made(tmp_path, questions=500, hard=0.1), shuffles=4, within=[0.1])
    rows = named(found)
    learned = rows["learned, within 10 %"]
    assert learned.later.value < 0.6 < 1.0 == pytest.approx(rows["large model"].later.value)
    assert learned.versus_large.value > -0.02 and 0 < learned.shadowed < 0.5
    assert all(one.rule and "contradicts" in one.promise for one in learned.learned)
    assert learned.differs <= found.pair.differs_from_itself + 0.1
    assert rows["3 equal votes, else large"].later.value == pytest.approx(0.3 + 0.12, abs=0.08)


@pytest.mark.full
def test_where_it_does_not_pay_it_is_refused(tmp_path: Path) -> None:
    found = compare_cascades(made(tmp_path, questions=300, small=(0.3, 0.1)), shuffles=4, within=[0.05])
    row = named(found)["learned, within 5 %"]
    assert all(one.rule is None and one.promise == "" for one in row.learned)
    assert row.escalated == 1.0 and row.versus_large.value == 0.0
    assert row.cost is not None and row.cost.value < 1.15 and row.later.value < 1.05


def test_a_fixed_majority_is_paid_for_in_full(tmp_path: Path) -> None:
    pair = made(tmp_path, questions=60)
    for question in pair.questions:
        answers = [one.answer for one in question.small[:5]]
        agreed = max(answers.count(one) for one in answers) >= 4
        played = play_by(Majority(5, 4), question)
        assert played.escalated is not agreed
        assert played.cost == pytest.approx(0.5 if agreed else 1.5)


def test_confidence_is_trained_on_one_half_and_tested_on_the_other(tmp_path: Path) -> None:
    pair = made(tmp_path, questions=400, scores=True, small=(0.98, 0.05))
    rows = named(compare_cascades(pair, shuffles=3, within=[0.05]))
    trained = [row for row in rows.values() if row.trained]
    assert [row.name for row in trained] == ["by confidence, else large"]
    assert trained[0].cost is None and trained[0].later.value < 0.75
    assert trained[0].versus_large.value > -0.04


def test_without_scores_there_is_no_such_row(tmp_path: Path) -> None:
    found = compare_cascades(made(tmp_path, questions=60), within=[0.05])
    assert not any(row.trained for row in found.rows)


def test_one_response_of_each_leaves_no_votes(tmp_path: Path) -> None:
    found = compare_cascades(made(tmp_path, questions=60, samples=1, scores=True), within=[0.1])
    assert not {"3 equal votes, else large", "C3PO, 5 of 5, else large"} & set(named(found))
    assert any("too few for equal votes" in note for note in found.notes)
    assert any("how often the large model differs from itself is not known" in note for note in found.notes)


@pytest.mark.full
def test_the_same_seed_gives_the_same_rows_and_another_one_others(tmp_path: Path) -> None:
    pair = made(tmp_path, questions=80)
    first, again, other = (
        [row.later.value for row in compare_cascades(pair, shuffles=2, seed=seed, within=[0.1]).rows]
        for seed in (0, 0, 1)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("how", "text"), [({"last": 0}, "from 1 to 60"), ({"last": 61}, "from 1 to 60"), ({"within": [1.5]}, "between")]
)
def test_numbers_out_of_range_are_refused(tmp_path: Path, how: dict[str, int], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        compare_cascades(made(tmp_path, questions=60), **how)  # type: ignore[arg-type]


def test_the_default_rule_is_the_row_that_promises_nothing(tmp_path: Path) -> None:
    pair = made(tmp_path, questions=60)
    row = named(compare_cascades(pair, within=[0.1]))["3 equal votes, else large"]
    played = [play_by(DEFAULT_RACE, one) for one in pair.questions]
    assert row.learned == () and row.escalated == pytest.approx(np.mean([one.escalated for one in played]))
    assert row.cost is not None and row.cost.value == pytest.approx(np.mean([one.cost for one in played]))
