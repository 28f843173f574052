"""What a recording keeps of where answers stand: replayed as live, lost where answers are found again."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_reasc_lab.pools import PoolScores, PoolStore, read_pool, record_pool
from pydantic import Field

from lab.pools.synthetic import Guesser, labelled, write_lines
from langchain_reasc.answers import extractor, places_of, vote_of
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method import Measure
from langchain_reasc.models import read_signals

QUESTIONS = labelled(12)
ANSWER, STEP = Measure("token_logprob", "answer_span"), Measure("token_logprob", "last_step")


class Spelling(Guesser):
    """Says what its tokens spell; what it said is kept."""

    said: list[AIMessage] = Field(default_factory=list)

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._generate(*args, **kwargs)
        message = result.generations[0].message
        text, tokens = message.text, len(message.response_metadata["token_signals"]["token_logprob"])
        sizes = [*[1] * (tokens - 3), len(text) - tokens, 1, 2]  # the number, and what stands behind it
        message.response_metadata["generated_text"] = {"text": text, "sizes": sizes}
        self.said.append(message)
        return result


def test_what_is_recorded_is_replayed_as_it_would_be_scored_live(tmp_path: Path) -> None:
    model = Spelling(said=[])
    pool = record_pool(model, QUESTIONS, tmp_path / "p.sqlite", samples=3, measure=ANSWER)
    scores, extract = PoolScores(pool), extractor("auto")
    live = [
        read_signals(message, places=places_of(message, extract, vote_of(message, extract))) for message in model.said
    ]
    for measure in (ANSWER, STEP):
        replayed = sorted(score for row in scores.scores(measure) for score in row if score is not None)
        assert replayed == sorted(reading.score(measure) for reading in live)
    assert all(reading.score(ANSWER) == reading.signals["token_logprob"][-2] for reading in live)
    assert scores.scores("recorded") == scores.scores(ANSWER), "the score in the pool is of this measure"
    assert scores.unscored(ANSWER) == 0


def test_answers_that_are_found_again_have_no_spans(tmp_path: Path) -> None:
    path, said = tmp_path / "p.sqlite", list[str]()
    before = record_pool(Spelling(), QUESTIONS[:2], path, samples=3)
    assert all(one.answer_span and one.last_step for question in before.questions for one in question.responses)
    after = record_pool(Spelling(), QUESTIONS[:2], path, samples=3, answer="number", on_notice=said.append)
    assert all(one.spans == (None, None) for question in after.questions for one in question.responses)
    assert "which tokens" in said[-1]
    record_pool(Spelling(), QUESTIONS[:2], path, samples=3, answer="boxed", on_notice=said.append)
    assert "which tokens" not in said[-1], "there were none to lose"


def test_spans_beyond_the_tokens_are_no_score(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    record_pool(Spelling(), QUESTIONS[:2], path, samples=3)
    changes = [{"answer_span": (90, 99)}, {"answer": None, "answer_span": None}]
    PoolStore.open(path).set_responses("q0", changes)
    scores = PoolScores(read_pool(path))
    assert scores.scores(ANSWER)[0][:2] == [None, None]
    assert scores.unscored(ANSWER) == 1, "the other casts no vote"
    line = {"id": "a", "reference": "7", "responses": [{"answer": "7", "completion_tokens": 3, "answer_span": [3]}]}
    with pytest.raises(PoolError, match="answer_span"):
        read_pool(write_lines(tmp_path / "p.sqlite", line))
