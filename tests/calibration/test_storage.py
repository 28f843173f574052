"""Calibration files: the round trip, atomic saving, and one clear error for each way to be bad."""

import fcntl
import json
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from langchain_reasc.calibration import Calibration, load_calibration, save_calibration
from langchain_reasc.exceptions import CalibrationFileError


@pytest.fixture
def saved(offline: Calibration, tmp_path: Path) -> Path:
    return save_calibration(offline, tmp_path / "calibration.json")


@pytest.mark.parametrize("which", ["offline", "online"])
def test_round_trip(which: str, request: Any, tmp_path: Path) -> None:
    calibration = request.getfixturevalue(which)
    path = save_calibration(calibration, tmp_path / "calibration.json")
    assert load_calibration(str(path)) == calibration
    assert load_calibration(path).rule() == calibration.rule()
    assert os.listdir(tmp_path) == ["calibration.json"]


def test_saving_replaces_what_was_there(saved: Path, online: Calibration) -> None:
    save_calibration(online, saved)
    assert load_calibration(saved) == online


def test_a_saved_file_has_ordinary_permissions(saved: Path, tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    assert saved.stat().st_mode == ordinary.stat().st_mode


@pytest.mark.skipif(os.name != "posix", reason="has no permissions")
def test_a_file_that_is_replaced_keeps_its_permissions(saved: Path, online: Calibration) -> None:
    for mode in (0o600, 0o640):
        saved.chmod(mode)
        save_calibration(online, saved)
        assert stat.S_IMODE(saved.stat().st_mode) == mode


@pytest.mark.skipif(not hasattr(os, "fork"), reason="cannot fork")
def test_what_killed_processes_left_is_removed(saved: Path, online: Calibration) -> None:
    for _ in range(3):
        if not (process := os.fork()):
            os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
            save_calibration(online, saved)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    left = [path for path in saved.parent.iterdir() if path != saved]
    assert left, "a kill leaves what was being written"
    for path in left:  # what was just made may be another's
        os.utime(path, (0, 0))
    save_calibration(online, saved)
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.skipif(os.name != "posix", reason="has no locks of this kind")
def test_what_another_process_is_writing_is_left_alone(saved: Path, online: Calibration) -> None:
    other = saved.with_name(f".{saved.name}.other.tmp")
    with other.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.utime(other, (0, 0))
        save_calibration(online, saved)
        assert other.exists()
    save_calibration(online, saved)
    assert not other.exists()


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_save_leaves_the_old_file_and_nothing_else(
    saved: Path, online: Calibration, monkeypatch: pytest.MonkeyPatch, step: str, failure: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise failure

    before = saved.read_bytes()
    monkeypatch.setattr(os, step, fail)
    expected = CalibrationFileError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as raised:
        save_calibration(online, saved)
    if isinstance(failure, OSError):
        assert str(saved) in str(raised.value) and "No space left" in str(raised.value)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


@pytest.mark.skipif(os.name != "posix", reason="has no device nodes")
def test_a_device_or_a_pipe_is_written_to_and_stays_what_it_is(offline: Calibration, tmp_path: Path) -> None:
    pipe, text = tmp_path / "pipe", ""
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        save_calibration(offline, pipe)
        text = os.read(reader, 1 << 16).decode()
    finally:
        os.close(reader)
    assert pipe.is_fifo() and Calibration.model_validate_json(text) == offline
    null = tmp_path / "null"
    try:
        os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))  # a /dev/null of its own
    except PermissionError:
        pytest.skip("only root may make a device node")
    save_calibration(offline, null)
    assert null.is_char_device() and sorted(os.listdir(tmp_path)) == ["null", "pipe"]


