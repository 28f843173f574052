"""Algorithm 2: hand-made mixtures, fitted ones, closed gates, and learning one response at a time."""

import functools
import threading
from collections.abc import Callable

import numpy as np
import pytest

from langchain_reasc.calibration import (
    Calibration,
    Mixture,
    MixtureCalibrator,
    calibrate_mixture,
    fit_mixture,
    posterior_upper,
)
from langchain_reasc.calibration import mixture as algorithm
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure

GRID = np.linspace(-10, 10, 201)  # scores -10.0, -9.9, ..., 10.0
run = functools.partial(calibrate_mixture, measure=Measure())


def mixture(
    low: tuple[float, float], high: tuple[float, float], upper_weight: float = 0.5, converged: bool = True
) -> Mixture:
    """Components as (mean, std)."""
    return Mixture(
        weights=(1 - upper_weight, upper_weight),
        means=(low[0], high[0]),
        stds=(low[1], high[1]),
        converged=converged,
        aic={1: 1.0, 2: 0.0},
        bic={1: 1.0, 2: 0.0},
    )


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mixture], Calibration]:
    """Algorithm 2 on GRID as if the fit had found this mixture."""

    def calibrated(found: Mixture) -> Calibration:
        monkeypatch.setattr(algorithm, "fit_mixture", lambda scores, components, seed: found)
        return run(GRID)

    return calibrated


@pytest.mark.parametrize(
    ("found", "target_part", "threshold"),
    [
        # log odds 4(t - 2) reach ln 9 at 2.549; the upper mean is higher
        (mixture((0, 1), (4, 1)), 2.6, 4.0),
        # log odds t - 1/2 reach ln 9 at 2.697, above the upper mean
        (mixture((0, 1), (1, 1)), 2.7, 2.7),
        # ln(1/9) + 2(t - 1) reach ln 9 at 3.197
        (mixture((0, 1), (2, 1), upper_weight=0.1), 3.2, 3.2),
        # certain already at the lower mean: the first score above it
        (mixture((0, 1), (1, 1), upper_weight=0.99), 0.1, 1.0),
        # -10 has posterior 1 too, and a scan from below would stop there
        (mixture((0, 0.5), (3, 4)), 1.5, 3.0),
    ],
)
def test_algorithm_2_by_hand(
    fitted: Callable[[Mixture], Calibration], found: Mixture, target_part: float, threshold: float
) -> None:
    gate = fitted(found).gate
    assert (gate.target_part, gate.threshold) == (pytest.approx(target_part), pytest.approx(threshold))
    assert gate.mean_part == found.means[1]
    assert (posterior_upper(GRID[gate.target_part <= GRID], found) >= 0.9).all()


def test_two_clear_components_are_found_and_are_no_reason_for_a_notice(online: Calibration) -> None:
    found = online.mixture
    assert found is not None and found.converged
    assert found.means == pytest.approx((0, 4), abs=0.4)
    assert found.stds == pytest.approx((0.5, 0.5), abs=0.15)
    assert found.weights == pytest.approx((30 / 80, 50 / 80), abs=0.01)
    assert min(found.bic, key=lambda k: found.bic[k]) == 2 and set(found.aic) == {1, 2, 3, 4}
    assert online.gate.threshold == online.gate.mean_part == found.means[1]
    assert 1 < online.gate.target_part < 3.5  # type: ignore[operator]
    assert online.notices() == ()
    # The fit works on z-scores; its AIC and BIC must not. One Gaussian has a closed form.
    log_likelihood = -online.n / 2 * (np.log(2 * np.pi * online.std**2) + 1)
    assert found.aic[1] == pytest.approx(2 * 2 - 2 * log_likelihood, rel=1e-3)
    assert found.bic[1] == pytest.approx(2 * np.log(online.n) - 2 * log_likelihood, rel=1e-3)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (mixture((0, 1), (4, 1), converged=False), "did not converge"),
        (mixture((0, 1), (0.01, 1)), "posterior of 0.9"),
        (mixture((30, 1), (40, 1)), "posterior of 0.9"),
        (mixture((0, 1), (12, 3)), "mean, 12"),
    ],
)
def test_a_mixture_without_a_gate_says_why(
    fitted: Callable[[Mixture], Calibration], found: Mixture, message: str
) -> None:
    calibration = fitted(found)
    assert calibration.gate.threshold is None and message in (calibration.gate.closed_because or "")
    assert calibration.mixture == found, "what was fitted is kept to be looked at"
    assert (calibration.rule().gate, calibration.rule().weight) == (None, "reasc")  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [0.0, 1.0, -2.3, 1e-30, 1e30])
@pytest.mark.filterwarnings("error")
def test_equal_scores_are_refused_without_a_warning(value: float) -> None:
    with pytest.raises(CalibrationDataError, match="64 scores equal"):
        fit_mixture(np.full(64, value))


def test_one_group_of_scores_opens_the_papers_gate_and_it_says_so() -> None:
    scores = np.random.default_rng(5).normal(3, 1, 100)
    plain = run(scores)
    assert plain.gate.threshold is not None
    assert any("BIC" in notice for notice in plain.notices())


