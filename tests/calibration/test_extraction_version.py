"""What was learned from answers that other rules found is refused, with both versions in the message."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from runnable import learning
from runnable.fakes import Reply, calibration, saying

from langchain_reasc import ReASCRunnable, load_calibration, save_calibration
from langchain_reasc.answers import EXTRACTION_VERSION
from langchain_reasc.calibration import Calibration
from langchain_reasc.exceptions import FingerprintMismatch
from langchain_reasc.models.fingerprint import Fingerprint, fingerprint_of

NOW = f"auto, version {EXTRACTION_VERSION}"
OLDER = ["auto", f"auto, version {EXTRACTION_VERSION - 1}"]
SURE = Reply("it is 7", logprob=-5.0)


def refusal(older: str) -> str:
    return re.escape(f"(answer: calibrated on {older!r}, running {NOW!r})") + ".*allow_fingerprint_mismatch=True"


def stored(path: Path, answer: str) -> Calibration:
    """A calibration from a file that names these rules."""
    save_calibration(calibration(gate=2.5, fingerprint=Fingerprint(model="scripted", answer=answer)), path)
    return load_calibration(path)


@pytest.mark.parametrize("spec", ["auto", "choice", ["spam", "ham"]], ids=str)
def test_a_fingerprint_names_the_version_of_the_rules(spec: Any) -> None:
    answer = fingerprint_of(saying(SURE), answer=spec).answer
    assert answer is not None and answer.endswith(f", version {EXTRACTION_VERSION}")


@pytest.mark.parametrize("older", OLDER)
def test_a_calibration_of_another_version_is_refused(tmp_path: Path, older: str) -> None:
    options: dict[str, Any] = {"model": saying(SURE), "calibration": stored(tmp_path / "c.json", older)}
    with pytest.raises(FingerprintMismatch, match=refusal(older)):
        ReASCRunnable(**options)
    reasc = ReASCRunnable(**options, allow_fingerprint_mismatch=True)
    assert reasc.invoke("q").response_metadata["reasc"]["reason"] == "gate"


def test_a_calibration_of_this_version_is_used(tmp_path: Path) -> None:
    reasc = ReASCRunnable(model=saying(SURE), calibration=stored(tmp_path / "c.json", NOW))
    assert reasc.invoke("q").response_metadata["reasc"]["reason"] == "gate"


@pytest.mark.parametrize("older", OLDER)
def test_an_online_state_of_another_version_is_refused(tmp_path: Path, older: str) -> None:
    path = tmp_path / "state.sqlite"
    first = learning.online(state=path)
    first.invoke("q0")
    assert learning.calibrator(first).wait(10)
    assert learning.calibrator(learning.online(state=path)).observations.seen == 1
    with closing(sqlite3.connect(path)) as database, database:
        changed = database.execute(
            "UPDATE about SET value = replace(value, ?, ?) WHERE name = 'fingerprint'", (f'"{NOW}"', f'"{older}"')
        )
        assert changed.rowcount == 1
    with pytest.raises(FingerprintMismatch, match=re.escape(f"state={str(path)!r}") + ".*" + refusal(older)):
        learning.online(state=path)
    lenient = learning.online(state=path, allow_fingerprint_mismatch=True)
    assert learning.calibrator(lenient).observations.seen == 1
