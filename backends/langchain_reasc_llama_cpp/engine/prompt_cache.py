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
    """A prompt in the KV cache, on its way there, or set aside.

    Attributes:
        slot: the sequence that holds it; None while it is set aside.
        tokens: the prompt's tokens, and those of the response to it where there was only one.
        done: how many of them are in the cache.
        length: how many of them are the prompt's.
        logits: shape (V,), after the prompt's last token; None until that was decoded.
        pins: how many requests use it now; only without any may it be set aside or dropped.
        awaited: how many requests come back to it at their next turn; what somebody else could use goes first.
        state: a copy of what the cache holds of it, in main memory, once it was set aside.
    """

    slot: Slot | None
    tokens: Tokens
    done: int = 0
    length: int = field(init=False)
    logits: npt.NDArray[np.float32] | None = None
    pins: int = 0
    awaited: int = 0
    state: State | None = None

    def __post_init__(self) -> None:
        """The response comes later, if at all."""
        self.length = len(self.tokens)


class PromptCache:
    """The prompts that are kept, least recently used first.

    Every decode step attends over all cells up to the last one in use, whomever they belong to (``make bench``,
    "attention"). So idle prompts are set aside, in main memory, as soon as another one comes in, and are put back when
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
        """A pinned prompt: the same one as before where it is there, else a new one that shares what it can."""
        known, length = self._longest(tokens)
        if known is not None and not self._in_cells(known):
            known, length = None, 0
        if known is None or length < len(tokens):
            known = self._continued(known, length, tokens)
        known.pins += 1
        self._touch(known)
        self.set_aside()
        return known

    def release(self, prompt: CachedPrompt) -> None:
        """Take a pin away; what nobody uses stays while there is place for it."""
        prompt.pins -= 1
        if prompt not in self._prompts:
            return  # everything was forgotten meanwhile
        self._touch(prompt)
        if not prompt.pins and not prompt.done:
            self._drop(prompt)
        self.trim()

    def trim(self) -> None:
        """Drop what there is no place for: first what nobody waits for, and of that what was used longest ago."""
        idle = sorted((each for each in self._prompts if not each.pins), key=lambda each: each.awaited > 0)
        spare = sum(not each.awaited for each in idle)
        while spare > self.size or sum(each.done for each in idle) > self._cells.capacity:
            self._drop(idle.pop(0))
            spare -= 1

    def extend(self, prompt: CachedPrompt, slot: Slot, response: list[int]) -> None:
        """Take over the sequence of a prompt's only response: the next turn of a conversation begins with both."""
        if self._whole_only or prompt.slot is None or prompt not in self._prompts:
            self._cells.close(slot)
            return
        self._cells.close(prompt.slot)
        prompt.slot, prompt.state = slot, None
        prompt.tokens = np.concatenate((prompt.tokens[: prompt.length], np.array(response, dtype=np.int32)))
        prompt.done = len(prompt.tokens)

    def set_aside(self, *, but: CachedPrompt | None = None) -> bool:
        """Copy idle prompts to main memory and free their cells; False when there are none."""
        freed = False
        for prompt in self._prompts:
            if prompt.pins or prompt.slot is None or prompt is but:
                continue
            if prompt.state is None:
                prompt.state = self._cells.save(prompt.slot)
            self._cells.close(prompt.slot)
            prompt.slot, freed = None, True
        return freed

    def clear(self) -> None:
        """Forget every prompt, when their cells are gone."""
        self._prompts.clear()

    def _in_cells(self, prompt: CachedPrompt) -> bool:
        """Put a prompt back that was set aside; False when there is no room."""
        if prompt.slot is not None:
            return True
        assert prompt.state is not None
        if self._cells.room < prompt.done or not self._cells.sequences_left:
            self.set_aside()
        if self._cells.room >= prompt.done and self._cells.sequences_left:
            prompt.slot = self._cells.restore(prompt.state, prompt.done)
        return prompt.slot is not None

    def _continued(self, known: CachedPrompt | None, length: int, tokens: Tokens) -> CachedPrompt:
        """A new prompt that begins like a known one."""
        if not self._cells.sequences_left:
            self.set_aside(but=known)
        slot = self._cells.open(known.slot if known else None, length)
        if known is not None and length == known.done and not known.pins:
            self._drop(known)  # the new one holds all of it
        elif known is not None:
            self._touch(known)
        prompt = CachedPrompt(slot, tokens, done=length)
        self._prompts.append(prompt)
        return prompt

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
