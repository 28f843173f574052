"""Requests under way: a sequence group is a request, a sequence is one of its samples."""

import time
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_reasc_llama_cpp.confidence.recorder import Wanted, wants
from langchain_reasc_llama_cpp.engine.kv_cells import Slot
from langchain_reasc_llama_cpp.engine.prompt_cache import CachedPrompt, PromptCache
from langchain_reasc_llama_cpp.engine.request import GenerationRequest
from langchain_reasc_llama_cpp.engine.text import TextAssembler
from langchain_reasc_llama_cpp.sampling.sampler import SamplerChain

__all__ = ["Prefill", "Sequence", "SequenceGroup", "Status"]


class Status(Enum):
    """Where a sample is. Only RUNNING and PREFILL hold a slot of the KV cache."""

    WAITING = auto()
    """Nothing was drawn yet."""
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
        wanted: what is recorded of its tokens.
        text: the sample's text so far.
        most: how many tokens are generated at most.
        streams: whether text is sent as it comes.
        status: where it is.
        slot: where it lies in the KV cache, while RUNNING or in PREFILL.
        tokens: what was generated so far; the last token is not in the KV cache yet.
        sampler: the sampler chain, with the state of what it drew; None until it starts, and when it has ended.
        signals: the signals of its tokens, in pieces of shape (number of signals, tokens).
        logprobs: the log-probabilities of its tokens, in pieces too.
        sent: how many of them went out with streamed text.
        began: when its first token was drawn.
    """

    group: "SequenceGroup"
    index: int
    wanted: Wanted
    text: TextAssembler
    most: int
    streams: bool
    status: Status = Status.WAITING
    slot: Slot | None = None
    tokens: list[int] = field(default_factory=list)
    sampler: SamplerChain | None = None
    signals: list[npt.NDArray[np.floating[Any]]] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    sent: int = 0
    began: float = 0.0

    @property
    def age(self) -> tuple[int, int]:
        """Older ones sort first."""
        return self.group.order, self.index

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
        request: what was asked.
        order: its place in the order of arrival.
        turn: its place in the order of turns: the group with the lowest comes next.
        started: how many samples have had a slot.
        unfinished: how many samples have not ended.
        waiting: samples that are WAITING, in the order of their indices.
        preempted: samples that are PREEMPTED, the oldest first.
        live: samples that hold a slot.
        prompt: its prompt in the KV cache, which it holds a reference to; None while it holds none.
        kept: the prompt it let go of between two turns, and comes back to.
        prefilled: how many prompt tokens were decoded for this request; None before that is known.
        arrived: when it came.
        begun: when work on its prompt began.
        ready: when its prompt was in the cache.
        left: whether its last event was sent.
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
        """Every sample waits."""
        request = self.request
        wanted = wants(request.signals, request.top_k_signal, request.logprobs)
        self.waiting = deque(
            Sequence(self, index, wanted, TextAssembler(request.stop), request.max_tokens, request.stream)
            for index in request.samples
        )
        self.unfinished = len(self.waiting)
        # One seed for many prompts would tie their samples together: the same draw picks each first token.
        self.salt = zlib.crc32(request.prompt.tobytes())

    @property
    def pending(self) -> int:
        """How many samples want a slot."""
        return len(self.waiting) + len(self.preempted)

    @property
    def prefilling(self) -> bool:
        """Whether its prompt is on its way into the cache."""
        return self.prompt is not None and self.prompt.logits is None

    def let_go(self, prompts: PromptCache) -> None:
        """Give the reference to the prompt back; it is remembered while a sample waits for another turn."""
        prompt, self.prompt = self.prompt, None
        if prompt is not None:
            if self.pending and self.kept is None:
                self.kept = prompt
                prompt.waiters += 1
            prompts.release(prompt)

    def come_back(self, prompts: PromptCache) -> None:
        """Forget the prompt that was let go of: it is used again, or not needed any more."""
        prompt, self.kept = self.kept, None
        if prompt is not None:
            prompt.waiters -= 1
            prompts.trim()

    @property
    def begun_samples(self) -> Iterator[Sequence]:
        """Samples that have begun and not ended."""
        yield from self.live
        yield from self.preempted


@dataclass(eq=False, slots=True)
class Prefill:
    """Tokens on their way into the KV cache, several at a time.

    Attributes:
        group: whose they are.
        sequence: the preempted sample whose own tokens they are; None: they are the group's prompt.
        slot: where they go.
        tokens: all of these tokens, shape (T,).
        done: how many are there.
        start: the position of the first token.
    """

    group: SequenceGroup
    sequence: Sequence | None
    slot: Slot
    tokens: npt.NDArray[np.int32]
    done: int
    start: int = 0

    @property
    def left(self) -> int:
        """Tokens still to come."""
        return len(self.tokens) - self.done
