"""A request for one sample, and one for several."""

from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGenerationChunk

from langchain_reasc_openai.drawing.choices import read_choices
from langchain_reasc_openai.drawing.drawn import Drawn
from langchain_reasc_openai.routing.attempts import Attempt
from langchain_reasc_openai.routing.reading import cut_off, finish_reason, read, received_tokens

__all__ = ["SharedRequest", "draw_one"]


async def draw_one(
    attempt: Attempt, messages: list[BaseMessage], kwargs: dict[str, Any], drawn: Drawn, cancelled: Callable[[], bool]
) -> None:
    """Try to draw one sample, whose usage the server reports; ``cancelled`` tells whether it is to be cut off."""

    def take(chunk: ChatGenerationChunk) -> None:
        drawn.chunks.append(chunk)
        if cancelled():  # a client may have swallowed the cancellation
            raise CancelledError

    drawn.begin(attempt.replica.url)
    try:
        await read(attempt, messages, kwargs, take)
    except Exception as error:
        drawn.error = error
        raise


class SharedRequest:
    """Draws several samples, handing over each when it ends.

    The server reports the usage of all together, when all are over. The prompt is billed to the sample that ends last,
    with the output tokens that the others are not billed for; theirs are counted.
    """

    def __init__(
        self,
        messages: list[BaseMessage],
        kwargs: Mapping[str, Any],
        group: Sequence[Drawn],
        cancelled: Callable[[], bool],
        hand_over: Callable[[Drawn], None],
    ) -> None:
        """Describe the request; ``cancelled`` tells whether it is to be cut off."""
        self._messages, self._kwargs, self._group = messages, kwargs, group
        self._cancelled, self._hand_over = cancelled, hand_over
        self._asked: list[Drawn] = []
        self._ended: set[Drawn] = set()

    async def once(self, attempt: Attempt) -> None:
        """Try; samples that came out in an earlier attempt are not drawn again."""
        self._asked = [drawn for drawn in self._group if not drawn.over]
        self._ended.clear()
        for drawn in self._asked:
            drawn.begin(attempt.replica.url)
        try:
            usage = await read_choices(attempt, self._messages, self._kwargs, n=len(self._asked), take=self._take)
            self._check(attempt)
        except Exception as error:
            for drawn in self._asked:
                drawn.error = None if drawn.over else error
            raise
        self._bill(usage)

    def _take(self, choice: int, chunk: ChatGenerationChunk) -> None:
        if self._cancelled():
            raise CancelledError
        drawn = self._asked[choice]
        drawn.chunks.append(chunk)
        if finish_reason(chunk) is not None:
            self._ended.add(drawn)
        if any(other.chunks and other not in self._ended for other in self._asked):  # the last waits for the bill
            for ended in [ended for ended in self._ended if not ended.over]:
                ended.shares_prompt = True
                self._hand_over(ended)

    def _check(self, attempt: Attempt) -> None:
        if not self._ended or any(drawn.chunks and drawn not in self._ended for drawn in self._asked):
            raise cut_off(attempt, begun=any(drawn.chunks for drawn in self._asked))

    def _bill(self, usage: UsageMetadata | None) -> None:
        if usage is None:
            return
        last = next(drawn for drawn in self._ended if not drawn.over)
        others = sum(received_tokens(drawn.chunks) for drawn in self._ended if drawn is not last)
        output = max(usage["output_tokens"] - others, received_tokens(last.chunks))  # llama-server reports one's only
        last.usage = UsageMetadata(**{**usage, "output_tokens": output, "total_tokens": usage["input_tokens"] + output})
