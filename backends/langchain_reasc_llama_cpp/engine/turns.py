"""Whose sample gets the next free slot."""

from collections.abc import Sequence as Many

from langchain_reasc_llama_cpp.engine.job import Job

__all__ = ["Turns"]


class Turns:
    """Requests take turns of half the slots each, the oldest first.

    So few prompts are in the cache at a time, and one request with many samples does not keep the others out. Nobody
    passes one who was set back.
    """

    def __init__(self, n_parallel: int) -> None:
        """Make it, before anybody has had a turn.

        Args:
            n_parallel: how many slots there are.
        """
        self._slots, self._each = n_parallel, max(1, n_parallel // 2)
        self._now = 0

    def join(self, job: Job) -> None:
        """Let a job join the turn that is on now: those before it are over for everybody."""
        job.turn = self._now

    def began(self, job: Job) -> None:
        """Count a sample that was given a slot for the first time."""
        self._now = max(self._now, job.turn)
        job.started += 1
        job.turn += job.started % self._each == 0

    def next(self, active: Many[Job], new: Job | None, passed: Many[Job]) -> Job | None:
        """Whose sample comes next; None where there is no slot, or nobody to have it.

        Args:
            active: jobs that have begun.
            new: the oldest of those that have not.
            passed: jobs that cannot take a slot now.
        """
        taken = sum(len(job.live) for job in active)
        if taken >= self._slots:
            return None
        behind = [job for job in active if job.set_back]
        if behind:
            oldest = min(behind, key=lambda job: job.order)
            return None if oldest in passed or oldest.prefilling else oldest
        # A prompt comes in only when there will be slots for its samples, and these are kept for it meanwhile.
        reserved = sum(self._wanted(job) for job in active if job.prompt and not job.live)
        coming = taken
        for job in sorted([*active, *([new] if new else [])], key=lambda job: (job.turn, job.order)):
            if not job.waiting or job in passed:
                continue
            if job.prefilling:
                coming += self._wanted(job)
            elif coming >= self._slots:
                return None
            elif job.prompt or taken + reserved < self._slots:
                return job
        return None

    def _wanted(self, job: Job) -> int:
        return min(len(job.waiting), self._each)
