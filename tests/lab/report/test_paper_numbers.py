"""The paper's printed figures: which of them follow from each other, and what its page says of those that do not."""

import re
from pathlib import Path

import numpy as np
import pytest
from langchain_reasc_lab.report.results import accuracy_per_tflop, change

from langchain_reasc.calibration import fit_mixture

from .paper_checks import MAIN, PARAMETERS_OF_MIXTURE, ROWS, check, combined, counts, every_check, meets, reach, rounded

PAGE = (Path(__file__).parents[3] / "docs" / "paper.md").read_text(encoding="utf-8")
FLOWING = " ".join(PAGE.split())
LISTED = PAGE.split("## What does not add up")[1]
CHECKS = every_check()


def listed() -> set[tuple[str, ...]]:
    """The rows of the page's tables of what does not add up."""
    rows = [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in LISTED.splitlines() if line[:1] == "|"]
    return {row for row in rows if set(row[0]) != {"-"} and row[0] != "Where"}


def test_all_adds_up_but_what_is_listed() -> None:
    """Both ways: what does not add up is on the page, and what is on the page does not add up."""
    failing = {(one.where, one.printed, one.found) for one in CHECKS if not one.holds}
    assert failing - listed() == set(), "these do not add up, and docs/paper.md does not say so"
    assert listed() - failing == set(), "docs/paper.md lists these, and they add up"


def test_nothing_is_checked_twice_and_all_tables_are() -> None:
    where = [one.where for one in CHECKS]
    assert len(set(where)) == len(where)
    told = {name.partition(",")[0].partition(":")[0] for name in where}
    assert told >= {name.partition(":")[0] for name in ROWS}
    mentioned = {name for name in ROWS if any(one.startswith(name) for one in where)}
    assert mentioned == set(ROWS) - {"tab:group_size_auroc"}  # which another one is compared with


def test_the_page_counts_right() -> None:
    failing = sum(not one.holds for one in CHECKS)
    assert f"{len(CHECKS)} checks" in FLOWING and f"{failing} of them fail" in FLOWING
    quotients = [one for one in CHECKS if one.where.endswith(("Acc/TF", "reduction")) and "best" not in one.where]
    assert f"all {len(quotients)} of them" in FLOWING and all(one.holds for one in quotients)


def test_every_table_has_its_command() -> None:
    assert set(re.findall(r"`((?:tab|table|fig):[\w-]+)`", PAGE.split("## What does not add up")[0])) >= set(ROWS)


def test_what_the_page_works_out() -> None:
    batched = ROWS["tab:batched_latency_results"]
    [ours, esc, alone] = [batched[name] for name in ("ReASC (batched)", "ESC", "ReASC")]
    for one, other, at in ((ours, esc, 3), (ours, esc, 2), (ours, alone, 2)):
        assert f"{abs(change(float(one[at]), float(other[at]))):.1f} %" in FLOWING
    tokens = float(MAIN["LLaMA-3.2-3B"]["SC (k=16)"]["GSM8K"][1]) * 1e12 / (2 * 3.21e9 * 16)
    assert f"{tokens:.0f} tokens" in FLOWING and tokens < 128
    assert counts("84.99", 673) == [572] and counts("84.25", 673) == [567]


def test_a_printed_figure_stands_for_all_that_rounds_to_it() -> None:
    assert rounded("6.82") == pytest.approx((6.815, 6.825))
    assert rounded("-44.6") == pytest.approx((-44.65, -44.55))
    assert rounded("70") == (69.5, 70.5)
    assert reach(accuracy_per_tflop, "10", "2") == pytest.approx((9.5 / 2.5, 10.5 / 1.5))
    assert check("here", "2.0", accuracy_per_tflop, "4.0", "2.0").holds
    assert not check("here", "2.2", accuracy_per_tflop, "4.0", "2.0").holds
    assert meets((1, 2), (2, 3)) and not meets((1, 2), (2.1, 3))


def test_counts_are_of_whole_questions() -> None:
    assert counts("17.26", 197) == [34]
    assert counts("17.26", 198) == []
    assert counts("50", 10) == [5]


def test_quotients_by_hand() -> None:
    assert accuracy_per_tflop(80, 4) == 20
    assert change(3, 4) == -25 and change(5, 4) == 25
    assert combined(0.25, 100, 60) == 70


def test_criteria_differ_by_the_parameters_whatever_the_fit() -> None:
    scores = np.random.default_rng(0).normal(size=500)
    fit = fit_mixture(scores)
    for components, parameters in enumerate(PARAMETERS_OF_MIXTURE, start=1):
        assert fit.bic[components] - fit.aic[components] == pytest.approx(parameters * (np.log(500) - 2))
