"""The calibration record and its file: its schema, the rule it stands for, atomic saving, and what is refused."""

import fcntl
import json
import os
import signal
import stat
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from method.by_hand import SCORES
from pydantic import ValidationError

from langchain_reasc.calibration import Calibration, Gate, RuleBlock, load_calibration, save_calibration
from langchain_reasc.calibration.summary import describe_calibration
from langchain_reasc.exceptions import CalibrationFileError
from langchain_reasc.method.agreement import Agreement, Component, Prior
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.evidence import Standardizer
from langchain_reasc.method.score_model import ScoreModel
from langchain_reasc.method.stopping import ASC, ReASC

SCHEMA = Calibration.model_json_schema(by_alias=True, mode="serialization")
posix = pytest.mark.skipif(os.name != "posix", reason="has no permissions, locks and devices of this kind")


@pytest.fixture
def saved(offline: Calibration, tmp_path: Path) -> Path:
    return save_calibration(offline, tmp_path / "calibration.json")


@pytest.mark.parametrize("which", ["offline", "online"])
def test_a_saved_file_is_readable_valid_and_loads_as_it_was(which: str, request: Any, tmp_path: Path) -> None:
    calibration = request.getfixturevalue(which)
    path = save_calibration(calibration, tmp_path / "calibration.json")
    assert load_calibration(str(path)) == calibration
    assert load_calibration(path).rule() == calibration.rule()
    assert os.listdir(tmp_path) == ["calibration.json"]
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 40 and max(map(len, lines)) < 120 and '  "lambda": 0.7,' in lines
    Draft202012Validator.check_schema(SCHEMA)
    validator, record = Draft202012Validator(SCHEMA), json.loads(path.read_text())
    validator.validate(record)
    assert not validator.is_valid({**record, "extra": 1}) and not validator.is_valid({**record, "std": 0})


def test_the_record_says_how_it_was_made(offline: Calibration) -> None:
    assert (offline.measure, offline.top_k, offline.vocabulary_size) == (Measure("top_k", "tail_group", 16), 20, 599)
    assert offline.auroc is not None and offline.auroc.cross_validated == 0.8
    assert [measure.signal for measure in offline.rejected] == ["token_logprob"]
    assert offline.created_at.tzinfo is not None and offline.library_version
    with pytest.raises(ValidationError, match="frozen"):
        offline.mean = 0.0  # type: ignore[misc]


def test_the_rule_it_stands_for(offline: Calibration) -> None:
    statistics = Standardizer(offline.mean or 0, offline.std or 0, 0.7)
    safe, paper = (ReASC(statistics, gate=gate) for gate in (offline.gate.safe_threshold, offline.gate.threshold))
    assert (offline.rule(), offline.as_in_paper().rule()) == (safe, paper)
    assert offline.rule(confidence=0.8, on_missing_confidence="count") == ReASC(
        statistics, gate=offline.gate.safe_threshold, confidence=0.8, on_missing_confidence="count"
    )
    other = offline.model_copy(update={"lambda_": 1.5, "weight": "count"}).rule()
    assert isinstance(other, ReASC) and (other.statistics.scale, other.weight) == (1.5, "count")
    weak = offline.model_copy(update={"fallback": "the score does not separate"})
    assert (weak.rule(), weak.as_in_paper().rule()) == (ASC(), paper)
    assert "saves nothing" in weak.summary()


