"""Prompts that are kept after their request, so that what others share with them is prefilled once."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_reasc_llama_cpp.engine.kv_cells import KvCells, Slot, State

__all__ = ["CachedPrompt", "PromptCache", "common_prefix"]

Tokens = npt.NDArray[np.int32]
_WORTH_SHARING = 16
"""Shorter prefixes are prefilled again: nearly every prompt shares its template's first few tokens."""


@dataclass(eq=False)
class CachedPrompt:
    """A prompt in the KV cache, on its way there, or swapped out.

    Attributes:
        slot: the sequence that holds it; None while it is swapped out.
        tokens: the prompt's tokens, and those of the response to it where there was only one.
        done: how many of them are in the cache.
        length: how many of them are the prompt's.
        logits: shape (V,), after the prompt's last token; None until that was decoded.
        ref_count: how many requests use it now; only without any may it be swapped out or dropped.
        waiters: how many requests come back to it at their next turn; what somebody else could use goes first.
        swapped: a copy of what the cache held of it, in main memory, once it was swapped out.
    """

    slot: Slot | None
    tokens: Tokens
    done: int = 0
    length: int = field(init=False)
    logits: npt.NDArray[np.float32] | None = None
    ref_count: int = 0
    waiters: int = 0
    swapped: State | None = None

    def __post_init__(self) -> None:
        """The response comes later, if at all."""
        self.length = len(self.tokens)


class PromptCache:
    """The prompts that are kept, least recently used first.

    Every decode step attends over all cells up to the last one in use, whomever they belong to (``make bench``,
    "attention"). So idle prompts are swapped out to main memory as soon as another one comes in, and swapped in when
    they are wanted: that is a copy, and far faster than a prefill.

    Attributes:
        size: how many prompts are kept that nobody uses or waits for; together they hold no more tokens than the KV
            cache.
    """

    def __init__(self, cells: KvCells, *, size: int, whole_only: bool = False) -> None:
        """An empty cache.

        Args:
            cells: where the prompts in use lie.
            size: how many prompts are kept that nobody uses or waits for any more.
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
        """A prompt with one reference more: the one that is there, or else a new one that shares what it can."""
        known, length = self._longest(tokens)
        if known is not None and not self._swap_in(known):
            known, length = None, 0
        if known is None or length < len(tokens):
            known = self._continued(known, length, tokens)
        elif length < known.done and not known.ref_count:
            self._cut(known)
        known.ref_count += 1
        self._touch(known)
        self.swap_out()
        return known

    def release(self, prompt: CachedPrompt) -> None:
        """Take a reference away; what nobody uses stays while there is place for it."""
        prompt.ref_count -= 1
        if prompt not in self._prompts:
            return  # everything was forgotten meanwhile
        self._touch(prompt)
        if not prompt.ref_count and not prompt.done:
            self._drop(prompt)
        self.trim()

    def trim(self) -> None:
        """Drop what there is no place for: first what nobody waits for, and of that what was used longest ago."""
        idle = sorted((each for each in self._prompts if not each.ref_count), key=lambda each: each.waiters > 0)
        spare = sum(not each.waiters for each in idle)
        while spare > self.size or sum(each.done for each in idle) > self._cells.capacity:
            self._drop(idle.pop(0))
            spare -= 1

    def extend(self, prompt: CachedPrompt, slot: Slot, response: list[int]) -> None:
        """Take over the sequence of a prompt's only response: the next turn of a conversation begins with both."""
        if self._whole_only or prompt.slot is None or prompt not in self._prompts:
            self._cells.close(slot)
            return
        self._cells.close(prompt.slot)
        prompt.slot, prompt.swapped = slot, None
        prompt.tokens = np.concatenate((prompt.tokens[: prompt.length], np.array(response, dtype=np.int32)))
        prompt.done = len(prompt.tokens)

    def swap_out(self, *, but: CachedPrompt | None = None) -> bool:
        """Copy prompts that nobody refers to to main memory and free their cells; False when there are none."""
        freed = False
        for prompt in self._prompts:
            if prompt.ref_count or prompt.slot is None or prompt is but:
                continue
            if prompt.swapped is None:
                prompt.swapped = self._cells.save(prompt.slot)
            self._cells.close(prompt.slot)
            prompt.slot, freed = None, True
        return freed

    def clear(self) -> None:
        """Forget every prompt, when their cells are gone."""
        self._prompts.clear()

    def _swap_in(self, prompt: CachedPrompt) -> bool:
        """See to it that a prompt has its cells; False when there is no room."""
        if prompt.slot is not None:
            return True
        assert prompt.swapped is not None
        if self._cells.room < prompt.done or not self._cells.sequences_left:
            self.swap_out()
        if self._cells.room >= prompt.done and self._cells.sequences_left:
            prompt.slot = self._cells.restore(prompt.swapped, prompt.done)
        return prompt.slot is not None

    def _continued(self, known: CachedPrompt | None, length: int, tokens: Tokens) -> CachedPrompt:
        """A new prompt that begins like a known one."""
        if not self._cells.sequences_left:
            self.swap_out(but=known)
        slot = self._cells.open(known.slot if known else None, length)
        if known is not None and length == known.done and not known.ref_count:
            self._drop(known)  # the new one holds all of it
        elif known is not None:
            self._touch(known)
        prompt = CachedPrompt(slot, tokens, done=length)
        self._prompts.append(prompt)
        return prompt

    def _cut(self, prompt: CachedPrompt) -> None:
        """Forget the response to a prompt that is asked again: whoever continues the prompt attends over it, too."""
        assert prompt.slot is not None
        whole, prompt.slot = prompt.slot, self._cells.open(prompt.slot, prompt.length)
        self._cells.close(whole)
        prompt.tokens, prompt.done, prompt.swapped = prompt.tokens[: prompt.length], prompt.length, None

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
        if prompt.slot is not None:
            self._cells.close(prompt.slot)


def common_prefix(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> int:
    """How many tokens two prompts begin with alike."""
    size = min(len(one), len(other))
    differ = np.flatnonzero(one[:size] != other[:size])
    return int(differ[0]) if len(differ) else size
