"""``online_state=PATH``: what is learned outlives the process, and says nothing of what was asked."""

import asyncio
import json
import os
import random
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
from langchain_reasc.calibration import ConsensusCalibrator, OnlineStateFile
from langchain_reasc.exceptions import CalibrationFileError, FingerprintMismatch

from . import learning
from .fakes import TOP_K, Reply, Scripted
from .learning import MINIMUM, calibrator

online_state = sys.modules[OnlineStateFile.__module__]
ROOT = Path(__file__).parents[2]
SECRETS = ("capital", "Paris", "Lyon", "sk-secret")


def drawn(question: str, index: int) -> Reply:
    rng = random.Random(f"{question} {index}")
    city = "ABCD"[index % 4] if question.startswith("x") else rng.choice(["Paris", "Paris", "Lyon"])
    return Reply(f"the answer is {city}", -round(rng.uniform(0.5, 3), 4))


def online(path: Path | None, **fields: Any) -> ReASCRunnable:
    model = Scripted(script=drawn, **fields.pop("model", {}))
    return learning.online(model=model, online_state=path, answer=r"regex:answer is (\w+)", **fields)


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
    return tmp_path / "state.json"


def test_another_process_goes_on_where_the_first_one_stopped(runner: Any, path: Path) -> None:
    first = online(path)
    ask(first, 1)
    assert json.loads(path.read_text())["calibration"] is None
    assert calibrator(online(path)).state().seen == 1
    ask(first, MINIMUM - 1)
    assert first.learned is not None
    second = online(path)
    assert second.learned == first.learned
    assert calibrator(second).state() == calibrator(first).state()
    assert runner.account(second, "q")["notices"][0].startswith(f"learned from {MINIMUM} ")
    ask(second, 3)
    assert second.learned is not None and second.learned.n == 20


def test_it_says_nothing_of_what_was_asked(path: Path) -> None:
    ask(online(path, model={"metadata": {"key": "sk-secret"}}), MINIMUM)
    text = path.read_text()
    assert not [one for one in SECRETS if one in text]
    held = json.loads(text)
    assert len(held["questions"]) == MINIMUM
    for question in held["questions"]:
        assert set(question) == {"answers", "scores", "counted"}
        assert all(isinstance(answer, int) for answer in question["answers"])
        assert all(isinstance(score, float) for row in question["scores"] for score in row)


def test_it_is_not_written_for_every_question(path: Path, monkeypatch: Any) -> None:
    written: list[int] = []
    write = online_state.write_atomically
    monkeypatch.setattr(
        online_state, "write_atomically", lambda to, text: (written.append(json.loads(text)["seen"]), write(to, text))
    )
    reasc = online(path)
    ask(reasc, MINIMUM + 2)
    assert written[0] <= 5 and written.count(MINIMUM) == 1 and len(written) < 8
    calibrator(reasc).save()
    assert written[-1] == MINIMUM + 2


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
    return "".join(process.communicate(timeout=60)[1] for process in processes)


def seen(path: Path) -> int:
    state = OnlineStateFile(path).load()
    assert state is not None and state.seen == len(state.questions)
    return state.seen


def test_what_was_seen_last_is_written_when_the_process_ends(path: Path) -> None:
    """Also by runnables that are gone, and by a program that fails."""
    assert "ValueError" in ended(started(path, "for at in range(4): asked(1, str(at))", "asked(5)", "raise ValueError"))
    assert seen(path) == 9


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
    each = MINIMUM // 2 + 1  # neither learns anything alone
    assert ended(*(started(path, f"asked({each}, {name!r})") for name in ("a", "b"))) == ""
    assert seen(path) == 2 * each
    reasc = online(path)
    ask(reasc, 1)
    assert reasc.learned is not None and reasc.learned.n >= MINIMUM


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_adds_its_own(path: Path) -> None:
    forks = (
        "multiprocessing.get_context('fork').Process(target=asked, args=(5, 'child', reasc)).start()",
        "if not os.fork(): asked(5, 'other child', reasc); sys.exit(0)",
    )
    ended(started(path, "reasc = online(path)", "asked(5, '', reasc)", *forks, "asked(5, 'parent', reasc)"))
    assert seen(path) == 20


def test_what_could_not_be_written_is_written_later(path: Path, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(online_state, "_WAIT", 0.05)
    reasc = online(path)
    with closing(sqlite3.connect(path.with_name("state.json.lock"), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for _ in range(3):
            saved(reasc)
    assert caplog.text.count("what was learned is not kept") == 1
    assert "state.json.lock cannot be locked, another process may have held it" in caplog.text
    assert not path.exists()
    calibrator(reasc).save()
    assert seen(path) == 3


def test_what_belongs_to_another_model_is_not_overwritten(path: Path, caplog: Any) -> None:
    one, other = online(path), online(path, model={"model_name": "other"})
    for reasc in (one, other, other):
        saved(reasc)
    assert "what was learned is not kept: online_state=" in caplog.text
    assert online(path).learned is None  # it is still the first one's


def test_a_change_that_one_process_has_seen_is_forgotten_by_all(path: Path) -> None:
    one, other = online(path), online(path)
    saved(one, 2 * MINIMUM)
    saved(other)
    assert other.learned is not None
    for at in range(40):
        saved(one, name=f"x{at} ")
        if calibrator(one).state().alarms:
            break
    assert seen(path) == 0
    saved(other)
    assert seen(path) == 1 and other.learned is None


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "is empty"), ('{"kind": "reasc-online", "sche', "EOF|invalid"), ("[]", "Input should be an object")],
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
        {"measures": [["top_k", "mean", 128]]},
        {"questions": [{"answers": ["Paris"], "scores": [], "counted": True}]},
        {"drift": [[-1.0]]},
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


def test_what_was_learned_of_another_model_is_refused(path: Path) -> None:
    ask(online(path), 1)
    with pytest.raises(FingerprintMismatch, match=r"online_state=.*model: calibrated on .scripted., running .other."):
        online(path, model={"model_name": "other"})
    reasc = online(path, model={"model_name": "other"}, allow_fingerprint_mismatch=True)
    assert calibrator(reasc).state().seen == 1


def test_another_path_is_another_memory(path: Path) -> None:
    reasc = online(path)
    ask(reasc, 2)
    other = reasc.model_copy(update={"online_state": path.with_name("other.json")})
    assert calibrator(other).state().seen == 0
    assert calibrator(reasc.model_copy(update={"concurrency": 1})) is calibrator(reasc)


def test_a_file_that_cannot_be_written_costs_no_answer(runner: Any, path: Path, caplog: Any) -> None:
    reasc = online(path)
    path.mkdir()
    assert runner.account(reasc, "q")["answer"] is not None
    assert calibrator(reasc).wait(10)
    assert "what was learned is not kept: cannot read online_state" in caplog.text


def test_scores_by_other_measures_are_left_out(path: Path) -> None:
    ask(online(path), 3)
    state = calibrator(online(path, measure=TOP_K)).state()
    assert state.measures == (("top_k", "mean", 128),)
    assert all(np.shape(question.scores) == (1, len(question.answers)) for question in state.questions)


def test_in_an_event_loop_the_file_is_read_by_a_thread_of_the_first_call(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(online(path), 3)
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

    assert "(3 of 16 questions seen)" in asyncio.run(main())[0]
    assert readers and readers[0] is not threading.main_thread()
    assert online(path).learned is None and readers[-1] is threading.main_thread()