@pytest.mark.full
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_no_start_leads_to_a_likelier_mixture(seed: int) -> None:
    """A narrow group in a wide one; a component of a few scores does not count."""
    from sklearn.mixture import GaussianMixture
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(seed)
    scores = np.concatenate([rng.normal(0, 1, 110), rng.normal(rng.uniform(-1, 1), 0.2, 18)])
    made = run(scores)
    assert made.mixture is not None and made.mean is not None and made.std is not None
    z = ((scores - made.mean) / made.std)[:, None]
    with threadpool_limits(1):
        others = [
            GaussianMixture(2, init_params=how, tol=1e-6, max_iter=10_000, reg_covar=1e-4, random_state=at).fit(z)
            for how in ("kmeans", "random_from_data")
            for at in range(12)
        ]
    likely = [fit.score(z) for fit in others if fit.covariances_.min() > 0.01 and fit.weights_.min() > 0.03]
    found = made.mixture.aic[2] - 2 * scores.size * np.log(made.std)
    assert (2 * 5 - found) / 2 > max(likely) * scores.size - 0.1


@pytest.mark.full
def test_the_fit_is_at_its_optimum() -> None:
    """Two overlapping groups: at scikit-learn's own tolerance the share accepted is off by several points."""
    from sklearn.mixture import GaussianMixture

    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.normal(0, 1, 120), rng.normal(2.2, 0.7, 180)])
    made, two = run(scores), run(scores, components=(1, 2))
    assert made.mixture is not None and made.mean is not None and made.std is not None
    z = ((scores - made.mean) / made.std)[:, None]
    exact = GaussianMixture(2, tol=1e-10, n_init=5, max_iter=100_000, reg_covar=1e-4, random_state=0).fit(z)
    upper = made.mean + made.std * float(exact.means_.max())
    assert made.mixture.means[1] == pytest.approx(upper, abs=0.01 * made.std)
    assert two.mixture and (two.gate, two.mixture.means) == (made.gate, made.mixture.means)
    assert two.mixture.bic == {k: made.mixture.bic[k] for k in (1, 2)}  # more are for the reader


@pytest.mark.parametrize(
    "scores", [[1.0, 2.0] * 10, [1.0] * 30 + [2.0], [1.0, 2.0, 3.0] * 7, list(map(float, range(15)))]
)
def test_a_handful_of_scores(scores: list[float]) -> None:
    """Repeated values make narrow components, never a crash; the highest value alone passes."""
    made = run(scores)
    if len(scores) < 16:
        assert made.gate.closed_because == "15 responses are too few for a two-component mixture (16 at least)"
        assert made.mixture is None and made.mean == 7.0
    else:
        assert made.gate.threshold is not None
        assert {score for score in scores if score >= made.gate.threshold} == {max(scores)}


@pytest.mark.full
@pytest.mark.parametrize(("a", "b"), [(1e-3, 0.0), (250.0, -30.0), (1e-12, 0.0)])
def test_the_gate_accepts_the_same_responses_in_any_unit(a: float, b: float) -> None:
    rng = np.random.default_rng(6)
    scores = np.concatenate([rng.normal(0, 1, 60), rng.normal(4, 0.7, 60)])
    plain, moved = (run(each, components=(1, 2)).gate.threshold for each in (scores, a * scores + b))
    assert plain is not None and moved is not None
    np.testing.assert_array_equal(scores >= plain, a * scores + b >= moved)


@pytest.mark.full
def test_the_calibrator_opens_when_it_has_seen_enough_and_refits_as_that_grows() -> None:
    calibrator = MixtureCalibrator(measure=Measure(), minimum=20)
    sizes = []
    for score in np.random.default_rng(7).normal(0, 1, 40):
        calibrator.observe(float(score))
        sizes.append(calibrator.calibration.n if calibrator.calibration else 0)
    assert sizes == [0] * 19 + [20] * 5 + [25] * 7 + [32] * 8 + [40]


def test_the_calibrator_waits_for_scores_that_differ_and_refuses_what_is_none() -> None:
    calibrator = MixtureCalibrator(measure=Measure(), minimum=4)
    for score in (1.0,) * 5:
        calibrator.observe(score)
    assert calibrator.calibration is None
    with pytest.raises(CalibrationDataError, match="nan"):
        calibrator.observe(float("nan"))
    calibrator.observe(2.0)
    assert calibrator.calibration is not None and calibrator.calibration.n == 6


@pytest.mark.full
def test_the_calibrator_loses_nothing_between_threads() -> None:
    calibrator = MixtureCalibrator(measure=Measure(), minimum=400)
    scores = np.random.default_rng(8).normal(0, 1, 400).reshape(4, 100)
    threads = [threading.Thread(target=lambda part=part: [*map(calibrator.observe, part.tolist())]) for part in scores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calibrator.calibration is not None and calibrator.calibration.n == 400
    assert calibrator.calibration.mean == pytest.approx(scores.mean())
