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

__all__ = ["Prefill", "Sequence", "SequenceGroup", "Status", "TextAssembler"]


class TextAssembler:
    """Collects the bytes of one response, and says which text may be shown.

    A character is shown when its last byte has come; invalid UTF-8 becomes U+FFFD. Text that may turn out to begin a
    stop string is held back until that is settled.

    Attributes:
        stopped: whether a stop string was found; the text ends before it.
    """

    def __init__(self, stop: tuple[bytes, ...] = ()) -> None:
        self._stop = stop
        self._longest = max(map(len, stop), default=0)
        self._bytes = bytearray()
        self._shown = 0  # bytes given to the decoder
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.stopped = False

    def push(self, piece: bytes) -> bool:
        """Append a token's bytes; return :attr:`stopped`, which is set when they complete a stop string."""
        self._bytes += piece
        if self._stop:
            begin = max(0, len(self._bytes) - len(piece) - self._longest + 1)
            found = [at for stop in self._stop if (at := self._bytes.find(stop, begin)) >= 0]
            if found:
                del self._bytes[min(found) :]
                self.stopped = True
        return self.stopped

    def delta(self, *, final: bool = False) -> str:
        """Return the text that can be shown since the last call; ``final`` includes what was held back."""
        end = len(self._bytes) - (0 if final or self.stopped else self._held_back())
        fresh = bytes(self._bytes[self._shown : end])
        self._shown = max(self._shown, end)
        return self._decoder.decode(fresh, final=final)

    def text(self) -> str:
        """Return the whole text so far."""
        return self._bytes.decode("utf-8", "replace")

    def _held_back(self) -> int:
        """Return the length of the longest tail that begins a stop string."""
        for size in range(min(self._longest - 1, len(self._bytes)), 0, -1):
            if any(stop.startswith(self._bytes[-size:]) for stop in self._stop):
                return size
        return 0


class Status(Enum):
    """The state of a sample. Only RUNNING and PREFILL hold a slot of the KV cache."""

    WAITING = auto()
    """No token was drawn yet."""
    RUNNING = auto()
    """It takes part in every step."""
    PREEMPTED = auto()
    """It gave its cells back, and waits with its tokens and its sampler."""
    PREFILL = auto()
    """It was preempted, and its own tokens are on their way back into the cache."""
    FINISHED = auto()
    """It has ended, or was given up."""


@dataclass(eq=False, slots=True)
class Sequence:
    """One sample.

    Attributes:
        group: the request that it belongs to.
        index: the sample's index.
        measures: what is recorded of its tokens.
        text: the sample's text so far.
        status: the state it is in.
        slot: its sequence in the KV cache, while RUNNING or in PREFILL.
        tokens: what was generated so far; the last token is not in the KV cache yet.
        sampler: the sampler chain, with the state of what it drew; None until it starts, and when it has ended.
        signals: the signals of its tokens, in pieces of shape (number of signals, tokens).
        logprobs: OpenAI's entries of its tokens.
        sent: how many of them went out with streamed text.
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
        """End it, and free its sampler."""
        self.status = Status.FINISHED
        if self.sampler is not None:
            self.sampler.close()
            self.sampler = None


@dataclass(eq=False)
class SequenceGroup:
    """A request the engine has taken.

    Attributes:
        request: the request itself.
        order: its place in the order of arrival.
        turn: its place in the order of turns: the group with the lowest comes next.
        started: how many samples have had a slot.
        unfinished: how many samples have not ended.
        waiting: samples that are WAITING, in the order of their indices.
        preempted: samples that are PREEMPTED, the oldest first.
        live: samples that hold a slot.
        prompt: its prompt in the KV cache, which it holds a reference to; None while it holds none.
        kept: the prompt it released between two turns, and comes back to.
        prefilled: how many prompt tokens were decoded for this request; None before that is known.
        arrived: when it came.
        begun: when work on its prompt began.
        ready: when its prompt was in the cache.
        left: whether its last event was sent.
        salt: a hash of the prompt, added to the seed: the same draws would tie different prompts' samples together.
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
        """Let every sample wait."""
        request = self.request
        self.waiting = deque(
            Sequence(self, index, request.measures, TextAssembler(request.stop)) for index in request.samples
        )
        self.unfinished = len(self.waiting)
        self.salt = zlib.crc32(request.prompt.tobytes())

    @property
    def pending(self) -> int:
        """How many samples need a slot."""
        return len(self.waiting) + len(self.preempted)

    @property
    def next_size(self) -> int:
        """Tokens that the sample which gets the next slot has generated already."""
        return len(self.preempted[0].tokens) if self.preempted else 0

    @property
    def prefilling(self) -> bool:
        """Whether its prompt is on its way into the cache."""
        return self.prompt is not None and self.prompt.logits is None

    def release_prompt(self, prompts: PromptCache) -> None:
        """Give the reference to the prompt back; it is remembered while a sample waits for another turn."""
        prompt, self.prompt = self.prompt, None
        if prompt is not None:
            if self.pending and self.kept is None:
                self.kept = prompt
                prompt.waiters += 1
            prompts.release(prompt)

    def forget_kept(self, prompts: PromptCache) -> None:
        """Forget the prompt that was released: it is used again, or not needed any more."""
        prompt, self.kept = self.kept, None
        if prompt is not None:
            prompt.waiters -= 1
            prompts.trim()


@dataclass(eq=False, slots=True)
class Prefill:
    """Tokens on their way into the KV cache, several at a time.

    Attributes:
        group: the request they are for.
        sequence: the preempted sample whose own tokens they are; None: they are the group's prompt.
        slot: the sequence of the cache they go into.
        tokens: all of these tokens, shape (T,).
        done: how many are there.
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
        """Tokens still to come."""
        return len(self.tokens) - self.done

    def chunk(self, size: int) -> Chunk:
        """Return the next tokens to decode; the last of a prompt's gives the logits that samples begin with."""
        tokens = self.tokens[self.done : self.done + size]
        wants_logits = size == self.left and self.sequence is None
        return Chunk(self.slot.id, tokens, self.start + self.done, wants_logits)
