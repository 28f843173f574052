"""What is done with odd log-probabilities, row by row of the table in ``docs/chat_models.md``."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.models import TokenLogprobs, token_logprobs_of

from .payloads import Row, message, sound

Tokens = list[tuple[Any, Row]]
NONE = (None, "NaN", True, [], 10**400)
SENTINELS = (-9999.0, -100.0, -math.inf, "-Infinity")
ABOVE_ONE: Tokens = [(-0.2, [-0.2, -0.2]), (-0.1, [-0.4, -1.5]), (-0.3, [-0.5, -1.2])]


def read(*tokens: tuple[Any, Row], text: str = "") -> TokenLogprobs:
    return token_logprobs_of(message(*tokens, text=text))


def left_out() -> Iterator[tuple[tuple[Any, Row], str]]:
    """An odd token, and the notice of it."""
    yield from (((odd, [-0.1, -3.0]), "null or NaN") for odd in NONE)
    yield from (((odd, [-0.1, -3.0]), "generated token") for odd in SENTINELS)
    yield from (((-0.5, [-0.5, none]), "fewer alternatives") for none in (None, "null"))
    yield from ((token, "more than 1") for token in ABOVE_ONE)
    yield (0.0, [0.0, 0.0]), "certain (0.0)"


@pytest.mark.parametrize(("odd", "says"), list(left_out()))
def test_an_odd_token_is_left_out_with_a_notice(odd: tuple[Any, Row], says: str) -> None:
    found = read(*sound(5), odd, *sound(4))
    assert (found.chosen.tolist(), found.alternatives.shape) == ([-0.5] * 9, (9, 2))
    [notice] = found.notices
    assert says in notice


def refused() -> Iterator[tuple[Tokens, str]]:
    """Tokens, and why they give no confidence."""
    for odd in NONE + SENTINELS:  # more than one token in ten
        why = "2 of 19 tokens"
        yield [*sound(17), (odd, [-0.1, -3.0]), (odd, None)], why
        yield [(odd, [-0.1, -3.0])], "1 of 1 tokens"
    yield from (([*sound(10), odd, odd], "2 of 12 tokens") for odd in ABOVE_ONE)
    yield [*sound(10), (None, [-0.5, -1.5]), (-0.1, [-0.1, -0.1])], "1 of 12 tokens"  # of all kinds
    for bad in (0.0011, math.inf, "7", np.float32(0.5)):
        for token in ((bad, [-1.0, -2.0]), (-1.0, [-1.0, bad])):
            yield [*sound(30), token], f"{float(bad):g} as a log-probability"
    yield [(0.9, [0.9, 0.05]), (0.4, [0.6, 0.4])], "look like probabilities"
    for row in ([0.0], [0.0, 0.0], None):
        for zeros in ([(0.0, row)] * 2, [(-0.3, row and [-0.3, -1.5]), *[(0.0, row)] * 9]):
            yield zeros, "speculative decoding"
    yield [(-0.3, [-0.3]), *[(0.0, [])] * 7], "7 of 8 tokens"
    for zeros in (
        [*[(0.0, None)] * 10, (None, None)],
        [(0.0, [0.0, -math.inf])] * 10,  # after truncation to the likeliest token
        [(-4.4, None), *[(0.0, None)] * 3],
    ):
        yield zeros, "every token logprob"


@pytest.mark.parametrize(("tokens", "why"), list(refused()))
def test_what_cannot_be_believed_is_refused(tokens: Tokens, why: str) -> None:
    with pytest.raises(LogprobsUnavailable, match=why):
        read(*tokens)


THIRD = round(math.log(1 / 3), 2)


@pytest.mark.parametrize(
    ("tokens", "chosen", "alternatives"),
    [
        pytest.param([(1e-6, [1e-6, -15.0]), *sound(1)], [0.0, -0.5], [[0.0, -15.0], [-0.5, -1.5]], id="rounding"),
        pytest.param([(THIRD, [THIRD] * 3)], [THIRD], [[THIRD] * 3], id="a sum above 1 by rounding"),
        pytest.param([(-0.01, [-0.01, -99.0])], [-0.01], [[-0.01, -99.0]], id="down to the floor"),
        pytest.param([*sound(1), (0.0, [0.0, -17.0])], [-0.5, 0.0], [[-0.5, -1.5], [0.0, -17.0]], id="certain"),
        pytest.param([(-0.5, None), *[(0.0, None)] * 2], [-0.5, 0.0, 0.0], [[]] * 3, id="certain, without any"),
        pytest.param([(-1, [-1, -2]), (-9, [-1, -2, -9])], [-1, -9], [[-1, -2]] * 2, id="k + 1, the chosen one last"),
        pytest.param([(-2, [-2, -1])], [-2], [[-1, -2]], id="unsorted"),
    ],
)
def test_these_are_no_oddities(tokens: Tokens, chosen: list[float], alternatives: list[list[float]]) -> None:
    found = read(*tokens)
    assert (found.chosen.tolist(), found.alternatives.tolist(), found.notices) == (chosen, alternatives, ())


@pytest.mark.parametrize("odd", SENTINELS)
def test_alternatives_too_unlikely_to_report(odd: Any) -> None:
    found = read(*sound(9), (-0.5, [-0.5, odd]))
    assert (found.alternatives[-1].tolist(), found.withheld) == ([-0.5, -100.0], {})
    assert "taken as -100" in "".join(found.notices)
    # Many of them are what a truncated distribution leaves; an alternative of probability 0 adds nothing to entropy.
    found = read(*sound(5), *[(-0.5, [-0.5, odd]) for _ in range(3)])
    assert "raw_logprobs" in found.withheld["top_k"] and "neg_entropy" not in found.withheld
    assert "".join(found.notices).startswith("no 'top_k' signal")


@pytest.mark.parametrize(
    ("rows", "k", "says"),
    [
        ([[-1, -2, -3], [-1]], 1, "different numbers"),
        ([[-1, -2], None], 0, "with some tokens only"),
        ([None, None], 0, ""),
    ],
)
def test_k_is_what_nine_tokens_in_ten_have(rows: list[Row], k: int, says: str) -> None:
    found = read(*[(min(row) if row else -1.0, row) for row in rows])
    assert (found.k, found.chosen.size) == (k, len(rows))
    assert [says in notice for notice in found.notices] == ([True] if says else [])
    assert ("top_k" in found.withheld) == (k == 0) and "neg_entropy" in found.withheld


@pytest.mark.parametrize("odd", [None, -9999.0])
def test_an_end_token_without_a_logprob_is_left_out_however_short_the_response(odd: Any) -> None:
    content = [{"token": "7", "logprob": -0.5}, {"token": "", "logprob": odd, "bytes": [], "top_logprobs": []}]
    answer = AIMessage("7", response_metadata={"logprobs": {"content": content}})
    found = token_logprobs_of(answer)
    assert found.chosen.tolist() == [-0.5]
    assert "end token" in "".join(found.notices)
    content[-1]["logprob"] = -0.1
    assert token_logprobs_of(answer).chosen.tolist() == [-0.5, -0.1]
    with pytest.raises(LogprobsUnavailable, match="1 of 1 tokens"):
        read((odd, []), text="")


def test_tokens_that_spell_a_part_of_the_response_are_refused() -> None:
    with pytest.raises(LogprobsUnavailable, match=r"5 tokens, .*20 bytes"):
        read(*sound(5), text="x" * 20)
    assert len(read(*sound(18), text="x" * 20).chosen) == 18


def saying(text: str, *pieces: str) -> AIMessage:
    """A response with tokens of which each says what it spells."""
    listed = [{"token": piece, "logprob": -0.5, "top_logprobs": []} for piece in pieces]
    return AIMessage(text, response_metadata={"logprobs": {"content": listed}})


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("The answer is 42.", ["An entirely", " different", " sentence", " of words."]),
        ("7", ["yes"]),
    ],
)
def test_tokens_of_another_text_are_refused(text: str, pieces: list[str]) -> None:
    with pytest.raises(LogprobsUnavailable, match="another text"):
        token_logprobs_of(saying(text, *pieces))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("It is 42.", ["<think>", "Is it 41?", "</think>", "It", " is", " 42", ".", "<|im_end|>"]),
        ("It is 42.", ["It", "\u0120is", "\u012042", ".", "\u010a"]),  # as byte-level vocabularies write blanks
        ("It is 42.", ["token_id:1204", "token_id:374", "token_id:220", "token_id:2983"]),
        ("It is 北京.", ["It", " is", " \ufffd", "\ufffd", "\ufffd", "\ufffd", "\ufffd", "\ufffd", "."]),
        ("北京是中国的首都", ["åĮĹ", "äº¬", "æĺ¯", "ä¸Ńå", "Ľ½", "çļĦ", "é¦ĸ", "éĥ½"]),
        ("Ünïcode ½ ok", ["Ü", "n", "ï", "code", " ", "½", " ok"]),
        ("**", ["**"]),
        ("", ["call"]),
    ],
)
def test_tokens_that_may_spell_the_text_are_believed(text: str, pieces: list[str]) -> None:
    assert len(token_logprobs_of(saying(text, *pieces)).chosen) == len(pieces)
