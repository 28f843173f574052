"""Recording: complete, reproducible, resumable after any kill, and never mixed."""

import os
import threading
import time
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_reasc_lab.pools import PoolScores, PoolStore, calibrate_mixture_on, read_pool, record_pool

from lab.pools.synthetic import Guesser, content, labelled
from langchain_reasc.data import LabelledQuestion, Template
from langchain_reasc.exceptions import PoolError, SamplingError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models import prepare_model
from langchain_reasc.runnable.voter import running_fingerprint

QUESTIONS = labelled(4)


def test_a_recorded_pool_holds_everything(tmp_path: Path) -> None:
    moves, seeds = list[tuple[int, int]](), list[int]()
    model = Guesser(seed=3, hears=lambda text, seed: seeds.append(seed))
    pool = record_pool(model, QUESTIONS, tmp_path / "p.sqlite", samples=5, on_question=lambda *at: moves.append(at))
    assert moves == [(done, 4) for done in range(5)]
    assert len(seeds) == len(set(seeds)) == 20, "questions do not share their random numbers"
    assert pool.notes == ()
    assert pool.metadata["fingerprint"]["model"] == "guesser"
    assert pool.metadata["signals_info"] == {"vocabulary_size": 100, "top_k": 20}
    assert len({len(question.responses) for question in pool.questions}) == 1
    for question in pool.questions:
        assert pool.signals is not None
        texts = pool.texts(question.id)
        for held, text, signals in zip(question.responses, texts, pool.signals.of_question(question.id), strict=True):
            assert text == f"It is \\boxed{{{held.answer}}}."
            assert held.correct is (held.answer == "6")
            assert held.completion_tokens == len(signals["self_certainty"])
            assert held.score == pytest.approx(float(signals["self_certainty"].mean()), abs=1e-6)
            assert held.prompt_tokens == 4
            assert held.seconds is not None and held.seconds >= 0


def test_a_calibration_on_it_holds_for_what_was_asked(tmp_path: Path) -> None:
    pool = record_pool(Guesser(), QUESTIONS, tmp_path / "p.sqlite", samples=2, answer="boxed", system="Be brief.")
    made = calibrate_mixture_on(pool, PoolScores(pool), [(0, 0), (1, 0), (2, 1), (3, 1)], Measure())
    prompt = [SystemMessage("Be brief."), HumanMessage("q")]
    assert made.fingerprint == running_fingerprint(prepare_model(Guesser()), prompt, prompt=1, answer="boxed")


