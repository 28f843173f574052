"""Plan the next step: which samples are admitted, decoded, prefilled or preempted."""

import time
from collections import deque
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Final

import numpy as np

from langchain_reasc_llama_cpp.engine.context import Logits, Tokens
from langchain_reasc_llama_cpp.engine.kv_cache import KvCells, PromptCache, common_prefix
from langchain_reasc_llama_cpp.engine.sequences import Prefill, Sequence, SequenceGroup, Status

__all__ = ["Plan", "Scheduler"]

_WORTH_WAITING = 32
"""A prompt waits for one that is being prefilled if it can then share at least this many more tokens."""
_BY_ORDER: Final = attrgetter("order")
_PREFILL_SHARE = 8
"""While answers are generated, at most this fraction of ``n_batch`` is used for prompt tokens in a step."""


@dataclass(slots=True)
class Plan:
    """The plan of one step, in this order.

    Attributes:
        starting: samples that draw their first token from their prompt's logits, without a decode.
        rows: samples that decode one token each, in the order of their rows, including the starting ones.
        chunks: parts of prompts, or of the texts of preempted samples, with their sizes.
        preempted: samples and unfinished prompts that released their cells for this step.
        failed: requests that do not fit even alone. The decoder removes them.
    """

    starting: list[Sequence] = field(default_factory=list)
    rows: list[Sequence] = field(default_factory=list)
    chunks: list[tuple[Prefill, int]] = field(default_factory=list)
    preempted: list[Sequence | SequenceGroup] = field(default_factory=list)
    failed: list[SequenceGroup] = field(default_factory=list)


