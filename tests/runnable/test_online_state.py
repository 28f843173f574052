"""``Online(state=PATH)``: what is learned outlives the process, and says nothing of what was asked."""

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disks import files_no_larger_than, mounted

from langchain_reasc import Online, ReASCRunnable
from langchain_reasc.calibration import Calibration, ConsensusCalibrator, ObservationStore, learner, observation_log
from langchain_reasc.exceptions import CalibrationFileError, FingerprintMismatch
from langchain_reasc.method.stopping import decide

from . import learning
from .fakes import TOP_K, Reply, Scripted
from .learning import MINIMUM, calibrator

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
SECRETS = ("capital", "Paris", "Lyon", "sk-secret")


def drawn(question: str, index: int) -> Reply:
    rng = random.Random(f"{question} {index}")
    city = "ABCD"[index % 4] if question.startswith("x") else rng.choice(["Paris", "Paris", "Lyon"])
    return Reply(f"the answer is {city}", -round(rng.uniform(0.5, 3), 4))


def online(path: Path | None, **fields: Any) -> ReASCRunnable:
    model = Scripted(script=drawn, **fields.pop("model", {}))
    return learning.online(model=model, state=path, answer=r"regex:answer is (\w+)", **fields)


def ask(reasc: ReASCRunnable, count: int, name: str = "which city is the capital, ") -> ConsensusCalibrator:
    """Ask so many questions one by one, each learned from before the next."""
    for at in range(count):
        reasc.invoke(f"{name}{at}")
        assert calibrator(reasc).wait(10)
    return calibrator(reasc)


def saved(reasc: ReASCRunnable, count: int = 1, name: str = "q") -> None:
    ask(reasc, count, name).save()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


def test_another_process_goes_on_where_the_first_one_stopped(runner: Any, path: Path) -> None:
    first = online(path)
    ask(first, 1)
    assert first.learned is None
    assert calibrator(online(path)).observations.seen == 1
    ask(first, MINIMUM - 1)
    assert first.learned is not None
    second = online(path)
    assert same(second.learned, first.learned)
    ones, others = calibrator(first).observations, calibrator(second).observations
    assert (ones.seen, ones.evidence, ones.audits) == (others.seen, others.evidence, others.audits)
    for one, other in zip(ones, others, strict=True):
        assert replace(one, scores=None) == replace(other, scores=None)
        np.testing.assert_array_equal(one.scores, other.scores)
    assert runner.account(second, "q")["notices"][0].startswith(f"learned from {MINIMUM} ")
    ask(second, 3)
    assert second.learned is not None and second.learned.n == 20


def test_it_says_nothing_of_what_was_asked(path: Path) -> None:
    learned = ask(online(path, model={"metadata": {"key": "sk-secret"}}), MINIMUM)
    del learned
    with closing(sqlite3.connect(path)) as sql:
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        columns = sql.execute("SELECT answers, id, scores FROM observations").fetchall()
    data = b"".join(one.read_bytes() for one in path.parent.iterdir())
    assert not [one for one in SECRETS if one.encode() in data]
    assert len(columns) == MINIMUM and all(len(id) == 16 for _, id, _ in columns)
    assert all(set(answers) <= set("[0123456789, ]") for answers, _, _ in columns)


def started(path: Path, *lines: str) -> "subprocess.Popen[str]":
    """A process of its own, in which ``asked(n, name="")`` asks n questions of a runnable with this state."""
    program = "\n".join(
        [
            "import os, sys, multiprocessing; sys.path.insert(0, 'tests')",
            "from runnable.test_online_state import *",
            f"path = Path({str(path)!r})",
            "def asked(count, name='', reasc=None):",
            "    reasc = reasc or online(path)",
            "    for at in range(count): reasc.invoke(f'{name} q{at}')",
            *lines,
        ]
    )
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, text=True)


def ended(*processes: "subprocess.Popen[str]") -> str:
    return "".join(process.communicate(timeout=600)[1] for process in processes)


def seen(path: Path) -> int:
    known = ObservationStore.open(path).observations()
    assert known.seen == len(known)
    return known.seen


def same(one: Calibration | None, other: Calibration | None) -> bool:
    """Whether two calibrations are equal, but for the time at which they were made."""
    assert one is not None and other is not None
    return one.model_copy(update={"created_at": other.created_at}) == other


