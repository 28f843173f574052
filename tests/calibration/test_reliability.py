"""How often answers hold up, and how reliable the probabilities are that were said of them."""

import numpy as np
import pytest

from langchain_reasc.calibration import Observation, Reliability, Share, reliability_of

Said = list[tuple[float | None, bool | None]]


def found(pairs: Said) -> Reliability | None:
    return reliability_of(Observation((0,), np.empty((0, 1)), p_correct=p, correct=right) for p, right in pairs)


def test_by_hand() -> None:
    sure, unsure = [(0.9, at > 0) for at in range(10)], [(0.3, at < 5) for at in range(10)]
    unknown: Said = [(0.9, None), (None, True), (None, None)]
    given = found([*sure, *unknown, *unsure])
    assert given is not None and given.n == 20
    assert given.bins == ((pytest.approx(0.3), Share(5, 10)), (pytest.approx(0.9), Share(9, 10)))
    assert given.brier == pytest.approx((9 * 0.01 + 0.81 + 5 * 0.49 + 5 * 0.09) / 20)
    assert given.brier_of_mean == pytest.approx(0.7 * 0.3)
    assert given.error == pytest.approx((0.2 + 0.0) / 2)
    assert given.by_chance == pytest.approx((2 / np.pi) ** 0.5 * (0.9**0.5 + 2.1**0.5) / 20)
    assert found([*sure, *unknown, *unsure[:9]]) is None, "fewer than 20 tell nothing"


@pytest.mark.full  # computes for long
@pytest.mark.parametrize("lowest", [0.05, 0.9])
@pytest.mark.parametrize("n", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_true_probabilities_are_off_by_chance_alone(n: int, lowest: float) -> None:
    each = []
    for seed in range(1500):
        rng = np.random.default_rng(seed)
        said = rng.uniform(lowest, 1.0, n)
        given = found([*zip(said.tolist(), (rng.random(n) < said).tolist(), strict=True)])
        assert given is not None and 2 <= len(given.bins) <= 5
        each.append((given.error, given.by_chance))
    error, chance = np.mean(each, axis=0)
    assert error == pytest.approx(chance, rel=0.06)


def test_one_probability_for_all_is_one_bin() -> None:
    given = found([(0.5, at % 4 > 0) for at in range(60)])
    assert given is not None and given.bins == ((0.5, Share(45, 60)),) and given.error == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("share", "says"),
    [(Share(0, 5), "0% [0%, 52%]"), (Share(5, 5), "100% [48%, 100%]"), (Share(32, 36), "89% [74%, 97%]")],
)
def test_a_share_with_its_exact_interval(share: Share, says: str) -> None:
    assert str(share) == says
