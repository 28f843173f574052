"""Each sampling parameter has its effect on real draws from llama.cpp's samplers."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import cache
from typing import Any

import numpy as np
import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.grammar import Grammar
from langchain_reasc_llama_cpp.native import Logits, NativeModel
from langchain_reasc_llama_cpp.sampling import SamplerChain, SamplingParameters, sampler

from backends.llama_cpp.tiny_gguf import write_tiny_model
from langchain_reasc.exceptions import ModelError

OPEN: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""Nothing truncates: what a test adds is all there is."""


@pytest.fixture(scope="module")
def native(shipped: ChatLlamaCpp) -> NativeModel:
    return shipped.engine.model


@pytest.fixture
def row(native: NativeModel) -> Logits:
    """Logits like a model's: a few likely tokens, spread over the ids, and a long tail."""
    rng = np.random.default_rng(5)
    ranked = 8 - 2.0 * np.log1p(np.arange(native.vocabulary_size))
    return rng.permutation(ranked).astype(np.float32)


def draws(native: NativeModel, row: Logits, n: int = 400, *, seed: int = 3, **parameters: Any) -> list[int]:
    with closing(SamplerChain(SamplingParameters(**parameters), seed, native)) as chain:
        return [chain.draw(row) for _ in range(n)]


def probabilities(row: Logits) -> np.ndarray:
    weights = np.exp(row.astype(float) - row.max())
    return weights / weights.sum()


def ranked(row: Logits) -> list[int]:
    return np.argsort(-row, kind="stable").tolist()


def surprise(row: Logits, tokens: list[int]) -> float:
    """Mean, in bits."""
    return float(-np.log2(probabilities(row)[tokens]).mean())


def test_the_row_is_left_as_it_was(native: NativeModel, row: Logits) -> None:
    before = row.copy()
    draws(native, row, 20, logit_bias=((3, 2.0),), repeat_penalty=1.5, xtc_probability=1.0)
    np.testing.assert_array_equal(row, before)


def test_the_same_seed_gives_the_same_draws(native: NativeModel, row: Logits) -> None:
    options: dict[str, Any] = {"temperature": 1.5, "xtc_probability": 0.5}
    assert draws(native, row, **options) == draws(native, row, **options)
    assert draws(native, row, **options) != draws(native, row, seed=4, **options)
    assert draws(native, row, seed=2**32 + 2, **options) == draws(native, row, seed=3, **options)


def test_draws_follow_the_probabilities(native: NativeModel, row: Logits) -> None:
    counts = Counter(draws(native, row, 10_000, **OPEN))
    expected = probabilities(row)
    for token in ranked(row)[:8]:
        assert counts[token] / 10_000 == pytest.approx(expected[token], abs=0.02)


def test_temperature(native: NativeModel, row: Logits) -> None:
    for cold in (0, 1e-8, 1e-300):
        assert set(draws(native, row, 20, temperature=cold)) == {ranked(row)[0]}
    spread = [len(set(draws(native, row, **OPEN | {"temperature": t}))) for t in (0.3, 1.0, 3.0)]
    assert spread == sorted(set(spread))


def most_likely(row: Logits, share: float) -> list[int]:
    order = ranked(row)
    return order[: 1 + int(np.searchsorted(np.cumsum(probabilities(row)[order]), share))]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 3, "temperature": 3.0}, lambda row: ranked(row)[:3]),
        ({"top_p": 0.6}, lambda row: most_likely(row, 0.6)),
        ({"min_p": 0.1}, lambda row: np.flatnonzero(probabilities(row) >= 0.1 * probabilities(row).max())),
        ({"top_n_sigma": 1.5, "temperature": 2.0}, lambda row: np.flatnonzero(row >= row.max() - 1.5 * row.std())),
    ],
)
def test_what_truncates_keeps_just_its_tokens(native: NativeModel, row: Logits, options: Any, kept: Any) -> None:
    tokens = {int(token) for token in kept(row)}
    assert 0 < len(tokens) < 50
    assert set(draws(native, row, 3000, **OPEN | options)) == tokens


def test_typical_p_drops_what_is_too_likely(native: NativeModel) -> None:
    row = np.full(native.vocabulary_size, -500, dtype=np.float32)  # most probabilities underflow to 0
    row[:100] = 0
    row[50] = 4.2  # 0.4: its surprise is 0.9, the expected one 3.4, the others' 5.1
    got = set(draws(native, row, 3000, **OPEN | {"typical_p": 0.5}))
    assert got < set(range(100)) - {50}
    assert len(got) == 83  # of the others, as many as it takes to reach 0.5


