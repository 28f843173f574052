"""Token signals beside a pool of JSON Lines: exact, and safe against what a kill left."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from langchain_reasc.exceptions import PoolError
from langchain_reasc.pools import read_pool
from langchain_reasc.pools.signals_file import signals_in, signals_path
from pools.synthetic import append_signals, question, response, write_lines


def drawn(rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """Signals of two responses."""
    return [{name: rng.normal(size=size) for name in ("top_k", "neg_entropy")} for size in (4, 2)]


def test_signals_come_back_per_response_and_one_without_any_has_none(tmp_path: Path) -> None:
    path, written = tmp_path / "p.signals.gz", drawn(np.random.default_rng(0))
    append_signals(path, "q0", [written[0], {}, written[1]])
    [(_, [first, without, last])] = signals_in(path)
    assert without == {}
    for held, expected in zip((first, last), written, strict=True):
        assert list(held) == ["top_k", "neg_entropy"]
        for name, values in expected.items():
            np.testing.assert_array_equal(held[name], values.astype(np.float32))


def test_a_cut_at_any_byte_loses_only_what_follows(tmp_path: Path) -> None:
    path = tmp_path / "p.signals.gz"
    ends = []
    for number in range(3):
        append_signals(path, f"q{number}", [{"top_k": np.arange(number + 1.0)}])
        ends.append(path.stat().st_size)
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        found = [(id, one["top_k"].tolist()) for id, [one] in signals_in(path)]
        assert found == [(f"q{number}", list(range(number + 1))) for number in range(len(found))]
        assert len(found) >= sum(end <= cut for end in ends)


def test_damage_before_the_end_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "p.signals.gz"
    rng = np.random.default_rng(0)
    for number in range(3):
        append_signals(path, f"q{number}", drawn(rng))
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(PoolError, match="is damaged"):
        list(signals_in(path))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"[]\n", "member 1 is not a line of token signals"),
        (b'{"id": "a", "lengths": [1], "signals": {"top_k": "?"}}\n', "cannot be decoded"),
        (b'{"id": "a", "lengths": [2], "signals": {"top_k": "AAAAAA=="}}\n', "has 1 values for 2 tokens"),
    ],
)
def test_what_is_no_line_of_signals_is_refused(tmp_path: Path, line: bytes, says: str) -> None:
    path = tmp_path / "p.signals.gz"
    path.write_bytes(gzip.compress(line))
    with pytest.raises(PoolError, match=says):
        list(signals_in(path))


def test_signals_of_another_pool_are_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", question("a", response("7"), response("7")))
    append_signals(signals_path(path), "a", [{"top_k": [1.0]}])
    with pytest.raises(PoolError, match="1 responses for question 'a', the pool has 2"):
        read_pool(path)
    append_signals(signals_path(path), "a", [{"top_k": [1.0]}] * 2)
    with pytest.raises(PoolError, match="1 responses for question 'a', the pool has 2"):
        read_pool(path)
    signals_path(path).unlink()
    append_signals(signals_path(path), "a", [{"top_k": [1.0]}] * 2)
    write_lines(path, question("a", response("7"), response("7")), question("b", response("7")))
    with pytest.raises(PoolError, match="no token signals for question 'b'"):
        read_pool(path)


def test_of_two_members_with_one_id_the_later_counts(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", question("a", response("7")))
    append_signals(signals_path(path), "a", [{"top_k": [1.0]}])
    append_signals(signals_path(path), "a", [{"top_k": [2.0]}])
    signals = read_pool(path).signals
    assert signals is not None and signals.of("a")[0]["top_k"].tolist() == [2.0]
