"""Calibrations made once, to be looked at, saved and spoiled by the tests of this folder."""

import numpy as np
import pytest
from runnable.conftest import fits

from langchain_reasc.calibration import AUROC, Calibration, RejectedMeasure, calibrate_mixture, calibrate_offline
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.fingerprint import Fingerprint

__all__ = ["fits", "offline", "online"]

FINGERPRINT = Fingerprint(
    model="word.gguf",
    model_sha256="ab" * 32,
    quantization="F16",
    sampling={"temperature": 0.7, "top_k": 40, "seed": None},
)


@pytest.fixture(scope="session")
def offline() -> Calibration:
    """Algorithm 1 on a score that separates well."""
    rng = np.random.default_rng(0)
    correct = rng.random(60) < 0.6
    return calibrate_offline(
        rng.normal(np.where(correct, 2.0, 0.0), 0.8),
        correct,
        measure=Measure("top_k", "tail_group", 16),
        top_k=20,
        vocabulary_size=599,
        fingerprint=FINGERPRINT,
        rejected=[RejectedMeasure(signal="token_logprob", score="mean", window=128, auroc=0.7, behind=0.1)],
        cross_validated=0.8,
        within=AUROC(value=0.8, low=0.7, high=0.9),
    )


@pytest.fixture(scope="session")
def online() -> Calibration:
    """Algorithm 2 on two clear groups of scores."""
    rng = np.random.default_rng(1)
    scores = np.concatenate([rng.normal(0, 0.5, 30), rng.normal(4, 0.5, 50)])
    return calibrate_mixture(scores, measure=Measure(), fingerprint=FINGERPRINT)
