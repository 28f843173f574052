"""Who joins, who leaves, who waits, who is set back: the rules of the scheduler, without a model."""

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
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
from properties import examples


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

    def add(self, n: int, prompt: list[int] | None = None) -> SequenceGroup:
        """A request for n samples, of a prompt of ten tokens that nobody else has."""
        first = len(self.groups) * 1000
        request = GenerationRequest(
            prompt=np.array(prompt or range(first, first + 10), dtype=np.int32),
            samples=range(n),
            seed=0,
            sampling=SamplingParameters(),
            max_tokens=10**6,
            emit=lambda _event: None,
        )
        self.groups.append(SequenceGroup(request, len(self.groups)))
        self.scheduler.add_group(self.groups[-1])
        return self.groups[-1]

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

    def end_at(self, longest: int) -> None:
        """End the samples that have so many tokens."""
        for sequence in list(self.scheduler.running):
            if len(sequence.tokens) >= longest:
                self.end(sequence)

    def end(self, sequence: Sequence, *, keep: bool = True) -> None:
        group = sequence.group
        self.scheduler.release(sequence, keep=keep and len(group.request.samples) == 1)
        group.unfinished -= 1
        if not group.unfinished:
            self.scheduler.remove(group)


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
    while course.scheduler.busy:
        course.step()
        course.end_at(5)
    assert course.prefilled == sum(len(group.request.prompt) for group in groups)
    assert [prompt.waiters for prompt in course.prompts.prompts] == [0, 0]


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


BEGINNING = list(range(1, 80))  # what many prompts share
pick = st.integers(0, 10**6)


def age(sequence: Sequence) -> tuple[int, int]:
    return sequence.group.order, sequence.index


class Requests(RuleBasedStateMachine):
    """What the scheduler's docstring says holds between two steps, whatever comes.

    Requests come, steps are made, samples end, callers give up, llama.cpp has less room than was counted.
    """

    course: Course | None = None

    @initialize(
        slots=st.integers(1, 5), capacity=st.integers(130, 400), batch=st.integers(8, 128), kept=st.integers(0, 3)
    )
    def begin(self, slots: int, capacity: int, batch: int, kept: int) -> None:
        self.course = course = Course(n_parallel=slots, capacity=capacity, n_batch=batch, kept=kept)
        self.slots, self.scheduler, self.cells, self.prompts = slots, course.scheduler, course.cells, course.prompts

    @rule(n=st.integers(1, 9), shared=st.sampled_from([0, 0, 20, 79]), own=st.integers(1, 10), known=st.booleans())
    def ask(self, n: int, shared: int, own: int, known: bool) -> None:
        assert self.course
        number = 1 if known else 1000 + len(self.course.groups)
        self.course.add(n, BEGINNING[:shared] + [number] * own)

    @rule(times=st.integers(1, 8), too_full=st.booleans())
    def step(self, times: int, too_full: bool) -> None:
        for _ in range(times):
            self.one_step(40, too_full=too_full)

    def one_step(self, longest: int, *, too_full: bool = False) -> None:
        assert self.course
        groups = self.scheduler.groups()
        behind = {each for group in groups for each in group.preempted}
        ready = {group: group.turn for group in groups if group.waiting and group.prompt and not group.prefilling}
        started = {group: group.started for group in groups}
        plan = self.course.step(too_full=too_full)
        oldest = min((age(each) for group in self.scheduler.groups() for each in group.live), default=(-1, -1))
        assert all(oldest < age(each) for each in plan.preempted if isinstance(each, Sequence)), "the oldest stays"
        if any(each.status is Status.PREEMPTED and each not in plan.preempted for each in behind):
            assert {group: group.started for group in started} == started, "nobody passes the preempted"
        self.turns_are_kept(ready, started)
        self.course.end_at(longest)

    def turns_are_kept(self, ready: dict[SequenceGroup, int], started: dict[SequenceGroup, int]) -> None:
        each_turn = max(1, self.slots // 2)
        for group in [group for group, before in started.items() if group.started > before]:
            last = group.turn - (group.started % each_turn == 0)
            for other, turn in ready.items():
                if other is not group and other.started == started[other] and other.waiting and other.prompt:
                    assert (last, group.order) < (turn, other.order)

    @precondition(lambda self: self.scheduler.running)
    @rule(which=pick, keep=st.booleans())
    def one_ends(self, which: int, keep: bool) -> None:
        assert self.course
        running = self.scheduler.running
        self.course.end(running[which % len(running)], keep=keep)

    @precondition(lambda self: self.scheduler.busy)
    @rule(which=pick)
    def one_gives_up(self, which: int) -> None:
        groups = self.scheduler.groups()
        self.scheduler.remove(groups[which % len(groups)])

    @invariant()
    def cells_are_counted(self) -> None:
        assert self.course
        assert self.cells.used == self.course.ledger.used <= self.cells.capacity

    @invariant()
    def every_sample_is_in_one_place(self) -> None:
        groups = self.scheduler.groups()
        places: dict[Status, list[Any]] = {
            Status.WAITING: [each for group in groups for each in group.waiting],
            Status.PREEMPTED: [each for group in groups for each in group.preempted],
            Status.RUNNING: list(self.scheduler.running),
            Status.PREFILL: [each.sequence for each in self.scheduler.prefills if each.sequence],
        }
        for status, samples in places.items():
            assert all(each.status is status for each in samples)
            assert all((each.slot is not None) == (status in (Status.RUNNING, Status.PREFILL)) for each in samples)
        everybody = [each for samples in places.values() for each in samples]
        assert len(everybody) == len(set(everybody)) == sum(group.unfinished for group in groups)
        live = {*places[Status.RUNNING], *places[Status.PREFILL]}
        assert {each for group in groups for each in group.live} == live
        assert len(live) <= self.slots
        slots = [each.slot.id for each in [*live, *self.prompts.prompts] if each.slot]
        assert len(set(slots)) == len(slots) == 2 * self.slots + 2 - self.cells.sequences_left

    @invariant()
    def prompts_are_held_by_those_who_use_them(self) -> None:
        groups = self.scheduler.groups()
        for prompt in self.prompts.prompts:
            assert prompt.ref_count == sum(group.prompt is prompt for group in groups)
            assert prompt.waiters == sum(group.kept is prompt for group in groups)
            assert prompt.slot is not None or not prompt.ref_count
        for group in groups:
            assert group.prompt is not None or not group.live
            assert group.prompt is None or group.prompt in self.prompts.prompts

    def teardown(self) -> None:
        """Nobody starves, and nothing is left behind."""
        if self.course is None:
            return
        for _ in range(500 + 10 * sum(group.unfinished for group in self.scheduler.groups())):
            if self.scheduler.busy:
                self.one_step(3)
        assert not self.scheduler.busy
        self.prompts.swap_out()
        assert (self.cells.used, self.cells.sequences_left) == (0, 2 * self.slots + 2)
        assert not any(prompt.waiters or prompt.ref_count for prompt in self.prompts.prompts)


TestRequests = Requests.TestCase
TestRequests.settings = settings(examples(35), stateful_step_count=40)