def test_what_was_seen_last_is_written_when_the_process_ends(path: Path) -> None:
    """Also by runnables that are gone, and by a program that fails."""
    assert "ValueError" in ended(started(path, "for at in range(4): asked(1, str(at))", "asked(5)", "raise ValueError"))
    assert seen(path) == 9


def test_processes_that_share_a_file_learn_together(path: Path) -> None:
    each = MINIMUM // 2 + 1  # neither learns anything alone
    assert ended(*(started(path, f"asked({each}, {name!r})") for name in ("a", "b"))) == ""
    assert seen(path) == 2 * each
    reasc = online(path)
    ask(reasc, 1)
    assert reasc.learned is not None and reasc.learned.n >= MINIMUM


def test_a_store_that_another_process_is_making_is_waited_for(path: Path) -> None:
    path.touch()
    making = threading.Timer(0.2, lambda: ObservationStore.create(path).close())
    making.start()
    ObservationStore.open(path).close()
    making.join()
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("PRAGMA journal_mode = DELETE")  # as it is before its maker has set the write-ahead log
        other.execute("BEGIN IMMEDIATE")
        ending = threading.Timer(0.2, lambda: other.execute("COMMIT"))
        ending.start()
        ObservationStore.create(path).close()
        ending.join()


def test_nobody_waits_for_the_file_while_a_process_calibrates(path: Path, monkeypatch: Any, caplog: Any) -> None:
    reasc, decided_beside_a_writer = online(path), list[int]()

    def decide_beside_a_writer(*args: Any) -> Any:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("ROLLBACK")
        decided_beside_a_writer.append(1)
        return decide(*args)

    monkeypatch.setattr(learner, "decide", decide_beside_a_writer)
    saved(reasc, MINIMUM + 2)
    assert decided_beside_a_writer and reasc.learned is not None and seen(path) == MINIMUM + 2
    assert "not kept" not in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_adds_its_own(path: Path) -> None:
    forks = (
        "multiprocessing.get_context('fork').Process(target=asked, args=(5, 'child', reasc)).start()",
        "if not os.fork(): asked(5, 'other child', reasc); sys.exit(0)",
    )
    ended(started(path, "reasc = online(path)", "asked(5, '', reasc)", *forks, "asked(5, 'parent', reasc)"))
    assert seen(path) == 20


