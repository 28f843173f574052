"""What the scheduler's docstring says holds between two steps, under whatever order of events."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from langchain_reasc_llama_cpp.engine import Plan, Sequence, SequenceGroup, Status

from backends.llama_cpp.engine.test_scheduler import Course

BEGINNING = list(range(1, 80))  # what many prompts share
LONGEST = 40  # tokens of a response
pick = st.integers(0, 10**6)


def age(sequence: Sequence) -> tuple[int, int]:
    return sequence.group.order, sequence.index


class Requests(RuleBasedStateMachine):
    """Requests come, steps are made, samples end, callers give up, llama.cpp has less room than was counted."""

    @initialize(
        slots=st.integers(1, 5), capacity=st.integers(130, 400), batch=st.integers(8, 128), kept=st.integers(0, 3)
    )
    def begin(self, slots: int, capacity: int, batch: int, kept: int) -> None:
        self.course = Course(n_parallel=slots, capacity=capacity, n_batch=batch, kept=kept)
        self.slots = slots

    @property
    def groups(self) -> list[SequenceGroup]:
        return self.course.scheduler.groups()

    @rule(n=st.integers(1, 9), shared=st.sampled_from([0, 0, 20, 79]), own=st.integers(1, 10), known=st.booleans())
    def ask(self, n: int, shared: int, own: int, known: bool) -> None:
        number = 1 if known else 1000 + len(self.course.groups)
        self.course.add(n, BEGINNING[:shared] + [number] * own)

    @rule(times=st.integers(1, 8), too_full=st.booleans())
    def step(self, times: int, too_full: bool) -> None:
        for _ in range(times):
            self.one_step(too_full=too_full)
            for sequence in list(self.course.scheduler.running):
                if len(sequence.tokens) >= LONGEST:
                    self.end(sequence)

    def one_step(self, *, too_full: bool = False) -> None:
        groups = self.groups
        behind = {each for group in groups for each in group.preempted}
        ready = {group: group.turn for group in groups if group.waiting and group.prompt and not group.prefilling}
        started = {group: group.started for group in groups}
        plan = self.course.step(too_full=too_full)
        self.nobody_passes_the_preempted(plan, behind, started)
        self.turns_are_kept(ready, started)
        oldest = min((age(each) for group in self.groups for each in group.live), default=(-1, -1))
        assert all(oldest < age(each) for each in plan.preempted if isinstance(each, Sequence))

    def nobody_passes_the_preempted(self, plan: Plan, behind: set[Sequence], started: dict[Any, int]) -> None:
        if any(each.status is Status.PREEMPTED and each not in plan.preempted for each in behind):
            assert {group: group.started for group in started} == started

    def turns_are_kept(self, ready: dict[SequenceGroup, int], started: dict[SequenceGroup, int]) -> None:
        each_turn = max(1, self.slots // 2)
        for group, before in started.items():
            last = group.turn - (group.started % each_turn == 0)
            for other, turn in ready.items():
                if group.started > before and other is not group and other.started == started[other] and other.waiting:
                    assert (last, group.order) < (turn, other.order) or not other.prompt

    @precondition(lambda self: self.course.scheduler.running)
    @rule(which=pick, keep=st.booleans())
    def one_ends(self, which: int, keep: bool) -> None:
        running = self.course.scheduler.running
        self.end(running[which % len(running)], keep=keep)

    def end(self, sequence: Sequence, *, keep: bool = True) -> None:
        self.course.end(sequence, keep=keep and len(sequence.group.request.samples) == 1)

    @precondition(lambda self: self.course.scheduler.busy)
    @rule(which=pick)
    def one_gives_up(self, which: int) -> None:
        self.course.scheduler.remove(self.groups[which % len(self.groups)])

    @invariant()
    def cells_are_counted(self) -> None:
        if hasattr(self, "course"):
            assert self.course.cells.used == self.course.ledger.used <= self.course.cells.capacity

    @invariant()
    def every_sample_is_in_one_place(self) -> None:
        if not hasattr(self, "course"):
            return
        scheduler = self.course.scheduler
        places = {
            Status.WAITING: [each for group in self.groups for each in group.waiting],
            Status.PREEMPTED: [each for group in self.groups for each in group.preempted],
            Status.RUNNING: list(scheduler.running),
            Status.PREFILL: [each.sequence for each in scheduler.prefills if each.sequence],
        }
        for status, samples in places.items():
            assert all(each.status is status for each in samples)
            assert all((each.slot is not None) == (status in (Status.RUNNING, Status.PREFILL)) for each in samples)
        everybody = [each for samples in places.values() for each in samples]
        assert len(everybody) == len(set(everybody)) == sum(group.unfinished for group in self.groups)
        live = {*places[Status.RUNNING], *places[Status.PREFILL]}
        assert {each for group in self.groups for each in group.live} == live
        assert len(live) <= self.slots
        slots = [each.slot.id for each in live if each.slot]
        slots += [prompt.slot.id for prompt in self.course.prompts._prompts if prompt.slot]
        assert len(set(slots)) == len(slots) == 2 * self.slots + 2 - self.course.cells.sequences_left

    @invariant()
    def prompts_are_held_by_those_who_use_them(self) -> None:
        if not hasattr(self, "course"):
            return
        for prompt in self.course.prompts._prompts:
            assert prompt.ref_count == sum(group.prompt is prompt for group in self.groups)
            assert prompt.waiters == sum(group.kept is prompt for group in self.groups)
            assert prompt.slot is not None or not prompt.ref_count
        for group in self.groups:
            assert group.prompt is not None or not group.live
            assert group.prompt is None or group.prompt in self.course.prompts._prompts

    def teardown(self) -> None:
        """Nobody starves, and nothing is left behind."""
        if not hasattr(self, "course"):
            return
        for _ in range(500 + 10 * sum(group.unfinished for group in self.groups)):
            if not self.course.scheduler.busy:
                break
            self.one_step()
            for sequence in list(self.course.scheduler.running):
                if len(sequence.tokens) >= 3:
                    self.end(sequence)
        assert not self.course.scheduler.busy
        self.course.prompts.swap_out()
        assert (self.course.cells.used, self.course.cells.sequences_left) == (0, 2 * self.slots + 2)
        assert not any(prompt.waiters or prompt.ref_count for prompt in self.course.prompts._prompts)


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=35, stateful_step_count=40)
