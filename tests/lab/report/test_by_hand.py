"""Tables of small pools, against numbers that can be worked out on paper."""

from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.replay import MIXTURE, OFFLINE, exact
from langchain_reasc_lab.report import Study

from lab.pools.synthetic import write_pool
from lab.report.studies import by_hand, cell, made, row, study

TABLES: list[tuple[str, tuple[str, ...], dict[str, float | None]]] = [
    # tokens of all responses: 70, 25 and 40; of the first ones: 10, 5 and 10; ReASC sees 1, 2 and 1 of them
    ("main", (OFFLINE,), {"Accuracy %": 200 / 3, "Samples": 4 / 3, "Tokens": 31 / 3, "vs SC %": 100 * (31 / 135 - 1)}),
    ("main", ("SC@4",), {"Accuracy %": 200 / 3, "Samples": 4, "Tokens": 45, "vs SC %": None}),
    ("main", ("pass@1",), {"Accuracy %": 100 / 3, "Samples": 1, "Tokens": 25 / 3}),
    ("intervals", (OFFLINE,), {"Accuracy %": 200 / 3, "Exact low": 100 * exact(2, 3).low, "Questions": 3}),
    # The gate accepts "sure", which is right, and "lured", which is wrong; the majority is right on both.
    ("stage1", (OFFLINE,), {"Accepted %": 200 / 3, "Accuracy %": 50, "Majority %": 100, "Gate - majority": -50}),
    # Three scores are too few for two components, and a gate that accepts nothing has no accuracy.
    ("stage1", (MIXTURE,), {"Accepted %": 0, "Accuracy %": None, "Majority %": None, "Gate - majority": None}),
    # "turns" is left: counted, 1 wins with 3 votes to 1; weighed, e^2.1 = 8.2 votes for 7 decide after two responses.
    ("stage2", ("offline", "ASC (counts votes)"), {"Left %": 100 / 3, "Accuracy %": 0, "Tokens": 25, "vs ASC %": None}),
    (
        "stage2",
        ("offline", "ReASC (weighs them)"),
        {"Accuracy %": 100, "Tokens": 11, "vs ASC %": 100 * (11 / 25 - 1), "Δ to ASC": 100},
    ),
    # No count of four reaches 0.95 but 4 to 0. Stage 2 alone: on "sure" e^0.7 = 2.0 and 1 vote to 2; on "lured"
    # e^1.4 = 4.1 votes suffice at once, and are wrong.
    ("ablation", ("offline", "ASC"), {"Accuracy %": 200 / 3, "Tokens": 45, "vs ASC %": None, "Δ to ASC": None}),
    ("ablation", ("offline", "Stage 2 alone"), {"Accuracy %": 200 / 3, "Tokens": 91 / 3, "Δ to ASC": 0}),
    ("ablation", ("offline", "Gate, then counting"), {"Accuracy %": 100 / 3, "Tokens": 15, "Δ to ASC": -100 / 3}),
    ("ablation", ("offline", "ReASC"), {"Accuracy %": 200 / 3, "Tokens": 31 / 3, "vs ASC %": 100 * (31 / 135 - 1)}),
    # Best of four: 7 with 1.0, 7 with 2.0, and 1 with 1.5. All four weighed: 3.0 to 2, 8.2 to 3, and 4.1 to 3.
    ("controls", (OFFLINE, "Best of 4 by score"), {"Accuracy %": 200 / 3, "Tokens": 45, "Δ": 0}),
    ("controls", (OFFLINE, "Weighted majority of all"), {"Accuracy %": 200 / 3, "Tokens": 45, "Δ": 0}),
    ("controls", (OFFLINE, "pass@1"), {"Accuracy %": 100 / 3, "Tokens": 25 / 3, "Δ": 100 / 3}),
    # The gate settles "sure" and "lured" with 10 tokens each. "turns" has scores 0 2 0 0, with μ = σ = 0.5, λ = 0.7:
    ("mappings", ("offline", "count: 1"), {"Accuracy %": 100 / 3, "Tokens": 15}),
    ("mappings", ("offline", "mean: S / μ"), {"Accuracy %": 200 / 3, "Tokens": 31 / 3}),  # 0 4: 1 - ½^5 = 0.97
    ("mappings", ("offline", "sigmoid: 1 / (1 + exp(-λz))"), {"Accuracy %": 100 / 3, "Tokens": 15}),  # .33 .89 .33 .33
    ("mappings", ("offline", "exponential: exp(λz)"), {"Accuracy %": 200 / 3, "Tokens": 31 / 3}),  # 0.50 8.17
    ("mappings", ("offline", "reasc: max(1, exp(λz))"), {"Accuracy %": 200 / 3, "Tokens": 31 / 3}),  # 1 8.17
]
NOTES = [
    ("stage1", f"The gate of {MIXTURE} accepts nothing."),
    ("stage1", f"The gate of {MIXTURE} was closed here: 3 responses are too few"),
]


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return by_hand(tmp_path_factory.mktemp("hand") / "p.sqlite")


