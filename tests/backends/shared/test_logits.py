"""Signals and candidates from raw logits against a float64 reference and a full sort, and what they must refuse."""

import tracemalloc
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_reasc_backend.logits import signals_from_logits, top_candidates
from properties import examples
from scipy.special import log_softmax

from langchain_reasc.exceptions import ConfidenceError, ConfigurationError
from langchain_reasc.method import SIGNALS, signals_from_alternatives

K = 20


def with_one(value: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Noise, but for one logit in the middle."""
    return lambda rng, v: np.where(np.arange(v) == v // 2, value, rng.normal(0, 1, (3, v)))


KINDS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "random": lambda rng, v: rng.normal(0, 3, (3, v)),
    "one at +100": with_one(100.0),
    "one at -10,000": with_one(-1e4),
    "one at +900, the others equal": lambda rng, v: np.where(np.arange(v) == v // 2, 900.3, np.full((3, v), 0.1)),
    "flat and not representable": lambda rng, v: np.full((3, v), 39.9),
    "flat far below": lambda rng, v: np.full((3, v), -100.1),
    "at ±10,000": lambda rng, v: rng.choice([-1e4, 1e4], (3, v)),
    "offset of +5,000": lambda rng, v: rng.normal(5e3, 4, (3, v)),
    "calm and wild rows": lambda rng, v: rng.normal(0, 3, (3, v)) + np.array([[0], [300], [-60]]),
}


def reference(logits: np.ndarray, chosen: np.ndarray, k: int) -> dict[str, np.ndarray]:
    """The formulas as they are written, in float64, with a full sort."""
    log_p = log_softmax(logits.astype(np.float64), axis=1)
    p = np.exp(log_p)
    return {
        "self_certainty": -log_p.mean(axis=1),
        "kl_uniform": -log_p.mean(axis=1) - np.log(logits.shape[1]),
        "top_k": -np.sort(log_p, axis=1)[:, -k:].mean(axis=1),
        "token_logprob": log_p[np.arange(len(chosen)), chosen],
        "neg_entropy": (p * log_p).sum(axis=1),
    }


def check_against_reference(logits: np.ndarray) -> None:
    """Within 1e-4, or 1e-6 of the value where that is more: a float32 near 1e3 can say no less than 6e-5."""
    before = logits.copy()
    chosen = np.array([0, logits.shape[1] // 2, logits.shape[1] - 1])
    found = signals_from_logits(logits, chosen, k=K)
    expected = reference(logits, chosen, K)
    assert found.keys() == set(SIGNALS)
    for name, values in found.items():
        assert values.dtype == np.float32 and values.shape == (3,)
        error = np.abs(values - expected[name])
        assert (error <= np.maximum(1e-4, 1e-6 * np.abs(expected[name]))).all(), (name, values, expected[name])
    np.testing.assert_array_equal(logits, before, "the model's logits were modified")


@pytest.mark.parametrize("vocabulary", [32, 259, 4999, 151_936])
def test_signals_equal_the_float64_reference(vocabulary: int) -> None:
    for made in KINDS.values():
        check_against_reference(made(np.random.default_rng(vocabulary), vocabulary).astype(np.float32))


@given(
    seed=st.integers(0, 2**32 - 1),
    vocabulary=st.integers(K, 20_000),
    scale=st.floats(0, 1e4),
    offset=st.floats(-5e3, 5e3),
)
def test_signals_of_any_scale_and_offset(seed: int, vocabulary: int, scale: float, offset: float) -> None:
    rng = np.random.default_rng(seed)
    check_against_reference((rng.standard_normal((3, vocabulary)) * scale + offset).astype(np.float32))


@pytest.mark.parametrize("vocabulary", [40, 32_000])
def test_scratch_changes_nothing_but_the_allocation(vocabulary: int) -> None:
    scratch = np.full((5, vocabulary + 3), np.nan, dtype=np.float32)
    rng = np.random.default_rng(1)
    for rows in (4, 1, 5):  # reused between steps with different numbers of live sequences
        logits = rng.normal(0, 3, (rows, vocabulary)).astype(np.float32)
        chosen = rng.integers(0, vocabulary, rows)
        fresh, reused = signals_from_logits(logits, chosen), signals_from_logits(logits, chosen, scratch=scratch)
        for name in SIGNALS:
            np.testing.assert_array_equal(reused[name], fresh[name], name)


@pytest.mark.parametrize(("rows", "vocabulary", "share", "offset"), [(8, 151_936, 8, -100), (163, 800, 4, 0)])
def test_scratch_spares_the_allocation_of_a_vocabulary(rows: int, vocabulary: int, share: int, offset: int) -> None:
    logits = (np.random.default_rng(2).normal(0, 3, (rows, vocabulary)) + offset).astype(np.float32)
    scratch, chosen = np.empty_like(logits), np.zeros(rows, dtype=int)
    signals_from_logits(logits, chosen, scratch=scratch)
    tracemalloc.start()
    signals_from_logits(logits, chosen, scratch=scratch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < logits.nbytes / share


def test_no_token_is_more_than_certain() -> None:
    """Rounding may put log Σ exp below the largest logit."""
    rng = np.random.default_rng(6)
    logits = rng.uniform(-20, 0, (500, 800)).astype(np.float32)
    logits[:, 5] = rng.uniform(18, 39, 500)
    found = signals_from_logits(logits, np.full(500, 5), signals=["token_logprob"])["token_logprob"]
    assert (found <= 0).all()
    assert (found > -1e-4).all()


def test_a_rows_signals_do_not_depend_on_the_rows_beside_it() -> None:
    rng = np.random.default_rng(4)
    logits = rng.normal(0, 3, (400, 800)).astype(np.float32)
    logits[::3] += 100
    chosen = rng.integers(0, 800, 400)
    together = signals_from_logits(logits, chosen)
    for row in range(0, 400, 7):
        alone = signals_from_logits(logits[row : row + 1], chosen[row : row + 1])
        for name in SIGNALS:
            assert alone[name][0] == together[name][row], name


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize(
    ("broken", "where", "vocabulary"),
    [(np.nan, 62, 64), (np.nan, 32_003, 32_005), (np.inf, 32_003, 32_005), (-np.inf, slice(None), 64)],
)
def test_broken_logits_are_refused_without_a_warning(broken: float, where: slice, vocabulary: int, signal: str) -> None:
    """NumPy's own complaints would only repeat the error; what one impossible token breaks is tested below."""
    logits = np.zeros((2, vocabulary), np.float32)
    logits[0, where] = broken
    with warnings.catch_warnings(), pytest.raises(ConfidenceError, match=f"{signal}.*not fin"):
        warnings.simplefilter("error")
        signals_from_logits(logits, np.array([1, 1]), signals=[signal])


@pytest.mark.parametrize("vocabulary", [64, 32_005])
def test_masked_tokens_break_what_reads_the_whole_vocabulary_and_nothing_else(vocabulary: int) -> None:
    """An impossible token has no log-probability to average; the others keep theirs."""
    logits = np.random.default_rng(5).normal(0, 3, (1, vocabulary)).astype(np.float32)
    logits[0, [9, 11, vocabulary - 1]] = -np.inf
    for signal in ("self_certainty", "kl_uniform", "neg_entropy"):
        with warnings.catch_warnings(), pytest.raises(ConfidenceError, match=f"{signal}.*not finite"):
            warnings.simplefilter("error")
            signals_from_logits(logits, np.array([1]), signals=[signal])
    kept = ("top_k", "token_logprob")
    found = signals_from_logits(logits, np.array([1]), signals=kept)
    with np.errstate(invalid="ignore"):
        expected = reference(logits, np.array([1]), K)
    for name in kept:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-4)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"signals": ["top_k"], "k": 0}, "between 1 and 32.*k=0"),
        ({"signals": ["top_k"], "k": 33}, "between 1 and 32.*k=33"),
        ({"signals": ["certainty"]}, r"'certainty'.*self_certainty"),
    ],
)
def test_a_wrong_k_or_signal_is_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        signals_from_logits(np.zeros((1, 32), np.float32), np.array([0]), **wrong)  # type: ignore[arg-type]


