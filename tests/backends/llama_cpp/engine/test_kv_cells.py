"""The count of KV cells, against a plain model of them: every cell and the sequences that hold it."""

import random

import numpy as np
from langchain_reasc_llama_cpp.engine.context import State
from langchain_reasc_llama_cpp.engine.kv_cache import KvCells, Slot


class Ledger:
    """What llama.cpp does, one cell at a time."""

    def __init__(self) -> None:
        self.cells: dict[int, list[int]] = {}
        self.next = 0

    def share(self, source: int, target: int, length: int) -> None:
        held = self.cells.get(source, [])
        self.cells[target] = held[: len(held) if length < 0 else length]

    def forget(self, sequence: int) -> None:
        self.cells.pop(sequence, None)

    def clear(self) -> None:
        self.cells.clear()

    def save(self, sequence: int) -> State:
        return np.zeros(len(self.cells.get(sequence, [])), dtype=np.uint8)

    def restore(self, sequence: int, state: State) -> bool:
        self.grow(sequence, len(state))
        return True

    def grow(self, sequence: int, tokens: int) -> None:
        self.cells.setdefault(sequence, []).extend(range(self.next, self.next + tokens))
        self.next += tokens

    @property
    def used(self) -> int:
        return len({cell for held in self.cells.values() for cell in held})


def test_any_course_of_events_is_counted_exactly() -> None:
    rng = random.Random(1)
    for _ in range(30):
        ledger = Ledger()
        cells = KvCells(ledger, capacity=1000, n_sequences=12)
        slots: list[Slot] = []
        for _ in range(200):
            action = rng.random()
            if action < 0.35 and cells.sequences_left:
                parent = rng.choice(slots) if slots and rng.random() < 0.8 else None
                slots.append(cells.open(parent, rng.randint(0, parent.length) if parent else 0))
            elif action < 0.8 and slots:
                slot, tokens = rng.choice(slots), rng.randint(1, 5)
                cells.grow(slot, tokens=tokens)
                ledger.grow(slot.id, tokens)
            elif slots:
                cells.close(slots.pop(rng.randrange(len(slots))))
            assert cells.used == ledger.used == 1000 - cells.free
            assert cells.sequences_left == 12 - len(slots)
            assert [slot.length for slot in slots] == [len(ledger.cells.get(slot.id, [])) for slot in slots]
        cells.clear()
        assert (cells.used, cells.sequences_left, ledger.used) == (0, 12, 0)
