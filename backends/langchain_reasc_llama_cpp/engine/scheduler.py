"""Plan the next step: which samples are admitted, decoded, prefilled or preempted."""

import time
from collections import deque
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Final

import numpy as np

from langchain_reasc_llama_cpp.engine.context import Logits, Tokens
from langchain_reasc_llama_cpp.engine.kv_cache import (
    KvCells,
    PromptCache,
    common_prefix,
)
from langchain_reasc_llama_cpp.engine.sequences import (
    Prefill,
    Sequence,
    SequenceGroup,
    Status,
)

_WORTH_WAITING = 32
"""A prompt waits for one that is being prefilled if it can then share at least this
many more tokens.
"""
_BY_ORDER: Final = attrgetter("order")
_PREFILL_SHARE = 8
"""While answers are generated, at most this fraction of ``n_batch`` is used for prompt
tokens in a step.
"""


@dataclass(slots=True)
class Plan:
    """The plan of one step, in this order.

    Attributes:
        starting: samples that draw their first token from their prompt's logits,
            without a decode.
        rows: samples that decode one token each, in the order of their rows, including
            the starting ones.
        chunks: parts of prompts, or of the texts of preempted samples, with their
            sizes.
        preempted: samples and unfinished prompts that released their cells for this
            step.
        failed: requests that do not fit even alone. The decoder removes them.
    """

    starting: list[Sequence] = field(default_factory=list)
    rows: list[Sequence] = field(default_factory=list)
    chunks: list[tuple[Prefill, int]] = field(default_factory=list)
    preempted: list[Sequence | SequenceGroup] = field(default_factory=list)
    failed: list[SequenceGroup] = field(default_factory=list)


