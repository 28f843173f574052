"""Recorded pools and what is calibrated on them: the k that came is kept, and nothing made of another k beside it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.evaluation import Pool
from langchain_reasc.evaluation.from_pool import calibrate_mixture_on, calibrate_offline_on
from langchain_reasc.evaluation.scoring import PoolScores
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.pools.record import record_pool

QUESTIONS = [LabelledQuestion(f"q{at}", f"{at}", "6") for at in range(6)]
TOP_K, ENTROPY = Measure("top_k", "mean"), Measure("neg_entropy", "mean")


class Answering(BaseChatModel):
    """Answers question i with one token that has as many alternatives as ``k`` says (None: no logprobs at all)."""

    k: Callable[[int], int | None]

    @property
    def _llm_type(self) -> str:
        return "answering"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        at = int(messages[-1].content)
        k, text = self.k(at), "6" if at % 2 else "5"
        ranked = [
            {"token": f"{text}{index}", "logprob": -0.7 - index * (1 + at / 9) - at / 10} for index in range(k or 0)
        ]
        entry = {"token": text, "logprob": ranked[0]["logprob"] if ranked else -1.0, "top_logprobs": ranked}
        metadata = {} if k is None else {"logprobs": {"content": [entry]}}
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text, response_metadata=metadata))])


def recorded(tmp_path: Path, k: Callable[[int], int | None], *, questions: int = 6) -> Pool:
    return record_pool(Answering(k=k), QUESTIONS[:questions], tmp_path / "pool.sqlite", samples=1, measure=TOP_K)


def firsts(pool: Pool) -> list[tuple[int, int]]:
    return [(at, 0) for at in range(len(pool.questions))]


@pytest.mark.parametrize(("measure", "k"), [(TOP_K, 4), (ENTROPY, 4), (Measure("token_logprob", "mean"), None)])
def test_the_k_that_came_is_in_the_calibration(tmp_path: Path, measure: Measure, k: int | None) -> None:
    pool = recorded(tmp_path, lambda at: 4)
    assert pool.metadata["signals_info"] == {"top_k": 4, "neg_entropy": 4}
    for calibrate in (calibrate_offline_on, calibrate_mixture_on):
        made = calibrate(pool, PoolScores(pool), firsts(pool), measure)
        assert (made.top_k, made.n) == (k, 6)


@pytest.mark.parametrize(("which", "odd"), [(0, None), (2, None), (2, 0), (2, 3), (5, None), (5, 3)])
def test_a_response_with_other_signals_costs_only_itself(tmp_path: Path, which: int, odd: int | None) -> None:
    pool = recorded(tmp_path, lambda at: odd if at == which else 4)
    scores = PoolScores(pool)
    assert [at for at, [score] in enumerate(scores.scores(TOP_K)) if score is None] == [which]
    assert [question.responses[0].score is None for question in pool.questions].index(True) == which
    assert calibrate_offline_on(pool, scores, firsts(pool), TOP_K).n == 5


def test_a_model_without_logprobs_leaves_no_signals(tmp_path: Path) -> None:
    pool = recorded(tmp_path, lambda at: None)
    assert pool.signals is None
    assert any("no scores or token signals" in note for note in pool.notes)


def test_a_pool_is_not_continued_at_another_k(tmp_path: Path) -> None:
    recorded(tmp_path, lambda at: 4, questions=3)
    with pytest.raises(PoolError, match="recorded with top_k 4 behind its signals, now it is 3"):
        recorded(tmp_path, lambda at: 3)
    assert len(recorded(tmp_path, lambda at: 4).questions) == 6


def test_neg_entropy_over_the_whole_vocabulary_is_another_signal_than_over_k(tmp_path: Path) -> None:
    """A backend that sees all V says so; its calibrations are refused where only k alternatives come."""

    class Exact(Answering):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            signals = {"top_k": [1.0], "neg_entropy": [-int(messages[-1].content) / 10]}
            info = {"vocabulary_size": 1500, "top_k": 20}
            metadata = {"token_signals": signals, "token_signals_info": info}
            return ChatResult(generations=[ChatGeneration(message=AIMessage("6", response_metadata=metadata))])

    pool = record_pool(Exact(k=lambda at: 4), QUESTIONS, tmp_path / "pool.sqlite", samples=1, measure=ENTROPY)
    made = calibrate_mixture_on(pool, PoolScores(pool), firsts(pool), ENTROPY)
    assert (made.top_k, made.vocabulary_size) == (1500, 1500)
