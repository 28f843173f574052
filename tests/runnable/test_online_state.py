"""``online_state=PATH``: what is learned outlives the process, and says nothing of what was asked."""

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from langchain_reasc import ReASCRunnable
from langchain_reasc.calibration import ConsensusCalibrator, OnlineState, OnlineStateFile, online_state
from langchain_reasc.exceptions import CalibrationFileError, FingerprintMismatch

from . import learning
from .conftest import Runner
from .fakes import TOP_K, Reply, Scripted
from .learning import MINIMUM, calibrator

ROOT = Path(__file__).parents[2]
SECRETS = ("capital", "Paris", "Lyon", "sk-secret")


def drawn(question: str, index: int) -> Reply:
    rng = random.Random(f"{question} {index}")
    return Reply(f"the answer is {rng.choice(['Paris', 'Paris', 'Lyon'])}", -round(rng.uniform(0.5, 3), 4))


def online(path: Path | None, **fields: Any) -> ReASCRunnable:
    model = Scripted(script=drawn, **fields.pop("model", {}))
    return learning.online(model=model, online_state=path, answer=r"regex:answer is (\w+)", **fields)


def ask(runner: Any, reasc: ReASCRunnable, count: int) -> None:
    learning.answered(runner, reasc, [f"which city is the capital, {at}?" for at in range(count)])


def learned(reasc: ReASCRunnable) -> ConsensusCalibrator:
    assert calibrator(reasc).wait(10)
    return calibrator(reasc)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def test_another_process_goes_on_where_the_first_one_stopped(runner: Any, path: Path) -> None:
    first = online(path)
    ask(runner, first, MINIMUM)
    assert first.learned is not None
    second = online(path)
    assert second.learned == first.learned
    assert learned(second).state() == learned(first).state()
    account = runner.account(second, "q")
    assert account["notices"][0].startswith("learned from 32 questions without labels")
    ask(runner, second, 7)
    assert second.learned is not None and second.learned.n == 40


def test_a_cold_start_is_kept_too(runner: Any, path: Path) -> None:
    ask(runner, online(path), 1)
    assert json.loads(path.read_text())["calibration"] is None
    assert "(1 of 32 questions seen)" in runner.account(online(path), "q")["notices"][0]


def test_it_says_nothing_of_what_was_asked(runner: Any, path: Path) -> None:
    ask(runner, online(path, model={"metadata": {"key": "sk-secret"}}), MINIMUM)
    text = path.read_text()
    assert not [one for one in SECRETS if one in text]
    held = json.loads(text)
    assert len(held["questions"]) == MINIMUM
    for question in held["questions"]:
        assert set(question) == {"answers", "scores", "counted"}
        assert all(isinstance(answer, int) for answer in question["answers"])
        assert all(isinstance(score, float) for row in question["scores"] for score in row)


def test_it_is_not_written_for_every_question(runner: Any, path: Path, monkeypatch: Any) -> None:
    written: list[int] = []
    write = online_state.write_atomically
    monkeypatch.setattr(
        online_state, "write_atomically", lambda to, text: (written.append(json.loads(text)["seen"]), write(to, text))
    )
    reasc = online(path)
    ask(runner, reasc, MINIMUM + 2)
    assert written[0] <= 5 and written.count(32) == 1 and len(written) < 8
    reasc.calibrator.save()  # type: ignore[union-attr]
    assert written[-1] == MINIMUM + 2


