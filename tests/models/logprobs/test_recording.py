"""From a message to its signals, with what they are made of; in recorded pools the k that came is kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_reasc_lab.replay import Pool
from runnable.fakes import Reply, Scripted

from langchain_reasc.calibrating.from_pool import calibrate_mixture_on, calibrate_offline_on
from langchain_reasc.calibrating.pool_scores import PoolScores
from langchain_reasc.data import LabelledQuestion
from langchain_reasc.exceptions import LogprobsUnavailable, PoolError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.logprobs import read_signals
from langchain_reasc.pools import record_pool

from .payloads import message, sound

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
    assert pool.signals is None and not pool.has_scores


def test_a_pool_is_not_continued_at_another_k(tmp_path: Path) -> None:
    recorded(tmp_path, lambda at: 4, questions=3)
    with pytest.raises(PoolError, match="recorded with top_k 4 behind its signals, now it is 3"):
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
    assert read_signals(answer).signals.keys() == found.signals.keys()


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
