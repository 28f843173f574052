"""The calibration record: its schema, its consistency, the rule it stands for, its summary."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from langchain_reasc.calibration import (
    Calibration,
    Gate,
    RuleBlock,
    load_calibration,
    save_calibration,
)
from langchain_reasc.exceptions import CalibrationFileError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.evidence import Standardizer
from langchain_reasc.method.horizon import FiniteHorizon
from langchain_reasc.method.stopping import ASC, ReASC

SCHEMA = Calibration.model_json_schema(by_alias=True, mode="serialization")


@pytest.mark.parametrize("which", ["offline", "online"])
def test_the_json_schema_validates_a_saved_file(which: str, request: Any, tmp_path: Path) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    validator = Draft202012Validator(SCHEMA)
    saved = json.loads(save_calibration(request.getfixturevalue(which), tmp_path / "calibration.json").read_text())
    validator.validate(saved)
    for spoiled in ({"std": 0}, {"window": "wide"}, {"signal": "certainty"}, {"extra": 1}, {"schema_version": 3}):
        assert not validator.is_valid({**saved, **spoiled}), spoiled
    assert not validator.is_valid({name: value for name, value in saved.items() if name != "mean"})


def test_a_rule_block_decides(offline: Calibration, tmp_path: Path) -> None:
    saved = json.loads(save_calibration(offline, tmp_path / "calibration.json").read_text())
    assert (saved["schema_version"], saved["rule"]) == (2, None)
    saved["rule"] = {"name": "finite_horizon", "parameters": {"phi": 0.95}}
    Draft202012Validator(SCHEMA).validate(saved)
    (path := tmp_path / "more.json").write_text(json.dumps(saved))
    loaded = load_calibration(path)
    assert loaded.rule_ == RuleBlock(name="finite_horizon", parameters={"phi": 0.95})
    assert (loaded.rule(), loaded.measure) == (FiniteHorizon(0.95), offline.measure)
    for name, parameters in (("oracle", {}), ("agreement", {"threshold": 0.9})):
        path.write_text(json.dumps({**saved, "rule": {"name": name, "parameters": parameters}}))
        with pytest.raises(CalibrationFileError, match="can be made of this"):
            load_calibration(path)
    again = json.loads(save_calibration(loaded, tmp_path / "again.json").read_text())
    assert again["rule"] == {**saved["rule"], "prior": [], "odds": []}


def test_a_person_can_read_the_file(offline: Calibration, tmp_path: Path) -> None:
    text = save_calibration(offline, tmp_path / "calibration.json").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) > 40 and max(map(len, lines)) < 120
    for said in ('"lambda": 0.7', '"signal": "top_k"', '"quantization": "F16"', '"temperature": 0.7', '"behind": 0.1'):
        assert said in text


def test_the_record_says_how_it_was_made(offline: Calibration) -> None:
    assert (offline.measure, offline.top_k, offline.vocabulary_size) == (Measure("top_k", "tail_group", 16), 20, 599)
    assert offline.auroc is not None and offline.auroc.cross_validated == 0.8
    assert [measure.signal for measure in offline.rejected] == ["token_logprob"]
    assert offline.created_at.tzinfo is not None and offline.library_version
    with pytest.raises(ValidationError, match="frozen"):
        offline.mean = 0.0  # type: ignore[misc]


def test_the_rule_it_stands_for(offline: Calibration) -> None:
    statistics = Standardizer(offline.mean, offline.std, 0.7)
    assert offline.rule() == ReASC(statistics, gate=offline.gate.safe_threshold)
    assert offline.rule(safeguard="paper") == ReASC(statistics, gate=offline.gate.threshold)
    assert offline.rule(confidence=0.8, on_missing_confidence="count") == ReASC(
        statistics, gate=offline.gate.safe_threshold, confidence=0.8, on_missing_confidence="count"
    )


def test_its_options_reach_the_rule(offline: Calibration) -> None:
    other = offline.model_copy(update={"lambda_": 1.5, "weight": "sigmoid"})
    assert (other.rule().statistics.scale, other.rule().weight) == (1.5, "sigmoid")


def test_a_fallback_counts_votes_unless_the_safeguard_is_off(offline: Calibration) -> None:
    weak = offline.model_copy(update={"fallback": "the score does not separate"})
    assert weak.rule() == ASC()
    assert weak.rule(safeguard="paper") == offline.rule(safeguard="paper")
    assert "votes are counted (ASC): the score does not separate" in weak.summary()


def test_summary(offline: Calibration, online: Calibration) -> None:
    assert offline.summary().startswith("offline on 60 responses: top_k/tail_group/W=16, μ ")
    assert "AUROC" in offline.summary() and "\n" not in offline.summary()
    closed = online.model_copy(update={"gate": Gate(threshold=None, closed_because="so it is")})
    assert "gate closed" in closed.summary() and "AUROC" not in closed.summary()


@pytest.mark.parametrize("fields", [{"threshold": None}, {"threshold": 1.0, "closed_because": "both"}])
def test_a_gate_is_open_or_explained(fields: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError, match="either a threshold or a reason"):
        Gate(**fields)
