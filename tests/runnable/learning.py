"""Runnables that learn without labels from the questions they answer."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_reasc import Online, ReASCRunnable
from langchain_reasc.calibration import ConsensusCalibrator

from .fakes import Reply, Scripted

MINIMUM = 16
QUESTIONS = [f"q{i}" for i in range(MINIMUM)]


def drawn(question: str, index: int) -> Reply:
    """Even questions are easy and the model is sure of them; every sample is fixed by its question and index."""
    rng = random.Random(f"{question} {index}")
    sure = int(question.lstrip("qx")) % 2 == 0
    return Reply(f"it is {1 if sure else rng.choice([1, 1, 2, 3])}", -round(rng.gauss(3.0 if sure else 1.0, 0.2), 3))


def online(script: Any = drawn, *, state: Path | None = None, audit: float = 0, **fields: Any) -> ReASCRunnable:
    learning = Online(state=state, audit=audit)
    fields = {"model": Scripted(script=script), "calibration": learning, "max_samples": 4, **fields}
    return ReASCRunnable(**fields)


def calibrator(reasc: Any) -> ConsensusCalibrator:
    assert isinstance(reasc.calibrator, ConsensusCalibrator)
    return reasc.calibrator


def answered(runner: Any, reasc: Any, questions: Sequence[str] = QUESTIONS) -> list[Any]:
    """The accounts of questions that are asked one by one, each learned from before the next."""
    accounts = []
    for question in questions:
        accounts.append(runner.account(reasc, question))
        assert calibrator(reasc).wait(10)
    return accounts
