"""Who joins, who leaves, who waits, who is set back: the rules, without a model."""

import numpy as np
from langchain_reasc_llama_cpp.engine import (
    GenerationRequest,
    KvCells,
    Plan,
    PromptCache,
    Scheduler,
    Sequence,
    SequenceGroup,
    State,
    Status,
)
from langchain_reasc_llama_cpp.sampling import SamplingParameters


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


class Course:
    """Steps without a model: every row gets a token, every prompt its next piece."""

    def __init__(self, *, n_parallel: int = 4, capacity: int = 1000, n_batch: int = 800, kept: int = 2) -> None:
        self.ledger = Ledger()
        self.cells = KvCells(self.ledger, capacity=capacity, n_sequences=2 * n_parallel + 2)
        self.prompts = PromptCache(self.cells, size=kept)
        self.scheduler = Scheduler(self.cells, self.prompts, n_parallel=n_parallel, n_batch=n_batch)
        self.groups: list[SequenceGroup] = []
        self.prefilled = 0

    def add(self, n: int, prompt: int | list[int] = 10) -> SequenceGroup:
        first = len(self.groups) * 1000
        tokens = [first + i for i in range(prompt)] if isinstance(prompt, int) else prompt
        request = GenerationRequest(
            prompt=np.array(tokens, dtype=np.int32),
            samples=range(n),
            seed=0,
            sampling=SamplingParameters(),
            max_tokens=10**6,
            emit=lambda _event: None,
        )
        group = SequenceGroup(request, len(self.groups))
        self.groups.append(group)
        self.scheduler.add(group)
        return group

    def step(self, *, too_full: bool = False) -> Plan:
        """One step; ``too_full``: llama.cpp finds no room for what was planned first."""
        plan = self.scheduler.schedule()
        if too_full and (plan.rows or plan.chunks):
            self.scheduler.make_way(plan)
        for sequence in plan.starting:
            if sequence.status is Status.RUNNING:  # not preempted again for the same step
                sequence.tokens.append(0)
        for slot, tokens in [(row.slot, 1) for row in plan.rows] + [(each.slot, size) for each, size in plan.chunks]:
            assert slot is not None
            self.ledger.grow(slot.id, tokens)
        self.prefilled += sum(size for _, size in plan.chunks)
        self.scheduler.advance(plan, np.zeros((len(plan.rows) + len(plan.chunks), 2), dtype=np.float32))
        for sequence in plan.rows:
            sequence.tokens.append(0)
        for group in plan.failed:
            self.scheduler.remove(group)
        return plan

    def end(self, sequence: Sequence, *, keep: bool = False) -> None:
        group = sequence.group
        self.scheduler.release(sequence, keep=keep)
        group.unfinished -= 1
        if not group.unfinished:
            self.scheduler.remove(group)

    def finish(self, most: int) -> int:
        """Let every sequence end after ``most`` tokens; returns the steps until nothing was left."""
        for steps in range(10_000):
            if not self.scheduler.busy:
                return steps
            self.step()
            for sequence in list(self.scheduler.running):
                if len(sequence.tokens) >= most:
                    self.end(sequence)
        raise AssertionError("it never ended")


def live(*groups: SequenceGroup) -> list[list[int]]:
    return [sorted(sequence.index for sequence in group.live) for group in groups]


def test_requests_take_turns_the_oldest_first() -> None:
    course = Course(n_parallel=4)
    groups = [course.add(4) for _ in range(3)]
    for _ in range(3):
        course.step()
    assert live(*groups) == [[0, 1], [0, 1], []]  # half the slots each
    for _ in range(2):
        course.end(groups[0].live[0])
        course.step()
        course.step()
    assert live(*groups) == [[], [0, 1], [0, 1]]  # whose first turn it is, before anybody's second
    for _ in range(2):
        course.end(groups[1].live[0])
        course.step()
    assert live(*groups) == [[2, 3], [], [0, 1]]


def test_a_prompt_is_prefilled_once_however_many_requests_take_turns() -> None:
    course = Course(n_parallel=2)  # a sample each turn, and only two prompts are kept that nobody waits for
    groups = [course.add(4) for _ in range(12)]
    course.finish(5)
    assert course.prefilled == sum(len(group.request.prompt) for group in groups)
    assert len(course.prompts) == 2
    assert not any(prompt.waiters for prompt in course.prompts._prompts)


def test_a_prompt_waits_for_one_it_can_share() -> None:
    course = Course(n_batch=20)
    shared = list(range(60))
    first, second, other = course.add(1, [*shared, 100]), course.add(1, [*shared, 200]), course.add(1)
    course.step()
    assert [group.prompt is None for group in (first, second, other)] == [False, True, True]
    for _ in range(20):
        course.step()
    assert second.prompt is not None
    assert second.prefilled is not None
    assert second.prefilled <= 21  # less than 32 tokens more would not be worth another wait
    assert len(other.live) == 1
