"""The KV cache: the cells of each sequence, and prompts that are kept for later
requests.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_reasc_llama_cpp.engine.context import DecodeContext, State, Tokens

_WORTH_SHARING = 16
"""The shortest prefix that is reused. Nearly all prompts share the first few tokens of
the template.
"""


@dataclass(eq=False, slots=True)
class Run:
    """Consecutive cells that the same ``ref_count`` sequences share."""

    size: int
    ref_count: int = 1


@dataclass(eq=False, slots=True)
class Slot:
    """One sequence of the KV cache.

    Attributes:
        id: llama.cpp's sequence id.
        runs: the cells of the sequence, in the order of positions.
    """

    id: int
    runs: list[Run] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens in the sequence."""
        return sum(run.size for run in self.runs)


class KvCells:
    """Opens and closes sequences, and counts cells, because llama.cpp does not tell how
    many are free.

    Attributes:
        capacity: the number of cells.
        used: the number of cells that some sequence uses.
    """

    def __init__(
        self, context: DecodeContext, *, capacity: int, n_sequences: int
    ) -> None:
        self._context = context
        self.capacity, self.used = capacity, 0
        self._free_ids = list(range(n_sequences - 1, -1, -1))
        self._open: set[Slot] = set()

    @property
    def free(self) -> int:
        """Cells that no sequence uses."""
        return self.capacity - self.used

    @property
    def sequences_left(self) -> int:
        """The number of sequences that can still be opened."""
        return len(self._free_ids)

    def open(self, parent: Slot | None = None, length: int = 0) -> Slot:
        """Open a sequence that begins with the first ``length`` tokens of its parent.
        This takes no cells.
        """
        slot = Slot(self._free_ids.pop())
        self._open.add(slot)
        if parent is not None and length:
            self._context.share(
                parent.id, slot.id, -1 if length == parent.length else length
            )
            for run in list(parent.runs):
                if run.size > length:
                    self._split(run, length)
                run.ref_count += 1
                slot.runs.append(run)
                length -= run.size
                if not length:
                    break
        return slot

    def grow(self, *slots: Slot, tokens: int = 1) -> None:
        """Count this many tokens as decoded into each of the sequences."""
        self.used += tokens * len(slots)
        for slot in slots:
            runs = slot.runs
            if runs and runs[-1].ref_count == 1:
                runs[-1].size += tokens
            else:
                runs.append(Run(tokens))

    def close(self, slot: Slot) -> None:
        """Close a sequence. Cells that it shares with others stay."""
        self._open.remove(slot)
        self._free_ids.append(slot.id)
        for run in slot.runs:
            run.ref_count -= 1
            if not run.ref_count:
                self.used -= run.size
        slot.runs.clear()
        self._context.forget(slot.id)

    def first_position(self, slot: Slot) -> int:
        """Return the first position of a sequence that all layers hold."""
        return self._context.first_position(slot.id)

    def save(self, slot: Slot) -> State:
        """Copy a sequence to main memory."""
        return self._context.save(slot.id)

    def restore(self, state: State, tokens: int) -> Slot | None:
        """Open a sequence from a copy, or return None if llama.cpp has no room for it."""
        slot = self.open()
        if not self._context.restore(slot.id, state):
            self.close(slot)
            return None
        self.grow(slot, tokens=tokens)
        return slot

    def clear(self) -> None:
        """Close all sequences, after a decode that failed half-way."""
        for slot in self._open:
            self._free_ids.append(slot.id)
            slot.runs.clear()
        self._open.clear()
        self.used = 0
        self._context.clear()

    def _split(self, run: Run, at: int) -> None:
        """Split a run in two for all sequences that share it."""
        rest = Run(run.size - at, run.ref_count)
        run.size = at
        for slot in self._open:
            if run in slot.runs:
                slot.runs.insert(slot.runs.index(run) + 1, rest)