def test_alternatives_of_the_whole_vocabulary_equal_the_logits() -> None:
    logits = np.random.default_rng(3).normal(0, 2, (6, 50))
    chosen = np.arange(6)
    log_p = log_softmax(logits, axis=1)
    found = signals_from_alternatives(log_p[chosen, chosen], log_p)
    exact = signals_from_logits(logits, chosen, signals=list(found), k=50)
    assert list(exact) == list(found) and not signals_from_logits(logits, chosen, signals=[])
    for name, values in found.items():
        np.testing.assert_allclose(values, exact[name], err_msg=name)


def check_against_a_full_sort(row: np.ndarray, k: int) -> None:
    untouched = row.copy()
    ids, logits = top_candidates(row, k)
    wanted = np.argsort(-row, kind="stable")[:k]
    np.testing.assert_array_equal(ids, wanted)
    np.testing.assert_array_equal(logits, row[wanted])
    assert logits.dtype == row.dtype
    np.testing.assert_array_equal(row, untouched)


@pytest.mark.parametrize("vocabulary", [1, 800, 9_999, 10_000, 151_936])
@pytest.mark.parametrize("k", [1, 20, 1000])
def test_finds_what_a_full_sort_finds(vocabulary: int, k: int) -> None:
    rng = np.random.default_rng(vocabulary + k)
    for scale in (0.001, 1e4):
        check_against_a_full_sort((rng.standard_normal(vocabulary) * scale).astype(np.float32), k)


@given(
    seed=st.integers(0, 2**32 - 1),
    vocabulary=st.integers(1, 40_000),
    k=st.integers(1, 300),
    levels=st.sampled_from([1, 2, 5, 50, 5000]),
)
@examples(60)
def test_equal_logits_come_in_the_order_of_their_ids(seed: int, vocabulary: int, k: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    check_against_a_full_sort(rng.integers(-levels, levels, vocabulary).astype(np.float32), k)


@pytest.mark.parametrize("broken", [1, 32_005])
def test_ids_are_valid_even_where_logits_are_nan(broken: int) -> None:
    row = np.random.default_rng(0).standard_normal(32_005).astype(np.float32)
    row[:broken] = np.nan
    ids, _ = top_candidates(row, 20)
    assert len(set(ids.tolist())) == 20
    assert (ids >= 0).all()
    assert (ids < row.size).all()


def test_none_asked_for_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="k=0"):
        top_candidates(np.zeros(8, dtype=np.float32), 0)