def test_what_could_not_be_written_is_written_later(path: Path, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(ObservationStore, "WAIT", 0.05)
    monkeypatch.setattr(observation_log, "_RETRY_AFTER", 0.0)
    reasc = online(path)
    saved(reasc)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        ask(reasc, 3)
        assert calibrator(reasc).observations.seen == 4, "it goes on learning"
    assert caplog.text.count("not kept") == 1
    assert "another process" in caplog.text
    assert seen(path) == 1
    calibrator(reasc).save()
    assert seen(path) == 4


def test_a_full_disk_costs_no_answer(path: Path, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(observation_log, "_RETRY_AFTER", 0.0)
    ask(online(path), 3).close()
    reasc = online(path)
    with files_no_larger_than(34_000):  # what SQLite's processes share takes 32 KiB
        ask(reasc, 64)
        assert reasc.learned is not None
        assert 3 <= calibrator(online(path)).observations.seen < 64, "another process begins with what is there"
    [said] = [record.getMessage() for record in caplog.records if "make room" in record.getMessage()]
    assert "not kept yet" in said and "before is kept" in said, "which of both is kept"
    ask(reasc, 1)
    assert seen(path) == calibrator(reasc).observations.seen == 64 + 4


def test_a_disk_that_may_only_be_read_is_gone_on_from(disk: Path, caplog: Any) -> None:
    path = disk / "state.sqlite"
    first = online(path)
    ask(first, MINIMUM).close()
    assert mounted("-o", "remount,ro", disk)
    reasc = online(path)
    assert same(reasc.learned, first.learned)
    assert ask(reasc, 5).observations.seen == MINIMUM + 5
    assert caplog.text.count("not kept") == 1
    assert "writable" in caplog.text


def test_a_file_that_was_taken_away_is_written_anew(path: Path) -> None:
    one, other = online(path), online(path)
    saved(one, 3)
    saved(other, 2)
    for file in path.parent.iterdir():
        file.unlink()
    ask(one, 1)
    assert seen(path) == 4
    ask(other, 1)
    assert seen(path) == 5 == calibrator(other).observations.seen


def test_what_belongs_to_another_model_is_not_overwritten(path: Path, caplog: Any) -> None:
    one, other = online(path), online(path, model={"model_name": "other"})
    for reasc in (one, other, other):
        saved(reasc)
    assert "Online(state=" in caplog.text
    assert online(path).learned is None  # it is still the first one's


def test_each_process_calibrates_on_the_rows_of_all(path: Path) -> None:
    one, other = online(path), online(path)
    saved(one, MINIMUM - 1)
    ask(other, 1)
    assert other.learned is not None is one.learned, "it has not looked into the file since"
    ask(one, 1)
    assert one.learned is not None and (one.learned.n, other.learned.n) == (MINIMUM + 1, MINIMUM)
    assert same(online(path).learned, one.learned), "of the same rows"


def test_a_change_that_one_process_has_seen_is_forgotten_by_all(path: Path) -> None:
    one, other = online(path), online(path)
    saved(one, 2 * MINIMUM)
    saved(other)
    assert other.learned is not None
    for at in range(40):
        saved(one, name=f"x{at} ")
        if calibrator(one).observations.restarts:
            break
    assert seen(path) == 0
    saved(other)
    assert seen(path) == 1 == len(calibrator(other).observations) and other.learned is None
    assert calibrator(other).observations.restarts == calibrator(one).observations.restarts


def test_a_change_that_was_seen_alone_is_forgotten_by_all(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(ObservationStore, "WAIT", 0.05)
    monkeypatch.setattr(observation_log, "_RETRY_AFTER", 0.0)
    one, other = online(path), online(path)
    saved(one, 2 * MINIMUM)
    saved(other)
    with closing(sqlite3.connect(path, isolation_level=None)) as held:
        held.execute("BEGIN IMMEDIATE")
        for at in range(40):
            ask(one, 1, f"x{at} ")
            if calibrator(one).observations.restarts:
                break
    assert seen(path) == 2 * MINIMUM + 1
    saved(one, 2)
    assert seen(path) == 2
    ask(other, 1)
    assert len(calibrator(other).observations.restarts) == 1 and seen(path) == 3


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b'{"kind": "reasc-online"}', "SQLite"),
        (b"SQLite format 3\0 and no more", "damaged"),
    ],
)
def test_a_file_of_something_else_is_refused_and_left_alone(path: Path, content: bytes, why: str) -> None:
    path.write_bytes(content)
    with pytest.raises(CalibrationFileError, match=f"state.sqlite.*{why}"):
        online(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("PRAGMA user_version = 4", "newer version"),
        ("PRAGMA user_version = 2", "earlier version"),
        ("PRAGMA application_id = 3", "no calibration store"),
        ("UPDATE about SET value = '{' WHERE name = 'fingerprint'", "fingerprint"),
        ("UPDATE about SET value = '{\"sk-secret\": 1}' WHERE name = 'fingerprint'", "fingerprint"),
        ("UPDATE about SET value = '[\"Paris\"]' WHERE name = 'made_of'", "made_of"),
        ("UPDATE observations SET answers = '[\"Paris\"]'", "row 1"),
        ("UPDATE observations SET answers = '[]'", "row 1"),
        ("UPDATE observations SET scores = x'00'", "row 1"),
        ("UPDATE observations SET answer = 'Paris'", "row 1"),
        ("UPDATE observations SET predictions = '[[\"capital\", 0.5, 0.1, 1]]'", "row 1"),
        ("UPDATE observations SET predictions = '[[\"audits\", 2, 0.1, 1]]'", "row 1"),
        ("UPDATE observations SET predictions = '[1]'", "row 1"),
        ("INSERT INTO restarts VALUES (0, 'Paris')", "restarts"),
        ('UPDATE measures SET names = \'[["top_k", "mean", 0]]\'', "measures"),
        ("DELETE FROM measures", "row 1"),
        (
            "CREATE TRIGGER t AFTER INSERT ON observations BEGIN DELETE FROM about; END",
            "trigger 't'",
        ),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(path: Path, change: str, why: str) -> None:
    saved(online(path))
    with closing(sqlite3.connect(path)) as sql, sql:
        sql.execute(change)
    with pytest.raises(CalibrationFileError, match=why) as raised:
        online(path)
    assert not [one for one in SECRETS if one in str(raised.value)] or "unknown" in str(raised.value)


@pytest.mark.parametrize("size", [50, 5000, 20_000])
def test_a_file_that_was_cut_short_is_refused(path: Path, size: int) -> None:
    saved(online(path), MINIMUM)
    with closing(sqlite3.connect(path)) as sql:
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.truncate(path, size)
    with pytest.raises(CalibrationFileError, match="damaged"):
        online(path)


def test_a_folder_that_is_not_there_is_told_before_anything_is_paid_for(path: Path) -> None:
    with pytest.raises(CalibrationFileError, match="no folder"):
        online(path / "further" / "state.json")
    with pytest.raises(CalibrationFileError, match="is a folder"):
        online(path.parent)


@pytest.mark.parametrize("name", ["a\0b.sqlite", "\ud800.sqlite", "x" * 300, "\0/state.sqlite"])
def test_a_name_that_no_file_can_have_is_told_before_anything_is_paid_for(tmp_path: Path, name: str) -> None:
    ways: list[Callable[[ReASCRunnable], Any]] = [
        lambda reasc: reasc.invoke("q"),
        lambda reasc: reasc.batch(["q"]),
        lambda reasc: asyncio.run(reasc.ainvoke("q")),
    ]
    for ask_by in ways:
        with pytest.raises(CalibrationFileError) as raised:
            ask_by(online(tmp_path / name))
        assert ascii(name)[1:-1] in str(raised.value)
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="names are bytes there")
def test_a_name_of_other_bytes_than_utf_8_is_a_name(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9 %41?.sqlite")
    saved(online(path))
    assert path.exists() and ObservationStore.open(path).observations().seen == 1


def test_what_was_learned_of_another_model_is_refused(path: Path) -> None:
    ask(online(path), 1)
    with pytest.raises(FingerprintMismatch, match=r"Online\(state=.*model: .*'scripted'.*'other'"):
        online(path, model={"model_name": "other"})
    reasc = online(path, model={"model_name": "other"}, allow_fingerprint_mismatch=True)
    assert calibrator(reasc).observations.seen == 1


def test_another_path_is_another_memory(path: Path) -> None:
    reasc = online(path)
    ask(reasc, 2)
    other = reasc.model_copy(update={"calibration": Online(state=path.with_name("other.json"))})
    assert calibrator(other).observations.seen == 0
    assert calibrator(reasc.model_copy(update={"concurrency": 1})) is calibrator(reasc)


def test_a_file_that_cannot_be_written_costs_no_answer(runner: Any, path: Path, caplog: Any) -> None:
    reasc = online(path)
    path.mkdir()
    assert runner.account(reasc, "q")["answer"] is not None
    assert calibrator(reasc).wait(10)
    assert f"{path} is a folder" in caplog.text


def test_scores_by_other_measures_are_left_out_and_kept_for_others(path: Path) -> None:
    ask(online(path), 3)
    alone = ask(online(path, confidence=TOP_K), 2)
    assert [len(one.scores) for one in alone.observations] == [1] * 5
    for measure, scored in ((None, [1, 1, 1, 0, 0]), (TOP_K, [0, 0, 0, 1, 1])):
        known = calibrator(online(path, confidence=measure)).observations
        assert [int(np.isfinite(one.scores).any(axis=1).sum()) for one in known] == scored


def test_in_an_event_loop_the_file_is_read_by_a_thread_of_the_first_call(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(online(path), 3)
    readers: list[threading.Thread] = []
    read = ObservationStore.open

    def reading(path: Path) -> ObservationStore:
        readers.append(threading.current_thread())
        return read(path)

    monkeypatch.setattr(ObservationStore, "open", reading)

    async def main() -> Any:
        reasc = online(path)
        assert not readers
        first = await reasc.abatch(["a", "b"])
        other = online(path, model={"model_name": "other"})
        with pytest.raises(FingerprintMismatch, match=r"Online\(state=.*model: .*'scripted'"):
            await other.ainvoke("q")
        assert not other.model.log.calls  # type: ignore[attr-defined]
        with pytest.raises(FingerprintMismatch):  # again, as long as it is so
            other.invoke("q")
        return first[0].response_metadata["reasc"]["notices"]

    assert "(3 of 16 questions seen)" in asyncio.run(main())[0]
    assert readers and readers[0] is not threading.main_thread()
    assert online(path).learned is None and readers[-1] is threading.main_thread()
