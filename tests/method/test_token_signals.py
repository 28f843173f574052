"""Token signals from the log-probabilities that a server returns: by hand, and what is refused."""

import warnings

import numpy as np
import pytest

from langchain_reasc.exceptions import ConfidenceError, ConfigurationError
from langchain_reasc.method import signals_from_alternatives


@pytest.mark.parametrize("signal", ["certainty"])
def test_an_unknown_signal_is_named(signal: str) -> None:
    with pytest.raises(ConfigurationError, match="'certainty'"):
        signals_from_alternatives(np.zeros(1), np.zeros((1, 2)), signals=[signal])


def test_signals_from_alternatives_by_hand() -> None:
    """Two tokens, two alternatives each: p = (1/2, 1/4) renormalises to (2/3, 1/3); p = (1/2, 1/2) to itself."""
    half, quarter = np.log(0.5), np.log(0.25)
    found = signals_from_alternatives(np.array([half, quarter]), np.array([[half, quarter], [half, half]]))
    np.testing.assert_allclose(found["top_k"], [1.5 * np.log(2), np.log(2)])
    np.testing.assert_allclose(found["token_logprob"], [half, quarter])
    np.testing.assert_allclose(found["neg_entropy"], [2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3), half])


@pytest.mark.parametrize("signal", ["self_certainty", "kl_uniform"])
def test_alternatives_cannot_give_a_whole_vocabulary_signal(signal: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{signal}.*'top_k', 'token_logprob' or 'neg_entropy'"):
        signals_from_alternatives(np.zeros(3), np.zeros((3, 5)), signals=[signal])


@pytest.mark.parametrize("signal", ["top_k", "neg_entropy"])
def test_no_alternatives_returned(signal: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{signal}.*request top_logprobs"):
        signals_from_alternatives(np.zeros(3), np.zeros((3, 0)), signals=[signal])
    found = signals_from_alternatives(np.zeros(3), np.zeros((3, 0)), signals=["token_logprob"])
    assert found["token_logprob"].size == 3


@pytest.mark.parametrize("broken", [np.nan, -np.inf])
@pytest.mark.parametrize("signal", ["top_k", "token_logprob", "neg_entropy"])
def test_broken_alternatives_are_refused_without_a_warning(broken: float, signal: str) -> None:
    with warnings.catch_warnings(), pytest.raises(ConfidenceError, match=signal):
        warnings.simplefilter("error")
        signals_from_alternatives(np.array([-1.0, broken]), np.array([[-1, -2], [-1, broken]]), signals=[signal])


def test_alternatives_of_other_tokens_than_were_generated() -> None:
    with pytest.raises(ConfidenceError, match=r"3 tokens.*2"):
        signals_from_alternatives(np.zeros(3), np.zeros((2, 5)))
