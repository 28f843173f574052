"""Simulated pools are what they say: shares, missing answers, what a signal is worth, what changes, and the seed."""

import numpy as np
import numpy.typing as npt
import pytest
from langchain_reasc_lab.simulation.answers import ANSWERS, Floats, Questions, draw_answers, numbered
from langchain_reasc_lab.simulation.pools import (
    WARM_UPS,
    PoolKind,
    Responses,
    kind_of,
    simulated_pool,
)
from langchain_reasc_lab.simulation.signals import SIGNAL_KINDS

from langchain_reasc.calibration import auroc_of


def _auroc(scores: Floats, correct: npt.NDArray[np.bool_]) -> float:
    return float(auroc_of(scores[correct], scores[~correct]))


def _of(answers: str, signal: str = "none", *, questions: int = 3000, seed: int = 0, **options: int) -> Responses:
    """Tested responses of one kind."""
    kind = PoolKind(answers, signal)
    index = next(index for index in range(100) if kind_of(index) == kind)
    return simulated_pool(index, seed=seed, questions=questions, **options).tested


def test_answers_come_by_their_shares_and_what_is_left_comes_once() -> None:
    n = 20_000
    shares = np.tile([0.5, 0.2], (n, 1))
    asked = Questions(shares, np.full(n, 1), np.full(n, 0.25))
    answers, right = draw_answers(np.random.default_rng(0), asked, 4)
    correct = answers == right[:, None]
    assert correct.mean() == pytest.approx(0.2 * 0.75, abs=0.01) == asked.likely.mean()
    assert (answers < 0).mean() == pytest.approx(0.25, abs=0.01)
    assert (answers == numbered(answers)).all()
    assert (right == -2).mean() == pytest.approx((1 - 0.15) ** 4, abs=0.01)
    alone = [sum(row.count(answer) == 1 for answer in row) for row in answers[:, :3].tolist()]
    two = np.mean([alone[at] <= 1 and (answers[at, :3] >= 0).all() for at in range(n)])
    once = 1 - 0.5 - 0.2
    expected = 0.75**3 * (1 - (6 * 0.5 * 0.2 * once + 3 * 0.7 * once**2 + once**3))  # all but three different ones
    assert two == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("signal", "low", "high"),
    [
        ("none", 0.5, 0.5),
        ("weak", 0.53, 0.62),
        ("strong", 0.88, 0.95),
        ("skewed", 0.7, 0.9),
        ("inverted", 0.2, 0.4),
        ("over-confident", 0.5, 0.93),
        ("of agreement", 0.6, 0.9),
        ("between questions", 0.65, 0.85),
    ],
)
def test_a_signal_separates_as_it_is_asked_to(signal: str, low: float, high: float) -> None:
    found = _of("Dirichlet", signal, measures=4)
    auroc = _auroc(found.scores[0], found.correct)
    assert low - 0.03 < auroc < high + 0.03
    assert _auroc(found.scores[1], found.correct) == pytest.approx(0.5, abs=0.03)  # every second one is noise
    assert abs(_auroc(found.scores[2], found.correct) - 0.5) < abs(auroc - 0.5) + 0.03


def test_a_pool_is_known_by_its_number_and_seed() -> None:
    first, again, other = (simulated_pool(14, seed=seed, questions=50) for seed in (3, 3, 4))
    for name in ("answers", "scores", "tokens", "right"):
        assert (getattr(first.tested, name) == getattr(again.tested, name)).all()
    assert (first.tested.scores != other.tested.scores).all()


def test_100_pools_in_a_row_are_of_all_kinds() -> None:
    assert {kind_of(index) for index in range(200, 300)} == {PoolKind(a, s) for a in ANSWERS for s in SIGNAL_KINDS}
    few = [kind_of(index) for index in range(50)]
    assert {kind.answers for kind in few} == set(ANSWERS) and {kind.signal for kind in few} == set(SIGNAL_KINDS)
    assert {len(simulated_pool(index, questions=1).warm_up) for index in range(60)} == set(WARM_UPS)
