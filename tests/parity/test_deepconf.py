"""Group confidences and weighted votes against DeepConf's own code (Fu et al. 2025), on random responses.

`import deepconf` needs vllm, but its `utils.py` needs only NumPy: it is loaded from its path. DeepConf's token
confidence is our `top_k` signal; its per-token and per-window values are rounded to three decimals, ours are not.
"""

import importlib.util
from importlib.metadata import PackageNotFoundError, distribution
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from langchain_reasc.method import (
    evidence_by_answer,
    group_means,
    leader,
    response_score,
    signals_from_alternatives,
)

LENGTHS = [1, 31, 32, 33, 700]
WINDOWS = [1, 32, 128]


@pytest.fixture(scope="module")
def deepconf() -> ModuleType:
    try:
        path = distribution("deepconf").locate_file("deepconf/utils.py")
    except PackageNotFoundError:
        pytest.skip("deepconf is not installed: pip install --no-deps -r tests/parity/requirements.txt")
    spec = importlib.util.spec_from_file_location("deepconf_utils", str(path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def confidences(tokens: int, seed: int) -> list[float]:
    return np.random.default_rng([tokens, seed]).gamma(9.0, 1.5, tokens).tolist()


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("tokens", LENGTHS)
def test_response_scores(deepconf: ModuleType, tokens: int, window: int) -> None:
    trace = {"confs": confidences(tokens, seed=window)}
    theirs = {
        "bottom_group": deepconf.calculate_bottom_window_confidence(trace, window_size=window, bottom_percent=0.1),
        "lowest_group": deepconf.calculate_bottom_window_confidence(trace, window_size=window, bottom_percent=-1),
        "tail_group": deepconf.calculate_tail_confidence(trace, tail_tokens=window),
        "mean": deepconf.calculate_mean_confidence(trace),
    }
    for score, expected in theirs.items():
        ours = response_score(trace["confs"], score=score, window=window)
        assert ours == pytest.approx(expected, rel=1e-11), score


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("tokens", LENGTHS)
def test_group_means(deepconf: ModuleType, tokens: int, window: int) -> None:
    values = confidences(tokens, seed=0)
    np.testing.assert_allclose(
        group_means(np.array(values), window), deepconf.compute_least_grouped(values, window), atol=6e-4
    )


@pytest.mark.parametrize("k", [1, 5, 20])
def test_token_confidence(deepconf: ModuleType, k: int) -> None:
    """DeepConf: minus the mean log-probability of the alternatives that vLLM returns."""
    log_p = -np.sort(np.random.default_rng(k).exponential(3.0, (50, k)), axis=1)
    returned = [{token: SimpleNamespace(logprob=value) for token, value in enumerate(row)} for row in log_p]
    ours = signals_from_alternatives(log_p[:, 0], log_p, signals=["top_k"])["top_k"]
    np.testing.assert_allclose(ours, deepconf.compute_confidence(returned), atol=6e-4)


@pytest.mark.parametrize("seed", range(8))
def test_weighted_majority(deepconf: ModuleType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    answers = rng.choice(np.array(["1", "2", "3", None], dtype=object), 12).tolist()
    weights = rng.integers(1, 4, 12).astype(float).tolist()  # whole numbers, so that ties occur
    ours = leader(evidence_by_answer(zip(answers, weights, strict=True)))
    assert ours == deepconf.weighted_majority_vote(answers, weights)
