"""Token signals from a message, or one clear error; never a zero made of missing data."""

import json
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.logprobs import token_signals_of

Row = list[float | None] | None


def message(*tokens: tuple[float | None, Row], **metadata: Any) -> AIMessage:
    content = [
        {
            "token": "x",
            "logprob": chosen,
            **({} if row is None else {"top_logprobs": [{"token": "y", "logprob": p} for p in row]}),
        }
        for chosen, row in tokens
    ]
    return AIMessage("x", response_metadata={"logprobs": {"content": content, "refusal": None}, **metadata})


def test_recorded_signals_are_taken_as_they_are_and_first() -> None:
    recorded = {"self_certainty": np.array([12.0, 13.5], dtype=np.float32), "top_k": [1, 2]}
    found = token_signals_of(message((-1.0, [-1.0]), token_signals=recorded))
    assert {name: values.tolist() for name, values in found.items()} == {
        "self_certainty": [12.0, 13.5],
        "top_k": [1.0, 2.0],
    }


def test_openai_tokens_give_the_three_signals_of_alternatives() -> None:
    found = token_signals_of(message((-0.5, [-0.5, -1.5]), (-2.0, [-1.0, -2.0])))
    assert found["token_logprob"].tolist() == [-0.5, -2.0]
    assert found["top_k"].tolist() == [1.0, 1.5]
    p = 1 / (1 + np.exp(-1.0))  # both pairs differ by one nat, so they renormalize to the same distribution
    assert found["neg_entropy"] == pytest.approx([p * np.log(p) + (1 - p) * np.log(1 - p)] * 2)


@pytest.mark.parametrize(
    ("tokens", "top_k"),
    [
        pytest.param([(-1.0, [-1.0, -2.0]), (-9.0, [-1.0, -2.0, -9.0])], [1.5, 1.5], id="k+1, the chosen one last"),
        pytest.param([(-9.0, [-9.0, -1.0, -2.0]), (-1.0, [-1.0, -2.0])], [1.5, 1.5], id="k+1, the chosen one first"),
        pytest.param([(-1.0, [-2.0, -1.0])], [1.5], id="unsorted"),
        pytest.param([(-9.0, [-1.0, -2.0])], [1.5], id="chosen outside the k"),
        pytest.param([(-1.0, [-1.0, -9999.0])], [25.5], id="-9999 clipped at -50"),
        pytest.param([(-1.0, [-1.0, float("-inf")])], [25.5], id="-inf clipped at -50"),
        pytest.param([(0.0, [0.0, -4.0])], [2.0], id="a certain token"),
        pytest.param([(-1.0, [-1.0]), (0.0, [0.0])], [1.0, -0.0], id="one certain token among others"),
        pytest.param([(1e-6, [1e-6, -4.0])], [2.0], id="above zero by rounding"),
    ],
)
def test_what_servers_do_to_alternatives(tokens: list[tuple[float, Row]], top_k: list[float]) -> None:
    assert token_signals_of(message(*tokens))["top_k"] == pytest.approx(top_k, abs=1e-5)


def test_an_unlikely_chosen_token_is_clipped_too() -> None:
    assert token_signals_of(message((-9999.0, [-1.0]), (-1.0, [-1.0])))["token_logprob"].tolist() == [-50.0, -1.0]


@pytest.mark.parametrize("second", [(-2.0, None), (-2.0, [])], ids=["no alternatives", "an empty list of alternatives"])
def test_alternatives_missing_on_one_token_leave_only_the_chosen(second: tuple[float, Row]) -> None:
    found = token_signals_of(message((-1.0, [-1.0, -2.0]), second))
    assert {name: values.tolist() for name, values in found.items()} == {"token_logprob": [-1.0, -2.0]}


@pytest.mark.parametrize("bad", [None, float("nan"), 0.5, float("inf")])
@pytest.mark.parametrize("place", ["chosen", "alternative"])
def test_what_no_log_probability_can_be_is_refused(bad: float | None, place: str) -> None:
    token = (bad, [-1.0, -2.0]) if place == "chosen" else (-1.0, [-1.0, bad, -2.0])
    with pytest.raises(LogprobsUnavailable, match=f"{bad!r} as a log-probability"):
        token_signals_of(message((-1.0, [-1.0, -2.0, -3.0]), token))


@pytest.mark.parametrize("row", [[0.0, 0.0], None])
def test_all_zeros_are_refused_with_the_likely_cause(row: Row) -> None:
    with pytest.raises(LogprobsUnavailable, match="speculative decoding"):
        token_signals_of(message((0.0, row), (0.0, row)))


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"logprobs": None},
        {"logprobs": {}},
        {"logprobs": {"content": None}},
        {"logprobs": {"content": []}},
        {"logprobs": [{"token": "x", "logprob": -1.0}]},
        {"token_signals": {}},
        {"token_signals": None},
    ],
    ids=json.dumps,
)
def test_missing_logprobs_are_an_error_that_says_how_to_get_them(metadata: dict[str, Any]) -> None:
    with pytest.raises(LogprobsUnavailable, match="logprobs=True, top_logprobs=20"):
        token_signals_of(AIMessage("x", response_metadata=metadata))
