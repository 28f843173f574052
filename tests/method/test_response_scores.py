"""Response scores, worked by hand; their speed; what they refuse; Measure."""

import time

import numpy as np
import pytest

from langchain_reasc.exceptions import ConfidenceError, ConfigurationError, LogprobsUnavailable
from langchain_reasc.method import SCORES, SPAN_SCORES, Measure, Spans, group_means, response_score

TOKENS = [4.0, 2.0, 6.0, 8.0, 1.0, 3.0]  # groups of 2: 3, 4, 7, 4.5, 2


@pytest.mark.parametrize(
    ("score", "expected"),
    [("bottom_group", 2.0), ("lowest_group", 2.0), ("mean", 4.0), ("tail_group", 2.0), ("average_group", 4.1)],
)
def test_scores_by_hand(score: str, expected: float) -> None:
    assert response_score(TOKENS, score=score, window=2) == pytest.approx(expected)


@pytest.mark.parametrize(("tokens", "expected"), [(9, 0.0), (19, 0.0), (20, 0.5), (29, 0.5), (30, 1.0)])
def test_bottom_group_averages_the_lowest_tenth_rounded_down(tokens: int, expected: float) -> None:
    """With W = 1 the groups are the tokens: 0, 1, 2, ... in falling order."""
    assert response_score(np.arange(tokens)[::-1], window=1) == pytest.approx(expected)


def test_tail_group_is_the_last_window() -> None:
    assert response_score(TOKENS, score="tail_group", window=4) == pytest.approx((6 + 8 + 1 + 3) / 4)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("window", [6, 7, 10_000])
def test_a_response_within_the_window_is_its_mean(score: str, window: int) -> None:
    assert response_score(TOKENS, score=score, window=window) == pytest.approx(4.0, abs=1e-12)


def test_long_responses_keep_their_digits() -> None:
    """A running sum over 30,000 large float32 values would drift; the groups must equal the direct means."""
    tokens = (1e4 + np.random.default_rng(0).normal(0, 1, 30_000)).astype(np.float32)
    direct = np.lib.stride_tricks.sliding_window_view(tokens.astype(np.float64), 128).mean(axis=1)
    np.testing.assert_allclose(group_means(tokens, 128), direct, rtol=1e-12)


@pytest.mark.parametrize("score", SCORES)
def test_thirty_thousand_tokens_take_less_than_five_milliseconds(score: str) -> None:
    tokens = np.random.default_rng(0).normal(15, 3, 30_000).astype(np.float32)
    taken = []
    for _ in range(20):
        start = time.perf_counter()
        response_score(tokens, score=score)
        taken.append(time.perf_counter() - start)
    assert min(taken) < 0.005


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], r"shape \(0,\)"),
        ([[1.0, 2.0]], r"shape \(1, 2\)"),
        (3.0, r"shape \(\)"),
        ([1.0, np.nan, 2.0], "token signal 1 is nan"),
        ([1.0, 2.0, np.inf], "token signal 2 is inf"),
        ([-np.inf], "token signal 0 is -inf"),
        ([1.0, None], "token signal 1 is nan"),
    ],
)
def test_what_is_no_list_of_finite_signals(tokens: object, message: str) -> None:
    with pytest.raises(ConfidenceError, match=message):
        response_score(tokens)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"), [({"score": "best"}, "'best'.*bottom_group"), ({"window": 0}, "at least 1 token, got 0")]
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        response_score([1.0], **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=message):
        Measure(**options)  # type: ignore[arg-type]


def test_measure_is_the_papers_unless_told_otherwise() -> None:
    assert Measure() == Measure("self_certainty", "bottom_group", 128)
    assert str(Measure()) == "self_certainty/bottom_group/W=128"
    assert str(Measure("top_k", "mean", 16)) == "top_k/mean"


def test_measure_reads_its_own_signal() -> None:
    measure = Measure("top_k", "lowest_group", 2)
    assert measure({"top_k": TOKENS, "token_logprob": [0.0]}) == 2.0
    with pytest.raises(LogprobsUnavailable, match=r"no 'top_k' signal \(it carries: token_logprob\)"):
        measure({"token_logprob": [0.0]})
    with pytest.raises(LogprobsUnavailable, match="it carries: none"):
        measure({})
    with pytest.raises(ConfigurationError, match="'certainty'"):
        Measure("certainty")


SPANS = Spans(answer_span=(4, 6), last_step=(1, 4))


@pytest.mark.parametrize("window", [1, 128])
def test_scores_of_a_span_by_hand(window: int) -> None:
    signals = {"top_k": TOKENS}
    assert Measure("top_k", "answer_span", window)(signals, SPANS) == pytest.approx((1 + 3) / 2)
    assert Measure("top_k", "last_step", window)(signals, SPANS) == pytest.approx((2 + 6 + 8) / 3)
    assert str(Measure("top_k", "last_step", window)) == "top_k/last_step"


@pytest.mark.parametrize("score", SPAN_SCORES)
def test_a_span_that_is_not_known_is_no_score(score: str) -> None:
    with pytest.raises(LogprobsUnavailable, match=f"no '{score}' score: which tokens these are cannot be told"):
        Measure("top_k", score)({"top_k": TOKENS})


@pytest.mark.parametrize("span", [(4, 7), (2, 2), (5, 3), (6, 9)])
def test_a_span_of_other_tokens_is_refused(span: tuple[int, int]) -> None:
    with pytest.raises(ConfidenceError, match="are none of the response's 6"):
        Measure("top_k", "answer_span")({"top_k": TOKENS}, Spans(answer_span=span))


def test_what_is_not_finite_matters_only_within_the_span() -> None:
    signals = {"top_k": [float("nan"), *TOKENS[1:]]}
    assert Measure("top_k", "answer_span")(signals, SPANS) == 2.0
    with pytest.raises(ConfidenceError):
        Measure("top_k", "answer_span")(signals, Spans(answer_span=(0, 2)))


def test_the_stated_confidence_has_no_span() -> None:
    with pytest.raises(ConfigurationError, match="belongs to no token"):
        Measure("verbalized", "answer_span")


def test_a_response_score_is_of_all_tokens() -> None:
    with pytest.raises(ConfigurationError, match="unknown score 'answer_span'"):
        response_score(TOKENS, score="answer_span")
