"""What the next step does: who comes in, who decodes, what is prefilled, who gives way."""

import time
from collections import deque

import numpy as np

from langchain_reasc_llama_cpp.engine.context import Logits
from langchain_reasc_llama_cpp.engine.kv_cells import KvCells
from langchain_reasc_llama_cpp.engine.plan import Plan
from langchain_reasc_llama_cpp.engine.policy import TurnPolicy
from langchain_reasc_llama_cpp.engine.prompt_cache import PromptCache, common_prefix
from langchain_reasc_llama_cpp.engine.sequences import Prefill, Sequence, SequenceGroup, Status

__all__ = ["Scheduler"]

_WORTH_WAITING = 32
"""A prompt waits for one that is being prefilled when it can share this many more tokens afterwards."""
_PREFILL_SHARE = 8
"""While answers are being generated, a step carries at most this fraction of ``n_batch`` as prompt tokens."""


class Scheduler:
    """Gives slots and KV cells to the samples of all requests.

    These hold between two steps (``tests/backends/llama_cpp/engine/test_invariants.py`` looks for an order of events in
    which they do not):

    - **Cells.** ``KvCells.used`` is exactly what the slots hold, shared cells counted once, and never above capacity.
      It is not reserved for the worst case: when it is full, the youngest sample is preempted. Once no request is left,
      all cells but those of kept prompts are free, and these go as soon as room is wanted.
    - **Slots.** A sample holds one if and only if it is RUNNING or in PREFILL, at most ``n_parallel`` do, and each
      sequence id belongs to one slot.
    - **References.** A prompt's ``ref_count`` is the number of requests whose ``prompt`` it is, and its ``waiters`` of
      those whose ``kept`` it is. Whoever has a live sample holds its prompt, so nobody's beginning is swapped out
      beneath it.
    - **Status.** Each sample of a request that has not left is in just one place: ``waiting``, ``preempted``, among the
      rows, in a prefill, or FINISHED.
    - **Turns.** Of those whose prompt is there, nobody begins a sample while another has an earlier turn; and nobody
      begins one while a sample that was preempted waits.
    - **Nobody starves.** The oldest live sample is never preempted, so it ends; so everyone becomes the oldest.
    """

    def __init__(self, cells: KvCells, prompts: PromptCache, *, n_parallel: int, n_batch: int) -> None:
        """Make it, with nobody there.

        Args:
            cells: the KV cache.
            prompts: the prompts in it.
            n_parallel: how many samples have a slot at most.
            n_batch: how many tokens a step carries at most.
        """
        self.running: list[Sequence] = []
        self.prefills: list[Prefill] = []
        self._cells, self._prompts = cells, prompts
        self._slots, self._n_batch = n_parallel, n_batch
        self._new: deque[SequenceGroup] = deque()
        self._active: list[SequenceGroup] = []
        self._pending = 0  # samples that want a slot
        self._taken = 0  # slots
        self._full = False  # nobody fits until something is released
        self._policy = TurnPolicy(n_parallel)

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._new or self._active)

    def groups(self) -> list[SequenceGroup]:
        """Every request, the oldest first."""
        return sorted([*self._active, *self._new], key=lambda group: group.order)

    def add(self, group: SequenceGroup) -> None:
        """Queue a request."""
        self._policy.join(group)
        self._new.append(group)
        self._pending += group.pending

    def schedule(self) -> Plan:
        """Decide what the next step does; who comes in or gives way for it has done so when this returns."""
        plan = Plan()
        if self._pending:
            self._admit(plan)
        self._fit(plan)
        return plan

    def give_way(self, plan: Plan) -> None:
        """Change a plan for which there is no room: the youngest is preempted, or fails where nobody else is there."""
        victim = self._preempt()
        if victim is not None:
            plan.preempted.append(victim)
            self._fit(plan)
        else:
            plan.failed += {each.group for each in self.running} | {each.group for each in self.prefills}
            plan.rows, plan.chunks = [], []

    def advance(self, plan: Plan, logits: Logits) -> None:
        """Count what a plan has decoded; prompts that are whole now have their logits.

        Args:
            plan: what was run.
            logits: shape (rows + prompts that became whole, V), in this order.
        """
        self._cells.grow(*[sequence.slot for sequence in plan.rows if sequence.slot])
        at = len(plan.rows)
        for prefill, size in plan.chunks:
            prefill.done += size
            self._cells.grow(prefill.slot, tokens=size)
            if prefill.sequence is None:
                assert prefill.group.prompt is not None
                prefill.group.prompt.done = prefill.done
            if prefill.left:
                continue
            self.prefills.remove(prefill)
            self._full = False
            if prefill.sequence is not None:
                self._run(prefill.sequence)
            else:
                self._prompt_ready(prefill.group, logits[at])
                at += 1

    def release(self, sequence: Sequence, *, keep: bool = False) -> None:
        """Take a sample out that has ended; its slot is free at once.

        Args:
            sequence: a live one.
            keep: let the prompt cache have its cells, as the prompt's only response.
        """
        self._release(sequence, Status.FINISHED, keep=keep)

    def remove(self, group: SequenceGroup) -> None:
        """Take a request out that has ended, was cancelled or failed; what it held is free at once."""
        self._pending -= group.pending
        for sequence in (*group.waiting, *group.preempted):
            sequence.status = Status.FINISHED
        group.waiting.clear()
        for sequence in list(group.live):
            self.release(sequence)
        self.prefills = [prefill for prefill in self.prefills if prefill.group is not group]
        group.let_go(self._prompts)
        group.come_back(self._prompts)
        (self._active if group in self._active else self._new).remove(group)
        self._full = False

    # Who comes in.

    def _admit(self, plan: Plan) -> None:
        """Let in whoever may come."""
        if not self.running and not self.prefills:
            self._full = False  # whoever is oldest always fits alone
        passed: list[SequenceGroup] = []
        while not self._full and self._taken < self._slots:
            group = self._policy.next(self._active, self._new[0] if self._new else None, passed)
            if group is None:
                return
            if group.prompt is None and not self._bring_in(group):
                passed.append(group)
            elif not group.prefilling and self._fits(group, len(group.preempted[0].tokens) if group.preempted else 0):
                self._join(group, plan)

    def _bring_in(self, group: SequenceGroup) -> bool:
        """Take a reference to a request's prompt, and begin to prefill what is missing; False when it has to wait."""
        tokens = group.request.prompt
        shared = self._prompts.shared(tokens)
        coming = (prefill.tokens for prefill in self.prefills if prefill.sequence is None)
        if any(common_prefix(other, tokens) - shared >= _WORTH_WAITING for other in coming):
            return False
        prompt = group.prompt = self._prompts.open(tokens)
        group.come_back(self._prompts)
        missing = len(tokens) - prompt.done
        if not self._fits(group, missing):
            group.let_go(self._prompts)
            return False
        group.begun = group.begun or time.perf_counter()
        if group.prefilled is None:
            group.prefilled = missing
        if prompt.logits is not None:
            group.ready = group.ready or group.begun
        else:
            assert prompt.slot is not None
            self.prefills.append(Prefill(group, None, prompt.slot, tokens, prompt.done))
        if group not in self._active:
            self._new.remove(group)
            self._active.append(group)
        return True

    def _join(self, group: SequenceGroup, plan: Plan) -> None:
        """Give a slot to the next sample of a request."""
        prompt = group.prompt
        assert prompt is not None
        assert prompt.slot is not None
        sequence = (group.preempted or group.waiting).popleft()
        if sequence.status is Status.WAITING:
            self._policy.began(group)
        self._pending -= 1
        self._taken += 1
        sequence.slot = self._cells.open(prompt.slot, prompt.length)
        group.live.append(sequence)
        if len(sequence.tokens) > 1:
            sequence.status = Status.PREFILL
            again = np.array(sequence.tokens[:-1], dtype=np.int32)
            self.prefills.append(Prefill(group, sequence, sequence.slot, again, 0, prompt.length))
            return
        if not sequence.tokens:
            plan.starting.append(sequence)
        self._run(sequence)

    def _run(self, sequence: Sequence) -> None:
        sequence.status = Status.RUNNING
        self.running.append(sequence)

    def _prompt_ready(self, group: SequenceGroup, logits: Logits) -> None:
        assert group.prompt is not None
        group.prompt.logits = logits.copy()
        group.ready = group.ready or time.perf_counter()

    # Who has room.

    def _fit(self, plan: Plan) -> None:
        """Fill in who decodes and what is prefilled; when that is too much, somebody gives way."""
        plan.rows = self.running.copy()
        plan.chunks = self._chunks() if self.prefills else []
        if not self._make_room(len(plan.rows) + sum(size for _, size in plan.chunks)):
            self.give_way(plan)

    def _chunks(self) -> list[tuple[Prefill, int]]:
        """The pieces that go into a step, the oldest first."""
        rows, whole = len(self.running), self._n_batch
        budget = min(max(1, whole // _PREFILL_SHARE), whole - rows) if rows else whole
        chunks: list[tuple[Prefill, int]] = []
        for prefill in self.prefills:
            size = min(prefill.left, budget)
            if size < 1:
                break
            chunks.append((prefill, size))
            budget -= size
        return chunks

    def _fits(self, group: SequenceGroup, tokens: int) -> bool:
        """Whether so many tokens more fit, beside the next of everyone who is live and what is on its way already."""
        coming = sum(prefill.left for prefill in self.prefills) + len(self.running) + 1
        self._full = not self._make_room(tokens + coming, keep=group)
        return not self._full

    def _make_room(self, cells: int, *, keep: SequenceGroup | None = None) -> bool:
        """Swap idle prompts out until so many cells are free; False when those in use leave fewer."""
        while self._cells.room < cells:
            if not self._prompts.swap_out() and not self._let_idle_go(keep):
                return False
        return True

    def _let_idle_go(self, keep: SequenceGroup | None) -> bool:
        """Let the prompts of requests go that wait with nothing live; they look theirs up again at their turn."""
        idle = [
            group
            for group in self._active
            if group.prompt and not group.live and not group.prefilling and group is not keep
        ]
        for group in idle:
            group.let_go(self._prompts)
        return bool(idle)

    def _preempt(self) -> Sequence | SequenceGroup | None:
        """Make the youngest give its cells back; None when only one is left."""
        victim = self._policy.victim(self._active)
        if isinstance(victim, SequenceGroup):
            self.prefills = [each for each in self.prefills if each.sequence or each.group is not victim]
            victim.let_go(self._prompts)
        elif victim is not None:
            self._release(victim, Status.PREEMPTED)
            victim.group.preempted.appendleft(victim)
            self._pending += 1
        self._full = True  # until another has ended
        return victim

    def _release(self, sequence: Sequence, status: Status, *, keep: bool = False) -> None:
        group, slot = sequence.group, sequence.slot
        assert slot is not None
        if sequence.status is Status.RUNNING:
            self.running.remove(sequence)
        else:
            self.prefills = [prefill for prefill in self.prefills if prefill.sequence is not sequence]
        sequence.status, sequence.slot = status, None
        group.live.remove(sequence)
        self._taken -= 1
        if keep and group.prompt is not None:
            self._prompts.extend(group.prompt, slot, sequence.tokens[: slot.length - group.prompt.length])
        else:
            self._cells.close(slot)
        if not group.live:
            group.let_go(self._prompts)
        self._full = False
