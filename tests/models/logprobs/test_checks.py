"""What is done with odd log-probabilities, row by row of the table in ``backends/README.md``."""

import math
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.models.logprobs import TokenLogprobs, token_logprobs_of

from .payloads import Row, message, sound

NONE = (None, math.nan, "NaN", "none", True, [], 10**400)
SENTINELS = (-9999.0, -1000, -100.0, -3.4028234663852886e38, -math.inf, "-Infinity")


def read(*tokens: tuple[Any, Row], text: str = "") -> TokenLogprobs:
    return token_logprobs_of(message(*tokens, text=text))


def only_notice(found: TokenLogprobs) -> str:
    [notice] = found.notices
    return notice


@pytest.mark.parametrize("odd", [*NONE, *SENTINELS])
def test_a_token_without_a_logprob_is_left_out_with_a_notice(odd: Any) -> None:
    found = read(*sound(5), (odd, [-0.1, -3.0]), *sound(4))
    assert found.chosen.tolist() == [-0.5] * 9
    assert found.alternatives.shape == (9, 2)
    expected = "that no generated token can have" if odd in SENTINELS else "no log-probability (null or NaN)"
    assert expected in only_notice(found)


@pytest.mark.parametrize("odd", [*NONE, *SENTINELS])
def test_more_than_one_such_token_in_ten_is_refused(odd: Any) -> None:
    with pytest.raises(LogprobsUnavailable, match=r"2 of 19 tokens (carry no log-prob|have a log-probability that no)"):
        read(*sound(17), (odd, [-0.1, -3.0]), (odd, None))
    with pytest.raises(LogprobsUnavailable, match="1 of 1 tokens"):
        read((odd, [-0.1, -3.0]))


@pytest.mark.parametrize("odd", [None, -9999.0])
def test_an_end_token_without_a_logprob_is_left_out_however_short_the_response(odd: Any) -> None:
    content = [{"token": "7", "logprob": -0.5}, {"token": "", "logprob": odd, "bytes": [], "top_logprobs": []}]
    answer = AIMessage("7", response_metadata={"logprobs": {"content": content}})
    found = token_logprobs_of(answer)
    assert found.chosen.tolist() == [-0.5]
    assert only_notice(found).startswith("the end token carries no log-probability")
    content[-1]["logprob"] = -0.1
    assert token_logprobs_of(answer).chosen.tolist() == [-0.5, -0.1]
    del content[0]
    content[0]["logprob"] = odd
    with pytest.raises(LogprobsUnavailable, match="1 of 1 tokens"):
        token_logprobs_of(AIMessage("", response_metadata={"logprobs": {"content": content}}))


def test_the_shares_of_all_kinds_count_together() -> None:
    odd: list[tuple[Any, Row]] = [(None, [-0.5, -1.5]), (-0.1, [-0.1, -0.1])]
    assert len(read(*sound(18), *odd).chosen) == 18
    with pytest.raises(LogprobsUnavailable, match="1 of 12 tokens have alternatives"):
        read(*sound(10), *odd)


@pytest.mark.parametrize("bad", [0.5, 0.0011, math.inf, "7", np.float32(0.5)])
@pytest.mark.parametrize("place", ["chosen", "alternative"])
def test_positive_values_are_refused(bad: Any, place: str) -> None:
    token: tuple[Any, Row] = (bad, [-1.0, -2.0]) if place == "chosen" else (-1.0, [-1.0, bad])
    with pytest.raises(LogprobsUnavailable, match=f"{float(bad):g} as a log-probability, which is none"):
        read(*sound(30), token)


def test_probabilities_in_place_of_logprobs_are_recognized() -> None:
    with pytest.raises(LogprobsUnavailable, match="these look like probabilities"):
        read((0.9, [0.9, 0.05]), (0.4, [0.6, 0.4]))