def test_what_a_link_points_to_is_replaced_and_the_link_stays(saved: Path, online: Calibration, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(saved.name)
    save_calibration(online, link)
    assert link.is_symlink() and load_calibration(saved) == online


def test_the_file_is_on_disk_before_it_takes_the_name(
    saved: Path, online: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, real=real: (steps.append(name), real(*args))[1])
    save_calibration(online, saved)
    assert steps == ["fsync", "replace"]


@pytest.mark.parametrize("target", ["missing/calibration.json", "."])
def test_a_place_that_cannot_be_written(target: str, offline: Calibration, tmp_path: Path) -> None:
    with pytest.raises(CalibrationFileError, match="cannot write the calibration to"):
        save_calibration(offline, tmp_path / target)
    assert os.listdir(tmp_path) == []


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda record: record.pop(name)


def having(value: object, *where: str) -> Callable[[dict[str, Any]], None]:
    def spoil(record: dict[str, Any]) -> None:
        for name in where[:-1]:
            record = record[name]
        record[where[-1]] = value

    return spoil


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (having(1, "schema_version"), "schema_version: Input should be 2, got 1.*calibrate again"),
        (having(True, "schema_version"), "schema_version: Input should be 2, got True"),
        (without("schema_version"), "schema_version is missing"),
        (having({"name": "Agreement"}, "rule"), "rule.name: "),
        (having({"name": "agreement", "parameters": {"theta": [1]}}, "rule"), r"rule\.parameters\.theta"),
        (having({"name": "agreement", "parameters": {f"p{n}": n for n in range(33)}}, "rule"), r"rule\.parameters: "),
        (having({"shown": "add", "sha256": None, "names": []}, "fingerprint", "tools"), r"tools\.names is unknown"),
        (without("std"), "std is missing"),
        (without("gate"), "gate is missing"),
        (having(None, "mean"), "mean and std are null together, and only by consensus"),
        (having(NAN, "mean"), "mean: .*finite"),
        (having(INFINITY, "std"), "std: .*finite"),
        (having(NAN, "gate", "threshold"), r"gate\.threshold: .*finite"),
        (having(-INFINITY, "auroc", "low"), r"auroc\.low: "),
        (having(NAN, "fingerprint", "sampling", "temperature"), r"fingerprint\.sampling\.temperature.*: "),
        (having(0.0, "std"), "std: .*greater than 0, got 0.0"),
        (having(-1.5, "std"), "std: .*greater than 0, got -1.5"),
        (having(0, "window"), "window: .*greater than or equal to 1, got 0"),
        (having(1, "n"), "n: .*greater than or equal to 2, got 1"),
        (having(1.2, "p_target"), "p_target: .*less than 1, got 1.2"),
        (having("certainty", "signal"), "signal: .*'self_certainty'.*got 'certainty'"),
        (having(1, "comment"), "comment is unknown"),
        (having(1, "gate", "comment"), r"gate\.comment is unknown"),
        (having(None, "gate", "threshold"), "gate: .*either a threshold or a reason"),
        (having("yesterday", "created_at"), "created_at: "),
    ],
)
def test_a_spoiled_record(saved: Path, spoil: Callable[[dict[str, Any]], None], problem: str) -> None:
    record = json.loads(saved.read_text())
    spoil(record)
    refused(saved, json.dumps(record).encode(), problem)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty; calibrate again"),
        (b" \n\n", "is empty; calibrate again"),
        (b"[1, 2]", "Input should be an object"),
        (b"null", "Input should be an object"),
        (b"{'schema_version': 2}", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON.*nested too deeply"),
        (b"\xff\xfe\x00", "cannot read the calibration.*decode"),
        (b"GGUF\x03\x00\x00\x00", "not valid JSON"),
        (b"{}", "schema_version is missing"),
    ],
)
def test_what_is_no_record_at_all(saved: Path, content: bytes, problem: str) -> None:
    refused(saved, content, problem)


@pytest.mark.parametrize("share", [0.001, *(n / 20 for n in range(1, 20)), 0.999])
def test_a_truncated_file(saved: Path, share: float) -> None:
    whole = saved.read_bytes().rstrip()
    refused(saved, whole[: max(1, int(share * len(whole)))], r"not valid JSON \(truncated\?\).*calibrate again")


def refused(path: Path, content: bytes, problem: str) -> None:
    """One error that names the path and the problem; the file stays as it was."""
    path.write_bytes(content)
    with pytest.raises(CalibrationFileError, match=problem) as raised:
        load_calibration(path)
    assert str(path) in str(raised.value)
    assert path.read_bytes() == content
    assert os.listdir(path.parent) == [path.name]


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    said = r"no calibration at .*missing\.json.*reasc calibrate.*None to count votes"
    with pytest.raises(CalibrationFileError, match=said):
        load_calibration(tmp_path / "missing.json")


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(CalibrationFileError, match=f"cannot read the calibration at {tmp_path}.*directory"):
        load_calibration(tmp_path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read anything")
def test_no_permission(saved: Path) -> None:
    saved.chmod(0)
    with pytest.raises(CalibrationFileError, match=f"cannot read the calibration at {saved}.*[Pp]ermission"):
        load_calibration(saved)


def test_permission_refused_by_the_file_system(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for root: the refusal is played."""

    def refuse(self: Path, *_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CalibrationFileError, match=f"cannot read the calibration at {saved}.*Permission denied"):
        load_calibration(saved)
