"""Serves one request on a context: prefill once, share, step, sample, let go."""

import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ModelError
from langchain_reasc_llama_cpp.context import CacheFull, DecodeContext, Logits
from langchain_reasc_llama_cpp.model import NativeModel
from langchain_reasc_llama_cpp.request import Completion, GenerationRequest, TextDelta
from langchain_reasc_llama_cpp.sampler import SamplerChain
from langchain_reasc_llama_cpp.scheduler import Scheduler, Sequence
from langchain_reasc_llama_cpp.signals import SignalBuffers, SignalRecorder
from langchain_reasc_llama_cpp.text import TextAssembler

__all__ = ["Decoder"]


class Decoder:
    """Runs requests one after the other. Used by the engine's thread only.

    The prompt's KV cells and last logits stay after a request, so a request with the same prompt prefills nothing.
    """

    def __init__(self, model: NativeModel, context: DecodeContext, *, n_slots: int) -> None:
        self._model, self._context, self._n_slots = model, context, n_slots
        self._buffers = SignalBuffers(n_slots, model.vocabulary_size)
        self._prompt: npt.NDArray[np.int32] | None = None
        self._prompt_logits = np.empty((1, model.vocabulary_size), dtype=np.float32)

    def serve(self, request: GenerationRequest, *, interrupted: Callable[[], bool]) -> None:
        """Generate every sample of a request, emitting its events but the last.

        Args:
            request: what to generate.
            interrupted: asked between decode steps; once True, live samples end as "cancelled".

        Raises:
            ModelError: llama.cpp failed.
            ConfidenceError: the model's logits are not finite.
        """
        run = _Run(self, request, interrupted)
        try:
            run.generate()
        except BaseException:
            self._prompt = None
            self._context.clear()
            raise
        finally:
            run.close()

    def prefill(self, request: GenerationRequest, interrupted: Callable[[], bool]) -> int:
        """Have the request's prompt in the cache and its logits at hand; returns the tokens prefilled for it."""
        if self._prompt is not None and np.array_equal(self._prompt, request.prompt):
            return 0
        self._prompt = None
        self._context.clear()
        done = self._context.prefill(request.prompt, interrupted=interrupted)
        if done == len(request.prompt):
            self._prompt_logits[:] = self._context.logits(1)
            self._prompt = request.prompt
        return done


