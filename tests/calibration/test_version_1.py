"""Files of schema version 1 load, and decide exactly as the library that wrote them did.

``version_1.json`` is such a file, and ``version_1_decisions.json`` holds what that library decided by it on 40 drawn
sequences of responses: for each ``[answer, score]`` one after the other, up to the decision.
"""

import json
from pathlib import Path

import pytest

from langchain_reasc.calibration import Fingerprint, check_fingerprint, load_calibration, save_calibration
from langchain_reasc.calibration.asked import stop_part, tools_part
from langchain_reasc.exceptions import FingerprintMismatch
from langchain_reasc.method.stopping import Cap, Response, decide

HERE = Path(__file__).parent
FILE = HERE / "version_1.json"
DECIDED = json.loads((HERE / "version_1_decisions.json").read_text(encoding="utf-8"))


def test_it_loads_with_nothing_known_of_what_it_lacks() -> None:
    made = load_calibration(FILE)
    assert (made.schema_version, made.measure_, made.rule_) == (1, None, None)
    prints = made.fingerprint
    assert (prints.tools, prints.response_format, prints.grammar, prints.stop) == (None, None, None, None)
    assert (prints.answer, prints.prompt) == (None, None)


def test_it_decides_as_it_did() -> None:
    rule = load_calibration(FILE).rule() | Cap(16)
    assert {decided["reason"] for decided in DECIDED} == {"gate", "evidence", "budget"}
    for decided in DECIDED:
        responses = [Response(answer, score) for answer, score in decided["responses"]]
        for seen in range(1, len(responses)):
            assert not decide(rule, responses[:seen]).stop
        decision = decide(rule, responses)
        assert decision.stop
        assert (decision.reason, decision.answer, decision.posterior, decision.evidence) == (
            *(decided["reason"], decided["answer"], decided["posterior"]),
            decided["evidence"],
        )


def test_what_it_lacks_is_not_compared_and_what_it_holds_is() -> None:
    made = load_calibration(FILE)
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    asked = {"tools": tools_part([tool]), "stop": stop_part(["END"]), "answer": "boxed"}
    running = made.fingerprint.model_copy(update=asked)
    check_fingerprint(made, running)
    for update in ({"model_sha256": "0" * 64}, {"prompt_sha256": "0" * 64}, {"sampling": {"temperature": 0.5}}):
        with pytest.raises(FingerprintMismatch):
            check_fingerprint(made, running.model_copy(update=update))


def test_saved_again_it_is_the_same_calibration(tmp_path: Path) -> None:
    made = load_calibration(FILE)
    assert load_calibration(save_calibration(made, tmp_path / "again.json")) == made


def test_new_files_are_of_version_2_and_say_what_they_know(offline: object, tmp_path: Path) -> None:
    saved = json.loads(save_calibration(offline, tmp_path / "new.json").read_text())  # type: ignore[arg-type]
    assert saved["schema_version"] == 2
    assert Fingerprint.model_fields.keys() == saved["fingerprint"].keys()
