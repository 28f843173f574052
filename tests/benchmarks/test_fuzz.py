"""A short run of ``python -m benchmarks.fuzz_logprobs``, and that it would find what it looks for."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage

from benchmarks.fuzz_logprobs import fuzz
from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.models import SignalReading, read_signals


def test_no_mutated_payload_crashes_the_reader_or_becomes_a_confidence() -> None:
    outcomes, faults = fuzz(2_000, seed=1)
    assert faults == []
    refused = {"refused: LogprobsUnavailable", "refused: ConfidenceError"}
    assert set(outcomes) == {"read", "read, with a notice"} | refused
    assert min(outcomes.values()) > 10


def inventing(message: AIMessage) -> SignalReading:
    """Makes a value up in place of the first."""
    reading = read_signals(message)
    invented = np.array([-0.123456789, *reading.signals["token_logprob"][1:]])
    return replace(reading, signals={**reading.signals, "token_logprob": invented})


def certain(message: AIMessage) -> SignalReading:
    """Makes zeros of what is missing."""
    try:
        return read_signals(message)
    except LogprobsUnavailable:
        zeros = [0.0] * str(message.response_metadata).count("-0.0")
        return SignalReading({"token_logprob": np.array(zeros)})


def crashing(message: AIMessage) -> SignalReading:
    return SignalReading({"token_logprob": np.array([float(message.response_metadata["logprobs"]["content"])])})


@pytest.mark.parametrize(
    ("read", "found"), [(inventing, "not in the payload"), (certain, "made of zeros"), (crashing, "TypeError")]
)
def test_a_broken_reader_is_found(read: Any, found: str) -> None:
    _, faults = fuzz(1_000, seed=1, read=read)
    assert any(found in fault and "seed 1" in fault for fault in faults)
