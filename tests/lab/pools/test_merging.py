"""Two recordings as one: nothing twice, nothing mixed that does not belong together."""

from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.pools import Pool, read_pool, record_pool
from langchain_reasc_lab.pools.merging import Merged, merge_pools

from lab.pools.synthetic import Guesser, content, labelled, question, response, write_lines
from langchain_reasc.exceptions import PoolError

QUESTIONS = labelled(4)


def recorded(path: Path, questions: slice = slice(None), *, seed: int = 0, samples: int = 2, **more: Any) -> Path:
    record_pool(more.pop("model", Guesser(seed=seed)), QUESTIONS[questions], path, samples=samples, **more)
    return path


def answers(pool: Pool) -> dict[str, list[str | None]]:
    return {one.id: [held.answer for held in one.responses] for one in pool.questions}


def test_two_halves_are_the_whole(tmp_path: Path) -> None:
    halves = recorded(tmp_path / "a.sqlite", slice(2)), recorded(tmp_path / "b.sqlite", slice(2, 4))
    assert merge_pools(*halves, tmp_path / "c.sqlite") == Merged(4, 8, 0, 0, 2, 2)
    whole = read_pool(recorded(tmp_path / "whole.sqlite"))
    merged = read_pool(tmp_path / "c.sqlite")
    assert content(merged) == content(whole) and list(content(merged)) == list(content(whole))
    assert merged.metadata["merged_from"] == ["a.sqlite", "b.sqlite"] and merged.metadata["seed"] == 0


def test_the_same_responses_come_once_and_the_longer_recording_counts(tmp_path: Path) -> None:
    short, long = recorded(tmp_path / "a.sqlite", slice(3)), recorded(tmp_path / "b.sqlite", slice(1, 4), samples=5)
    assert merge_pools(short, long, tmp_path / "c.sqlite") == Merged(4, 2 + 3 * 5, 2, 0, 2, 5)
    assert merge_pools(long, short, tmp_path / "d.sqlite").responses == 17
    whole = read_pool(recorded(tmp_path / "whole.sqlite", samples=5))
    one, other = read_pool(tmp_path / "c.sqlite"), read_pool(tmp_path / "d.sqlite")
    assert {id: held[:2] for id, held in answers(one).items()} == {id: held[:2] for id, held in answers(whole).items()}
    assert answers(one) == answers(other)
    signals = one.signals
    assert signals is not None and len(signals.of_question("q2")) == 5 and signals.of_question("q2")[4]


def test_other_seeds_are_other_responses(tmp_path: Path) -> None:
    a, b = recorded(tmp_path / "a.sqlite"), recorded(tmp_path / "b.sqlite", slice(2), seed=7, samples=3)
    assert merge_pools(a, b, tmp_path / "c.sqlite") == Merged(4, 2 * 5 + 2 * 2, 2, 2, 2, 5)
    merged, first, second = (read_pool(tmp_path / f"{name}.sqlite") for name in "cab")
    assert answers(merged)["q0"] == answers(first)["q0"] + answers(second)["q0"]
    assert merged.metadata["seed"] == [0, 7]
    assert merged.signals is not None and first.signals is not None and second.signals is not None
    together = first.signals.of_question("q0") + second.signals.of_question("q0")
    for held, wanted in zip(merged.signals.of_question("q0"), together, strict=True):
        assert {name: v.tolist() for name, v in held.items()} == {name: v.tolist() for name, v in wanted.items()}
    with pytest.raises(PoolError, match=r"recorded with seed \[0, 7\], now it is 0"):
        record_pool(Guesser(seed=0), QUESTIONS, tmp_path / "c.sqlite", samples=9)


def lines(path: Path, *responses: dict[str, Any], seed: int | None = None, **more: Any) -> Path:
    return write_lines(path, {"metadata": {"seed": seed}}, {**question("q", *responses), **more})


def test_without_a_seed_equal_files_are_one_recording_and_others_are_two(tmp_path: Path) -> None:
    a = lines(tmp_path / "a.jsonl", response("5", text="five"), response("6", text="six"))
    again = lines(tmp_path / "b.jsonl", response("5", text="five"))
    other = lines(tmp_path / "c.jsonl", response("5", text="5!"), response("6", text="six"))
    assert merge_pools(a, again, tmp_path / "once.sqlite").responses == 2
    assert merge_pools(a, other, tmp_path / "both.sqlite").responses == 4
    assert answers(read_pool(tmp_path / "both.sqlite")) == {"q": ["5", "6", "5", "6"]}


def test_the_same_seed_and_other_responses_are_refused(tmp_path: Path) -> None:
    a, b = lines(tmp_path / "a.jsonl", response("5"), seed=3), lines(tmp_path / "b.jsonl", response("6"), seed=3)
    with pytest.raises(PoolError, match=r"both recorded with seed 3, and hold other responses to question 'q'"):
        merge_pools(a, b, tmp_path / "c.sqlite")
    assert not list(tmp_path.glob("*.sqlite*")) and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"system": "Be brief."}, "differ in system: None and 'Be brief.'; "),
        ({"answer": "boxed"}, "differ in answer: 'auto' and 'boxed'"),
        ({"model": Guesser(max_tokens=40)}, "differ in max_tokens: None and 40"),
        ({"model": Guesser(name_="other")}, "differ in model: 'guesser' and 'other'"),
    ],
)
def test_another_recording_is_not_mixed_in(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    a, b = recorded(tmp_path / "a.sqlite", slice(1)), recorded(tmp_path / "b.sqlite", slice(1, 2), **change)
    with pytest.raises(PoolError) as refused:
        merge_pools(a, b, tmp_path / "c.sqlite")
    assert says in str(refused.value) and "a.sqlite and" in str(refused.value)
    assert not (tmp_path / "c.sqlite").exists()


def test_one_id_for_two_questions_or_two_labels(tmp_path: Path) -> None:
    a = lines(tmp_path / "a.jsonl", response("5"), input="How many?")
    b = lines(tmp_path / "b.jsonl", response("5"), input="How much?")
    with pytest.raises(PoolError, match=r"differ in the question of 'q': 'How many\?' and 'How much\?'"):
        merge_pools(a, b, tmp_path / "c.sqlite")
    c = lines(tmp_path / "d.jsonl", response("5"), input="How many?", reference="8")
    with pytest.raises(PoolError, match=r"differ in the accepted answers of 'q'"):
        merge_pools(a, c, tmp_path / "c.sqlite")
