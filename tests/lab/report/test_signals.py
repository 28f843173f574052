"""Tables on signals and scores: by hand, and where pools lack what they need."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_reasc_lab.report import Study
from scipy.stats import norm

from lab.pools.synthetic import question, response, write_lines, write_pool
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.confidence import Measure

from .studies import notes, rows_of, scored, study

NAMES = ("components", "separation", "window", "bins")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pool(tmp_path_factory.mktemp("pool") / "pool.sqlite", 40, 4)


def test_separation_by_hand(tmp_path: Path) -> None:
    """Right: 3 and 5 (and 3 of the other question); wrong: 1, and 4 without an answer, which casts no vote."""
    right, wrong, silent = ("7", [3.0, 5.0]), ("8", [1.0, 1.0]), (None, [4.5, 4.5])
    rows = rows_of("separation", study(scored(tmp_path / "p.sqlite", [right, wrong, silent], [right, wrong])))
    [mean] = [row for row in rows if row["Score"] == "mean"]
    assert mean["AUROC"].value == pytest.approx((1 + 0 + 1) * 2 / (2 * 3))  # 4 beats the two 1, not 4.5
    assert mean["Gap"] == pytest.approx(4 - (1 + 1 + 4.5) / 3)
    assert mean["Gap/SD"] == pytest.approx(mean["Gap"] / np.sqrt((2 * 0 + 3 * np.var([1, 1, 4.5])) / 3))
    assert mean["Within"].value == 1
    told = notes("separation", study(tmp_path / "p.sqlite"))
    assert "2 right and 3 wrong responses; 2 of 2 questions have both" in told
    assert "earlier version" in told  # no answer_span


def first_scores(path: Path, scores: "np.ndarray[Any, Any]") -> Study:
    """A pool of one response with a score to each question."""
    lines = [question(f"q{at}", response("7", score=float(score))) for at, score in enumerate(scores)]
    return study(write_lines(path, *lines), "recorded")


def test_components_find_what_there_is(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    apart = np.concatenate((rng.normal(0, 1, 150), rng.normal(8, 1, 150)))
    for name, levels, lowest in (("two", apart, 2), ("one", norm.ppf((np.arange(300) + 0.5) / 300), 1)):
        one = first_scores(tmp_path / f"{name}.sqlite", levels)
        aic, bic = rows_of("components", one)
        assert (aic["By"], bic["By"], bic["Lowest"]) == ("AIC", "BIC", lowest)
        assert bic["k = 2"] - aic["k = 2"] == pytest.approx(5 * (np.log(300) - 2))
        told = notes("components", one)
        assert "300 first responses with a score by recorded" in told
        assert ("BIC prefers one component" in told) == (lowest == 1)


def test_bins_by_hand(tmp_path: Path) -> None:
    """Ten responses at 0, 1, ... 9, of which those from 5 on are right; each bin of either kind has two."""
    path = scored(tmp_path / "p.sqlite", *([("7" if at >= 5 else "8", [float(at)])] for at in range(10)))
    rows = rows_of("bins", study(path, Measure("self_certainty", "mean")))
    assert [row["Bins"] for row in rows] == ["quantile"] * 5 + ["equal width"] * 5
    assert [row["Responses"] for row in rows] == [2] * 10
    assert [row["Accuracy %"].value for row in rows[:5]] == [0, 0, 50, 100, 100]
    assert rows[4]["Accuracy %"].low == pytest.approx(100 * 0.025**0.5)
    assert (rows[5]["From"], rows[5]["To"]) == pytest.approx((0, 1.8))
    assert "does not rise from bin to bin" in notes("bins", study(path, Measure("self_certainty", "mean")))


@pytest.mark.parametrize("name", NAMES)
def test_a_pool_without_signals_or_scores(tmp_path: Path, name: str) -> None:
    path = write_lines(tmp_path / "p.sqlite", *(question(f"q{n}", response("7"), response("8")) for n in range(20)))
    with pytest.raises(PoolError, match=r"neither token signals nor recorded scores|no token signals"):
        rows_of(name, study(path, None))


@pytest.mark.parametrize(("answer", "what"), [("7", "right"), ("8", "wrong"), (None, "wrong")])
@pytest.mark.parametrize("name", ["separation", "window", "bins"])
def test_a_pool_of_one_kind(tmp_path: Path, name: str, answer: str | None, what: str) -> None:
    path = scored(tmp_path / "p.sqlite", *([(answer, [float(n), 1.0])] for n in range(12)))
    with pytest.raises(PoolError, match=f"all 12 responses are {what}"):
        rows_of(name, study(path))


@pytest.mark.parametrize("name", NAMES)
def test_signals_that_are_no_numbers_and_empty_responses_are_left_out(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(1)
    rows = [[("7", rng.normal(1, 1, 9)), ("8", rng.normal(0, 1, 9)), ("8", []), ("7", [np.nan] * 3)] for _ in range(30)]
    told = rows_of(name, study(scored(tmp_path / "p.sqlite", *rows, cut_off=True)))
    assert all(row["Responses"] <= 60 for row in told if "Responses" in row)
    assert all(np.isfinite(row["AUROC"].value) for row in told if row.get("AUROC"))


@pytest.mark.parametrize("name", NAMES)
def test_scores_that_are_all_alike(tmp_path: Path, name: str) -> None:
    path = scored(tmp_path / "p.sqlite", *([("7", [1.0] * 9), ("8", [1.0] * 9)] for _ in range(20)))
    if name in ("components", "bins"):
        with pytest.raises(PoolError, match=r"all its scores|no first responses"):
            rows_of(name, study(path))
    else:
        assert all(row["AUROC"].value == 0.5 for row in rows_of(name, study(path)))
