"""From a message to its signals, with what they are made of."""

from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.models.logprobs import read_signals, token_signals_of

from .payloads import SHAPES, TEXT, message, sound


def test_recorded_signals_are_taken_as_they_are_and_first() -> None:
    recorded = {"self_certainty": np.array([12.0, 13.5], dtype=np.float32), "top_k": [1, 2], "neg_entropy": [-1, -2]}
    info = {"vocabulary_size": 1500, "top_k": 20}
    found = read_signals(message(*sound(2), token_signals=recorded, token_signals_info=info))
    assert {name: values.tolist() for name, values in found.signals.items()} == {
        "self_certainty": [12.0, 13.5],
        "top_k": [1.0, 2.0],
        "neg_entropy": [-1.0, -2.0],
    }
    assert found.provenance("self_certainty") == {"top_k": None, "vocabulary_size": 1500}
    assert found.provenance("top_k") == {"top_k": 20, "vocabulary_size": 1500}
    assert found.provenance("neg_entropy") == {"top_k": 1500, "vocabulary_size": 1500}


@pytest.mark.parametrize("info", [None, {}, {"top_k": None}, {"top_k": True, "vocabulary_size": "large"}, "20"])
def test_what_a_backend_does_not_say_is_unknown(info: Any) -> None:
    found = read_signals(message(token_signals={"top_k": [1.0]}, token_signals_info=info))
    assert (found.k, found.vocabulary_size) == ({}, None)


@pytest.mark.parametrize("recorded", [[1.0], 7, {"top_k": ["high"]}, {"top_k": [[1.0], [1.0, 2.0]]}])
def test_recorded_nonsense_is_refused(recorded: Any) -> None:
    with pytest.raises(LogprobsUnavailable, match="token_signals are no lists of numbers"):
        read_signals(message(*sound(2), token_signals=recorded))


def test_openai_tokens_give_the_three_signals_of_alternatives() -> None:
    answer = message((-0.5, [-0.5, -1.5]), (-2.0, [-1.0, -2.0]))
    found = read_signals(answer)
    assert found.signals["token_logprob"].tolist() == [-0.5, -2.0]
    assert found.signals["top_k"].tolist() == [1.0, 1.5]
    p = 1 / (1 + np.exp(-1.0))  # both pairs differ by one nat, so they renormalize to the same distribution
    assert found.signals["neg_entropy"] == pytest.approx([p * np.log(p) + (1 - p) * np.log(1 - p)] * 2)
    assert found.k == {"top_k": 2, "neg_entropy": 2}
    assert token_signals_of(answer).keys() == found.signals.keys()


def test_without_alternatives_there_is_the_chosen_tokens_logprob_and_the_reason() -> None:
    found = read_signals(message((-1.0, None), (-2.0, None)))
    assert {name: values.tolist() for name, values in found.signals.items()} == {"token_logprob": [-1.0, -2.0]}
    assert found.withheld["top_k"] == found.withheld["neg_entropy"]
    assert "top_logprobs=20" in found.withheld["top_k"]
    assert found.k == {}


def test_one_alternative_has_no_entropy() -> None:
    found = read_signals(message((-1.0, [-1.0]), (-2.0, [-2.0])))
    assert found.signals.keys() == {"top_k", "token_logprob"}
    assert "has no entropy" in found.withheld["neg_entropy"]


def test_k_is_not_known_where_k_plus_one_may_have_come() -> None:
    """A one-token answer that is not among the k most likely."""
    assert read_signals(message((-9.0, [-0.5, -1.5, -9.0]))).k == {}
    assert read_signals(message((-9.0, [-0.5, -1.5, -9.0]), *sound(1))).k == {"top_k": 2, "neg_entropy": 2}
    assert read_signals(message((-1.0, [-1.0]))).k == {"top_k": 1}


def test_every_signal_of_a_shape_has_one_value_per_token() -> None:
    found = read_signals(AIMessage(TEXT, response_metadata=SHAPES["ChatOllama"]))
    assert {name: values.shape for name, values in found.signals.items()} == dict.fromkeys(found.signals, (3,))
    assert len(found.signals) == 3