class Scheduler:
    """Gives slots and KV cells to the samples of all requests.

    Requests take turns of half the slots each, the oldest first. This keeps few prompts
    in the cache at a time, and a request with many samples does not block the others.
    The following holds between two steps
    (``tests/backends/llama_cpp/test_scheduler.py`` searches for an order of events that
    breaks it):

    - **Cells.** ``KvCells.used`` counts the cells of all slots, shared cells once, and
      never exceeds the capacity. Nothing is reserved for the worst case: when the cells
      are full, the youngest sample is preempted. After the last request, only kept
      prompts hold cells, and these are freed when they are needed.
    - **Slots.** A sample holds a slot if and only if it is RUNNING or in PREFILL. At
      most ``n_parallel`` samples do, and each sequence id belongs to one slot.
    - **References.** A prompt's ``ref_count`` is the number of requests that have it as
      ``prompt``, and its ``waiters`` the number of requests that have it as ``kept``. A
      request with a live sample holds its prompt, so that the prompt is not swapped out
      meanwhile.
    - **Status.** Each sample of a request that has not left is in exactly one place:
      ``waiting``, ``preempted``, the rows, a prefill, or FINISHED.
    - **Turns.** No request with a cached prompt starts a sample while another such
      request has an earlier turn, or while a preempted sample waits.
    - **No starvation.** The oldest live sample is never preempted, so it ends, and the
      next one becomes the oldest.
    """

    def __init__(
        self, cells: KvCells, prompts: PromptCache, *, n_parallel: int, n_batch: int
    ) -> None:
        """Create a scheduler without requests.

        Args:
            cells: the KV cache.
            prompts: the prompts in it.
            n_parallel: the most samples with a slot.
            n_batch: the most tokens in a step.
        """
        self.running: list[Sequence] = []
        self.prefills: list[Prefill] = []
        self._cells, self._prompts = cells, prompts
        self._slots, self._n_batch = n_parallel, n_batch
        self._slots_per_turn, self._turn = max(1, n_parallel // 2), 0
        self._new: deque[SequenceGroup] = deque()
        self._active: list[SequenceGroup] = []
        self._pending = 0  # samples that need a slot
        self._taken = 0  # slots in use
        self._full = False  # whether no sample fits until something is released

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._new or self._active)

    def groups(self) -> list[SequenceGroup]:
        """Return every request, the oldest first."""
        return sorted([*self._active, *self._new], key=_BY_ORDER)

    def add_group(self, group: SequenceGroup) -> None:
        """Queue a request. It joins the present turn, since earlier turns are over."""
        group.turn = self._turn
        self._new.append(group)
        self._pending += group.pending

    def schedule(self) -> Plan:
        """Plan the next step, and give slots and cells to its samples."""
        plan = Plan()
        if self._pending:
            self._admit(plan)
        self._fill(plan)
        return plan

    def make_way(self, plan: Plan) -> None:
        """Shrink a plan that does not fit: preempt the youngest sample, or fail the
        only request.
        """
        victim = self._preempt()
        if victim is not None:
            plan.preempted.append(victim)
            self._fill(plan)
        else:
            plan.failed += {each.group for each in self.running} | {
                each.group for each in self.prefills
            }
            plan.rows, plan.chunks = [], []

    def advance(self, plan: Plan, logits: Logits) -> None:
        """Count the decoded tokens of a plan, and give completed prompts their logits.

        Args:
            plan: the plan that ran.
            logits: shape (rows + completed prompts, V), in this order.
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
        """Remove a live sample that has ended, and free its slot.

        Args:
            sequence: the sample.
            keep: whether the prompt cache keeps its cells, as the prompt's only
                response.
        """
        self._release(sequence, Status.FINISHED, keep=keep)

    def remove(self, group: SequenceGroup) -> None:
        """Remove a request that has ended, was cancelled or failed, and free its slots
        and cells.
        """
        self._pending -= group.pending
        for sequence in (*group.waiting, *group.preempted):
            sequence.status = Status.FINISHED
        group.waiting.clear()
        for sequence in list(group.live):
            self.release(sequence)
        self.prefills = [
            prefill for prefill in self.prefills if prefill.group is not group
        ]
        group.release_prompt(self._prompts)
        group.forget_kept(self._prompts)
        (self._active if group in self._active else self._new).remove(group)
        self._full = False

    # Admission: which samples get a slot.

    def _admit(self, plan: Plan) -> None:
        """Give slots to the samples whose turn it is, as far as they fit."""
        if not self.running and not self.prefills:
            self._full = False  # the oldest sample always fits if it is alone
        passed: list[SequenceGroup] = []
        while not self._full and self._taken < self._slots:
            group = self._next_group(passed)
            if group is None:
                return
            if group.prompt is None and not self._open_prompt(group):
                passed.append(group)
            elif not group.prefilling and self._fits(group, group.next_size):
                self._join(group, plan)

    def _next_group(self, passed: list[SequenceGroup]) -> SequenceGroup | None:
        """Return the request whose sample gets the next slot; those in ``passed``
        cannot use one now.
        """
        oldest = min(
            (group for group in self._active if group.preempted),
            key=_BY_ORDER,
            default=None,
        )
        if oldest is not None:
            return None if oldest in passed or oldest.prefilling else oldest
        return self._next_waiting(passed)

    def _next_waiting(self, passed: list[SequenceGroup]) -> SequenceGroup | None:
        """Return the request whose turn it is to start a sample, or None if no slot is
        left for it.
        """
        # A prompt is admitted only if there will be slots for its samples. These are
        # reserved during its prefill.
        reserved = sum(
            self._turn_size(group)
            for group in self._active
            if group.prompt and not group.live
        )
        coming = self._taken
        for group in sorted(
            [*self._active, *list(self._new)[:1]], key=attrgetter("turn", "order")
        ):
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

    def _open_prompt(self, group: SequenceGroup) -> bool:
        """Take a reference to a request's prompt, and start its prefill. Return False
        if the request has to wait.
        """
        tokens = group.request.prompt
        if self._shares_a_prefill(tokens):
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

    def _shares_a_prefill(self, tokens: Tokens) -> bool:
        """Return whether waiting saves work, because another prompt with the same
        beginning is being prefilled.
        """
        shared = self._prompts.shared(tokens)
        coming = (
            prefill.tokens for prefill in self.prefills if prefill.sequence is None
        )
        return any(
            common_prefix(other, tokens) - shared >= _WORTH_WAITING for other in coming
        )

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
            self.prefills.append(
                Prefill(group, sequence, sequence.slot, again, 0, prompt.length)
            )
            return
        if not sequence.tokens:
            plan.starting.append(sequence)
        self._run(sequence)

    def _run(self, sequence: Sequence) -> None:
        sequence.status = Status.RUNNING
        self.running.append(sequence)

    # Cells: which samples decode, and which give way.

    def _fill(self, plan: Plan) -> None:
        """Add the running samples and the next prefill chunks to the plan. If they do
        not fit, preempt a sample.
        """
        plan.rows = self.running.copy()
        plan.chunks = self._chunks() if self.prefills else []
        if not self._free_cells(len(plan.rows) + sum(size for _, size in plan.chunks)):
            self.make_way(plan)

    def _chunks(self) -> list[tuple[Prefill, int]]:
        """Return the parts of prefills for one step, the oldest first."""
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
        """Return whether so many more tokens fit, beside the next token of each live
        sample and the open prefills.
        """
        coming = sum(prefill.left for prefill in self.prefills) + len(self.running) + 1
        self._full = not self._free_cells(tokens + coming, keep=group)
        return not self._full

    def _free_cells(self, cells: int, *, keep: SequenceGroup | None = None) -> bool:
        """Swap idle prompts out until so many cells are free. Return False if the cells
        in use leave fewer.

        Requests without a live sample, except ``keep``, release their prompts too, and
        look them up again at their turn.
        """
        while self._cells.free < cells:
            if self._prompts.swap_out():
                continue
            idle = [
                each
                for each in self._active
                if each.prompt and not (each.live or each.prefilling or each is keep)
            ]
            if not idle:
                return False
            for group in idle:
                group.release_prompt(self._prompts)
        return True

    def _preempt(self) -> Sequence | SequenceGroup | None:
        """Free the cells of the youngest live sample, or of a younger request's
        unfinished prompt.

        Returns:
            The sample or request, or None if only one is left.
        """
        self._full = True  # until another sample has ended
        ages: list[tuple[int, int, Sequence | SequenceGroup]] = []
        for group in self._active:
            ages += [(group.order, -1, group)] * group.prefilling
            ages += [(group.order, sequence.index, sequence) for sequence in group.live]
        if len(ages) < 2:
            return None
        *_, youngest = max(ages, key=itemgetter(0, 1))
        if isinstance(youngest, SequenceGroup):
            self.prefills = [
                each
                for each in self.prefills
                if each.sequence or each.group is not youngest
            ]
            youngest.release_prompt(self._prompts)
        else:
            self._release(youngest, Status.PREEMPTED)
            youngest.group.preempted.appendleft(youngest)
            self._pending += 1
            self._full = True
        return youngest

    def _release(
        self, sequence: Sequence, status: Status, *, keep: bool = False
    ) -> None:
        group, slot = sequence.group, sequence.slot
        assert slot is not None
        if sequence.status is Status.RUNNING:
            self.running.remove(sequence)
        else:
            self.prefills = [
                prefill for prefill in self.prefills if prefill.sequence is not sequence
            ]
        sequence.status, sequence.slot = status, None
        group.live.remove(sequence)
        self._taken -= 1
        if keep and group.prompt is not None:
            self._prompts.extend(
                group.prompt, slot, sequence.tokens[: slot.length - group.prompt.length]
            )
        else:
            self._cells.close(slot)
        if not group.live:
            group.release_prompt(self._prompts)
        self._full = False
