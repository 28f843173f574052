"""The Beta rule on counts against Adaptive-Consistency's own code (Aggarwal et al. 2023), on random answers.

Theirs integrates p^v1 (1-p)^v2 numerically, ours evaluates the incomplete Beta function: they agree to the quadrature's
error. Theirs counts None as an answer; ours casts no vote for it, so no None is drawn here.
"""

from types import ModuleType
from typing import cast

import numpy as np
import pytest

from langchain_reasc.method import ASC, Response, decide, posterior

LONGEST = 24


@pytest.fixture(scope="module")
def package() -> ModuleType:
    missing = "AdaptiveConsistency is not installed: pip install --no-deps -r tests/parity/requirements.txt"
    return cast(ModuleType, pytest.importorskip("adaptive_consistency", reason=missing))


def drawn(seed: int) -> list[str]:
    """Answers of one question, from hard (flat) to easy (peaked)."""
    rng = np.random.default_rng(seed)
    return rng.choice(list("abcde"), LONGEST, p=rng.dirichlet([rng.choice([0.3, 1.0, 3.0])] * 5)).tolist()


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("seed", range(12))
def test_asc_stops_where_theirs_does(package: ModuleType, seed: int, confidence: float) -> None:
    answers = drawn(seed)
    criterion = package.BetaStoppingCriteria(confidence)
    verdicts = [criterion.should_stop(answers[:n]) for n in range(1, LONGEST + 1)]
    first = next((n for n, verdict in enumerate(verdicts, 1) if verdict["stop"]), None)

    ours = decide(ASC(confidence), [Response(answer) for answer in answers])
    assert ours.stop is (first is not None)
    assert ours.samples == (first or LONGEST)
    assert ours.answer == verdicts[ours.samples - 1]["most_common"]
    assert ours.posterior == pytest.approx(verdicts[ours.samples - 1]["prob"], abs=1e-7)


def test_posterior_equals_their_integral(package: ModuleType) -> None:
    criterion = package.BetaStoppingCriteria()
    for second in range(0, 20, 3):
        for first in range(second + 1, second + 12, 2):
            theirs = criterion.should_stop(["a"] * first + ["b"] * second)["prob"]
            assert posterior({"a": float(first), "b": float(second)}) == pytest.approx(theirs, abs=1e-7)
