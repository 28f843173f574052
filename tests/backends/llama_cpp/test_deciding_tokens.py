"""What is recorded of a tool call's tokens by llama.cpp, and which of them decide."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_reasc_lab.pools import record_pool
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.conftest import REAL_BY_GRAMMAR, real_options
from backends.llama_cpp.faces import Face, merged
from backends.llama_cpp.tool_models import HERMES, LLAMA, Weather
from langchain_reasc import Measure, ReASCRunnable, calibrate
from langchain_reasc.data import LabelledQuestion
from langchain_reasc.models import read_signals
from langchain_reasc.models.token_text import recorded_pieces, tokens_of_calls

MEAN = Measure("token_logprob", "mean")


@pytest.fixture(scope="module", params=["hermes", "llama", *REAL_BY_GRAMMAR])
def model(request: pytest.FixtureRequest, tools_path: Path) -> Iterator[Any]:
    """Random models, whose tokens are bytes, and real ones, each held to calls by a grammar."""
    template = {"hermes": HERMES, "llama": LLAMA}.get(request.param)
    random = {"model_path": tools_path, "chat_template": template}
    options = random if template else real_options(request)
    with ChatLlamaCpp(seed=1, **options) as made:
        yield made.bind_tools([Weather], tool_choice="Weather", max_tokens=200)


def deciding(message: AIMessage) -> tuple[np.ndarray, str]:
    """Which tokens decide, and what they spell."""
    spelled = recorded_pieces(message.response_metadata)
    assert spelled is not None
    mask = tokens_of_calls(spelled, message.tool_calls)
    assert b"".join(spelled).decode() == message.response_metadata["generated_text"]["text"]
    assert mask is not None
    return mask, b"".join(piece for piece, keep in zip(spelled, mask, strict=True) if keep).decode()


def check(message: AIMessage) -> None:
    """The tokens that decide are those in which the name or the arguments are, and their signals are what is read."""
    [call] = message.tool_calls
    (mask, _), text = deciding(message), message.response_metadata["generated_text"]["text"]
    begin = next(re.finditer(r'"(?:arguments|parameters)"\s*:\s*', text)).end()
    arguments, end = json.JSONDecoder(strict=False).raw_decode(text, begin)
    assert arguments == call["args"]
    name = text.index("Weather")
    spans = [tuple(len(text[:at].encode()) for at in span) for span in ((name, name + len("Weather")), (begin, end))]
    ends = np.cumsum([0, *map(len, recorded_pieces(message.response_metadata) or ())]).tolist()
    assert mask.tolist() == [any(a < last and first < b for first, last in spans) for a, b in pairwise(ends)]
    signals = np.array(message.response_metadata["token_signals"]["token_logprob"])
    reading = read_signals(message, of_calls=True)
    np.testing.assert_allclose(reading.signals["token_logprob"], signals[mask], rtol=1e-5)
    assert 0 < mask.sum() < len(signals) - 10


def test_the_tokens_of_a_call_are_told_from_the_others(model: Any, face: Face) -> None:
    check(face.invoke(model, "Will it rain?", seed=3))
    check(merged(face.stream(model, "Will it rain?")))


def test_several_calls(hermes: ChatLlamaCpp) -> None:
    message = hermes.bind_tools([Weather], tool_choice="any").invoke("Will it rain?", seed=2)
    _, kept = deciding(message)
    assert len(message.tool_calls) > 1
    assert kept.count("Weather") == kept.count('"city"') == len(message.tool_calls)
    assert "<tool_call>" not in kept


def test_what_the_tokens_spell_is_recorded_of_any_response_with_signals(hermes: ChatLlamaCpp) -> None:
    for bound in (hermes, hermes.bind_tools([Weather]), hermes.bind_tools([Weather], tool_choice="any")):
        metadata = bound.invoke("hi", max_tokens=20).response_metadata
        assert len(metadata["generated_text"]["sizes"]) == len(metadata["token_signals"]["token_logprob"]) == 20
    assert "generated_text" not in hermes.invoke("hi", max_tokens=20, signals=()).response_metadata


def test_votes_calibrations_and_recordings_weigh_calls_by_their_own_tokens(
    hermes: ChatLlamaCpp, tmp_path: Path
) -> None:
    model: Any = hermes.bind_tools([Weather], tool_choice="Weather", max_tokens=200)
    result = ReASCRunnable(model=model, calibration="mixture", confidence=MEAN, max_samples=3).solve("Will it rain?")
    assert "generated_text" not in result.message.response_metadata
    for response in result.responses:
        message = response.message
        assert message is not None and response.answer is not None
        assert response.score == read_signals(message, of_calls=True).score(MEAN) != read_signals(message).score(MEAN)
    questions = [LabelledQuestion(f"q{at}", f"Will it rain on day {at}?", "no") for at in range(2)]
    pool = record_pool(model, questions, tmp_path / "pool.sqlite", samples=2, measure=MEAN)
    assert pool.signals is not None
    for question in pool.questions:
        for response, signals in zip(question.responses, pool.signals.of_question(question.id), strict=True):
            assert 0 < np.size(signals["token_logprob"]) < response.completion_tokens - 10
            assert response.score == pytest.approx(MEAN(signals), rel=1e-4)

    class Listener(BaseCallbackHandler):
        scores: list[float] = []  # noqa: RUF012

        def on_llm_end(self, response: Any, **kwargs: Any) -> None:
            self.scores.append(read_signals(response.generations[0][0].message, of_calls=True).score(MEAN))

    asked = [(question.input, "no") for question in questions]
    config: Any = {"callbacks": [Listener()]}
    calibration = calibrate(model, asked, max_samples=1, measure=MEAN, concurrency=1, config=config)
    assert len(Listener.scores) == 2 and calibration.mean == pytest.approx(np.mean(Listener.scores))