@pytest.mark.parametrize("scores", [None, SCORES])
def test_a_rule_block_is_the_agreement_rule(scores: ScoreModel | None, offline: Calibration, saved: Path) -> None:
    """With its parameters; whoever wants another rule gives that to the runnable."""
    stored = json.loads(saved.read_text())
    assert (stored["schema_version"], stored["rule"]) == (3, None)
    block = RuleBlock.agreement(Prior.uniform(), 0.97, scores)
    assert block.rule(budget=6) == Agreement(Prior.uniform(), 0.97, 6, scores)
    stored["rule"] = json.loads(block.model_dump_json())
    Draft202012Validator(SCHEMA).validate(stored)
    saved.write_text(json.dumps(stored))
    loaded = load_calibration(saved)
    assert (loaded.rule_, loaded.measure) == (block, offline.measure)
    assert loaded.rule(budget=6) == block.rule(budget=6)
    assert json.loads(save_calibration(loaded, saved).read_text())["rule"] == stored["rule"]
    for wrong in ({"name": "finite_horizon"}, {"threshold": 2}, {"threshold": 0.5}, {"prior": []}, {"scores": {}}):
        saved.write_text(json.dumps({**stored, "rule": {**stored["rule"], **wrong}}))
        with pytest.raises(CalibrationFileError, match="rule"):
            load_calibration(saved)


def test_another_prior_leaves_the_scores() -> None:
    block = RuleBlock.agreement(Prior.uniform(), 0.97, SCORES)
    other = Prior((Component(0.0, 1.0),), (1.0,))
    assert block.with_prior(other).rule(budget=6) == Agreement(other, 0.97, 6, SCORES)


def test_a_file_of_the_version_before_is_refused(saved: Path) -> None:
    record = json.loads(saved.read_text()) | {"schema_version": 2, "p_agree": None}
    refused(saved, json.dumps(record).encode(), "schema_version.*calibrate again")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"threshold": None}, "either a threshold or a reason"),
        ({"closed_because": "both"}, "either a threshold or a reason"),
        ({"level": 0.95}, "safe_"),
        ({"safe_threshold": 2.0, "accepted": 5, "lower_bound": 0.9}, "safe_"),
        ({"level": 0.95, "safe_threshold": 2.0}, "safe_"),
        ({"safe_closed_because": "without a level"}, "safe_"),
    ],
)
def test_a_gate_is_open_or_explained_and_the_safe_one_whole(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Gate(**{"threshold": 1.0, **fields})


@posix
def test_saving_replaces_what_was_there_and_keeps_permissions_and_links(
    saved: Path, online: Calibration, tmp_path: Path
) -> None:
    (tmp_path / "ordinary").touch()
    assert saved.stat().st_mode == (tmp_path / "ordinary").stat().st_mode
    link = tmp_path / "link.json"
    link.symlink_to(saved.name)
    for mode, path in ((0o600, saved), (0o640, link)):
        saved.chmod(mode)
        save_calibration(online, path)
        assert stat.S_IMODE(saved.stat().st_mode) == mode and load_calibration(saved) == online
    assert link.is_symlink()


@pytest.mark.full
@posix
def test_what_killed_processes_left_is_removed_and_what_another_is_writing_is_left_alone(
    saved: Path, online: Calibration
) -> None:
    if not (process := os.fork()):
        os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
        save_calibration(online, saved)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    [left] = [path for path in saved.parent.iterdir() if path != saved]
    with left.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.utime(left, (0, 0))  # what was just made may be another's
        save_calibration(online, saved)
        assert left.exists()
    save_calibration(online, saved)
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.parametrize(
    ("step", "failure"), [("fsync", OSError(28, "No space left on device")), ("replace", KeyboardInterrupt())]
)
def test_a_failed_save_leaves_the_old_file_and_nothing_else(
    saved: Path, online: Calibration, monkeypatch: pytest.MonkeyPatch, step: str, failure: BaseException
) -> None:
    steps: list[str] = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, real=real: (steps.append(name), real(*args))[1])
    save_calibration(online, saved)
    assert steps == ["fsync", "replace"], "it is on disk before it takes the name"

    def fail(*_: object) -> None:
        raise failure

    before = saved.read_bytes()
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(CalibrationFileError if isinstance(failure, OSError) else KeyboardInterrupt) as raised:
        save_calibration(online, saved)
    if isinstance(failure, OSError):
        assert str(saved) in str(raised.value) and "No space left" in str(raised.value)
    assert saved.read_bytes() == before and os.listdir(saved.parent) == [saved.name]


