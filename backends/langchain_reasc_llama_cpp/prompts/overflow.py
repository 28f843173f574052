"""Which turns of a conversation to keep when not all of them fit."""

from collections.abc import Callable, Sequence

from langchain_core.messages import BaseMessage, HumanMessage, trim_messages

__all__ = ["newest_turns"]


def newest_turns(
    messages: Sequence[BaseMessage], fits: Callable[[list[BaseMessage]], bool]
) -> list[BaseMessage] | None:
    """The longest run of newest turns that ``fits``, fewer than all; None where not even the newest does.

    A turn is a human message and all that follows it up to the next, so a tool call stays with its result. A system
    message at the beginning is kept.
    """
    least, most = 1, _turns(messages) - 1
    best: list[BaseMessage] | None = None
    while least <= most:
        turns = (least + most) // 2
        kept = trim_messages(
            list(messages),
            max_tokens=turns,
            token_counter=_turns,
            strategy="last",
            start_on="human",
            include_system=True,
        )
        if fits(kept):
            best, least = kept, turns + 1
        else:
            most = turns - 1
    return best


def _turns(messages: Sequence[BaseMessage]) -> int:
    return sum(isinstance(message, HumanMessage) for message in messages)
