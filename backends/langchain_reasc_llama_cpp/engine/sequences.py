"""Running requests: a sequence group is a request, a sequence is one of its samples."""

import codecs
import time
import zlib
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_reasc_llama_cpp.engine.context import Chunk, Tokens
from langchain_reasc_llama_cpp.engine.kv_cache import CachedPrompt, PromptCache, Slot
from langchain_reasc_llama_cpp.engine.request import GenerationRequest, Measures
from langchain_reasc_llama_cpp.sampling.sampler import SamplerChain


class TextAssembler:
    """Collects the bytes of one response, and returns the text that may be shown.

    A character is shown with its last byte; invalid UTF-8 becomes U+FFFD. Text that may
    be the start of a stop string is held back until this is certain.

    Attributes:
        stopped: whether a stop string was found. The text ends before it.
    """

    def __init__(self, stop: tuple[bytes, ...] = ()) -> None:
        self._stop = stop
        self._longest = max(map(len, stop), default=0)
        self._bytes = bytearray()
        self._shown = 0  # bytes given to the decoder
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.stopped = False

    def push(self, piece: bytes) -> bool:
        """Append a token's bytes. Return :attr:`stopped`, which becomes true with the
        end of a stop string.
        """
        self._bytes += piece
        if self._stop:
            begin = max(0, len(self._bytes) - len(piece) - self._longest + 1)
            found = [
                at for stop in self._stop if (at := self._bytes.find(stop, begin)) >= 0
            ]
            if found:
                del self._bytes[min(found) :]
                self.stopped = True
        return self.stopped

    def delta(self, *, final: bool = False) -> str:
        """Return the new text that can be shown. ``final`` includes the text held back."""
        end = len(self._bytes) - (0 if final or self.stopped else self._held_back())
        fresh = bytes(self._bytes[self._shown : end])
        self._shown = max(self._shown, end)
        return self._decoder.decode(fresh, final=final)

    def text(self) -> str:
        """Return the whole text so far."""
        return self._bytes.decode("utf-8", "replace")

    def _held_back(self) -> int:
        """Return the length of the longest tail that is the start of a stop string."""
        for size in range(min(self._longest - 1, len(self._bytes)), 0, -1):
            if any(stop.startswith(self._bytes[-size:]) for stop in self._stop):
                return size
        return 0


class Status(Enum):
    """The state of a sample. Only RUNNING and PREFILL hold a slot of the KV cache."""

    WAITING = auto()
    """The sample has no token yet."""
    RUNNING = auto()
    """The sample decodes a token in every step."""
    PREEMPTED = auto()
    """The sample lost its cells, and waits with its tokens and its sampler."""
    PREFILL = auto()
    """The sample was preempted, and its own tokens are being decoded again."""
    FINISHED = auto()
    """The sample has ended, or was abandoned."""


@dataclass(eq=False, slots=True)
class Sequence:
    """One sample.

    Attributes:
        group: the request that it belongs to.
        index: the sample's index.
        measures: the numbers that are recorded for its tokens.
        text: the sample's text so far.
        status: its state.
        slot: its sequence in the KV cache, while RUNNING or in PREFILL.
        tokens: the generated tokens; the last one is not in the KV cache yet.
        sampler: the sampler chain with its state; None before the first token and after
            the last.
        signals: the signals of its tokens, in arrays of shape (number of signals,
            tokens).
        logprobs: OpenAI's entries of its tokens.
        sent: how many of these entries were sent with streamed text.
        began: when its first token was drawn.
    """

    group: "SequenceGroup"
    index: int
    measures: Measures
    text: TextAssembler
    status: Status = Status.WAITING
    slot: Slot | None = None
    tokens: list[int] = field(default_factory=list)
    sampler: SamplerChain | None = None
    signals: list[npt.NDArray[np.floating[Any]]] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    sent: int = 0
    began: float = 0.0

    def close(self) -> None:
        """Mark the sample as FINISHED, and free its sampler."""
        self.status = Status.FINISHED
        if self.sampler is not None:
            self.sampler.close()
            self.sampler = None