def test_xtc(native: NativeModel, row: Logits) -> None:
    likely = [token for token in ranked(row) if probabilities(row)[token] >= 0.05]
    assert len(likely) > 2
    got = set(draws(native, row, **OPEN | {"xtc_probability": 1.0, "xtc_threshold": 0.05}))
    assert got.isdisjoint(likely[:-1])
    assert likely[-1] in got
    sometimes = Counter(draws(native, row, 2000, **OPEN | {"xtc_probability": 0.5, "xtc_threshold": 0.05}))
    assert 0.4 < sometimes[likely[0]] / (2000 * probabilities(row)[likely[0]]) < 0.6


def test_dynatemp(native: NativeModel) -> None:
    row = np.full(native.vocabulary_size, -30, dtype=np.float32)
    row[[1, 2]] = [3.0, 0.0]
    pair = OPEN | {"top_k": 2}
    fixed = Counter(draws(native, row, 3000, **pair))
    dynamic = Counter(draws(native, row, 3000, **pair, dynatemp_range=0.9))
    sharper = Counter(draws(native, row, 3000, **pair, dynatemp_range=0.9, dynatemp_exponent=3.0))
    assert fixed[2] > 100  # 4.7 % of 3,000
    # A quarter of the entropy that two tokens can have: a low temperature.
    assert sharper[2] < dynamic[2] < fixed[2] // 2


def test_repeat_penalty(native: NativeModel, row: Logits) -> None:
    positive = row - row.min() + 1  # it divides what is positive
    everything = {"repeat_penalty": 1e6, "repeat_last_n": -1, "temperature": 0.0}
    order = draws(native, positive, 50, **everything)
    assert order == ranked(positive)[:50]
    window = draws(native, positive, 50, **everything | {"repeat_last_n": 4})
    assert window == (ranked(positive)[:5] * 10)
    assert set(draws(native, positive, 50, **everything | {"repeat_last_n": 0})) == {order[0]}


def test_frequency_and_presence_penalty(native: NativeModel) -> None:
    row = np.full(native.vocabulary_size, -50, dtype=np.float32)
    row[[4, 8]] = [3.0, 0.5]
    got = draws(native, row, 8, temperature=0.0, frequency_penalty=1.0)
    assert got == [4, 4, 4, 8, 4, 8, 4, 8]  # 3, 2, 1, then 0 < 0.5, ...
    assert draws(native, row, 8, temperature=0.0, frequency_penalty=-1.0) == [4] * 8
    assert draws(native, row, 3, temperature=0.0, presence_penalty=5.0, repeat_last_n=1) == [4, 8, 4]


def cycled(native: NativeModel, **parameters: Any) -> list[int]:
    """Draws from a model that wants to say tokens 300, 301, 302 over and over, and 400 otherwise."""
    rows = np.zeros((3, native.vocabulary_size), dtype=np.float32)
    rows[:, 400] = 5
    rows[[0, 1, 2], [300, 301, 302]] = 10
    with closing(SamplerChain(SamplingParameters(temperature=0.0, **parameters), 1, native)) as chain:
        return [chain.draw(rows[step % 3]) for step in range(30)]


def test_dry(native: NativeModel) -> None:
    looped = [300, 301, 302] * 10
    assert cycled(native) == looped
    broken = cycled(native, dry_multiplier=2.0)
    assert broken[:6] == looped[:6]  # the penalty has to grow beyond the 5 logits between the two
    assert 400 in broken
    patient = cycled(native, dry_multiplier=2.0, dry_allowed_length=6)
    assert broken.index(400) < patient.index(400)
    assert cycled(native, dry_multiplier=2.0, dry_base=4.0).index(400) <= broken.index(400)
    assert cycled(native, dry_multiplier=2.0, dry_penalty_last_n=2) == looped
    breaker = native.piece(301)[0].decode()
    assert cycled(native, dry_multiplier=2.0, dry_sequence_breakers=(breaker,)) == looped


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat(native: NativeModel, row: Logits, version: int) -> None:
    flat = row / 2  # 7 bits of entropy
    bits = []
    for tau in (2.0, 4.0):
        got = draws(native, flat, 3000, temperature=1.0, mirostat=version, mirostat_tau=tau, mirostat_eta=0.2)
        bits.append(surprise(flat, got[500:]))
    free = surprise(flat, draws(native, flat, 3000, **OPEN))
    assert bits[0] + 0.5 < bits[1] < free - 0.5, (bits, free)
    # What it replaces does not count: top_k=1 would take the likeliest token each time.
    assert len(set(draws(native, row, temperature=1.0, mirostat=version, top_k=1))) > 1
    assert len(set(draws(native, row, temperature=0.0, mirostat=version))) == 1


def test_logit_bias(native: NativeModel, row: Logits) -> None:
    first, second, third = ranked(row)[:3]
    banned = draws(native, row, logit_bias=((first, -math.inf), (second, -math.inf)))
    assert {first, second}.isdisjoint(banned)
    assert third in banned
    assert set(draws(native, row, 20, logit_bias=((77, 100.0),))) == {77}
    assert set(draws(native, row, 20, temperature=0.0, logit_bias=((first, -math.inf),))) == {second}


