"""Time beside tokens: by hand, and where times are missing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.pools.synthetic import question, response, write_lines, write_pool

from .studies import notes, rows_of, study


def timed(path: Path, *seconds: Sequence[float | None], tokens: int = 10) -> Path:
    """A pool of equal answers that took so long: ASC draws four."""
    rows = [[response("7", tokens, **({} if one is None else {"seconds": one})) for one in row] for row in seconds]
    return write_lines(path, *(question(f"q{n}", *row) for n, row in enumerate(rows)))


def by_method(rows: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["Method"], row["At once"]): row for row in rows}


def test_recorded_times_by_hand(tmp_path: Path) -> None:
    path = timed(tmp_path / "p.sqlite", [3, 1, 2, 5, 9, 9], [1, 1, 1, 1, 1, 1])
    rows = by_method(rows_of("batched", study(path, None)))
    asc, esc = rows["ASC", 1], rows["ESC (w=4)", 4]
    assert (asc["Latency"], asc["Tokens"]) == ((11 + 4) / 2, 40)
    assert (esc["Latency"], esc["Tokens"]) == ((5 + 1) / 2, 40)
    assert asc["95th"] == pytest.approx(4 + 0.95 * (11 - 4))
    assert "by the times that were recorded" in notes("batched", study(path, None))


@pytest.mark.parametrize(
    ("seconds", "rate", "one_at_once", "four_at_once", "says"),
    [
        ([None, None, None, None], None, 65, 30, "latencies are in tokens; --tokens-per-second R"),
        ([None, None, None, None], 10.0, 6.5, 3, "latencies at 10 tokens per second"),
        ([9, 9, 9, 9], 10.0, 6.5, 3, "latencies at 10 tokens per second"),
        ([3, 1, None, 1], None, 65, 30, "responses without a recorded time"),
    ],
)
def test_where_times_come_from(
    tmp_path: Path, seconds: list[float | None], rate: float | None, one_at_once: float, four_at_once: float, says: str
) -> None:
    given = [
        response("7", tokens, **({} if time is None else {"seconds": time}))
        for tokens, time in zip((30, 10, 20, 5), seconds, strict=True)
    ]
    one = study(write_lines(tmp_path / "p.sqlite", question("q", *given)), None, tokens_per_second=rate)
    rows = by_method(rows_of("batched", one))
    assert rows["ASC", 1]["Latency"] == pytest.approx(one_at_once)
    assert rows["ESC (w=4)", 4]["Latency"] == pytest.approx(four_at_once)
    assert says in notes("batched", one)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pool(tmp_path_factory.mktemp("pool") / "pool.sqlite", 60, 16)


def test_the_batched_variant_decides_alike_and_pays_for_its_batch(pool: Path) -> None:
    rows = rows_of("batched", study(pool, size=40, parameters=1e9))
    assert [(row["Method"], row["At once"]) for row in rows[:2]] == [("ASC", 1), ("ESC (w=4)", 4)]
    weighing = [row for row in rows if row["Method"].startswith("ReASC")]
    assert weighing
    for one, batch, live in zip(weighing[::3], weighing[1::3], weighing[2::3], strict=True):
        assert (one["At once"], batch["At once"], live["At once"]) == (1, 4, 4)
        assert live["Method"] == f"{batch['Method']}, live"
        assert one["Accuracy %"] == batch["Accuracy %"] == live["Accuracy %"]
        assert one["Tokens"] <= live["Tokens"] <= batch["Tokens"]
        assert batch["Latency"] <= one["Latency"]
        assert batch["TFLOPs"] == pytest.approx(2e9 * batch["Tokens"] / 1e12)


def test_a_pool_without_scores_has_the_rows_that_count(tmp_path: Path) -> None:
    path = timed(tmp_path / "p.sqlite", [1, 1, 1, 1])
    assert [row["Method"] for row in rows_of("batched", study(path, None))] == ["ASC", "ESC (w=4)"]
    assert "There are no rows of ReASC" in notes("batched", study(path, None))
    assert rows_of("batched", study(path, None))[0]["TFLOPs"] is None