@posix
def test_a_device_or_a_pipe_is_written_to_and_stays_what_it_is(offline: Calibration, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        save_calibration(offline, pipe)
        text = os.read(reader, 1 << 16).decode()
    finally:
        os.close(reader)
    assert pipe.is_fifo() and Calibration.model_validate_json(text) == offline


@pytest.mark.parametrize("target", ["missing/calibration.json", "."])
def test_a_place_that_cannot_be_written(target: str, offline: Calibration, tmp_path: Path) -> None:
    with pytest.raises(CalibrationFileError, match=f"{tmp_path}"):
        save_calibration(offline, tmp_path / target)
    assert os.listdir(tmp_path) == []


GONE, NAN = object(), float("nan")


@pytest.mark.parametrize(
    ("where", "value", "problem"),
    [
        ("schema_version", 2, "schema_version: Input should be 3, got 2.*calibrate again"),
        ("schema_version", GONE, "schema_version is missing"),
        ("rule", {"name": "oracle"}, r"rule\.name: Input should be 'agreement', got 'oracle'"),
        ("rule", {"name": "agreement", "threshold": 0.9}, r"rule\.prior is missing"),
        ("rule", {"name": "agreement", "threshold": [1], "prior": []}, r"rule\.threshold"),
        ("rule", {"name": "agreement", "threshold": 0.9, "prior": []}, r"rule: .*parameters"),
        ("rule", {"name": "agreement", "parameters": {}, "prior": []}, r"rule\.(parameters|threshold)"),
        ("fingerprint.tools", {"shown": "add", "sha256": None, "names": []}, r"tools\.names is unknown"),
        ("std", GONE, "std is missing"),
        ("mean", None, "mean and std are null together, and only by consensus"),
        ("mean", NAN, "mean: .*finite"),
        ("weight", "sigmoid", "weight: Input should be 'reasc' or 'count', got 'sigmoid'.*calibrate again"),
        ("gate.threshold", None, "gate: .*either a threshold or a reason"),
        ("signal", "certainty", "signal: .*'self_certainty'.*got 'certainty'"),
    ],
)
def test_a_spoiled_record(saved: Path, where: str, value: object, problem: str) -> None:
    record = json.loads(saved.read_text())
    part: dict[str, Any] = record
    path = where.split(".")
    for name in path[:-1]:
        part = part[name]
    if value is GONE:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    refused(saved, json.dumps(record).encode(), problem)


@pytest.fixture
def full(offline: Calibration, online: Calibration) -> dict[str, Any]:
    """A record in which each part of a calibration is given, except for an escalation."""
    curve = {"points": [[0.3, 0.4], [0.8, 0.9]], "low": [0.1, 0.7], "high": [0.5, 1.0], "n": 20, "right": 0.5}
    rule = RuleBlock.agreement(Prior((Component(0.3, 1.0),), (1.0,)), 0.9, SCORES)
    expected = {"samples": 3.0, "uncalibrated": 4.0, "budget": 16, "unanswered": 0.0, "all_equal": False}
    record = {
        **json.loads(offline.model_dump_json()),
        "mixture": json.loads(online.model_dump_json())["mixture"],
        "rule": json.loads(rule.model_dump_json()),
        **{"p_correct": curve, "expected": expected},
    }
    copied: dict[str, Any] = json.loads(json.dumps(record))  # no part twice
    return copied


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a record holds something: the keys and numbers that lead there."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*path, key)
        yield from places(inner, (*path, key))


def use(calibration: Calibration) -> None:
    """What a run and ``reasc inspect`` do with a calibration."""
    calibration.rule()
    calibration.as_in_paper().rule(budget=4)
    curve = calibration.p_correct
    if curve is not None:
        assert 0 <= curve.probability(0.5) <= 1 and all(0 <= end <= 1 for end in curve.interval(0.5))
    assert describe_calibration(calibration).lines("reasc ask") and str(calibration)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers near the largest
@pytest.mark.parametrize("wrong", [None, True, "x", "1", 0, 1, -1, 1e308, 10**400, [], {"a": 1}], ids="{0!r:.9}".format)
def test_a_wrong_value_in_any_field_is_an_error_that_names_it_or_does_no_harm(
    full: dict[str, Any], wrong: Any, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    refused = 0
    for place in places(full):
        record = part = deepcopy(full)
        for key in place[:-1]:
            part = part[key]  # type: ignore[index]
        part[place[-1]] = wrong  # type: ignore[index]
        path.write_text(json.dumps(record))
        try:
            use(load_calibration(path))
        except CalibrationFileError as error:
            refused += 1
            assert str(path) in str(error) and (str(place[0]) in str(error) or "null together" in str(error)), place
    assert refused > 20


@pytest.mark.parametrize(
    ("where", "value", "problem"),
    [
        (("rule", "scores", "answer_variance"), 0, r"rule\.scores\.answer_variance: .*0"),
        (("rule", "scores", "of_answers"), "often", r"rule\.scores\.of_answers: .*'often'"),
        (("rule", "scores", "knots"), [[1, 0], [1, 0.5]], r"rule\.scores: .*ascending"),
        (("p_correct", "low"), [0.1], r"p_correct: .*1 lower"),
        (("rule", "prior", 0, "concentration"), -1, r"rule\.prior\[0\].*concentration.*-1"),
        (("rejected", 0, "signal"), "certainty", r"rejected\[0\]\.signal: .*'certainty'"),
        (("rejected", 0, "window"), 0, r"rejected\[0\]\.window: .*got 0"),
    ],
)
def test_a_wrong_value_inside_a_part(full: dict[str, Any], where: Any, value: Any, problem: str, saved: Path) -> None:
    part: Any = full
    for key in where[:-1]:
        part = part[key]
    part[where[-1]] = value
    refused(saved, json.dumps(full).encode(), problem)


@pytest.mark.parametrize("name", ["a\0b.json", "\ud800.json", "x" * 300])
def test_a_name_that_no_file_can_have(name: str, offline: Calibration, tmp_path: Path) -> None:
    for call in (lambda: load_calibration(tmp_path / name), lambda: save_calibration(offline, tmp_path / name)):
        with pytest.raises(CalibrationFileError) as raised:
            call()
        assert ascii(name)[1:-1] in str(raised.value)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b" \n\n", "is empty; calibrate again"),
        (b"[1, 2]", "Input should be an object"),
        (b"{'schema_version': 2}", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON.*nested too deeply"),
        (b"\xff\xfe\x00", "cannot read the calibration.*decode"),
        *((share, r"not valid JSON \(truncated\?\).*calibrate again") for share in (0.001, 0.1, 0.5, 0.9, 0.999)),
    ],
)
def test_what_is_no_record_at_all_or_a_part_of_one(saved: Path, content: bytes | float, problem: str) -> None:
    whole = saved.read_bytes().rstrip()
    refused(saved, content if isinstance(content, bytes) else whole[: max(1, int(content * len(whole)))], problem)


def refused(path: Path, content: bytes, problem: str) -> None:
    """One error that names the path and the problem; the file stays as it was."""
    path.write_bytes(content)
    with pytest.raises(CalibrationFileError, match=problem) as raised:
        load_calibration(path)
    assert str(path) in str(raised.value)
    assert path.read_bytes() == content and os.listdir(path.parent) == [path.name]


def test_what_cannot_be_read_says_why_or_how_to_make_one(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CalibrationFileError, match=r"missing\.json.*reasc calibrate"):
        load_calibration(tmp_path / "missing.json")
    with pytest.raises(CalibrationFileError, match=f"{tmp_path}.*directory"):
        load_calibration(tmp_path)

    def refuse(self: Path, *_: object, **__: object) -> str:  # played, as root may read anything
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CalibrationFileError, match=f"{saved}.*Permission denied"):
        load_calibration(saved)
