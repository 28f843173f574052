"""The decoding loop for all requests together: schedule, run, draw, and send finished
samples.
"""

import time
from collections.abc import Iterable
from collections.abc import Sequence as Many

import numpy as np
from langchain_reasc_backend.bridge import End

from langchain_reasc.exceptions import ConfidenceError, ModelError, ReASCError
from langchain_reasc.models.contract import CANCELLED
from langchain_reasc_llama_cpp.engine.context import CacheFull, DecodeContext, Logits
from langchain_reasc_llama_cpp.engine.kv_cache import KvCells, PromptCache
from langchain_reasc_llama_cpp.engine.recorder import Recorder
from langchain_reasc_llama_cpp.engine.request import (
    Completion,
    GenerationRequest,
    TextDelta,
)
from langchain_reasc_llama_cpp.engine.scheduler import Plan, Scheduler
from langchain_reasc_llama_cpp.engine.sequences import Sequence, SequenceGroup, Status
from langchain_reasc_llama_cpp.native.model import NativeModel
from langchain_reasc_llama_cpp.sampling.sampler import SamplerChain


class Decoder:
    """Continuous batching. Only the engine's thread uses it.

    Each step decodes one token of every running sample, and a part of new prompts.
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
        """Create the decoder without decoding anything.

        Args:
            model: the loaded model.
            context: a context of that model.
            n_parallel: samples decoded together at most.
            cached_prompts: prompts kept after their request.
            overlapped: whether to compute signals in a thread of their own, while the
                next step decodes.
        """
        self._model, self._context = model, context
        self.cells = KvCells(
            context, capacity=context.cells, n_sequences=context.n_sequences
        )
        self.prompts = PromptCache(
            self.cells,
            size=cached_prompts,
            whole_only=model.is_recurrent,
            window=model.window,
        )
        self._scheduler = Scheduler(
            self.cells, self.prompts, n_parallel=n_parallel, n_batch=context.n_batch
        )
        self._recorder = Recorder(n_parallel, model, overlapped=overlapped)
        self._arranged: list[
            Sequence
        ] = []  # the samples that the context's rows are set up for
        self._failures: dict[SequenceGroup, ReASCError] = {}  # found in this step
        self._arrived = 0

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return self._scheduler.busy

    def add_request(self, request: GenerationRequest) -> None:
        """Queue a request. The scheduler decides when it runs."""
        self._scheduler.add_group(SequenceGroup(request, self._arrived))
        self._arrived += 1

    def step(self) -> None:
        """Run one step of the scheduler's plan: draw first tokens, decode, and draw
        each running sample's next token.

        Raises:
            ModelError: llama.cpp failed; call :meth:`fail`.
        """
        plan = self._scheduler.schedule()
        if plan.starting:
            self._start(plan)
        if plan.rows or plan.chunks:
            logits = self._decode(plan)
            self._scheduler.advance(plan, logits)
            if plan.rows:
                self._draw(logits[: len(plan.rows)], plan.rows, decoded=True)
        self._end_failed(plan)

    def drop_cancelled(self) -> None:
        """End cancelled requests. Unfinished samples are sent as they are; samples not
        yet begun cost nothing.
        """
        cancelled = [
            group for group in self._scheduler.groups() if group.request.cancelled
        ]
        self._reject(self._recorder.flush())
        for group in cancelled:
            if group not in self._failures:
                for sequence in sorted(
                    [*group.live, *group.preempted], key=lambda sequence: sequence.index
                ):
                    if sequence.tokens:
                        self._send(sequence, CANCELLED)
                self._leave(group)
        self._end_failed()

    def fail(self, error: Exception) -> None:
        """End all running requests with an error, and clear the cache, because its
        contents are unknown.
        """
        groups = self._scheduler.groups()
        for group in [group for group in groups if group.begun is not None] or groups:
            self._leave(group, error)
        self._failures.clear()
        self._arranged.clear()
        self.prompts.clear()
        self.cells.clear()

    def close(self, error: Exception) -> None:
        """End all requests with an error."""
        for group in self._scheduler.groups():
            self._leave(group, error)
        self._recorder.close()

    def _start(self, plan: Plan) -> None:
        """Draw first tokens from the prompts' logits. Samples that end or fail here are
        not decoded.
        """
        for sequence in plan.starting:
            group = sequence.group
            if (
                sequence.status is not Status.RUNNING
                or group in self._failures
                or group.prompt is None
            ):
                continue
            request, logits = group.request, group.prompt.logits
            assert logits is not None
            seed = group.salt + request.seed + sequence.index
            try:
                sequence.sampler = SamplerChain(
                    request.sampling,
                    seed,
                    self._model,
                    request.grammar,
                    context=self._context.address,
                )
            except ReASCError as error:
                self._failures[group] = error
                continue
            sequence.began = time.perf_counter()
            self._draw(logits[None], [sequence], decoded=False)
        self._end_failed(plan)
        plan.rows = [
            sequence for sequence in plan.rows if sequence.status is Status.RUNNING
        ]
        plan.chunks = [
            (prefill, size) for prefill, size in plan.chunks if not prefill.group.left
        ]

    def _decode(self, plan: Plan) -> Logits:
        """Decode. Return a row of logits for each of the plan's rows, then for each
        prompt that is now complete.
        """
        while plan.rows or plan.chunks:
            if plan.rows != self._arranged:
                slots = [sequence.slot for sequence in plan.rows if sequence.slot]
                self._context.arrange(
                    [slot.id for slot in slots], [slot.length for slot in slots]
                )
                self._arranged = plan.rows
            chunks = [prefill.chunk(size) for prefill, size in plan.chunks]
            try:
                return self._context.decode(
                    [sequence.tokens[-1] for sequence in plan.rows], chunks
                )
            except CacheFull:
                # with sliding windows, llama.cpp needs other numbers of cells than we
                # count
                self._scheduler.make_way(plan)
        return np.empty((0, self._model.vocabulary_size), dtype=np.float32)

    def _draw(
        self, logits: Logits, sequences: Many[Sequence], *, decoded: bool
    ) -> None:
        """Draw the next token of each sample from its row of logits. Samples that end
        leave immediately.

        Args:
            logits: shape (n, V).
            sequences: the n samples.
            decoded: whether these are the first rows of the last decode.
        """
        drawn: list[int] = []  # the rows that a token could be drawn from
        tokens: list[int] = []
        for row, sequence in enumerate(sequences):
            assert sequence.sampler is not None
            try:
                token = sequence.sampler.draw(logits[row], row if decoded else -1)
                tokens.append(token)
                drawn.append(row)
            except ReASCError as error:
                self._failures[sequence.group] = error
        if len(drawn) < len(sequences):
            logits, sequences = logits[drawn], [sequences[row] for row in drawn]
        if unsound := self._recorder.record(logits, tokens, sequences):
            self._reject(unsound)
        for sequence, token in zip(sequences, tokens, strict=True):
            try:
                self._append(sequence, token)
            except ReASCError as error:
                self._failures[sequence.group] = error

    def _append(self, sequence: Sequence, token: int) -> None:
        """Add a drawn token to its sample, and end the sample if it is complete."""
        piece, ends = self._model.piece(token)
        request = sequence.group.request
        sequence.tokens.append(token)
        if sequence.text.push(piece) or ends:
            self._finish(sequence, "stop")
        elif len(sequence.tokens) >= request.max_tokens:
            self._finish(sequence, "length")
        elif request.stream:
            self._send_text(sequence)

    def _finish(self, sequence: Sequence, reason: str) -> None:
        group = sequence.group
        self._reject(self._recorder.flush())
        if group in self._failures:
            return
        self._send(sequence, reason)
        # a conversation may go on from it
        self._scheduler.release(sequence, keep=len(group.request.samples) == 1)
        sequence.close()
        group.unfinished -= 1
        if not group.unfinished:
            self._leave(group)

    def _send_text(self, sequence: Sequence, *, final: bool = False) -> None:
        """Send text of a sample that is complete enough to show and was not sent yet;
        with ``final``, all of it.
        """
        text = sequence.text.delta(final=final)
        if text:
            logprobs = self._recorder.logprobs_since(sequence, sequence.sent)
            sequence.sent += len(logprobs or ())
            sequence.group.request.emit(TextDelta(sequence.index, text, logprobs))

    def _send(self, sequence: Sequence, reason: str) -> None:
        """Send a sample that has ended and whose logits are finite, once the recorder
        is flushed.
        """
        group, request = sequence.group, sequence.group.request
        if request.stream:
            self._send_text(sequence, final=True)
        prompt_tokens = len(request.prompt)
        # The first sample pays for the prompt.
        paid = (
            min(group.prefilled or 0, prompt_tokens)
            if sequence.index == request.samples.start
            else 0
        )
        begun, ready = group.begun or group.arrived, group.ready or group.arrived
        decode = time.perf_counter() - sequence.began
        sizes = [len(self._model.piece(token)[0]) for token in sequence.tokens]
        request.emit(
            Completion(
                index=sequence.index,
                seed=request.seed + sequence.index,
                text=sequence.text.text(),
                signals=self._recorder.signals(sequence),
                finish_reason=reason,
                prompt_tokens=prompt_tokens,
                cached_tokens=prompt_tokens - paid,
                output_tokens=len(sequence.tokens),
                sizes=sizes if sequence.measures.signals else None,
                logprobs=self._recorder.logprobs_since(sequence, sequence.sent),
                timing={
                    "queued": begun - group.arrived,
                    "prefill": ready - begun,
                    "decode": decode,
                },
            )
        )

    def _reject(self, unsound: Iterable[Sequence]) -> None:
        """Fail the requests of samples whose logits were not finite."""
        for sequence in unsound:
            error = ConfidenceError(
                f"the logits of {self._model.path.name} are not finite"
            )
            self._failures.setdefault(sequence.group, error)

    def _end_failed(self, plan: Plan | None = None) -> None:
        """End the requests that failed in this step. The others continue."""
        for group in plan.failed if plan else ():
            self._failures[group] = ModelError(
                "the KV cache cannot hold even one sequence; make n_ctx or n_cells "
                "larger"
            )
        while self._failures:
            self._leave(*self._failures.popitem())

    def _leave(self, group: SequenceGroup, error: Exception | None = None) -> None:
        """Remove a request, and send its end."""
        if group.left:
            return
        group.left = True
        begun = [*group.live, *group.preempted]
        self._scheduler.remove(group)
        for sequence in begun:
            self._recorder.drop(sequence)
            sequence.close()
        group.request.emit(End(error))
