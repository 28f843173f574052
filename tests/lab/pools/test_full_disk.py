"""A disk that is full, or that may only be read: what was recorded is kept, and the same call goes on when it can."""

from pathlib import Path
from typing import Any

import pytest
from disks import files_no_larger_than, mounted
from langchain_reasc_lab.pools import Pool, read_pool, record_pool

from lab.pools.synthetic import Guesser, labelled
from langchain_reasc.exceptions import PoolError

QUESTIONS = labelled(24)


class Talkative(Guesser):
    """Says so much that a small disk is full soon."""

    def _generate(self, *arguments: Any, **options: Any) -> Any:
        result = super()._generate(*arguments, **options)
        result.generations[0].message.content += " " * 8000
        return result


def record(path: Path) -> Pool:
    return record_pool(Talkative(), QUESTIONS, path, samples=2)


def test_a_quota_keeps_what_was_recorded_and_recording_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    with files_no_larger_than(240_000):
        for _ in range(2):  # and still
            with pytest.raises(PoolError, match=r"p.sqlite: .*make room"):
                record(path)
        kept = read_pool(path)
    assert 5 < len(kept.questions) < len(QUESTIONS)
    assert all(text is not None and len(text) > 8000 for one in kept.questions for text in kept.texts(one.id))
    pool = record(path)
    assert pool.questions[: len(kept.questions)] == kept.questions
    assert [question.id for question in pool.questions] == [question.id for question in QUESTIONS]


def test_a_pool_on_a_disk_that_may_only_be_read_is_read(disk: Path) -> None:
    path = disk / "p.sqlite"
    record_pool(Guesser(), QUESTIONS[:3], path, samples=2)
    assert mounted("-o", "remount,ro", disk)
    assert len(read_pool(path).questions) == 3
    with pytest.raises(PoolError, match=r"p\.sqlite: .*(readonly|unable to open).*writable"):
        record_pool(Guesser(), QUESTIONS, path, samples=2)
    with pytest.raises(PoolError, match=r"new\.sqlite: .*unable to open.*writable"):
        record_pool(Guesser(), QUESTIONS, disk / "new.sqlite", samples=2)