@dataclass(eq=False)
class SequenceGroup:
    """A request in the engine.

    Attributes:
        request: the request itself.
        order: its place in the order of arrival.
        turn: its place in the order of turns; the group with the lowest turn is next.
        started: how many samples have had a slot.
        unfinished: how many samples have not ended.
        waiting: samples that are WAITING, in the order of their indices.
        preempted: samples that are PREEMPTED, the oldest first.
        live: samples that hold a slot.
        prompt: its prompt in the KV cache, while the request holds a reference to the
            prompt.
        kept: the prompt that it released between two turns, and will use again.
        prefilled: how many prompt tokens were decoded for this request, once known.
        arrived: when the request came.
        begun: when work on its prompt began.
        ready: when its prompt was in the cache.
        left: whether its last event was sent.
        salt: a hash of the prompt, added to the seed, so that samples of different
            prompts are independent.
    """

    request: GenerationRequest
    order: int
    turn: int = 0
    started: int = 0
    preempted: deque[Sequence] = field(default_factory=deque)
    live: list[Sequence] = field(default_factory=list)
    prompt: CachedPrompt | None = None
    kept: CachedPrompt | None = None
    prefilled: int | None = None
    arrived: float = field(default_factory=time.perf_counter)
    begun: float | None = None
    ready: float | None = None
    left: bool = False

    def __post_init__(self) -> None:
        """Create the samples, all WAITING."""
        request = self.request
        self.waiting = deque(
            Sequence(self, index, request.measures, TextAssembler(request.stop))
            for index in request.samples
        )
        self.unfinished = len(self.waiting)
        self.salt = zlib.crc32(request.prompt.tobytes())

    @property
    def pending(self) -> int:
        """How many samples need a slot."""
        return len(self.waiting) + len(self.preempted)

    @property
    def next_size(self) -> int:
        """The number of tokens that the next sample to get a slot has already."""
        return len(self.preempted[0].tokens) if self.preempted else 0

    @property
    def prefilling(self) -> bool:
        """Whether its prompt is being decoded into the cache."""
        return self.prompt is not None and self.prompt.logits is None

    def release_prompt(self, prompts: PromptCache) -> None:
        """Release the prompt. Remember it in ``kept`` while a sample waits for another
        turn.
        """
        prompt, self.prompt = self.prompt, None
        if prompt is not None:
            if self.pending and self.kept is None:
                self.kept = prompt
                prompt.waiters += 1
            prompts.release(prompt)

    def forget_kept(self, prompts: PromptCache) -> None:
        """Forget the released prompt, because it is used again or no longer needed."""
        prompt, self.kept = self.kept, None
        if prompt is not None:
            prompt.waiters -= 1
            prompts.trim()


@dataclass(eq=False, slots=True)
class Prefill:
    """Tokens that are decoded into the KV cache, several at a time.

    Attributes:
        group: the request of the tokens.
        sequence: the preempted sample that the tokens belong to; None for the group's
            prompt.
        slot: the sequence in the KV cache.
        tokens: all tokens, shape (T,).
        done: how many are in the cache.
        start: the position of the first token.
    """

    group: SequenceGroup
    sequence: Sequence | None
    slot: Slot
    tokens: Tokens
    done: int
    start: int = 0

    @property
    def left(self) -> int:
        """How many tokens are not in the cache yet."""
        return len(self.tokens) - self.done

    def chunk(self, size: int) -> Chunk:
        """Return the next tokens to decode. The last token of a prompt gives the logits
        for the first draw.
        """
        tokens = self.tokens[self.done : self.done + size]
        wants_logits = size == self.left and self.sequence is None
        return Chunk(self.slot.id, tokens, self.start + self.done, wants_logits)
