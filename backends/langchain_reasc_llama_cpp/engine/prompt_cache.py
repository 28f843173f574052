"""Prompts that stay in the KV cache, so that what they share is prefilled once."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_reasc_llama_cpp.engine.kv_cells import KvCells, Slot

__all__ = ["CachedPrompt", "PromptCache", "common_prefix"]

Tokens = npt.NDArray[np.int32]
_WORTH_SHARING = 16
"""Shorter prefixes are prefilled again: nearly every prompt shares its template's first few tokens."""


@dataclass(eq=False)
class CachedPrompt:
    """A prompt in the KV cache, or on its way there.

    Attributes:
        slot: the sequence that holds it.
        tokens: of the prompt, and of the response that was generated to it where there was only one.
        done: how many of them are in the cache.
        shared: tokens that an older prompt already held when this one was opened.
        length: of the prompt alone.
        logits: shape (V,), after the prompt's last token; None until that was decoded.
        pins: requests that use it now; only without any may it be evicted.
    """

    slot: Slot
    tokens: Tokens
    done: int = 0
    shared: int = 0
    length: int = field(init=False)
    logits: npt.NDArray[np.float32] | None = None
    pins: int = 0

    def __post_init__(self) -> None:
        """The response comes later, if at all."""
        self.length = len(self.tokens)


class PromptCache:
    """The prompts in the cache, least recently used first.

    Attributes:
        size: prompts kept beyond those in use.
    """

    def __init__(self, cells: KvCells, *, size: int, whole_only: bool = False) -> None:
        """An empty cache.

        Args:
            cells: where the prompts lie.
            size: prompts kept that nobody uses any more.
            whole_only: the model's memory is a state that cannot be cut, so only a whole prompt can be continued.
        """
        self._cells, self._whole_only = cells, whole_only
        self.size = size
        self._prompts: list[CachedPrompt] = []

    def __len__(self) -> int:
        """Prompts held, used or not."""
        return len(self._prompts)

    def shared(self, tokens: Tokens) -> int:
        """How many tokens of a prompt would not have to be prefilled."""
        return self._longest(tokens)[1]

    def open(self, tokens: Tokens) -> CachedPrompt:
        """A pinned prompt: the same one as before where it is there, else a new one that shares what it can."""
        known, length = self._longest(tokens)
        if known is None or length < len(tokens):
            if known is not None:
                known.pins += 1  # not evicted to make place for its own continuation
            while not self._cells.sequences_left and self.evict():
                pass
            slot = self._cells.open(known.slot if known else None, length)
            if known is not None:
                known.pins -= 1
                self._touch(known)
            known = CachedPrompt(slot, tokens, done=length, shared=length)
            self._prompts.append(known)
        known.pins += 1
        self._touch(known)
        return known

    def release(self, prompt: CachedPrompt) -> None:
        """Take a pin away; what nobody uses stays while there is place for it."""
        prompt.pins -= 1
        if prompt not in self._prompts:
            return  # everything was forgotten meanwhile
        self._touch(prompt)
        if not prompt.pins and not prompt.done:
            self._drop(prompt)
        while sum(not p.pins for p in self._prompts) > self.size:
            self.evict()

    def extend(self, prompt: CachedPrompt, slot: Slot, response: list[int]) -> None:
        """Take over the sequence of a prompt's only response: the next turn of a conversation begins with both."""
        if self._whole_only or prompt not in self._prompts:
            self._cells.close(slot)
            return
        self._cells.close(prompt.slot)
        prompt.slot = slot
        prompt.tokens = np.concatenate((prompt.tokens[: prompt.length], np.array(response, dtype=np.int32)))
        prompt.done = len(prompt.tokens)

    def evict(self) -> bool:
        """Drop the prompt that was used longest ago; False when all are in use."""
        for prompt in self._prompts:
            if not prompt.pins:
                self._drop(prompt)
                return True
        return False

    def clear(self) -> None:
        """Forget every prompt, when their cells are gone."""
        self._prompts.clear()

    def _longest(self, tokens: Tokens) -> tuple[CachedPrompt | None, int]:
        best, longest = None, 0
        for prompt in self._prompts:
            length = common_prefix(prompt.tokens[: prompt.done], tokens)
            if length == len(tokens) == prompt.length and prompt.logits is not None:
                return prompt, length
            length = min(length, len(tokens) - 1)  # the last token is decoded again, for its logits
            if self._whole_only and length < prompt.done:
                continue
            if length >= max(longest, _WORTH_SHARING):
                best, longest = prompt, length
        return best, longest

    def _touch(self, prompt: CachedPrompt) -> None:
        self._prompts.remove(prompt)
        self._prompts.append(prompt)

    def _drop(self, prompt: CachedPrompt) -> None:
        self._prompts.remove(prompt)
        self._cells.close(prompt.slot)


def common_prefix(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> int:
    """How many tokens two prompts begin with alike."""
    size = min(len(one), len(other))
    differ = np.flatnonzero(one[:size] != other[:size])
    return int(differ[0]) if len(differ) else size
