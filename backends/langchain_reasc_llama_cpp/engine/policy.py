"""Whose sample gets the next free slot, and who gives way."""

from collections.abc import Sequence as Many

from langchain_reasc_llama_cpp.engine.sequences import Sequence, SequenceGroup

__all__ = ["TurnPolicy"]


class TurnPolicy:
    """Requests take turns of half the slots each, the oldest first.

    So few prompts are in the cache at a time, and one request with many samples does not keep the others out. Nobody
    passes one whose sample was preempted.
    """

    def __init__(self, n_parallel: int) -> None:
        """Make it, before anybody has had a turn.

        Args:
            n_parallel: how many slots there are.
        """
        self._slots, self._each = n_parallel, max(1, n_parallel // 2)
        self._now = 0

    def join(self, group: SequenceGroup) -> None:
        """Let a request join the turn that is on now: those before it are over for everybody."""
        group.turn = self._now

    def began(self, group: SequenceGroup) -> None:
        """Count a sample that was given a slot for the first time."""
        self._now = max(self._now, group.turn)
        group.started += 1
        group.turn += group.started % self._each == 0

    def next(
        self, active: Many[SequenceGroup], new: SequenceGroup | None, passed: Many[SequenceGroup]
    ) -> SequenceGroup | None:
        """Whose sample comes next; None where there is no slot, or nobody to have it.

        Args:
            active: requests that have begun.
            new: the oldest of those that have not.
            passed: requests that cannot take a slot now.
        """
        taken = sum(len(group.live) for group in active)
        if taken >= self._slots:
            return None
        behind = [group for group in active if group.preempted]
        if behind:
            oldest = min(behind, key=lambda group: group.order)
            return None if oldest in passed or oldest.prefilling else oldest
        # A prompt comes in only when there will be slots for its samples, and these are kept for it meanwhile.
        reserved = sum(self._wanted(group) for group in active if group.prompt and not group.live)
        coming = taken
        for group in sorted([*active, *([new] if new else [])], key=lambda group: (group.turn, group.order)):
            if not group.waiting or group in passed:
                continue
            if group.prefilling:
                coming += self._wanted(group)
            elif coming >= self._slots:
                return None
            elif group.prompt or taken + reserved < self._slots:
                return group
        return None

    def victim(self, active: Many[SequenceGroup]) -> Sequence | SequenceGroup | None:
        """Who is preempted: the youngest live sample, or the prompt on its way of a younger request.

        None where there is only one of them.
        """
        prompts = [group for group in active if group.prefilling]
        live = [sequence for group in active for sequence in group.live]
        if len(live) + len(prompts) < 2:
            return None
        prompt = max(prompts, key=lambda group: group.order, default=None)
        youngest = max(live, key=lambda sequence: sequence.age, default=None)
        return prompt if prompt and (youngest is None or youngest.group.order < prompt.order) else youngest

    def _wanted(self, group: SequenceGroup) -> int:
        return min(len(group.waiting), self._each)
