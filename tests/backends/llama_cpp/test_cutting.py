"""Weak samples end in the step in which their confidence falls; the others go on."""

from typing import Any

import numpy as np
import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.faces import Face, output_tokens
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import ConfidenceCut, running_minima

QUESTION = (
    "Sam has 27 marbles. Sam buys 4 bags with 8 marbles each and gives away 13. How many marbles does Sam have now?"
)


def signals(message: Any, name: str) -> list[float]:
    values: list[float] = message.response_metadata["token_signals"][name]
    return values


@pytest.mark.parametrize(
    ("signal", "window"), [("token_logprob", 8), ("token_logprob", 1), ("top_k", 8), ("self_certainty", 4)]
)
def test_a_sample_ends_with_the_token_that_lowers_it(
    shipped: ChatLlamaCpp, face: Face, signal: str, window: int
) -> None:
    whole = [signals(message, signal) for _, message in face.sample(shipped, QUESTION, n=16, seed=5)]
    cut = ConfidenceCut(signal, window, float(np.median([running_minima(values, window)[1][-1] for values in whole])))
    cuts = {index: cut for index in range(1, 16)}
    drawn = dict(face.sample(shipped, QUESTION, n=16, seed=5, cuts=cuts))
    assert sorted(drawn) == list(range(16))
    for index, message in drawn.items():
        values, reason = signals(message, signal), message.response_metadata["finish_reason"]
        assert len(values) == output_tokens(message)
        if reason == "cut":
            assert index > 0 and cut.tokens([*values, 0.0]) == len(values)
        else:
            assert reason == "stop" and (index == 0 or cut.tokens(values) is None)
    assert any(message.response_metadata["finish_reason"] == "cut" for message in drawn.values())
    again = face.sample(shipped, QUESTION, n=4, seed=5)  # all slots are free again
    assert len(again) == 4


def test_more_samples_than_slots_and_a_signal_that_is_not_recorded(face: Face) -> None:
    always = ConfidenceCut("token_logprob", 2, 1.0)
    with ChatLlamaCpp(seed=1, n_parallel=2) as model:
        drawn = dict(face.sample(model, QUESTION, n=6, cuts={1: always, 3: always, 5: always}))
        assert {index for index, one in drawn.items() if one.response_metadata["finish_reason"] == "cut"} == {1, 3, 5}
        assert {output_tokens(drawn[index]) for index in (1, 3, 5)} == {2}
        bare = face.sample(model, QUESTION, n=2, signals=["top_k"], cuts={1: always})
        assert {one.response_metadata["finish_reason"] for _, one in bare} == {"stop"}
        with pytest.raises(ConfigurationError):
            face.sample(model, QUESTION, n=2, cut={1: always})