def test_rounding_above_zero_is_zero() -> None:
    found = read((1e-6, [1e-6, -15.0]), *sound(1))
    assert (found.chosen.tolist(), found.alternatives[0].tolist(), found.notices) == ([0.0, -0.5], [0.0, -15.0], ())


@pytest.mark.parametrize("odd", SENTINELS)
def test_an_alternative_too_unlikely_to_report_is_clipped_with_a_notice(odd: Any) -> None:
    found = read(*sound(9), (-0.5, [-0.5, odd]))
    assert found.alternatives[-1].tolist() == [-0.5, -100.0]
    assert "taken as -100" in only_notice(found)
    assert not found.withheld


@pytest.mark.parametrize("odd", SENTINELS)
def test_many_of_them_are_what_a_truncated_distribution_leaves(odd: Any) -> None:
    found = read(*sound(5), *[(-0.5, [-0.5, odd]) for _ in range(3)])
    assert "raw_logprobs" in found.withheld["top_k"]
    assert "neg_entropy" not in found.withheld  # to which an alternative of probability 0 adds nothing
    assert only_notice(found).startswith("no 'top_k' signal: more than one alternative in ten")


def test_a_true_value_down_to_the_floor_is_kept() -> None:
    assert read((-0.01, [-0.01, -99.0])).alternatives.tolist() == [[-0.01, -99.0]]


@pytest.mark.parametrize("none", [None, math.nan, "null"])
def test_an_alternative_of_which_nothing_is_said_is_none(none: Any) -> None:
    found = read(*sound(9), (-0.5, [-0.5, none]))
    assert found.alternatives.shape == (9, 2)
    assert "fewer alternatives than the others, and are left out" in only_notice(found)


@pytest.mark.parametrize(
    ("rows", "k", "said"),
    [
        pytest.param([[-1, -2], [-1, -2, -9]], 2, "", id="k+1, the chosen one last"),
        pytest.param([[-9, -1, -2], [-1, -2]], 2, "", id="k+1, the chosen one first"),
        pytest.param([[-2, -1]], 2, "", id="unsorted"),
        pytest.param([[-1, -2, -3], [-1]], 1, "different numbers", id="fewer on one token"),
        pytest.param([[-1, -2], None], 0, "with some tokens only", id="none on one token"),
        pytest.param([[-1, -2], []], 0, "with some tokens only", id="an empty list on one token"),
        pytest.param([None, None], 0, "", id="none at all"),
    ],
)
def test_k_is_what_nine_tokens_in_ten_have(rows: list[Row], k: int, said: str) -> None:
    found = read(*[(min(row) if row else -1.0, row) for row in rows])
    assert found.k == k
    assert found.chosen.size == len(rows)
    assert (found.alternatives == np.sort(found.alternatives, axis=1)[:, ::-1]).all()
    assert [said in notice for notice in found.notices] == ([True] if said else [])
    assert ("top_k" in found.withheld) == (k == 0)
    assert ("neg_entropy" in found.withheld) == (k < 2)


@pytest.mark.parametrize("row", [[0.0], [0.0, 0.0], [], None])
def test_zeros_for_everything_are_refused_with_the_likely_cause(row: Row) -> None:
    for tokens in ([(0.0, row)] * 2, [(0, row)] * 9, [(-0.3, row and [-0.3, -1.5]), *[(0.0, row)] * 9]):
        with pytest.raises(LogprobsUnavailable, match="speculative decoding"):
            read(*tokens)


def test_zeros_after_the_first_token_alone_are_refused_too() -> None:
    with pytest.raises(LogprobsUnavailable, match="7 of 8 tokens are certain"):
        read((-0.3, [-0.3]), *[(0.0, [])] * 7)
    with pytest.raises(LogprobsUnavailable, match="every token logprob is exactly"):
        read(*[(0.0, None)] * 10, (None, None))
    with pytest.raises(LogprobsUnavailable, match="every token logprob is exactly"):
        read(*[(1e-6, [1e-6])] * 10)
    with pytest.raises(LogprobsUnavailable, match="every token logprob is exactly"):
        read(*[(0.0, [0.0, -math.inf])] * 10)  # after truncation to the likeliest token
    with pytest.raises(LogprobsUnavailable, match="every token logprob is exactly"):
        read((-4.4, None), *[(0.0, None)] * 3)


