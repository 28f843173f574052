"""One budget on recorded responses: as the live batch spends it, and worth more than the same for each question."""

from pathlib import Path

import pytest
from lab.pools.synthetic import write_pool
from langchain_reasc_lab.pools import PoolScores, read_pool
from runnable.fakes import Reply, Scripted

from benchmarks.total_budget import CAPPED, NARROW, ROUNDS, UNIFORM, at_equal_cost, main, shared
from langchain_reasc import ReASCRunnable, Response


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pool(tmp_path_factory.mktemp("pool") / "p.sqlite", questions=60, signals=False)


@pytest.mark.parametrize("together", [None, 3])
def test_recorded_responses_are_spent_on_as_a_live_batch_spends(path: Path, together: int | None) -> None:
    recorded = PoolScores(read_pool(path)).responses(None)[:24]

    def script(question: str, index: int) -> Reply:
        return Reply(f"the answer is {recorded[int(question)][index].answer}")

    live = ReASCRunnable(model=Scripted(script=script)).batch(
        [str(at) for at in range(24)], {"max_concurrency": together} if together else None, total_samples=100
    )
    replayed = shared(recorded, 100, together=together)
    accounts = [message.response_metadata["reasc"] for message in live]
    assert [one["samples"] for one in accounts] == [one.samples for one in replayed]
    assert [one["answer"] for one in accounts] == [one.answer for one in replayed]
    assert len({one.samples for one in replayed}) > 3


def test_it_is_worth_more_than_the_same_for_each_question(path: Path) -> None:
    found = {name: right.mean(axis=1) for name, right in at_equal_cost(read_pool(path), 2).items()}
    for better in (ROUNDS, NARROW):
        assert found[better].mean() > found[CAPPED].mean() + 0.01
    assert found[CAPPED].mean() >= found[UNIFORM].mean() - 0.01


def test_no_more_is_spent_than_there_is() -> None:
    questions = [[Response(answer) for answer in answers] for answers in ("1111", "1212", "1234", "2222")]
    for total in range(4, 17):
        spent = [one.samples for one in shared(questions, total, together=1)]
        assert sum(spent) <= total and min(spent) >= 1
    assert shared([], 0) == []


def test_the_table_is_printed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(path), "--shuffles", "1"]) == 0
    told = capsys.readouterr().out
    assert "60 questions" in told and told.count("\n|") == 6
