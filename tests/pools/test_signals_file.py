"""Token signals beside a pool: exact, append-only, and safe against kills."""

from pathlib import Path

import numpy as np
import pytest

from pools.synthetic import question, response, write_lines, write_pool
from langchain_reasc.evaluation import read_pool
from langchain_reasc.pools.signals_file import append_signals, intact_length, load_signals, signals_path
from langchain_reasc.exceptions import PoolError


def _write(path: Path, count: int = 3) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    for number in range(count):
        held = [{"top_k": rng.normal(size=4), "neg_entropy": rng.normal(size=4)}, {"top_k": rng.normal(size=2)}]
        held[1]["neg_entropy"] = rng.normal(size=2)
        append_signals(path, f"q{number}", held)
    return held


def test_signals_come_back_per_response(tmp_path: Path) -> None:
    written = _write(tmp_path / "p.signals.gz")
    signals = load_signals(tmp_path / "p.signals.gz")
    assert signals.names == ("top_k", "neg_entropy")
    assert signals.lengths("q2") == [4, 2]
    for held, expected in zip(signals.of("q2"), written, strict=True):
        for name, values in expected.items():
            np.testing.assert_array_equal(held[name], values.astype(np.float32))


def test_a_response_without_signals_has_empty_ones(tmp_path: Path) -> None:
    path = tmp_path / "p.signals.gz"
    append_signals(path, "a", [{"top_k": np.ones(3)}, {}, {"top_k": np.zeros(2)}])
    assert [held["top_k"].tolist() for held in load_signals(path).of("a")] == [[1, 1, 1], [], [0, 0]]


def test_a_cut_at_any_byte_loses_only_what_follows(tmp_path: Path) -> None:
    path = tmp_path / "p.signals.gz"
    ends = []
    for number in range(3):
        append_signals(path, f"q{number}", [{"top_k": np.arange(number + 1.0)}])
        ends.append(path.stat().st_size)
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        intact = sum(end <= cut for end in ends)
        assert list(load_signals(path).records) == [f"q{number}" for number in range(intact)]
        assert intact_length(path) == (ends[intact - 1] if intact else 0)


def test_of_two_members_with_one_id_the_later_counts(tmp_path: Path) -> None:
    path = tmp_path / "p.signals.gz"
    append_signals(path, "a", [{"top_k": [1.0]}])
    append_signals(path, "a", [{"top_k": [2.0]}])
    assert load_signals(path).of("a")[0]["top_k"].tolist() == [2.0]


def test_damage_before_the_end_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "p.signals.gz"
    _write(path)
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(PoolError, match="damaged after byte 0"):
        load_signals(path)


def test_signals_of_another_pool_are_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", question("a", response("7"), response("7")))
    append_signals(signals_path(path), "a", [{"top_k": [1.0]}])
    with pytest.raises(PoolError, match="1 responses for question 'a', the pool has 2"):
        _ = read_pool(path).signals
    append_signals(signals_path(path), "a", [{"top_k": [1.0]}] * 2)
    write_lines(path, question("a", response("7"), response("7")), question("b", response("7")))
    with pytest.raises(PoolError, match="no token signals for question 'b'"):
        _ = read_pool(path).signals


def test_a_pool_finds_its_signals(tmp_path: Path) -> None:
    pool = read_pool(write_pool(tmp_path / "p.jsonl", questions=2, samples=3))
    assert signals_path(pool.path).name == "p.signals.gz"
    assert pool.signals is not None
    assert pool.signals.lengths("q0") == [held.completion_tokens for held in pool.questions[0].responses]
