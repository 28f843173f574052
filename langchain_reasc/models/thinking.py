"""Thoughts in messages, which only the model that signed them may read, and a Claude
that insists on its own.

With ``thinking={"type": "enabled", ...}``, Claude refuses a step of a tool loop in
which an assistant message does not begin with a thought. Without thinking, Claude
refuses a loop with thoughts.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables.base import RunnableBindingBase

from langchain_reasc.models.settings import without
from langchain_reasc.models.wrappers import AnyRunnable, Leaf, rewrap, wrapped_runnables

_THOUGHTS: Final = ("thinking", "redacted_thinking", "reasoning")
SETTING: Final = "thinking"
"""The setting that switches thinking on."""
_DATED: Final = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
"""The end of a full name, which providers give a model that was called by its short
name.
"""


def must_think(leaf: Leaf) -> bool:
    """Return whether a chat model refuses steps of a tool loop without thoughts."""
    if not _is_claude(leaf.model):
        return False
    # ChatAnthropic prefers its field to the argument of a call.
    setting = getattr(leaf.model, SETTING, None) or leaf.given(SETTING)
    return isinstance(setting, Mapping) and setting.get("type") == "enabled"


def without_thinking(model: AnyRunnable) -> AnyRunnable:
    """Return a model with thinking switched off on each Claude inside it. The copy
    shares the model's client.
    """
    if isinstance(model, BaseChatModel):
        if not _is_claude(model):
            return model
        # The setting may also be among the arguments that the model passes on.
        model_kwargs = without(getattr(model, "model_kwargs", {}), {SETTING})
        return model.model_copy(update={SETTING: None, "model_kwargs": model_kwargs})
    if isinstance(model, RunnableBindingBase):
        kwargs = without(model.kwargs, {SETTING})
        model = model.model_copy(update={"kwargs": kwargs})
    wrapped = wrapped_runnables(model)
    if wrapped:
        return rewrap(model, [without_thinking(inner) for inner in wrapped])
    return model


def _is_claude(model: BaseChatModel) -> bool:
    # The package need not be installed.
    return any(
        kind.__name__ == "ChatAnthropic"
        and kind.__module__.startswith("langchain_anthropic")
        for kind in type(model).__mro__
    )


def has_thoughts(message: BaseMessage) -> bool:
    """Return whether a message has thoughts, which a provider may have signed."""
    return isinstance(message.content, list) and any(map(_is_thought, message.content))


def begins_with_thought(message: BaseMessage) -> bool:
    """Return whether the first block of a message is a thought."""
    return bool(message.content) and _is_thought(message.content[0])


def without_thoughts(message: BaseMessage) -> BaseMessage:
    """Return a message without its thoughts."""
    if not has_thoughts(message):
        return message
    content = [block for block in message.content if not _is_thought(block)]
    return message.model_copy(update={"content": content})


def _is_thought(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in _THOUGHTS


def is_signed_by_another(message: AIMessage, names: Iterable[str]) -> bool:
    """Return whether a model with another name than these wrote a message, as far as
    its metadata tells.

    Providers tell the name in ``response_metadata["model_name"]``; some in ``"model"``.
    """
    metadata = message.response_metadata
    signer = metadata.get("model_name") or metadata.get("model")
    # A model called "claude-b" may sign as "claude-b-20250929".
    own_names = {_DATED.sub("", name) for name in names}
    if not isinstance(signer, str) or not own_names:
        return False
    return _DATED.sub("", signer) not in own_names
