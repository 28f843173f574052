"""Scores over the answer's tokens, live: with the scripted model, and as replayed with the shipped one."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_reasc_lab.pools import PoolScores, record_pool

from langchain_reasc import Measure, ReASCRunnable
from langchain_reasc.answers import extractor, places_of, vote_of
from langchain_reasc.data import LabelledQuestion
from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.models import read_signals

from .fakes import Reply, Scripted, calibration, openai_token, saying

pytestmark = pytest.mark.sync_only

ANSWER, STEP = Measure("token_logprob", "answer_span"), Measure("token_logprob", "last_step")


def expected(message: AIMessage, measure: Measure, spec: str = "auto") -> float:
    extract = extractor(spec)
    return read_signals(message, places=places_of(message, extract, vote_of(message, extract))).score(measure)


def hesitating(text: str, logprob: float) -> Reply:
    """Is less sure of numbers than of words."""
    return Reply(text, told=lambda _, token: openai_token(token, logprob if re.search(r"\d", token) else -0.01))


def replies(*logprobs: float) -> Scripted:
    said = [f"3 + 4 is 7. The answer is {7 if at < 2 else 8}" for at in range(len(logprobs))]
    return saying(*map(hesitating, said, logprobs))


def test_what_cannot_be_told_is_missing(runner: Any) -> None:
    made = calibration(signal="token_logprob", score="answer_span", mean=-1.0, schema_version=3)
    counting = {"answer": lambda text: "about " + text.split()[-1], "max_samples": 3, "calibration": made}
    with pytest.raises(LogprobsUnavailable, match="'answer_span'"):
        runner.solve(ReASCRunnable(model=replies(-2.0, -3.0, -0.5), **counting), "q")
    lenient = ReASCRunnable(model=replies(-2.0, -3.0, -0.5), on_missing_confidence="count", **counting)
    result = runner.solve(lenient, "q")
    assert result.answer == "about 7"
    assert [response.score for response in result.responses] == [None] * 3
    assert any("3 of 3 responses" in notice for notice in result.notices)


def test_the_mixture_is_fitted_to_them(runner: Any) -> None:
    def script(question: str, index: int) -> Reply:
        number = int(question[1:])
        return hesitating(f"so it is {number % 2}", -0.2 - 0.01 * number if number % 2 else -2.0 - 0.01 * number)

    reasc = ReASCRunnable(model=Scripted(script=script), calibration="mixture", confidence=ANSWER, max_samples=3)
    accounts = runner.accounts(reasc, [f"q{number}" for number in range(24)])
    assert {account["reason"] for account in accounts[1::2]} >= {"gate"}, accounts
    assert not any("window" in str(account) for account in accounts), "it has none"


@pytest.mark.full
def test_a_calibration_is_made_of_them(runner: Any) -> None:
    """Only the number tells right from wrong, and it stands among many words that say nothing."""

    def script(question: str, index: int) -> Reply:
        number = int(question[1:])
        talk = "well hm " * (number * 7 % 11)
        told = {"7": -0.2, "8": -0.6, "hm": -3.0}
        text = f"{talk}so it is <answer> {7 if number % 3 else 8} </answer> {talk}"
        text = "I cannot tell." if number == 6 else text
        return Reply(text, told=lambda _, token: openai_token(token, told.get(token.strip(), -0.01)))

    pairs = [(f"q{number}", "7") for number in range(45)]
    model = Scripted(script=script)
    named = runner.calibrate(model, pairs, measure=ANSWER, method="paper")
    assert named.measure == ANSWER and named.n == 44, "the response without an answer has none to score"
    assert named.auroc is not None and named.auroc.value == 1.0
    chosen = runner.calibrate(model, pairs, method="paper")
    assert chosen.score == "answer_span" and chosen.auroc is not None and chosen.auroc.value == 1.0


backend = pytest.importorskip("langchain_reasc_llama_cpp")
pytest.importorskip("llama_cpp")


@pytest.mark.full
def test_the_shipped_models_recording_replays_what_a_live_run_scores(tmp_path: Path, runner: Any) -> None:
    embedded = backend.embedded_model_path()
    problems = [json.loads(line) for line in embedded.with_name("test.jsonl").read_text().splitlines()[:2]]
    questions = [LabelledQuestion(str(at), one["question"], str(one["answer"])) for at, one in enumerate(problems)]
    with backend.ChatLlamaCpp(seed=3) as model:
        pool = record_pool(model, questions, tmp_path / "pool.sqlite", samples=4)
        for measure in (ANSWER, STEP):
            recorded = PoolScores(pool).scores(measure)
            assert all(score is not None for row in recorded for score in row)
            for held, row in zip(pool.questions, recorded, strict=True):
                reasc = ReASCRunnable(model=model, calibration="mixture", confidence=measure, max_samples=4)
                by_text = dict(zip(pool.texts(held.id), row, strict=True))
                for response in runner.solve(reasc, str(held.input)).responses:
                    message = response.message
                    assert message is not None and response.score == expected(message, measure)
                    if str(message.text) in by_text:
                        assert response.score == pytest.approx(
                            by_text[str(message.text)], abs=1e-3
                        )  # decoded beside others
        for held in pool.questions:  # and the tokens are those of the answer
            for one in held.responses:
                assert one.answer_span is not None and one.last_step is not None
                assert one.last_step[1] <= one.answer_span[0] + 1 < one.answer_span[1] + 1 <= one.completion_tokens + 1