class _Run:
    """One request under way."""

    def __init__(self, decoder: Decoder, request: GenerationRequest, interrupted: Callable[[], bool]) -> None:
        self._decoder, self._request, self._interrupted = decoder, request, interrupted
        self._model, self._context = decoder._model, decoder._context
        self._recorder = SignalRecorder(decoder._buffers, request.signals, request.top_k_signal)
        self._sequences = [
            Sequence(index, (request.seed + index), TextAssembler(request.stop)) for index in request.samples
        ]
        self._scheduler = Scheduler(
            self._sequences, n_slots=decoder._n_slots, cells=self._context.cells, prompt=len(request.prompt)
        )
        # One seed for many prompts would tie their samples together: the same draw picks each first token.
        self._salt = zlib.crc32(request.prompt.tobytes())
        self._prefilled = 0
        self._rearranged = True

    def generate(self) -> None:
        joined = self._scheduler.admit()
        self._prefilled = self._decoder.prefill(self._request, self._interrupted)
        while self._scheduler.busy:
            if self._interrupted():
                self._cancel()
                return
            self._join(joined)
            if self._scheduler.live:
                self._step()
            joined = self._scheduler.admit()

    def close(self) -> None:
        """Free what the sequences hold outside Python."""
        for sequence in self._sequences:
            if sequence.sampler is not None:
                sequence.sampler.close()

    def _join(self, joined: list[Sequence]) -> None:
        """Start or resume sequences. A first token is drawn from the prompt's own logits, without a decode."""
        for sequence in joined:
            assert sequence.slot is not None
            self._rearranged = True
            self._context.share_prompt(sequence.slot)
            if len(sequence.tokens) > 1:
                again = np.array(sequence.tokens[:-1], dtype=np.int32)
                self._context.prefill(again, slot=sequence.slot, start=len(self._request.prompt), logits=False)
        fresh = [sequence for sequence in joined if not sequence.tokens]
        logits = self._decoder._prompt_logits
        for sequence in fresh:
            sequence.sampler = SamplerChain(
                self._request.sampling, self._salt + sequence.seed, self._model, self._request.grammar
            )
            token = sequence.sampler.draw(logits[0])
            self._take(logits, [token], [sequence])

    def _step(self) -> None:
        """Decode one token of every live sequence, and draw the next."""
        logits = self._advance()
        live = list(self._scheduler.live)
        tokens = [s.sampler.draw(logits[row]) for row, s in enumerate(live) if s.sampler is not None]
        self._take(logits, tokens, live)

    def _advance(self) -> Logits:
        while True:
            while not self._scheduler.step_fits():
                self._set_back()
            live = self._scheduler.live
            if self._rearranged:
                prompt = len(self._request.prompt)
                slots = [s.slot for s in live if s.slot is not None]
                self._context.arrange(slots, [prompt + len(s.tokens) - 1 for s in live])
                self._rearranged = False
            try:
                return self._context.advance([s.tokens[-1] for s in live])
            except CacheFull:
                self._set_back()

    def _set_back(self) -> None:
        sequence = self._scheduler.set_back()
        if sequence is None or sequence.slot is None:
            raise ModelError("the KV cache cannot hold even one sequence; make n_ctx or n_cells larger")
        self._context.forget(sequence.slot)
        self._rearranged = True

    def _take(self, logits: Logits, tokens: list[int], sequences: list[Sequence]) -> None:
        """Add one drawn token to each sequence; those that end leave at once."""
        self._recorder.record(logits, tokens, sequences)
        ended: list[tuple[Sequence, str]] = []
        for sequence, token in zip(sequences, tokens, strict=True):
            piece, ends = self._model.piece(token)
            sequence.tokens.append(token)
            sequence.text.push(piece)
            if ends or sequence.text.stopped:
                ended.append((sequence, "stop"))
            elif len(sequence.tokens) >= self._request.max_tokens:
                ended.append((sequence, "length"))
            elif self._request.stream and (text := sequence.text.delta()):
                self._request.emit(TextDelta(sequence.index, text))
        for sequence, reason in ended:
            self._finish(sequence, reason)

    def _finish(self, sequence: Sequence, reason: str) -> None:
        self._recorder.flush()
        assert sequence.slot is not None
        self._scheduler.release(sequence)
        self._context.forget(sequence.slot)
        self._rearranged = True
        self._emit(sequence, reason)

    def _cancel(self) -> None:
        """End what was begun: the live, and those set back; the rest never cost anything."""
        self._recorder.flush()
        begun = [*self._scheduler.live, *(s for s in self._scheduler.waiting if s.tokens)]
        for sequence in begun:
            self._emit(sequence, "cancelled")
        for sequence in self._scheduler.live:
            assert sequence.slot is not None
            self._context.forget(sequence.slot)

    def _emit(self, sequence: Sequence, reason: str) -> None:
        request = self._request
        if request.stream and (text := sequence.text.delta(final=True)):
            request.emit(TextDelta(sequence.index, text))
        whole = len(request.prompt)
        paid = self._prefilled if sequence is self._sequences[0] else 0
        request.emit(
            Completion(
                index=sequence.index,
                seed=sequence.seed,
                text=sequence.text.text(),
                signals=self._recorder.result(sequence),
                finish_reason=reason,
                prompt_tokens=whole,
                cached_tokens=whole - paid,
                output_tokens=len(sequence.tokens),
            )
        )
        sequence.signals.clear()