@pytest.mark.parametrize(("name", "begin", "expected"), TABLES)
def test_a_row(hand: Study, name: str, begin: tuple[str, ...], expected: dict[str, float | None]) -> None:
    table = made(name, hand)
    cells = dict(zip([column.name for column in table.columns[len(begin) :]], row(table, *begin), strict=True))
    for column, number in expected.items():
        held = cells[column]
        assert held is None if number is None else cell(held) == pytest.approx(number), column


@pytest.mark.parametrize(
    ("name", "begin", "column", "low", "high"),
    [
        ("main", ("pass@1",), 0, 100 * exact(1, 3).low, 100 * exact(1, 3).high),
        # of three questions with one or two right answers, resamples hold between none and three right ones
        ("intervals", (OFFLINE,), 0, 0, 100),
        ("stage1", (OFFLINE,), 2, 100 * exact(2, 2).low, 100),  # of the two questions that were accepted
        ("stage2", ("offline", "ASC (counts votes)"), 1, 0, 100 * exact(0, 1).high),
        # They never differed here, which three questions do not say of others.
        ("controls", (OFFLINE, "Best of 4 by score"), 2, -100 * exact(0, 3).high, 100 * exact(0, 3).high),
    ],
)
def test_an_interval(hand: Study, name: str, begin: tuple[str, ...], column: int, low: float, high: float) -> None:
    held: Any = row(made(name, hand), *begin)[column]
    assert (held.low, held.high) == pytest.approx((low, high))


def test_columns_and_notes(hand: Study) -> None:
    names = [column.name for column in made("main", hand).columns]
    assert names == ["Method", "Accuracy %", "Δ to ASC", "Samples", "Tokens", "vs SC %"]
    assert len({one[1] for one in made("mappings", hand).rows}) == 6
    for table, begins in NOTES:
        assert any(note.startswith(begins) for note in made(table, hand).notes), begins


def test_costs_are_two_flops_per_parameter_and_token(tmp_path: Path) -> None:
    table = made("main", by_hand(tmp_path / "p.sqlite", parameters=2e9))
    *_, tflops, per_cost = row(table, OFFLINE)
    assert [column.name for column in table.columns][-2:] == ["TFLOPs", "Acc/TF"]
    assert cell(tflops) == pytest.approx(4e9 * 31 / 3 / 1e12)
    assert cell(per_cost) == pytest.approx(200 / 3 / cell(tflops))
    assert row(table, "pass@1")[-1] is None
    assert "N = 2,000,000,000, as given." in " ".join(table.notes)


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"parameters": 3_000_000_000}, "N = 3,000,000,000, as the pool says"),
        ({"fingerprint": {"model": "Qwen2.5-7B"}}, "N = 7,000,000,000, as the name of the model, Qwen2.5-7B, says"),
        ({}, "Nothing says how many parameters the model of p has"),
    ],
)
def test_n_is_read_from_the_pool_where_it_tells(tmp_path: Path, metadata: dict[str, Any], says: str) -> None:
    table = made("main", study(write_pool(tmp_path / "p.sqlite", 10, 4, signals=False, metadata=metadata), None))
    assert ("TFLOPs" in [column.name for column in table.columns]) == bool(metadata)
    assert says in " ".join(table.notes)
