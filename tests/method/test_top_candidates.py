"""The k most likely tokens against a full stable sort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_reasc_backend.logits import top_candidates

from langchain_reasc.exceptions import ConfigurationError


def check_against_a_full_sort(row: np.ndarray, k: int) -> None:
    untouched = row.copy()
    ids, logits = top_candidates(row, k)
    wanted = np.argsort(-row, kind="stable")[:k]
    np.testing.assert_array_equal(ids, wanted)
    np.testing.assert_array_equal(logits, row[wanted])
    assert logits.dtype == row.dtype
    np.testing.assert_array_equal(row, untouched)


@pytest.mark.parametrize("vocabulary", [1, 32, 33, 259, 800, 9_999, 10_000, 32_000, 151_936, 256_000])
@pytest.mark.parametrize("k", [1, 2, 20, 40, 1000])
def test_finds_what_a_full_sort_finds(vocabulary: int, k: int) -> None:
    rng = np.random.default_rng(vocabulary + k)
    for scale in (0.001, 3, 1e4):
        check_against_a_full_sort((rng.standard_normal(vocabulary) * scale).astype(np.float32), k)


@given(
    seed=st.integers(0, 2**32 - 1),
    vocabulary=st.integers(1, 40_000),
    k=st.integers(1, 300),
    levels=st.sampled_from([1, 2, 5, 50, 5000]),
)
def test_equal_logits_come_in_the_order_of_their_ids(seed: int, vocabulary: int, k: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    check_against_a_full_sort(rng.integers(-levels, levels, vocabulary).astype(np.float32), k)


@pytest.mark.parametrize("at", [0, 63, 31_999, 32_000, 32_004])
def test_the_largest_is_found_wherever_it_is(at: int) -> None:
    row = np.random.default_rng(0).standard_normal(32_005).astype(np.float32)  # the last five fill no column
    row[at] = 100
    check_against_a_full_sort(row, 20)


@pytest.mark.parametrize("vocabulary", [800, 32_005])
def test_masked_logits_come_last(vocabulary: int) -> None:
    row = np.full(vocabulary, -np.inf, dtype=np.float32)
    row[[5, 700, vocabulary - 1]] = 1, 3, 2
    check_against_a_full_sort(row, 10)


@pytest.mark.parametrize("broken", [1, 30, 32_005])
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
