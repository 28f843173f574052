"""With a large vocabulary few tokens go through the chain, and the draws are those of the whole vocabulary."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import cycle, islice
from typing import Any

import numpy as np
import pytest
from langchain_reasc_llama_cpp.grammar import Grammar
from langchain_reasc_llama_cpp.native import Logits, NativeModel
from langchain_reasc_llama_cpp.sampling import SamplerChain, SamplingParameters, sampler

from backends.llama_cpp.tiny_gguf import write_tiny_model

DRAWS, ROWS = 600, 200


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeModel]:
    """A model of 20,000 tokens."""
    words = [f"<{number}>" for number in range(20_000 - 259)]
    model = NativeModel(write_tiny_model(tmp_path_factory.mktemp("large") / "large.gguf", words=words))
    assert model.vocabulary_size == 20_000
    yield model
    model.close()


@pytest.fixture(scope="module")
def ordinary_and_odd() -> list[Logits]:
    """As many rows as can be kept; each is drawn from several times."""
    return list(rows(20_000, ROWS))


def rows(size: int, n: int) -> Iterator[Logits]:
    """Ordinary rows, flat ones, peaked ones, and ones whose logits lie in steps; none has two equal logits."""
    rng = np.random.default_rng(1)
    for i in range(n):
        shape = (
            lambda: rng.standard_normal(size) * 3,
            lambda: rng.permutation(size) * 1e-5,
            lambda: -np.exp(rng.permutation(size) * 1e-3),
            lambda: rng.permutation(size) * 2e-3 - 30,
        )[i % 4]
        yield shape().astype(np.float32)


def chain(
    large: NativeModel, options: Mapping[str, Any], grammar: Grammar | None = None, *, seed: int = 2
) -> closing[SamplerChain]:
    return closing(SamplerChain(SamplingParameters(**options), seed, large, grammar))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 1.5, "top_p": 1.0, "min_p": 0.0},
        {"temperature": 0.0},
        {"top_k": 200, "typical_p": 0.7},
        {"xtc_probability": 0.5, "xtc_threshold": 0.02},
        {"dynatemp_range": 0.5},
        {"repeat_penalty": 1.3, "repeat_last_n": 30},
        {"presence_penalty": 5.0, "frequency_penalty": -0.5, "temperature": 0.0},
        {"dry_multiplier": 1.0, "dry_allowed_length": 1},
        {"logit_bias": ((3, 4.0), (7, -np.inf), (19_999, 9.0))},
        {"logit_bias": ((3, 40.0),), "repeat_penalty": 2.0, "temperature": 0.0},
    ],
)
def test_both_ways_draw_the_same(
    large: NativeModel, ordinary_and_odd: list[Logits], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    with chain(large, options, seed=9) as selecting:
        monkeypatch.setattr(sampler, "_SELECTS", 1 << 30)
        with chain(large, options, seed=9) as whole:
            assert selecting.selects and not whole.selects
            drawn = [(selecting.draw(row), whole.draw(row)) for row in islice(cycle(ordinary_and_odd), DRAWS)]
    assert [a for a, _ in drawn] == [b for _, b in drawn]
    assert len({a for a, _ in drawn}) > 1


def test_equal_logits_come_in_the_order_of_their_ids(large: NativeModel) -> None:
    row = np.zeros(large.vocabulary_size, dtype=np.float32)
    with chain(large, {"top_k": 5, "top_p": 1.0, "min_p": 0.0}) as five:
        assert {five.draw(row) for _ in range(200)} == {0, 1, 2, 3, 4}


def test_a_grammar_draws_among_what_it_allows(large: NativeModel) -> None:
    row = next(rows(large.vocabulary_size, 1))
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
            drawn.append([held.draw(row) for row in rows(large.vocabulary_size, 40)])
    assert drawn[0] == drawn[1]
    assert not any(b"5" in large.written(token) for token in drawn[0])
