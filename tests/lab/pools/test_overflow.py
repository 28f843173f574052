"""Questions that do not fit the context: left out with a message, and the others recorded."""

from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from langchain_core.exceptions import ContextOverflowError as CoreContextOverflowError
from langchain_reasc_lab.pools import is_overflow, read_pool, record_pool
from langchain_reasc_llama_cpp import ChatLlamaCpp

from lab.pools.synthetic import Guesser
from langchain_reasc.data import LabelledQuestion
from langchain_reasc.exceptions import ContextOverflowError, SamplingError

SHORT = [LabelledQuestion(f"q{number}", f"Kira has {number} roses. How many?", "6") for number in range(3)]
LONG = LabelledQuestion("long", "and one more rose " * 2000, "6")


def refused(said: str, status: int = 400) -> openai.APIStatusError:
    reply = httpx.Response(status, request=httpx.Request("POST", "http://server/v1/chat/completions"))
    return openai.APIStatusError(said, response=reply, body=None)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_question_that_is_too_long_costs_only_itself(tmp_path: Path, concurrency: int) -> None:
    said: list[str] = []
    moves: list[tuple[int, int]] = []
    told: Any = {"on_notice": said.append, "on_question": lambda *move: moves.append(move)}
    asked = [SHORT[0], LONG, *SHORT[1:]]
    with ChatLlamaCpp(seed=1) as model:
        pool = record_pool(model, asked, tmp_path / "p.sqlite", samples=2, concurrency=concurrency, **told)
    assert {held.id for held in pool.questions} == {"q0", "q1", "q2"}
    assert moves[-1] == (4, 4)
    assert said[0].startswith("question 'long' ('and one more rose")
    assert any("1 of 4 questions" in notice for notice in said)


def test_where_no_question_fits_it_is_an_error(tmp_path: Path) -> None:
    with (
        ChatLlamaCpp(seed=1) as model,
        pytest.raises(ContextOverflowError, match="1 questions"),
    ):
        record_pool(model, [LONG], tmp_path / "p.sqlite", samples=2)


def test_a_server_that_refuses_the_length_leaves_the_question_out(tmp_path: Path) -> None:
    def serves(text: str, seed: int) -> None:
        if len(text) > 1000:
            raise refused("This model's maximum context length is 512 tokens.")

    record_pool(Guesser(hears=serves), [LONG, *SHORT], tmp_path / "p.sqlite", samples=2)
    assert [held.id for held in read_pool(tmp_path / "p.sqlite").questions] == ["q0", "q1", "q2"]


@pytest.mark.parametrize(
    "error",
    [
        ContextOverflowError("the prompt has 900 tokens"),
        CoreContextOverflowError("too long"),
        refused("Error code: 400 - {'error': {'code': 'context_length_exceeded'}}"),
        refused("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."),
        refused("The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
        refused("The input (5000 tokens) is longer than the model's context length (4096 tokens)."),
        refused("the request exceeds the available context size. try increasing the context size"),
        refused("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096", 422),
        refused("prompt is too long: 215000 tokens > 200000 maximum"),
        refused("The input token count (40000) exceeds the maximum number of tokens allowed (32768)."),
        refused("Request Entity Too Large", 413),
    ],
)
def test_every_server_says_it_in_words_of_its_own(error: Exception) -> None:
    assert is_overflow(error)
    wrapped = SamplingError("a sample failed")
    wrapped.__cause__ = error
    assert is_overflow(wrapped)


@pytest.mark.parametrize(
    "error",
    [
        refused("temperature must be at most 2"),
        refused("max_tokens is too large: 99999"),
        refused("the context length of this server is being changed; try again", 503),
        ConnectionError("the server is gone"),
    ],
)
def test_other_failures_end_a_recording(error: Exception) -> None:
    assert not is_overflow(error)
