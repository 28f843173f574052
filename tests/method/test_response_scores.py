"""Token signals of a server's alternatives, the scores over them, and measures: by hand, and what is refused."""

import time
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_reasc.exceptions import ConfidenceError, ConfigurationError, LogprobsUnavailable
from langchain_reasc.method import (
    SCORES,
    SPAN_SCORES,
    Measure,
    Spans,
    group_means,
    response_score,
    signals_from_alternatives,
)

TOKENS = [4.0, 2.0, 6.0, 8.0, 1.0, 3.0]  # groups of 2: 3, 4, 7, 4.5, 2
FALLING = list(range(30))[::-1]  # with W = 1 the groups are the tokens
DEEPCONF = [((i * 37) % 101) / 10 for i in range(300)]  # whose bottom 10 % DeepConf's own code computed


@pytest.mark.parametrize(
    ("tokens", "score", "window", "expected"),
    [
        (TOKENS, "bottom_group", 2, 2.0),
        (TOKENS, "lowest_group", 2, 2.0),
        (TOKENS, "mean", 2, 4.0),
        (TOKENS, "tail_group", 2, 2.0),
        (TOKENS, "tail_group", 4, 4.5),
        (TOKENS, "average_group", 2, 4.1),
        *((TOKENS, score, window, 4.0) for score in SCORES for window in (6, 10_000)),  # within the window: its mean
        (FALLING[-19:], "bottom_group", 1, 0.0),  # of a tenth, rounded down
        (FALLING[-20:], "bottom_group", 1, 0.5),
        (FALLING, "bottom_group", 1, 1.0),
        (DEEPCONF, "bottom_group", 32, 4.785697115384615),
        (DEEPCONF, "bottom_group", 128, 4.948988970588235),
        (DEEPCONF, "bottom_group", 301, 4.989333333333334),
    ],
)
def test_scores_by_hand(tokens: list[float], score: str, window: int, expected: float) -> None:
    assert response_score(tokens, score=score, window=window) == pytest.approx(expected, abs=1e-12, rel=0)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60), st.integers(1, 60))
def test_scores_are_ordered(tokens: list[float], window: int) -> None:
    lowest, bottom, average = (
        response_score(tokens, score=score, window=window)
        for score in ("lowest_group", "bottom_group", "average_group")
    )
    assert min(tokens) - 1e-9 <= lowest <= bottom + 1e-9 <= average + 2e-9 <= max(tokens) + 3e-9


def test_long_responses_keep_their_digits() -> None:
    """A running sum over 30,000 large float32 values would drift; the groups must equal the direct means."""
    tokens = (1e4 + np.random.default_rng(0).normal(0, 1, 30_000)).astype(np.float32)
    direct = np.lib.stride_tricks.sliding_window_view(tokens.astype(np.float64), 128).mean(axis=1)
    np.testing.assert_allclose(group_means(tokens, 128), direct, rtol=1e-12)


def test_thirty_thousand_tokens_take_milliseconds() -> None:
    tokens = np.random.default_rng(0).normal(15, 3, 30_000).astype(np.float32)
    taken = []
    for _ in range(20):
        start = time.thread_time()
        response_score(tokens)
        taken.append(time.thread_time() - start)
    assert min(taken) < 0.01


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], r"shape \(0,\)"),
        ([[1.0, 2.0]], r"shape \(1, 2\)"),
        ([1.0, np.nan, 2.0], "signal 1 is nan"),
        ([-np.inf], "signal 0 is -inf"),
    ],
)
def test_what_is_no_list_of_finite_signals(tokens: object, message: str) -> None:
    with pytest.raises(ConfidenceError, match=message):
        response_score(tokens)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "best"}, "'best'.*bottom_group"),
        ({"window": 0}, "token.* got 0"),
        ({"signal": "certainty"}, "'certainty'"),
        ({"signal": "verbalized", "score": "answer_span"}, "has no tokens"),
    ],
)
def test_what_is_no_measure(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Measure(**options)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="'answer_span'"):
        response_score(TOKENS, score="answer_span")