def test_a_certain_token_is_no_oddity() -> None:
    for token in ((0.0, [0.0, -17.0]), (-0.0, [0.0, -0.5 - 100.5])):
        assert read(*sound(20), token).chosen[-1] == 0
    assert read((-1.0, [-1.0]), (0.0, [0.0])).alternatives.tolist() == [[-1.0], [0.0]]
    assert read((0.0, None)).chosen.tolist() == [0.0]
    assert read((-0.5, None), (0.0, None), (0.0, None)).chosen.tolist() == [-0.5, 0.0, 0.0]


def test_a_zero_that_stands_for_nothing_is_left_out_with_a_notice() -> None:
    found = read(*sound(10), (0.0, [0.0, 0.0]))
    assert found.chosen.tolist() == [-0.5] * 10
    assert "certain (0.0) without an alternative that is not" in only_notice(found)


@pytest.mark.parametrize("token", [(-0.2, [-0.2, -0.2]), (-0.1, [-0.4, -1.5]), (-0.3, [-0.5, -1.2])])
def test_probabilities_above_one_are_left_out_or_refused(token: tuple[Any, Row]) -> None:
    found = read(*sound(10), token)
    assert found.chosen.tolist() == [-0.5] * 10
    assert "sum to more than 1" in only_notice(found)
    with pytest.raises(LogprobsUnavailable, match="2 of 12 tokens have alternatives whose probabilities sum to more"):
        read(*sound(10), token, token)


def test_what_rounding_adds_to_a_sum_is_allowed() -> None:
    third = round(math.log(1 / 3), 2)
    assert read((third, [third] * 3)).k == 3


def test_tokens_that_spell_a_part_of_the_response_are_refused() -> None:
    with pytest.raises(LogprobsUnavailable, match="5 tokens, which spell 5 of the response's 20 bytes"):
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
        ("It is 42.", ["It", " was", " Paris", "!!!"]),
        ("42", ["4", "1"]),
        ("7", ["yes"]),
    ],
)
def test_tokens_of_another_text_are_refused(text: str, pieces: list[str]) -> None:
    with pytest.raises(LogprobsUnavailable, match="are of another text than the response: their tokens spell"):
        token_logprobs_of(saying(text, *pieces))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("It is 42.", ["It", " is", " 42", "."]),
        ("It is 42.", ["<think>", "Is it 41?", "</think>", "It", " is", " 42", ".", "<|im_end|>"]),
        ("It is 42.", ["\n", "It", " is ", "42", ".\n", "Confidence: 85%"]),
        ("It is 42.", ["It", "\u0120is", "\u012042", ".", "\u010a"]),  # as byte-level vocabularies write blanks
        ("It is 42.", ["\u2581It", "\u2581is", "\u258142", "."]),
        ("It is 42.", ["token_id:1204", "token_id:374", "token_id:220", "token_id:2983"]),
        ("It is 北京.", ["It", " is", " \ufffd", "\ufffd", "\ufffd", "\ufffd", "\ufffd", "\ufffd", "."]),
        ("北京是中国的首都", ["åĮĹ", "äº¬", "æĺ¯", "ä¸Ńå", "Ľ½", "çļĦ", "é¦ĸ", "éĥ½"]),
        ('{"answer": 42}', ["{", '"', "answer", '"', ":", " ", "42", "}"]),
        ("Ünïcode ½ ok", ["Ü", "n", "ï", "code", " ", "½", " ok"]),
        ("**", ["**"]),
        ("", ["call"]),
    ],
)
def test_tokens_that_may_spell_the_text_are_believed(text: str, pieces: list[str]) -> None:
    assert len(token_logprobs_of(saying(text, *pieces)).chosen) == len(pieces)
