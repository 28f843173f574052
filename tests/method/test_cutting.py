"""Weak samples are cut in the middle: when, which, and what is decided on the others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_reasc.method import (
    ASC,
    Cap,
    ConfidenceCut,
    FiniteHorizon,
    Response,
    RunningConfidence,
    StoppingRule,
    cuttable,
    decide,
    decide_with_cuts,
    running_minima,
)

from .by_hand import responses

VALUES = st.lists(st.floats(-30, 0, width=32), max_size=40)


@given(VALUES, st.integers(1, 12), st.floats(-30, 0), st.integers(1, 7))
def test_a_sample_is_cut_at_the_first_group_below_the_threshold(
    values: list[float], window: int, threshold: float, chunk: int
) -> None:
    """Live, in chunks of any size, at the same token as afterwards; but for the last, with which it has ended."""
    cut = ConfidenceCut("token_logprob", window, threshold)
    after, running = cut.tokens(values), RunningConfidence(cut)
    means = {end: float(np.mean(values[end - window : end])) for end in range(window, len(values))}
    below = [end for end, mean in means.items() if mean < threshold]
    if all(abs(mean - threshold) > 1e-9 for mean in means.values()):
        assert after == (below[0] if below else None)
    before = values[: after or max(0, len(values) - 1)]
    taken = [running.falls_below([value]) for value in before]
    assert taken == [False] * (len(taken) - 1) + [after is not None] * bool(taken)
    chunks = RunningConfidence(cut)
    told = [chunks.falls_below(before[at : at + chunk]) for at in range(0, len(before), chunk)]
    assert (told.index(True) if True in told else None) == (None if after is None else (after - 1) // chunk)


def test_only_what_is_below_the_threshold_is_cut() -> None:
    values = np.random.default_rng(0).normal(size=40).tolist()
    ends, minima = running_minima(values, 5)
    for end, lowest in zip(ends[:-1].tolist(), minima[:-1].tolist(), strict=True):
        for threshold, expected in ((lowest, ends[ends.tolist().index(end) + 1]), (np.nextafter(lowest, 9), end)):
            cut = ConfidenceCut("top_k", 5, float(threshold))
            running = RunningConfidence(cut)
            assert cut.tokens(values) == expected == [running.falls_below([one]) for one in values].index(True) + 1


@given(VALUES, st.integers(1, 12))
def test_minima_fall_and_come_later(values: list[float], window: int) -> None:
    ends, minima = running_minima(values, window)
    assert (np.diff(ends) > 0).all() and (np.diff(minima) < 0).all()
    assert bool(ends.size) == (len(values) >= window) and (ends >= window).all()


@given(st.lists(st.tuples(st.integers(1, 6), st.lists(st.booleans(), min_size=6, max_size=6)), max_size=8))
def test_never_the_first_and_never_more_than_half(waves: list[tuple[int, list[bool]]]) -> None:
    launched = cut = 0
    for size, weak in waves:
        may = cuttable(range(launched, launched + size), cut)
        assert 0 not in may
        ended = [index for index in may if weak[index - launched]]
        launched, cut = launched + size, cut + len(ended)
        assert 2 * cut <= launched


def test_as_many_as_allowed_are_cut() -> None:
    assert cuttable(range(8), 0) == [1, 3, 5, 7]
    assert cuttable(range(4, 8), 0) == [4, 5, 6, 7] and cuttable(range(4, 8), 2) == [5, 7]


@given(
    st.lists(st.sampled_from("aaaaaab-"), min_size=1, max_size=16).map("".join),
    st.lists(st.booleans(), min_size=16, max_size=16),
    st.integers(1, 16),
)
def test_it_decides_as_if_each_sample_were_drawn_in_turn(given: str, weak: list[bool], budget: int) -> None:
    drawn = responses(given)
    rules: list[StoppingRule] = [ASC(), FiniteHorizon(0.97, budget), Cap(budget)]
    for rule in rules:
        seen, cut = list[Response](), list[int]()
        for at in range(min(budget, len(drawn))):
            weak_one = weak[at] and 2 * (len(cut) + 1) <= at + 1
            cut += [at] * weak_one
            seen.append(Response(None) if weak_one else drawn[at])
            if decide(rule | Cap(budget), seen).stop:
                break
        found, expected = decide_with_cuts(rule, drawn, weak, budget), decide(rule | Cap(budget), seen)
        assert (found.launched, found.cut) == (len(seen), tuple(cut))
        assert (found.decision.answer, found.decision.samples) == (expected.answer, len(seen) - len(cut))
        assert found.decision.stop and found.decision.reason == (expected.reason or "budget")


@pytest.mark.parametrize("rule", [ASC(), FiniteHorizon()])
def test_where_nothing_is_weak_it_decides_as_always(rule: StoppingRule) -> None:
    drawn = responses("abacaaaabbcaaaab")
    found = decide_with_cuts(rule, drawn, [False] * 16, 16)
    assert found.decision == decide(rule | Cap(16), drawn)
    assert (found.launched, found.cut) == (found.decision.samples, ())
