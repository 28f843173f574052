"""A history of messages, as one of two models may read it."""

from collections.abc import Sequence
from typing import Literal

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.models.thinking import (
    begins_with_thought,
    has_thoughts,
    is_signed_by_another,
    without_thoughts,
)

Role = Literal["small", "large"]
"""Which of two models a model is."""


def as_readable(
    role: Role, model: PreparedModel, messages: Sequence[BaseMessage]
) -> tuple[PreparedModel, list[BaseMessage]]:
    """Return one of two models, and a history as this model may read it.

    What the other model wrote keeps its text and its calls. Its signed reasoning and
    its ids mean nothing to this one, and many providers refuse them. The same goes for
    thoughts that a third model signed, before there were two. A model that refuses tool
    calls without thoughts does not think in this step.
    """
    readable = list(messages)
    for index, message in enumerate(messages):
        if isinstance(message, AIMessage) and _is_foreign(message, role, model):
            readable[index] = _plain(message)
    if not model.must_think:
        return model, readable
    # A thinking model refuses calls of its open turn that have no thoughts of its own.
    turn = _open_turn(readable)
    if not _lacks_thoughts(readable[turn]):
        return model, readable
    readable[turn] = map(without_thoughts, readable[turn])
    return model.without_thinking(), readable


def _is_foreign(message: AIMessage, role: Role, model: PreparedModel) -> bool:
    """Return whether another model wrote a message, as far as that is known and
    matters.
    """
    writer = _writer(message)
    if writer is not None:
        return writer != role
    return has_thoughts(message) and is_signed_by_another(message, model.names)


def _writer(message: AIMessage) -> Role | None:
    account = message.response_metadata.get("reasc")
    if not isinstance(account, dict):
        return None
    writer: Role | None = account.get("answered_by")
    return writer


def _open_turn(messages: Sequence[BaseMessage]) -> slice:
    """Return where the calls of tools stand that the model goes on from; empty if the
    last response called none.
    """
    end = len(messages)
    while end and not isinstance(messages[end - 1], AIMessage):
        end -= 1
    start = end
    last = messages[end - 1]
    if isinstance(last, AIMessage) and last.tool_calls:
        while start and isinstance(messages[start - 1], AIMessage | ToolMessage):
            start -= 1
    return slice(start, end)


def _lacks_thoughts(turn: Sequence[BaseMessage]) -> bool:
    """Return whether a turn does not begin with a thought, or has a step without one
    that another model made.
    """
    steps = [message for message in turn if isinstance(message, AIMessage)]
    lacking = [step for step in steps if not begins_with_thought(step)]
    if not lacking:
        return False
    return lacking[0] is steps[0] or any(_writer(step) is None for step in lacking)


def _plain(message: AIMessage) -> AIMessage:
    return AIMessage(
        str(message.text), tool_calls=message.tool_calls, name=message.name
    )