def test_an_interrupted_recording_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = record_pool(Guesser(), QUESTIONS, tmp_path / "whole.sqlite", samples=2)
    path = tmp_path / "p.sqlite"

    def interrupt(done: int, questions: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record_pool(Guesser(), QUESTIONS, path, samples=2, on_question=interrupt)
    assert [question.id for question in read_pool(path).questions] == ["q0", "q1"]
    asked: list[tuple[int, int]] = []
    resumed = record_pool(Guesser(), QUESTIONS, path, samples=2, on_question=lambda *move: asked.append(move))
    assert asked == [(2, 4), (3, 4), (4, 4)]
    assert content(resumed) == content(whole)
    assert [question.id for question in resumed.questions] == [question.id for question in whole.questions]


@pytest.mark.full
@pytest.mark.parametrize("concurrency", [1, 3])
def test_more_responses_join_those_that_are_there(tmp_path: Path, concurrency: int) -> None:
    whole = record_pool(Guesser(), QUESTIONS, tmp_path / "whole.sqlite", samples=16)
    path = tmp_path / "p.sqlite"
    record_pool(Guesser(), QUESTIONS[:3], path, samples=4)
    asked = PoolStore.open(path).ids()
    assert asked == {"q0": 4, "q1": 4, "q2": 4}
    extended = record_pool(Guesser(), QUESTIONS, path, samples=16, concurrency=concurrency)
    assert content(extended) == content(whole)
    fewer = record_pool(Guesser(fails_on="question 0"), QUESTIONS, path, samples=2)
    assert fewer == extended, "who asks for fewer than there are gets what there is"


def test_what_is_no_pool_is_not_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sqlite")
    (tmp_path / "old.jsonl").write_text("{}")
    for name, says in {
        "pipe.sqlite": "is not a file",
        "old.jsonl": r"is not a pool, .*`reasc pool import .*old\.jsonl",
        "new.jsonl": r"name it \*\.sqlite",
    }.items():
        with pytest.raises(PoolError, match=says):
            record_pool(Guesser(), QUESTIONS, tmp_path / name, samples=2)
    assert {one.name for one in tmp_path.iterdir()} == {"pipe.sqlite", "old.jsonl"}
    assert (tmp_path / "old.jsonl").read_text() == "{}"


def test_a_failing_model_keeps_what_was_complete(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    with pytest.raises(SamplingError, match=r"2 of 2 samples of question 'q2'.*run the same command") as failed:
        record_pool(Guesser(fails_on="question 2"), QUESTIONS, path, samples=2)
    assert isinstance(failed.value.failures[0], ConnectionError)
    assert PoolStore.open(path).ids() == {"q0": 2, "q1": 2}
    with pytest.raises(SamplingError):
        record_pool(Guesser(fails_on="question 0"), QUESTIONS, path, samples=3)
    assert PoolStore.open(path).ids() == {"q0": 2, "q1": 2}
    assert [len(one.responses) for one in record_pool(Guesser(), QUESTIONS, path, samples=3).questions] == [3] * 4


def test_a_failing_question_costs_none_that_was_in_flight_beside_it(tmp_path: Path) -> None:
    path, asked, beside = tmp_path / "p.sqlite", [], threading.Event()

    def hears(text: str, seed: int) -> None:
        asked.append(text)
        if text == "question 0":
            assert beside.wait(30)
        else:
            beside.set()
            time.sleep(0.5)  # question 0 fails meanwhile

    with pytest.raises(SamplingError, match="question 'q0'"):
        record_pool(Guesser(fails_on="question 0", hears=hears), QUESTIONS, path, samples=1, concurrency=2)
    assert "q1" in {question.id for question in read_pool(path).questions}
    assert "question 3" not in asked, "nothing new is begun after a failure"
    again = record_pool(Guesser(), QUESTIONS, path, samples=1, concurrency=2)
    assert {question.id for question in again.questions} == {"q0", "q1", "q2", "q3"}


def test_a_sample_that_failed_is_drawn_once_more(tmp_path: Path) -> None:
    failed: list[int] = []

    def flaky(text: str, seed: int) -> None:
        if seed % 4 == 2 and seed not in failed:
            failed.append(seed)
            raise ConnectionError("cut off")

    pool = record_pool(Guesser(hears=flaky), QUESTIONS, tmp_path / "flaky.sqlite", samples=4)
    whole = record_pool(Guesser(), QUESTIONS, tmp_path / "whole.sqlite", samples=4)
    assert len(failed) == 4 and content(pool) == content(whole)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": Guesser(name_="other")}, "model 'guesser', now it is 'other'"),
        ({"model": Guesser(seed=1)}, "seed 0, now it is 1"),
        ({"template": Template([HumanMessage("Q: {question}")])}, "template None, now it is [['human', 'Q: {"),
        ({"questions": [LabelledQuestion("q0", "something else", "6")]}, "another question with id 'q0'"),
    ],
)
def test_another_recording_is_not_mixed_in(tmp_path: Path, change: dict[str, object], says: str) -> None:
    path = tmp_path / "p.sqlite"
    settings: dict[str, object] = {"model": Guesser(), "questions": QUESTIONS, "path": path, "samples": 2}
    record_pool(**settings)  # type: ignore[arg-type]
    before = path.read_bytes()
    with pytest.raises(PoolError) as refused:
        record_pool(**(settings | change))  # type: ignore[arg-type]
    assert says in str(refused.value)
    assert path.read_bytes() == before


def test_a_recording_asks_with_its_template_and_remembers_it(tmp_path: Path) -> None:
    asked: list[str] = []
    model = Guesser(hears=lambda text, seed: asked.append(text))
    template = Template([HumanMessage("1 + 1?"), AIMessage("2"), HumanMessage("Q: {question}")])
    path, questions = tmp_path / "p.sqlite", [LabelledQuestion("a", "3?", "3")]
    pool = record_pool(model, questions, path, samples=1, system="Add.", template=template)
    assert (asked, pool.questions[0].input) == (["Q: 3?"], "3?")
    assert pool.metadata["template"] == [["human", "1 + 1?"], ["ai", "2"], ["human", "Q: {question}"]]
