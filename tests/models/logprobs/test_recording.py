"""In recorded pools, and in calibrations made of them, the k that came with the signals is kept."""

from collections.abc import Callable
from pathlib import Path

import pytest
from langchain_reasc_lab.pools import Pool, PoolScores, calibrate_mixture_on, calibrate_offline_on, record_pool
from runnable.fakes import Reply, Scripted

from langchain_reasc.data import LabelledQuestion
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.confidence import Measure

QUESTIONS = [LabelledQuestion(f"q{at}", f"{at}", "6") for at in range(6)]
TOP_K, ENTROPY = Measure("top_k", "mean"), Measure("neg_entropy", "mean")


def recorded(tmp_path: Path, k: Callable[[int], int | None], *, questions: int = 6) -> Pool:
    """Question i is answered with one token that has k(i) alternatives (None: no logprobs at all)."""

    def answering(question: str, _: int) -> Reply:
        at = int(question)
        k_here, text = k(at), "6" if at % 2 else "5"
        logprobs = [-0.7 - index * (1 + at / 9) - at / 10 for index in range(k_here or 0)]
        ranked = [{"token": f"{text}{index}", "logprob": logprob} for index, logprob in enumerate(logprobs)]
        entry = {"token": text, "logprob": logprobs[0] if logprobs else -1.0, "top_logprobs": ranked}
        metadata = {} if k_here is None else {"logprobs": {"content": [entry]}}
        return Reply(text, logprob=None, metadata=metadata)

    model = Scripted(script=answering)
    return record_pool(model, QUESTIONS[:questions], tmp_path / "pool.sqlite", samples=1, measure=TOP_K)


def firsts(pool: Pool) -> list[tuple[int, int]]:
    return [(at, 0) for at in range(len(pool.questions))]


@pytest.mark.parametrize(("measure", "k"), [(ENTROPY, 4), (Measure("token_logprob", "mean"), None)])
def test_the_k_that_came_is_in_the_calibration(tmp_path: Path, measure: Measure, k: int | None) -> None:
    pool = recorded(tmp_path, lambda at: 4)
    assert pool.metadata["signals_info"] == {"top_k": 4, "neg_entropy": 4}
    for calibrate in (calibrate_offline_on, calibrate_mixture_on):
        made = calibrate(pool, PoolScores(pool), firsts(pool), measure)
        assert (made.top_k, made.n) == (k, 6)


@pytest.mark.parametrize(("which", "odd"), [(0, None), (5, 3)])
def test_a_response_with_other_signals_costs_only_itself(tmp_path: Path, which: int, odd: int | None) -> None:
    pool = recorded(tmp_path, lambda at: odd if at == which else 4)
    scores = PoolScores(pool)
    assert [at for at, [score] in enumerate(scores.scores(TOP_K)) if score is None] == [which]
    assert [question.responses[0].score is None for question in pool.questions].index(True) == which
    assert calibrate_offline_on(pool, scores, firsts(pool), TOP_K).n == 5


def test_a_model_without_logprobs_leaves_no_signals(tmp_path: Path) -> None:
    pool = recorded(tmp_path, lambda at: None)
    assert pool.signals is None and not pool.has_scores


def test_a_pool_is_not_continued_at_another_k(tmp_path: Path) -> None:
    recorded(tmp_path, lambda at: 4, questions=3)
    with pytest.raises(PoolError, match=r"top_k 4.* 3"):
        recorded(tmp_path, lambda at: 3)
    assert len(recorded(tmp_path, lambda at: 4).questions) == 6


def test_neg_entropy_over_the_whole_vocabulary_is_another_signal_than_over_k(tmp_path: Path) -> None:
    """A backend that sees all V says so; its calibrations are refused where only k alternatives come."""

    def exact(question: str, _: int) -> Reply:
        signals = {"top_k": [1.0], "neg_entropy": [-int(question) / 10]}
        info = {"vocabulary_size": 1500, "top_k": 20}
        return Reply("6", logprob=None, metadata={"token_signals": signals, "token_signals_info": info})

    pool = record_pool(Scripted(script=exact), QUESTIONS, tmp_path / "pool.sqlite", samples=1, measure=ENTROPY)
    made = calibrate_mixture_on(pool, PoolScores(pool), firsts(pool), ENTROPY)
    assert (made.top_k, made.vocabulary_size) == (1500, 1500)
