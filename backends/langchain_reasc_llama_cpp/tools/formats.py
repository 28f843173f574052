"""How models write tool calls, and which way a chat template asks for."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

__all__ = ["HERMES", "HERMES_BY_INSTRUCTION", "LLAMA_JSON", "ToolFormat", "format_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """One way of writing a call: a JSON object with the tool's name and its arguments, between two marks.

    Attributes:
        name: the format's name.
        opening: text before the object; empty: the object itself begins the call.
        closing: text after the object, which may be missing where a response ends.
        arguments: key of the arguments, beside ``name``.
        several: whether a response may hold more than one call.
        native: whether the chat template shows tools, calls and results itself; else they are put into system and user
            messages.
    """

    name: str
    opening: str
    closing: str
    arguments: str
    several: bool
    native: bool

    def written(self, name: str, arguments: dict[str, Any]) -> str:
        """A call as the model would write it."""
        call = json.dumps({"name": name, self.arguments: arguments}, ensure_ascii=False)
        return f"{self.opening}\n{call}\n{self.closing}" if self.opening else call

    def triggers(self, tools: Sequence[str]) -> tuple[str, ...]:
        """Texts that say a call of one of these tools has begun."""
        if self.opening:
            return (self.opening,)
        return tuple(f'{{"name":{space}{json.dumps(tool)}' for tool in tools for space in (" ", ""))

    def rule(self, call: str, *, several: bool) -> str:
        """A response that is calls, in llguidance's notation, given the rule of one call's object."""
        one = f'"{self.opening}" GAP? {call} GAP? "{self.closing}"' if self.opening else call
        return f"{one} (GAP? {one}){{0,{_MAX_MORE}}}" if several and self.several else one


GAP: Final = r"/[ \n]{1,2}/"
"""White space around a call's object, which may be missing."""

_MAX_MORE: Final = 7  # further calls in one response: a weak model would go on for ever

HERMES: Final = ToolFormat(
    name="hermes", opening="<tool_call>", closing="</tool_call>", arguments="arguments", several=True, native=True
)
"""Hermes, Qwen: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``."""

HERMES_BY_INSTRUCTION: Final = replace(HERMES, name="hermes by instruction", native=False)
"""The same, for templates that know no tools or write calls in a way that is not read here."""

LLAMA_JSON: Final = ToolFormat(
    name="llama 3 json", opening="", closing=";", arguments="parameters", several=False, native=True
)
"""Llama 3.1 and later: ``{"name": ..., "parameters": {...}}``, with or without ``<|python_tag|>`` before it."""

_NAME_THEN: Final = r'\{{\\?"name\\?"\s*:[^{{}}]*\\?"{}\\?"\s*:'
_TOOLS: Final = re.compile(r"\btools\b")


def format_of(template: str) -> ToolFormat:
    """The format a chat template's own words ask for."""
    if _TOOLS.search(template):
        if "<tool_call>" in template and re.search(_NAME_THEN.format("arguments"), template):
            return HERMES
        if "ipython" in template and re.search(_NAME_THEN.format("parameters"), template):  # Llama's role of results
            return LLAMA_JSON
    return HERMES_BY_INSTRUCTION