def started(path: Path, *lines: str) -> "subprocess.Popen[str]":
    """A process of its own, in which ``asked(n, name="")`` asks n questions of a runnable with this state."""
    program = "\n".join(
        [
            "import os, signal, sys, multiprocessing; sys.path.insert(0, 'tests')",
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
    return "".join(process.communicate(timeout=60)[1] for process in processes)


def seen(path: Path) -> int:
    state = OnlineStateFile(path).load()
    assert state is not None and state.seen == len(state.questions)
    return state.seen


@pytest.mark.parametrize(("count", "end"), [(5, "raise ValueError"), (60, "")])
def test_what_was_seen_last_is_written_when_the_process_ends(path: Path, count: int, end: str) -> None:
    ended(started(path, f"asked({count})", end))
    assert seen(path) == count


def test_what_runnables_that_are_gone_have_seen_is_written(path: Path) -> None:
    ended(started(path, "for at in range(20): asked(1, str(at))"))
    assert seen(path) == 20


def test_what_was_seen_last_is_written_within_seconds(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("langchain_reasc.calibration.online._EVERY", 0.2)
    reasc = online(path)
    for at in range(5):
        reasc.invoke(f"q{at}")
    del reasc
    deadline = time.monotonic() + 10
    while not path.exists() or seen(path) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_processes_that_share_a_file_learn_together(path: Path) -> None:
    assert ended(*(started(path, f"asked(25, {name!r})") for name in ("a", "b", "c"))) == ""
    assert seen(path) == 75
    reasc = online(path)
    reasc.invoke("q")
    assert learned(reasc).calibration is not None
    assert learned(reasc).calibration.n > 60  # type: ignore[union-attr]  # made anew once it has grown by a quarter


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(
    "fork",
    [
        "multiprocessing.get_context('fork').Process(target=asked, args=(10, 'child', reasc)).start()",
        "if not os.fork(): asked(10, 'child', reasc); sys.exit(0)",
    ],
)
def test_a_forked_process_adds_its_own(path: Path, fork: str) -> None:
    ended(started(path, "reasc = online(path)", "asked(10, '', reasc)", fork, "asked(10, 'parent', reasc)"))
    assert seen(path) == 30


def test_a_process_killed_while_it_writes_blocks_nobody(path: Path) -> None:
    kill = "online_state.write_atomically = lambda *_: os.kill(os.getpid(), signal.SIGKILL)"
    killed = started(path, kill, "asked(1)", "time.sleep(30)")
    ended(killed)
    assert killed.returncode == -signal.SIGKILL
    assert path.with_name("state.json.lock").exists()
    reasc = online(path)
    reasc.invoke("q")
    learned(reasc).save()
    assert seen(path) == 1


def test_what_could_not_be_written_is_written_later(path: Path, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(online_state, "_WAIT", 0.05)
    reasc = online(path)
    with closing(sqlite3.connect(path.with_name("state.json.lock"), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for at in range(3):
            reasc.invoke(f"q{at}")
            learned(reasc).save()
    assert caplog.text.count("what was learned is not kept") == 1
    assert "state.json.lock cannot be locked, another process may have held it" in caplog.text
    assert not path.exists()
    learned(reasc).save()
    assert seen(path) == 3


def test_what_belongs_to_another_model_is_not_overwritten(path: Path, caplog: Any) -> None:
    one, other = online(path), online(path, model={"model_name": "other"})
    for reasc in (one, other, other):
        reasc.invoke("q")
        learned(reasc).save()
    assert "what was learned is not kept: online_state=" in caplog.text
    assert online(path).learned is None  # it is still the first one's


def test_a_change_that_one_process_has_seen_is_forgotten_by_all(path: Path, monkeypatch: Any) -> None:
    one, other = online(path), online(path)
    for at in range(MINIMUM):
        one.invoke(f"q{at}")
    learned(one).save()
    monkeypatch.setattr(learned(one)._learner, "_is_drift", lambda _: True)
    one.invoke("q")
    learned(one).save()
    assert seen(path) == 0
    other.invoke("q")
    learned(other).save()
    assert seen(path) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ('{"kind": "reasc-online", "sche', "EOF|invalid"),
        ("[]", "Input should be an object"),
        ('{"schema_version": 2, "method": "offline"}', "schema_version: Input should be 1"),
        ("\0\xff", "JSON|decode|control"),
    ],
)
def test_a_file_of_something_else_is_refused_and_left_alone(path: Path, text: str, why: str) -> None:
    path.write_text(text)
    with pytest.raises(CalibrationFileError, match=f"online_state=.*({why})"):
        online(path)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"schema_version": 2},
        {"measures": [["top_k", "mean", 128]]},
        {"measures": [["nonsense", "mean", 128]], "questions": []},
        {"questions": [{"answers": [0, -1], "scores": [], "counted": True}]},
        {"questions": [{"answers": ["Paris"], "scores": [], "counted": True}]},
        {"questions": [{"answers": [], "scores": [], "counted": True}]},
        {"drift": [[-1.0]]},
        {"seen": -1},
    ],
)
def test_a_file_that_contradicts_itself_is_refused(path: Path, change: dict[str, Any]) -> None:
    state = ConsensusCalibrator().state()
    OnlineStateFile(path).update(lambda _: state)
    whole = json.loads(path.read_text())
    whole["questions"] = [{"answers": [0, 1], "scores": [], "counted": True}]
    path.write_text(json.dumps(whole))
    assert OnlineStateFile(path).load() is not None
    path.write_text(json.dumps(whole | change))
    with pytest.raises(CalibrationFileError, match="move this one away to begin anew"):
        online(path)


def test_a_folder_that_is_not_there_is_told_before_anything_is_paid_for(path: Path) -> None:
    with pytest.raises(CalibrationFileError, match="there is no folder"):
        online(path / "further" / "state.json")
    with pytest.raises(CalibrationFileError, match="cannot read"):
        online(path.parent)


def test_what_was_learned_of_another_model_is_refused(runner: Any, path: Path) -> None:
    ask(runner, online(path), 1)
    with pytest.raises(FingerprintMismatch, match=r"online_state=.*model: calibrated on .scripted., running .other."):
        online(path, model={"model_name": "other"})
    reasc = online(path, model={"model_name": "other"}, allow_fingerprint_mismatch=True)
    assert learned(reasc).state().seen == 1


def test_another_path_is_another_memory(runner: Any, path: Path) -> None:
    reasc = online(path)
    ask(runner, reasc, 2)
    other = reasc.model_copy(update={"online_state": path.with_name("other.json")})
    assert learned(other).state().seen == 0
    assert learned(reasc.model_copy(update={"concurrency": 1})) is learned(reasc)


def test_a_file_that_cannot_be_written_costs_no_answer(runner: Any, path: Path, caplog: Any) -> None:
    reasc = online(path)
    path.mkdir()
    assert runner.account(reasc, "q")["answer"] is not None
    learned(reasc)
    assert "what was learned is not kept: cannot read online_state" in caplog.text


def test_scores_by_other_measures_are_left_out(runner: Any, path: Path) -> None:
    ask(runner, online(path), 3)
    state = learned(online(path, measure=TOP_K)).state()
    assert state.measures == (("top_k", "mean", 128),)
    assert all(np.shape(question.scores) == (1, len(question.answers)) for question in state.questions)


def test_from_a_state_and_back(runner: Any, path: Path) -> None:
    reasc = online(None)
    ask(runner, reasc, 5)
    state = learned(reasc).state()
    OnlineStateFile(path).update(lambda _: state)
    assert ConsensusCalibrator(fingerprint=state.fingerprint, path=path).state() == state
    assert OnlineState.model_validate_json(state.model_dump_json()) == state


def test_two_that_write_the_same_file_never_leave_half_of_one(path: Path) -> None:
    states = [ConsensusCalibrator().state(), ConsensusCalibrator().state().model_copy(update={"seen": 9})]

    def write(state: OnlineState) -> None:
        for _ in range(40):
            OnlineStateFile(path).update(lambda _: state)

    writing = [threading.Thread(target=write, args=(state,)) for state in states]
    for one in writing:
        one.start()
    while any(one.is_alive() for one in writing):
        assert OnlineStateFile(path).load() in (*states, None)
    assert {one.name for one in path.parent.iterdir()} == {"state.json", "state.json.lock"}


def test_in_an_event_loop_the_file_is_read_by_a_thread_of_the_first_call(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = online(path)
    ask(Runner(), before, 3)
    learned(before).save()
    readers: list[threading.Thread] = []
    read = online_state.read_record

    def reading(*args: Any, **options: Any) -> Any:
        readers.append(threading.current_thread())
        return read(*args, **options)

    monkeypatch.setattr(online_state, "read_record", reading)

    async def main() -> Any:
        reasc = online(path)
        assert not readers
        first = await reasc.abatch(["a", "b"])
        other = online(path, model={"model_name": "other"})
        with pytest.raises(FingerprintMismatch, match=r"online_state=.*model: calibrated on .scripted."):
            await other.ainvoke("q")
        assert not other.model.log.calls  # type: ignore[attr-defined]
        with pytest.raises(FingerprintMismatch):  # again, as long as it is so
            other.invoke("q")
        return first[0].response_metadata["reasc"]["notices"]

    assert "(3 of 32 questions seen)" in asyncio.run(main())[0]
    assert readers and readers[0] is not threading.main_thread()
    assert online(path).learned is None and readers[-1] is threading.main_thread()
