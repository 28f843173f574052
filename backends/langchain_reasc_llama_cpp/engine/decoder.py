"""One decode step after the other, for all requests together."""

import time
from collections.abc import Sequence as Many

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfidenceError, ModelError, ReASCError
from langchain_reasc_llama_cpp.confidence.recorder import Wanted
from langchain_reasc_llama_cpp.engine.context import CacheFull, Chunk, DecodeContext, Logits
from langchain_reasc_llama_cpp.engine.job import Feed, Job, Sequence
from langchain_reasc_llama_cpp.engine.kv_cells import KvCells
from langchain_reasc_llama_cpp.engine.prompt_cache import PromptCache
from langchain_reasc_llama_cpp.engine.report import Report
from langchain_reasc_llama_cpp.engine.request import Failed, Finished, GenerationRequest
from langchain_reasc_llama_cpp.engine.scheduler import Scheduler
from langchain_reasc_llama_cpp.engine.text import TextAssembler
from langchain_reasc_llama_cpp.native.model import NativeModel
from langchain_reasc_llama_cpp.sampling.sampler import SamplerChain

__all__ = ["Decoder"]

_PREFILL_SHARE = 8
"""While answers are being generated, a step carries at most this fraction of ``n_batch`` as prompt tokens."""


class Decoder:
    """Continuous batching. Used by the engine's thread only.

    Each step carries one token of every live sequence and, beside them, a piece of the prompts that are coming in.
    Requests join and leave between steps.
    """

    def __init__(
        self,
        model: NativeModel,
        context: DecodeContext,
        *,
        n_parallel: int,
        cached_prompts: int,
        overlapped: bool = False,
    ) -> None:
        """Make it, with nothing decoded yet.

        Args:
            model: the loaded model.
            context: a context of that model.
            n_parallel: sequences decoded together at most.
            cached_prompts: prompts kept after their request.
            overlapped: whether to compute signals in a thread of their own, while the next step decodes.
        """
        self._model, self._context = model, context
        self._cells = KvCells(context, capacity=context.cells, n_sequences=context.n_sequences)
        self._prompts = PromptCache(self._cells, size=cached_prompts, whole_only=model.is_recurrent)
        self._scheduler = Scheduler(self._cells, self._prompts, n_parallel=n_parallel)
        self._report = Report(n_parallel, model, overlapped=overlapped)
        self._misfits: list[tuple[Job, ReASCError]] = []
        self._arrived = 0

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return self._scheduler.busy

    def add(self, request: GenerationRequest) -> None:
        """Take a request; its turn comes by the scheduler's rules."""
        self._scheduler.add(Job(request, self._arrived))
        self._arrived += 1

    def step(self) -> None:
        """Let in whoever may come, decode once, and draw the next token of every live sequence.

        Raises:
            ModelError: llama.cpp failed; call :meth:`fail`.
        """
        for sequence in self._scheduler.admit(self._begin):
            self._first_token(sequence)
        while self._misfits:
            job, error = self._misfits.pop()
            self._leave(job, Failed(error))
        if not self._scheduler.decoding and not self._scheduler.feeds:
            return
        logits, chunks = self._decode()
        rows = list(self._scheduler.decoding)
        drawn = logits[: len(rows)]
        at = len(rows)
        for chunk, feed in chunks:
            if self._scheduler.fed(feed, len(chunk.tokens)) and isinstance(feed.owner, Job):
                self._prompt_ready(feed.owner, logits[at])
                at += 1
        for sequence in rows:
            assert sequence.slot is not None
            self._cells.grow(sequence.slot)
        if rows:
            self._draw(drawn, rows)

    def drop_cancelled(self) -> None:
        """End the requests that were cancelled: what was begun comes out as it is, the rest never cost anything."""
        for job in self._scheduler.jobs():
            if job.request.cancelled:
                self._leave(job, self._report.cancelled(job))
        self._give_up({})

    def fail(self, error: Exception) -> None:
        """End everything that has begun with an error, and forget the cache: nobody knows what is in it."""
        jobs = self._scheduler.jobs()
        for job in [job for job in jobs if job.begun is not None] or jobs:
            self._leave(job, Failed(error))
        self._prompts.clear()
        self._cells.clear()

    def close(self, error: Exception) -> None:
        """End everything with an error."""
        for job in self._scheduler.jobs():
            self._leave(job, Failed(error))
        self._report.close()

    def _begin(self, job: Job, index: int) -> Sequence | None:
        request = job.request
        try:
            sampler = SamplerChain(request.sampling, job.salt + request.seed + index, self._model, request.grammar)
        except ReASCError as error:
            self._misfits.append((job, error))
            return None
        wanted = Wanted(request.signals, request.top_k_signal, request.logprobs)
        return Sequence(job, index, TextAssembler(request.stop), sampler, wanted)

    def _first_token(self, sequence: Sequence) -> None:
        """A first token is drawn from the prompt's own logits, without a decode."""
        prompt = sequence.job.prompt
        assert prompt is not None and prompt.logits is not None
        self._scheduler.start(sequence)
        self._draw(prompt.logits[None], [sequence])

    def _prompt_ready(self, job: Job, logits: npt.NDArray[np.float32]) -> None:
        assert job.prompt is not None
        job.prompt.logits = logits.copy()
        job.ready = job.ready or time.perf_counter()

    def _decode(self) -> tuple[Logits, list[tuple[Chunk, Feed]]]:
        while True:
            chunks = self._chunks() if self._scheduler.feeds else []
            cells = len(self._scheduler.decoding) + sum(len(chunk.tokens) for chunk, _ in chunks)
            if not self._scheduler.make_room(cells):
                self._set_back()
                continue
            if self._scheduler.rearranged:
                rows = self._scheduler.decoding
                self._context.arrange([s.slot.id for s in rows if s.slot], [s.slot.length for s in rows if s.slot])
                self._scheduler.rearranged = False
            tokens = [sequence.tokens[-1] for sequence in self._scheduler.decoding]
            try:
                return self._context.decode(tokens, [chunk for chunk, _ in chunks]), chunks
            except CacheFull:
                self._set_back()

    def _chunks(self) -> list[tuple[Chunk, Feed]]:
        """The pieces of prompts that go into this step."""
        rows, whole = len(self._scheduler.decoding), self._context.n_batch
        budget = max(1, whole // _PREFILL_SHARE) if rows else whole
        budget = min(budget, whole - rows)
        chunks: list[tuple[Chunk, Feed]] = []
        for feed in self._scheduler.feeds:
            size = min(feed.left, budget)
            if size < 1:
                break
            last = size == feed.left and isinstance(feed.owner, Job)
            tokens = feed.tokens[feed.done : feed.done + size]
            chunks.append((Chunk(feed.slot.id, tokens, feed.start + feed.done, last), feed))
            budget -= size
        return chunks

    def _set_back(self) -> None:
        if self._scheduler.set_back() is None:
            raise ModelError("the KV cache cannot hold even one sequence; make n_ctx or n_cells larger")

    def _draw(self, logits: Logits, sequences: Many[Sequence]) -> None:
        """Draw the next token of each sequence from its row of logits; those that end leave at once."""
        tokens: list[int] = []
        failed: dict[Sequence, ReASCError] = {}
        for sequence, row in zip(sequences, logits, strict=True):
            try:
                tokens.append(sequence.sampler.draw(row))
            except ReASCError as error:
                failed[sequence] = error
        if failed:
            kept = [row for row, sequence in enumerate(sequences) if sequence not in failed]
            logits, sequences = logits[kept], [sequences[row] for row in kept]
        self._report.record(logits, tokens, sequences)
        for sequence, token in zip(sequences, tokens, strict=True):
            try:
                self._take(sequence, token)
            except ReASCError as error:
                failed[sequence] = error
        if failed or self._report.unsound:
            self._give_up(failed)

    def _give_up(self, failed: dict[Sequence, ReASCError]) -> None:
        """End the requests of sequences that cannot go on; the others do."""
        for sequence in self._report.take_unsound():
            failed.setdefault(sequence, ConfidenceError(f"the logits of {self._model.path.name} are not finite"))
        for sequence, error in failed.items():
            self._leave(sequence.job, Failed(error))

    def _take(self, sequence: Sequence, token: int) -> None:
        """Add a drawn token to its sequence, and end it where it ends."""
        if not sequence.tokens:
            sequence.began = time.perf_counter()
        piece, ends = self._model.piece(token)
        sequence.tokens.append(token)
        sequence.text.push(piece)
        request = sequence.job.request
        if ends or sequence.text.stopped:
            self._finish(sequence, "stop")
        elif len(sequence.tokens) >= request.max_tokens:
            self._finish(sequence, "length")
        elif request.stream:
            self._report.text(sequence)

    def _finish(self, sequence: Sequence, reason: str) -> None:
        job = sequence.job
        self._report.ended(sequence, reason)
        self._scheduler.release(sequence, keep=len(job.request.samples) == 1)  # a conversation may go on from it
        sequence.sampler.close()
        job.unfinished -= 1
        if not job.unfinished:
            self._leave(job, Finished())

    def _leave(self, job: Job, last: Finished | Failed) -> None:
        """Take a job out, and say the last word about it."""
        if job.left:
            return
        job.left = True
        begun = [*job.live, *job.set_back]
        self._scheduler.remove(job)
        for sequence in begun:
            self._report.drop(sequence)
            sequence.sampler.close()
        job.request.emit(last)