def test_a_ban_of_everything_is_an_error(native: NativeModel, row: Logits) -> None:
    everything = tuple((token, -math.inf) for token in range(native.vocabulary_size))
    for temperature in (0.0, 1.0):
        with pytest.raises(ModelError, match="bans every token"):
            draws(native, row, 1, temperature=temperature, logit_bias=everything)


# With a large vocabulary few tokens go through the chain, and the draws are those of the whole vocabulary.


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeModel]:
    """A model of 20,000 tokens."""
    words = [f"<{number}>" for number in range(20_000 - 259)]
    model = NativeModel(write_tiny_model(tmp_path_factory.mktemp("large") / "large.gguf", words=words))
    assert model.vocabulary_size == 20_000
    yield model
    model.close()


@cache
def rows(size: int, n: int) -> list[Logits]:
    """Ordinary rows, flat ones, peaked ones, and ones whose logits lie in steps; none has two equal logits."""
    rng = np.random.default_rng(1)
    made = []
    for i in range(n):
        shape = (
            lambda: rng.standard_normal(size) * 3,
            lambda: rng.permutation(size) * 1e-5,
            lambda: -np.exp(rng.permutation(size) * 1e-3),
            lambda: rng.permutation(size) * 2e-3 - 30,
        )[i % 4]
        made.append(shape().astype(np.float32))
    return made


def chain(
    large: NativeModel, options: Mapping[str, Any], grammar: Grammar | None = None, *, seed: int = 2
) -> closing[SamplerChain]:
    return closing(SamplerChain(SamplingParameters(**options), seed, large, grammar))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.0},
        {"top_k": 200, "typical_p": 0.7},
        {"xtc_probability": 0.5, "xtc_threshold": 0.02},
        {"dynatemp_range": 0.5},
        {"repeat_penalty": 5.0, "repeat_last_n": 30, "top_k": 4},
        {"presence_penalty": 5.0, "frequency_penalty": -0.5, "temperature": 0.0},
        {"dry_multiplier": 1.0, "dry_allowed_length": 1},
        {"logit_bias": ((3, 4.0), (7, -np.inf), (19_999, 9.0))},
    ],
)
def test_both_ways_draw_the_same(large: NativeModel, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    with chain(large, options, seed=9) as selecting:
        monkeypatch.setattr(sampler, "_SELECTS", 1 << 30)
        with chain(large, options, seed=9) as whole:
            assert selecting.selects and not whole.selects
            drawn = [
                (selecting.draw(row), whole.draw(row)) for row in rows(large.vocabulary_size, 100) for _ in range(3)
            ]
    assert [a for a, _ in drawn] == [b for _, b in drawn]
    assert len({a for a, _ in drawn}) > 1


def test_equal_logits_come_in_the_order_of_their_ids(large: NativeModel) -> None:
    row = np.zeros(large.vocabulary_size, dtype=np.float32)
    with chain(large, {"top_k": 5, "top_p": 1.0, "min_p": 0.0}) as five:
        assert {five.draw(row) for _ in range(200)} == {0, 1, 2, 3, 4}


def test_a_grammar_draws_among_what_it_allows(large: NativeModel) -> None:
    row = rows(large.vocabulary_size, 100)[0]
    digits = [large.tokenize(digit)[0] for digit in "0123456789"]
    best = digits[int(row[digits].argmax())]
    for options in ({"temperature": 0.0}, {}, {"top_k": 0, "temperature": 0.0}, {"repeat_penalty": 1.1, "top_k": 1}):
        with chain(large, options, Grammar(gbnf="root ::= [0-9]*")) as held:
            first, *others = (held.draw(row) for _ in range(21))
        assert {first, *others} <= set(digits)
        assert options == {} or first == best


def test_a_row_that_is_not_finite_ends_nothing(large: NativeModel) -> None:
    row = np.full(large.vocabulary_size, np.nan, dtype=np.float32)
    for options in ({}, {"temperature": 0.0}, {"typical_p": 0.5, "top_k": 0}, {"mirostat": 1}, {"top_n_sigma": 1.0}):
        with chain(large, options) as any_chain:
            assert 0 <= any_chain.draw(row) < large.vocabulary_size


@pytest.mark.parametrize("options", [{}, {"temperature": 0.0}, {"repeat_penalty": 1.3}])
def test_a_grammar_draws_the_same_both_ways(
    large: NativeModel, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    grammar = Grammar(gbnf="root ::= [^5]*")  # which leaves about half of the tokens
    drawn = []
    for selects in (sampler._SELECTS, 1 << 30):
        monkeypatch.setattr(sampler, "_SELECTS", selects)
        with chain(large, options, grammar) as held:
            drawn.append([held.draw(row) for row in rows(large.vocabulary_size, 100)[:40]])
    assert drawn[0] == drawn[1]
    assert not any(b"5" in large.written(token) for token in drawn[0])