class Scheduler:
    """Gives slots and KV cells to the samples of all requests.

    Requests take turns of half the slots each, the oldest first. So few prompts are in the cache at a time, and one
    request with many samples does not keep the others out. These hold between two steps
    (``tests/backends/llama_cpp/test_scheduler.py`` looks for an order of events in which they do not):

    - **Cells.** ``KvCells.used`` is exactly what the slots hold, shared cells counted once, and never above capacity.
      It is not reserved for the worst case: when it is full, the youngest sample is preempted. Once no request is left,
      all cells but those of kept prompts are free, and these are freed as soon as they are needed.
    - **Slots.** A sample holds one if and only if it is RUNNING or in PREFILL, at most ``n_parallel`` do, and each
      sequence id belongs to one slot.
    - **References.** A prompt's ``ref_count`` is the number of requests whose ``prompt`` it is, and its ``waiters`` of
      those whose ``kept`` it is. A request with a live sample holds its prompt, so it is not swapped out beneath it.
    - **Status.** Each sample of a request that has not left is in just one place: ``waiting``, ``preempted``, among the
      rows, in a prefill, or FINISHED.
    - **Turns.** Among requests whose prompt is there, none begins a sample while another has an earlier turn; and none
      begins one while a preempted sample waits.
    - **No starvation.** The oldest live sample is never preempted, so it ends; so everyone becomes the oldest.
    """

    def __init__(self, cells: KvCells, prompts: PromptCache, *, n_parallel: int, n_batch: int) -> None:
        """Make it, without requests.

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
        self._slots_per_turn, self._turn = max(1, n_parallel // 2), 0
        self._new: deque[SequenceGroup] = deque()
        self._active: list[SequenceGroup] = []
        self._pending = 0  # samples that need a slot
        self._taken = 0  # slots
        self._full = False  # no sample fits until something is released

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._new or self._active)

    def groups(self) -> list[SequenceGroup]:
        """Return every request, the oldest first."""
        return sorted([*self._active, *self._new], key=_BY_ORDER)

    def add(self, group: SequenceGroup) -> None:
        """Queue a request. It joins the present turn: those before it are over."""
        group.turn = self._turn
        self._new.append(group)
        self._pending += group.pending

    def schedule(self) -> Plan:
        """Decide what the next step does, and give slots and cells to those who take part."""
        plan = Plan()
        if self._pending:
            self._admit(plan)
        self._fill(plan)
        return plan

    def make_way(self, plan: Plan) -> None:
        """Change a plan that does not fit: preempt the youngest, or fail the request that is alone."""
        victim = self._preempt()
        if victim is not None:
            plan.preempted.append(victim)
            self._fill(plan)
        else:
            plan.failed += {each.group for each in self.running} | {each.group for each in self.prefills}
            plan.rows, plan.chunks = [], []

    def advance(self, plan: Plan, logits: Logits) -> None:
        """Count what a plan has decoded; prompts that are whole now get their logits.

        Args:
            plan: what was run.
            logits: shape (rows + prompts that became whole, V), in this order.
        """
        self._cells.grow(*[sequence.slot for sequence in plan.rows if sequence.slot])
        row = len(plan.rows)
        for prefill, size in plan.chunks:
            prefill.done += size
            self._cells.grow(prefill.slot, tokens=size)
            prompt = prefill.group.prompt
            if prefill.sequence is None and prompt is not None:
                prompt.done = prefill.done
            if prefill.left:
                continue
            self.prefills.remove(prefill)
            self._full = False
            if prefill.sequence is not None:
                self._run(prefill.sequence)
            elif prompt is not None:
                prompt.logits = logits[row].copy()
                prefill.group.ready = prefill.group.ready or time.perf_counter()
                row += 1

    def release(self, sequence: Sequence, *, keep: bool = False) -> None:
        """Take a live sample out that has ended; its slot is free at once.

        Args:
            sequence: the sample.
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
        group.release_prompt(self._prompts)
        group.forget_kept(self._prompts)
        (self._active if group in self._active else self._new).remove(group)
        self._full = False

    # Which samples come in.

    def _admit(self, plan: Plan) -> None:
        """Give slots to the samples whose turn it is, as far as they fit."""
        if not self.running and not self.prefills:
            self._full = False  # the oldest always fits alone
        passed: list[SequenceGroup] = []
        while not self._full and self._taken < self._slots:
            group = self._next_group(passed)
            if group is None:
                return
            if group.prompt is None and not self._bring_in(group):
                passed.append(group)
            elif not group.prefilling and self._fits(group, group.next_size):
                self._join(group, plan)

    def _next_group(self, passed: list[SequenceGroup]) -> SequenceGroup | None:
        """Return the request whose sample gets the next slot; ``passed`` are those that cannot take one now."""
        oldest = min((group for group in self._active if group.preempted), key=_BY_ORDER, default=None)
        if oldest is not None:
            return None if oldest in passed or oldest.prefilling else oldest
        return self._next_waiting(passed)

    def _next_waiting(self, passed: list[SequenceGroup]) -> SequenceGroup | None:
        """Return the request whose turn it is to begin a sample, where a slot is left for it."""
        # A prompt comes in only when there will be slots for its samples, and these are kept for it meanwhile.
        reserved = sum(self._turn_size(group) for group in self._active if group.prompt and not group.live)
        coming = self._taken
        for group in sorted([*self._active, *list(self._new)[:1]], key=attrgetter("turn", "order")):
            if not group.waiting or group in passed:
                continue
            if group.prefilling:
                coming += self._turn_size(group)
            elif coming >= self._slots:
                return None
            elif group.prompt or self._taken + reserved < self._slots:
                return group
        return None

    def _turn_size(self, group: SequenceGroup) -> int:
        return min(len(group.waiting), self._slots_per_turn)

    def _bring_in(self, group: SequenceGroup) -> bool:
        """Take a reference to a request's prompt, and begin to prefill what is missing; False when it has to wait."""
        tokens = group.request.prompt
        if self._is_coming(tokens):
            return False
        prompt = group.prompt = self._prompts.open(tokens)
        group.forget_kept(self._prompts)
        missing = len(tokens) - prompt.done
        if not self._fits(group, missing):
            group.release_prompt(self._prompts)
            return False
        if group.begun is None:
            group.begun, group.prefilled = time.perf_counter(), missing
        if prompt.logits is not None:
            group.ready = group.ready or group.begun
        elif prompt.slot is not None:
            self.prefills.append(Prefill(group, None, prompt.slot, tokens, prompt.done))
        if group not in self._active:
            self._new.remove(group)
            self._active.append(group)
        return True

    def _is_coming(self, tokens: Tokens) -> bool:
        """Return whether a prompt is being prefilled that begins like this one, so that waiting for it saves work."""
        shared = self._prompts.shared(tokens)
        coming = (prefill.tokens for prefill in self.prefills if prefill.sequence is None)
        return any(common_prefix(other, tokens) - shared >= _WORTH_WAITING for other in coming)

    def _join(self, group: SequenceGroup, plan: Plan) -> None:
        """Give a slot to the next sample of a request."""
        prompt = group.prompt
        assert prompt is not None
        assert prompt.slot is not None
        sequence = (group.preempted or group.waiting).popleft()
        if sequence.status is Status.WAITING:
            self._turn = max(self._turn, group.turn)
            group.started += 1
            group.turn += group.started % self._slots_per_turn == 0
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

    # Who has cells.

    def _fill(self, plan: Plan) -> None:
        """Fill in which samples decode and what is prefilled; when that is too much, someone makes way."""
        plan.rows = self.running.copy()
        plan.chunks = self._chunks() if self.prefills else []
        if not self._free_cells(len(plan.rows) + sum(size for _, size in plan.chunks)):
            self.make_way(plan)

    def _chunks(self) -> list[tuple[Prefill, int]]:
        """Return the pieces that go into a step, the oldest first."""
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
        """Return whether this many more tokens fit, beside the next of all live samples and the prefills under way."""
        coming = sum(prefill.left for prefill in self.prefills) + len(self.running) + 1
        self._full = not self._free_cells(tokens + coming, keep=group)
        return not self._full

    def _free_cells(self, cells: int, *, keep: SequenceGroup | None = None) -> bool:
        """Swap idle prompts out until this many cells are free; return False when those in use leave fewer.

        Requests with nothing live release their prompts too, but for ``keep``; they look them up again at their turn.
        """
        while self._cells.free < cells:
            if self._prompts.swap_out():
                continue
            idle = [each for each in self._active if each.prompt and not (each.live or each.prefilling or each is keep)]
            if not idle:
                return False
            for group in idle:
                group.release_prompt(self._prompts)
        return True

    def _preempt(self) -> Sequence | SequenceGroup | None:
        """Make the youngest live sample, or a younger request's prompt on its way, give its cells back.

        Returns:
            The sample or request; None when only one is left.
        """
        self._full = True  # until another has ended
        ages: list[tuple[int, int, Sequence | SequenceGroup]] = []
        for group in self._active:
            ages += [(group.order, -1, group)] * group.prefilling
            ages += [(group.order, sequence.index, sequence) for sequence in group.live]
        if len(ages) < 2:
            return None
        *_, youngest = max(ages, key=itemgetter(0, 1))
        if isinstance(youngest, SequenceGroup):
            self.prefills = [each for each in self.prefills if each.sequence or each.group is not youngest]
            youngest.release_prompt(self._prompts)
        else:
            self._release(youngest, Status.PREEMPTED)
            youngest.group.preempted.appendleft(youngest)
            self._pending += 1
            self._full = True
        return youngest

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
            group.release_prompt(self._prompts)
        self._full = False
