"""Who joins, who leaves, who waits."""

from langchain_reasc_llama_cpp.scheduler import Scheduler, Sequence
from langchain_reasc_llama_cpp.text import TextAssembler


def sequences(n: int) -> list[Sequence]:
    return [Sequence(index, index, TextAssembler()) for index in range(n)]


def indices(of: list[Sequence]) -> list[int]:
    return [sequence.index for sequence in of]


def test_slots_are_given_in_order_and_again() -> None:
    scheduler = Scheduler(sequences(5), n_slots=2, cells=100, prompt=10)
    assert indices(scheduler.admit()) == [0, 1]
    assert scheduler.admit() == []
    first = scheduler.live[0]
    scheduler.release(first)
    [joined] = scheduler.admit()
    assert joined.index == 2
    assert joined.slot == first.slot
    assert len({sequence.slot for sequence in scheduler.live}) == 2


def test_slot_zero_is_the_prompts() -> None:
    scheduler = Scheduler(sequences(3), n_slots=3, cells=100, prompt=10)
    assert sorted(s.slot or 0 for s in scheduler.admit()) == [1, 2, 3]


def test_no_more_join_than_there_is_room_for() -> None:
    scheduler = Scheduler(sequences(5), n_slots=5, cells=13, prompt=10)
    assert indices(scheduler.admit()) == [0, 1, 2]
    assert scheduler.step_fits()


def test_the_youngest_waits_and_comes_back_when_another_has_ended() -> None:
    scheduler = Scheduler(sequences(3), n_slots=3, cells=20, prompt=10)
    scheduler.admit()
    while scheduler.step_fits():
        for sequence in scheduler.live:
            sequence.tokens.append(0)
    back = scheduler.set_back()
    assert back is not None
    assert back.index == 2
    assert back.tokens
    assert scheduler.step_fits()
    assert scheduler.admit() == []  # it would only be set back again
    scheduler.release(scheduler.live[0])
    assert scheduler.admit() == [back]


def test_the_last_one_is_never_set_back() -> None:
    scheduler = Scheduler(sequences(2), n_slots=1, cells=11, prompt=10)
    scheduler.admit()
    assert scheduler.set_back() is None
    assert scheduler.busy
    scheduler.release(scheduler.live[0])
    scheduler.admit()
    scheduler.release(scheduler.live[0])
    assert not scheduler.busy