SPANS = Spans(answer_span=(4, 6), last_step=(1, 4))


@pytest.mark.parametrize(
    ("measure", "named", "score"),
    [
        (Measure(), "self_certainty/bottom_group/W=128", 1.0),
        (Measure("top_k", "lowest_group", 2), "top_k/lowest_group/W=2", 2.0),
        (Measure("top_k", "mean", 16), "top_k/mean", 4.0),
        (Measure("top_k", "answer_span", 1), "top_k/answer_span", 2.0),
        (Measure("top_k", "last_step"), "top_k/last_step", 16 / 3),
    ],
)
def test_a_measure_reads_its_own_signal(measure: Measure, named: str, score: float) -> None:
    assert str(measure) == named
    assert measure({"top_k": TOKENS, "self_certainty": [1.0]}, SPANS) == pytest.approx(score)
    with pytest.raises(LogprobsUnavailable, match=rf"'{measure.signal}' .*token_logprob"):
        measure({"token_logprob": [0.0]})


def test_a_span_that_is_not_known_or_of_other_tokens() -> None:
    for score in SPAN_SCORES:
        with pytest.raises(LogprobsUnavailable, match=f"'{score}'"):
            Measure("top_k", score)({"top_k": TOKENS})
    for span in ((4, 7), (2, 2), (5, 3)):
        with pytest.raises(ConfidenceError, match="response's 6"):
            Measure("top_k", "answer_span")({"top_k": TOKENS}, Spans(answer_span=span))
    signals = {"top_k": [float("nan"), *TOKENS[1:]]}  # which matters only within the span
    assert Measure("top_k", "answer_span")(signals, SPANS) == 2.0
    with pytest.raises(ConfidenceError):
        Measure("top_k", "answer_span")(signals, Spans(answer_span=(0, 2)))


def test_signals_from_alternatives_by_hand() -> None:
    """Two tokens, two alternatives each: p = (1/2, 1/4) renormalises to (2/3, 1/3); p = (1/2, 1/2) to itself."""
    half, quarter = np.log(0.5), np.log(0.25)
    found = signals_from_alternatives(np.array([half, quarter]), np.array([[half, quarter], [half, half]]))
    np.testing.assert_allclose(found["top_k"], [1.5 * np.log(2), np.log(2)])
    np.testing.assert_allclose(found["token_logprob"], [half, quarter])
    np.testing.assert_allclose(found["neg_entropy"], [2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3), half])
    alone = signals_from_alternatives(np.zeros(3), np.zeros((3, 0)), signals=["token_logprob"])
    assert alone["token_logprob"].size == 3


@pytest.mark.parametrize(
    ("signal", "alternatives", "error", "message"),
    [
        ("certainty", [[-1, -2], [-1, -3]], ConfigurationError, "'certainty'"),
        ("self_certainty", [[-1, -2], [-1, -3]], ConfigurationError, "'top_k', 'token_logprob' or 'neg_entropy'"),
        ("top_k", [[], []], ConfigurationError, "top_k.*top_logprobs"),
        ("top_k", [[-1, -2]], ConfidenceError, "2 tokens.*1"),
        ("top_k", [[-1, -2], [-1, -np.inf]], ConfidenceError, "top_k"),
        ("neg_entropy", [[-1, -2], [-1, np.nan]], ConfidenceError, "neg_entropy"),
        ("neg_entropy", [[-1, -2], [-1, -np.inf]], ConfidenceError, "neg_entropy"),
    ],
)
def test_alternatives_that_give_no_signal_are_refused_without_a_warning(
    signal: str, alternatives: list[list[float]], error: type[Exception], message: str
) -> None:
    with warnings.catch_warnings(), pytest.raises(error, match=message):
        warnings.simplefilter("error")
        signals_from_alternatives(np.array([-1.0, -1.0]), np.array(alternatives), signals=[signal])