@dataclass(eq=False)
class CachedPrompt:
    """A prompt in the KV cache, on its way there, or swapped out to main memory.

    Attributes:
        slot: the sequence of the prompt; None while the prompt is swapped out.
        tokens: the tokens of the prompt, and of the response if there was only one.
        done: the number of tokens that are in the cache.
        length: the number of tokens of the prompt.
        logits: the logits after the prompt's last token, shape (V,); None until it is
            decoded.
        ref_count: the number of requests that use it now. At 0 it may be swapped out or
            dropped.
        waiters: the number of requests that will use it at their next turn. Prompts
            without waiters are dropped first.
        swapped: a copy of its cells while it is swapped out.
        first: the first position that all layers hold in the copy.
    """

    slot: Slot | None
    tokens: Tokens
    done: int = 0
    length: int = field(init=False)
    logits: npt.NDArray[np.float32] | None = None
    ref_count: int = 0
    waiters: int = 0
    swapped: State | None = None
    first: int = 0

    def __post_init__(self) -> None:
        """Create an entry for the prompt. A response may be added later."""
        self.length = len(self.tokens)


class PromptCache:
    """The prompts that are kept, least recently used first.

    Every decode step attends to all cells up to the last one in use, also to those of
    other prompts (``make bench``, "attention"). So an idle prompt is swapped out to
    main memory as soon as another prompt comes in, and swapped in when it is needed.
    That is a copy, and much faster than a prefill.

    Attributes:
        size: the most prompts that are kept although no request uses or awaits them.
            Together they have at most as many tokens as the KV cache.
        prompts: all prompts, used or not.
    """

    def __init__(
        self, cells: KvCells, *, size: int, whole_only: bool = False, window: int = 0
    ) -> None:
        """Create an empty cache.

        Args:
            cells: the cells of the prompts in use.
            size: the most prompts that are kept although no request uses or awaits
                them.
            whole_only: whether only a whole prompt can be continued, because the
                model's memory is a recurrent state.
            window: tokens that sliding-window layers attend to; 0 without such layers.
        """
        self.cells, self._whole_only, self._window = cells, whole_only, window
        self.size = size
        self.prompts: list[CachedPrompt] = []

    def shared(self, tokens: Tokens) -> int:
        """Return how many tokens of a prompt need no prefill."""
        return self._longest(tokens)[1]

    def open(self, tokens: Tokens) -> CachedPrompt:
        """Return a prompt and count a reference to it: a known prompt, or a new one
        with the longest known prefix.
        """
        known, length = self._longest(tokens)
        if known is not None and not self._swap_in(known):
            known, length = None, 0
        if known is None or length < len(tokens):
            known = self._continued(known, length, tokens)
        elif length < known.done and not known.ref_count:
            self._cut_response(known)
        known.ref_count += 1
        self._touch(known)
        self.swap_out()
        return known

    def release(self, prompt: CachedPrompt) -> None:
        """Drop a reference. An unused prompt stays while there is room for it."""
        prompt.ref_count -= 1
        if prompt not in self.prompts:
            return  # the cache was cleared meanwhile
        self._touch(prompt)
        if not prompt.ref_count and not prompt.done:
            self._drop(prompt)
        self.trim()

    def trim(self) -> None:
        """Drop prompts for which there is no room: first those without waiters, least
        recently used first.
        """
        idle = sorted(
            (each for each in self.prompts if not each.ref_count),
            key=lambda each: each.waiters > 0,
        )
        spare = sum(not each.waiters for each in idle)
        while (
            spare > self.size or sum(each.done for each in idle) > self.cells.capacity
        ):
            self._drop(idle.pop(0))
            spare -= 1

    def extend(self, prompt: CachedPrompt, slot: Slot, response: list[int]) -> None:
        """Keep the sequence of a prompt's only response, because the next turn of a
        conversation begins with both.
        """
        # Other samples may still begin at the prompt's end, whose window is lost as the
        # response grows.
        is_needed = self._window and prompt.ref_count > 1
        if (
            self._whole_only
            or is_needed
            or prompt.slot is None
            or prompt not in self.prompts
        ):
            self.cells.close(slot)
            return
        self.cells.close(prompt.slot)
        prompt.slot, prompt.swapped = slot, None
        prompt.tokens = np.concatenate(
            (prompt.tokens[: prompt.length], np.array(response, dtype=np.int32))
        )
        prompt.done = len(prompt.tokens)

    def swap_out(self, *, but: CachedPrompt | None = None) -> bool:
        """Copy unused prompts to main memory and free their cells. Return False if
        there are none.
        """
        idle = [
            each
            for each in self.prompts
            if not each.ref_count and each.slot is not None and each is not but
        ]
        for prompt in idle:
            assert prompt.slot is not None
            if prompt.swapped is None:
                self._save(prompt)
            self.cells.close(prompt.slot)
            prompt.slot = None
        return bool(idle)

    def clear(self) -> None:
        """Forget all prompts after their cells were lost."""
        self.prompts.clear()

    def _save(self, prompt: CachedPrompt) -> None:
        """Copy a prompt to main memory. If a window is shorter, drop the response: a
        copy continues only at its end.
        """
        has_response = prompt.length < prompt.done
        can_cut = (
            has_response
            and self.cells.sequences_left
            and self._can_continue(prompt, prompt.length)
        )
        if 0 < self._window < prompt.done and can_cut:
            self._cut_response(prompt)
        assert prompt.slot is not None
        if self._window:
            prompt.first = max(
                self.cells.first_position(prompt.slot), prompt.done - self._window
            )
        prompt.swapped = self.cells.save(prompt.slot)

    def _can_continue(self, prompt: CachedPrompt, length: int) -> bool:
        """Return whether a sequence can begin with the first ``length`` tokens of a
        prompt.
        """
        if self._whole_only:
            return length == prompt.done
        if not self._window:
            return True
        first = (
            prompt.first
            if prompt.slot is None
            else self.cells.first_position(prompt.slot)
        )
        return first <= max(0, length - self._window + 1)

    def _swap_in(self, prompt: CachedPrompt) -> bool:
        """Copy a prompt back into cells. Return False if there are not enough."""
        if prompt.slot is not None:
            return True
        assert prompt.swapped is not None
        if self.cells.free < prompt.done or not self.cells.sequences_left:
            self.swap_out()
        if self.cells.free >= prompt.done and self.cells.sequences_left:
            prompt.slot = self.cells.restore(prompt.swapped, prompt.done)
        return prompt.slot is not None

    def _continued(
        self, known: CachedPrompt | None, length: int, tokens: Tokens
    ) -> CachedPrompt:
        """Add a prompt that begins with a known one."""
        if not self.cells.sequences_left:
            self.swap_out(but=known)
        slot = self.cells.open(known.slot if known else None, length)
        if known is not None and length == known.done and not known.ref_count:
            self._drop(known)  # the new one holds all of it
        elif known is not None:
            self._touch(known)
        prompt = CachedPrompt(slot, tokens, done=length)
        self.prompts.append(prompt)
        return prompt

    def _cut_response(self, prompt: CachedPrompt) -> None:
        """Remove the response to a prompt that is used again, because new responses
        would attend to it.
        """
        assert prompt.slot is not None
        whole, prompt.slot = prompt.slot, self.cells.open(prompt.slot, prompt.length)
        self.cells.close(whole)
        prompt.tokens, prompt.done, prompt.swapped = (
            prompt.tokens[: prompt.length],
            prompt.length,
            None,
        )

    def _longest(self, tokens: Tokens) -> tuple[CachedPrompt | None, int]:
        """Return the prompt that shares the longest prefix, and the prefix's length."""
        best, longest = None, 0
        for prompt in self.prompts:
            length = common_prefix(prompt.tokens[: prompt.done], tokens)
            is_whole = (
                length == len(tokens) == prompt.length and prompt.logits is not None
            )
            if is_whole and self._can_continue(prompt, length):
                return prompt, length
            # the last token is decoded again, for its logits
            length = min(length, len(tokens) - 1)
            if length >= max(longest, _WORTH_SHARING) and self._can_continue(
                prompt, length
            ):
                best, longest = prompt, length
        return best, longest

    def _touch(self, prompt: CachedPrompt) -> None:
        self.prompts.remove(prompt)
        self.prompts.append(prompt)

    def _drop(self, prompt: CachedPrompt) -> None:
        self.prompts.remove(prompt)
        if prompt.slot is not None:
            self.cells.close(prompt.slot)


def common_prefix(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> int:
    """Return the length of the common prefix of two prompts."""
    size = min(len(one), len(other))
    differ = np.flatnonzero(one[:size] != other[:size])
    return int(differ[0]) if len(differ) else size
