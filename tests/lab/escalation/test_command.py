"""``reasc replay --escalate-to``: what it prints, writes and refuses."""

import json
from pathlib import Path

import pytest
from cli.test_commands import reasc

from lab.escalation.pairs import write_pair

pytest.importorskip("matplotlib")
QUICK = ("--within", 0.1, "--shuffles", 2, "--flat-cost")


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_pair(tmp_path_factory.mktemp("pair"), scores=True, keys=True)


@pytest.mark.full
def test_it_prints_a_table_of_80_columns_and_every_promise(pools: tuple[Path, Path], tmp_path: Path) -> None:
    small, large = pools
    picture = tmp_path / "new" / "frontier.png"
    done = reasc("replay", small, "--escalate-to", large, *QUICK, "--plot", picture)
    lines = done.stdout.splitlines()
    rows = lines[: lines.index("", 1)]
    assert max(map(len, rows)) <= 80
    for name in (
        "large model",
        "small, votes (ASC)",
        "learned, within 10 %",
        "C3PO, 4 of 5",
        "by confidence, else large *",
    ):
        assert any(line.startswith(f" {name}") for line in rows), name
    assert "120 questions" in done.stdout
    assert "- learned, within 10 %: differs from the large model on" in done.stdout
    assert "No other row promises anything." in done.stdout
    assert f"wrote {picture}" in done.stderr and picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.full
def test_json_holds_every_row_with_what_it_rests_on(pools: tuple[Path, Path]) -> None:
    small, large = pools
    data = json.loads(reasc("replay", small, "--escalate-to", large, *QUICK, "--last", 30, "--json").stdout)
    assert data["last"] == 30 and data["flat_cost"] and data["price"] == pytest.approx(0.1)
    learned = next(row for row in data["rows"] if row["name"] == "learned, within 10 %")
    assert len(learned["learned"]) == 2 and learned["learned"][0]["tested"]["3 equal votes"][0] > 0
    assert {"value", "low", "high"} == set(learned["cost"]) and learned["refused"] in (0, 1, 2)
    assert [row["name"] for row in data["rows"] if row["trained"]] == ["by confidence, else large"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--controls",), "--controls"),
        (("--plot-risk", "r.png"), "--plot-risk"),
        (("--calibration-size", 20), "--calibration-size"),
        (("--within", 0), "got 0"),
        (("--price-ratio", -1), "got -1"),
        (("--last", 500), "1 to 120, got 500"),
        (("--signal", "auto"), "name a signal"),
    ],
)
def test_wrong_options_are_named(pools: tuple[Path, Path], options: tuple[object, ...], text: str) -> None:
    small, large = pools
    assert text in " ".join(reasc("replay", small, "--escalate-to", large, *options, code=1).stderr.split())


@pytest.mark.parametrize("options", [("--flat-cost",), ("--within", 0.1), ("--price-ratio", 3), ("--last", 5)])
def test_its_options_need_a_large_model(pools: tuple[Path, Path], options: tuple[object, ...]) -> None:
    done = reasc("replay", pools[0], *options, code=1)
    assert f"{options[0]} needs" in done.stderr
