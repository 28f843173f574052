"""Who decodes next: which requests come in, which samples give way when the cache is full."""

import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from langchain_reasc_llama_cpp.engine.job import Feed, Job, Sequence
from langchain_reasc_llama_cpp.engine.kv_cells import KvCells
from langchain_reasc_llama_cpp.engine.prompt_cache import CachedPrompt, PromptCache, common_prefix
from langchain_reasc_llama_cpp.engine.turns import Turns

__all__ = ["Scheduler"]

_WORTH_WAITING = 32
"""A prompt waits for one that is being prefilled when it can share this many more tokens afterwards."""


class Scheduler:
    """Gives slots and KV cells to the samples of all requests.

    The cache is not reserved for the worst case: when it is full, the youngest sample gives its cells back and waits,
    keeping its tokens and its sampler, to go on later where it was. The oldest always runs, so all end.

    Attributes:
        decoding: sequences that take part in every step, in the order of their rows.
        feeds: prompts and resuming sequences on their way into the cache.
        rearranged: whether ``decoding`` has changed since whoever looks at it set this to False.
    """

    def __init__(self, cells: KvCells, prompts: PromptCache, *, n_parallel: int) -> None:
        self.decoding: list[Sequence] = []
        self.feeds: list[Feed] = []
        self.rearranged = True
        self._cells, self._prompts = cells, prompts
        self._new: deque[Job] = deque()
        self._active: list[Job] = []
        self._full = False  # nobody fits until something is released
        self._turns = Turns(n_parallel)

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._new or self._active)

    def jobs(self) -> list[Job]:
        """Every job, the oldest first."""
        return sorted([*self._active, *self._new], key=lambda job: job.order)

    def add(self, job: Job) -> None:
        """Queue a job. It joins the turn that is on now: those before it are over for everybody."""
        self._turns.join(job)
        self._new.append(job)

    def remove(self, job: Job) -> None:
        """Take a job out that has ended, was cancelled or failed; its slots and its pin are free at once."""
        for sequence in list(job.live):
            self.release(sequence)
        self.feeds = [feed for feed in self.feeds if feed.owner is not job]
        self._unpin(job)
        self._come_back(job)
        (self._active if job in self._active else self._new).remove(job)
        self._full = False

    def admit(self, begin: Callable[[Job, int], Sequence | None]) -> Iterator[Sequence]:
        """Let in whoever may come: yields sequences that are to draw their first token from the prompt's logits.

        Args:
            begin: makes the sequence of a job's sample; None where that cannot be.
        """
        if not self._new and not any(job.pending for job in self._active):
            return
        if not self.decoding and not self.feeds:
            self._full = False  # whoever is oldest always fits alone
        passed: list[Job] = []
        while not self._full and (job := self._turns.next(self._active, next(iter(self._new), None), passed)):
            if job.prompt is None and not self._bring_in(job):
                passed.append(job)
                continue
            assert job.prompt is not None
            if job.prefilling:
                continue
            if self._fits(job, len(job.set_back[0].tokens) if job.set_back else 0):
                sequence = self._join(job, job.prompt, begin)
                if sequence is None:
                    passed.append(job)
                elif sequence.tokens:
                    self._resume(sequence, job.prompt.length)
                else:
                    yield sequence

    def start(self, sequence: Sequence) -> None:
        """Let a sequence take part from the next step on."""
        self.decoding.append(sequence)
        self.rearranged = True

    def fed(self, feed: Feed, tokens: int) -> bool:
        """Count tokens that were decoded; True when they were the last."""
        feed.done += tokens
        self._cells.grow(feed.slot, tokens)
        if isinstance(feed.owner, Job):
            assert feed.owner.prompt is not None
            feed.owner.prompt.done = feed.done
        if feed.left:
            return False
        self.feeds.remove(feed)
        self._full = False
        if isinstance(feed.owner, Sequence):
            self.start(feed.owner)
        return True

    def release(self, sequence: Sequence, *, keep: bool = False) -> None:
        """Take a sequence out; its slot is free at once.

        Args:
            sequence: a live one.
            keep: let the prompt cache have its cells, as the prompt's only response.
        """
        job, slot = sequence.job, sequence.slot
        assert slot is not None
        job.live.remove(sequence)
        if sequence in self.decoding:
            self.decoding.remove(sequence)
            self.rearranged = True
        else:
            self.feeds = [feed for feed in self.feeds if feed.owner is not sequence]
        sequence.slot = None
        if keep and job.prompt is not None:
            self._prompts.extend(job.prompt, slot, sequence.tokens[: slot.length - job.prompt.length])
        else:
            self._cells.close(slot)
        if not job.live:
            self._unpin(job)
        self._full = False

    def make_room(self, cells: int, *, keep: Job | None = None) -> bool:
        """Set idle prompts aside until so many cells are free; False when those in use leave fewer."""
        while self._cells.room < cells:
            if not self._prompts.set_aside() and not self._unpin_idle(keep):
                return False
        return True

    def set_back(self) -> Sequence | Job | None:
        """Make the youngest give its cells back; None when only one is left."""
        prefilling = [feed.owner for feed in self.feeds if isinstance(feed.owner, Job)]
        live = [sequence for job in self._active for sequence in job.live]
        if len(live) + len(prefilling) < 2:
            return None
        job = max(prefilling, key=lambda job: job.order, default=None)
        youngest = max(live, key=lambda sequence: sequence.age, default=None)
        if job is not None and (youngest is None or youngest.job.order < job.order):
            self.feeds = [feed for feed in self.feeds if feed.owner is not job]
            self._unpin(job)
            self._full = True
            return job
        assert youngest is not None
        self.release(youngest)
        youngest.job.set_back.appendleft(youngest)
        self._full = True  # until another has ended
        return youngest

    def _join(self, job: Job, prompt: CachedPrompt, begin: Callable[[Job, int], Sequence | None]) -> Sequence | None:
        """Give a slot to the next sample of a job."""
        assert prompt.slot is not None
        sequence = job.set_back.popleft() if job.set_back else begin(job, job.waiting.popleft())
        if sequence is None:
            return None
        if not sequence.tokens:
            self._turns.began(job)
        sequence.slot = self._cells.open(prompt.slot, prompt.length)
        job.live.append(sequence)
        return sequence

    def _bring_in(self, job: Job) -> bool:
        """Pin a job's prompt, and begin to prefill what is missing of it; False when it has to wait."""
        tokens = job.request.prompt
        shared = self._prompts.shared(tokens)
        if any(
            common_prefix(feed.tokens, tokens) - shared >= _WORTH_WAITING
            for feed in self.feeds
            if isinstance(feed.owner, Job)
        ):
            return False
        prompt = job.prompt = self._prompts.open(tokens)
        self._come_back(job)
        if not self._fits(job, len(tokens) - prompt.done):
            self._unpin(job)
            return False
        if job.begun is None:
            job.begun = time.perf_counter()
        if prompt.logits is None:
            assert prompt.slot is not None
            self.feeds.append(Feed(job, prompt.slot, tokens, prompt.done))
        elif job.ready is None:
            job.ready = job.begun
        if job.prefilled is None:
            job.prefilled = 0 if prompt.logits is not None else len(tokens) - prompt.done
        if job not in self._active:
            self._new.remove(job)
            self._active.append(job)
        return True

    def _resume(self, sequence: Sequence, start: int) -> None:
        assert sequence.slot is not None
        if len(sequence.tokens) == 1:
            self.start(sequence)
        else:
            again = np.array(sequence.tokens[:-1], dtype=np.int32)
            self.feeds.append(Feed(sequence, sequence.slot, again, 0, start))

    def _fits(self, job: Job, tokens: int) -> bool:
        """Whether so many tokens more fit, beside the next of everyone who is live and what is on its way already."""
        coming = sum(feed.left for feed in self.feeds) + len(self.decoding) + 1
        self._full = not self.make_room(tokens + coming, keep=job)
        return not self._full

    def _unpin_idle(self, keep: Job | None) -> bool:
        """Let the prompts of jobs go that wait with nothing live; they look theirs up again when their turn comes."""
        idle = [job for job in self._active if job.prompt and not job.live and not job.prefilling]
        for job in idle:
            if job is not keep:
                self._unpin(job)
        return any(job is not keep for job in idle)

    def _unpin(self, job: Job) -> None:
        prompt, job.prompt = job.prompt, None
        if prompt is not None:
            if job.pending and job.parked is None:
                job.parked = prompt
                prompt.awaited += 1
            self._prompts.release(prompt)

    def _come_back(self, job: Job) -> None:
        prompt, job.parked = job.parked, None
        if prompt is not None:
            prompt.awaited -= 1
            self._prompts.trim()
