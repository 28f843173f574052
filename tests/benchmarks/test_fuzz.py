"""A short run of ``python -m benchmarks.fuzz_logprobs``, and that it would find what it looks for."""

import sys
from typing import Any

import numpy as np
import pytest

from benchmarks.fuzz_logprobs import fuzz, main
from langchain_reasc.models.logprobs import checks


def test_no_mutated_payload_crashes_the_reader_or_becomes_a_confidence() -> None:
    outcomes, faults = fuzz(6_000, seed=1)
    assert faults == []
    refused = {"refused: LogprobsUnavailable", "refused: ConfidenceError"}
    assert set(outcomes) == {"read", "read, with a notice"} | refused
    assert min(outcomes.values()) > 20


def test_a_reader_that_makes_zeros_of_missing_data_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    number = checks._number
    monkeypatch.setattr(checks, "_number", lambda value: np.nan_to_num(number(value)))
    assert any("not in the payload" in fault for fault in fuzz(1_000, seed=1)[1])


@pytest.mark.slow  # thousands of payloads, by a reader that is broken on purpose
def test_a_reader_that_takes_all_zeros_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_refuse_zeros", lambda chosen, table: None)
    assert any("made of zeros" in fault for fault in fuzz(6_000, seed=1)[1])


def test_a_reader_that_crashes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_number", float)
    _, faults = fuzz(300, seed=1)
    assert any("TypeError" in fault and "seed 1" in fault for fault in faults)


def test_the_command_prints_its_figures(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["fuzz_logprobs", "--count", "200", "--seed", "5"])
    assert main() == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(": 0 faults")
