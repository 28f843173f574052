"""The tools of one call, and whether the model must use them."""

import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_reasc.complaints import suggestion
from langchain_reasc.exceptions import ConfigurationError

__all__ = ["Tools", "openai_tools"]

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_ANY: Final = ("any", "required", True)
_AUTO: Final = (None, "auto", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What may be called.

    Attributes:
        definitions: all tools that the model is shown, in OpenAI's shape.
        callable: the names of the tools that it may call.
        forced: whether the response must be a call.
        several: whether it may be more than one.
    """

    definitions: tuple[dict[str, Any], ...]
    callable: tuple[str, ...]
    forced: bool
    several: bool

    @classmethod
    def of(cls, tools: Sequence[Any] | None, choice: Any, parallel: bool | None) -> Self | None:
        """What a call's arguments ask for; None where the model is to know of no tools.

        Args:
            tools: whatever LangChain takes for a tool.
            choice: OpenAI's ``tool_choice``, or "any", True, or a tool's name.
            parallel: False allows one call per response.

        Raises:
            ConfigurationError: a tool is no tool, two have one name, or the choice names none of them.
        """
        definitions = openai_tools(tools or ())
        names = [definition["function"]["name"] for definition in definitions]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigurationError(f"two tools are called {min(twice)!r}; give them different names")
        chosen = _chosen(choice)
        if chosen == "none" or (not names and chosen in _AUTO):
            return None
        if not names:
            raise ConfigurationError(f"tool_choice={choice!r} needs tools, and there are none; pass tools=[...]")
        free, forced = chosen in _AUTO, chosen in _ANY
        if not free and not forced and chosen not in names:
            hint = suggestion(str(chosen), ["auto", "any", "none", *sorted(names)])
            raise ConfigurationError(f"tool_choice={choice!r} names no tool; {hint}")
        return cls(
            definitions=tuple(definitions),
            callable=tuple(names) if free or forced else (chosen,),
            forced=not free,
            several=parallel is not False and (free or forced),
        )

    def parameters(self, name: str) -> dict[str, Any]:
        """The JSON schema of a tool's arguments."""
        found = next(each["function"] for each in self.definitions if each["function"]["name"] == name)
        return dict(found.get("parameters") or {"type": "object", "properties": {}})


def openai_tools(tools: Sequence[Any], *, strict: bool | None = None) -> list[dict[str, Any]]:
    """Tools in OpenAI's shape.

    Args:
        tools: functions, LangChain tools, pydantic or TypedDict classes, or dicts.
        strict: True asks for every argument, and for no others.

    Raises:
        ConfigurationError: one cannot be a tool.
    """
    made: list[dict[str, Any]] = []
    for number, tool in enumerate(tools, 1):
        try:
            definition = convert_to_openai_tool(tool, strict=strict)
            function = definition["function"]
            name, parameters = function["name"], function.get("parameters") or {}
        except (ValueError, TypeError, LookupError, AttributeError, AssertionError, RecursionError) as error:
            raise ConfigurationError(
                f"tool {number} ({reprlib.repr(tool)}) cannot be used as a tool: {error!r}"
            ) from error
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"tool {number} is called {name!r}; a name has 1 to 128 letters, digits, underscores, dots or dashes"
            )
        if not isinstance(parameters, dict):
            raise ConfigurationError(f"the parameters of tool {name!r} are no JSON schema: {parameters!r:.200}")
        made.append(definition)
    return made


def _chosen(choice: Any) -> Any:
    """A name, "any", "none" or nothing, of whatever shape the choice has."""
    if isinstance(choice, dict):
        named = choice.get("function", choice)
        if not isinstance(named, dict) or not isinstance(named.get("name"), str):
            raise ConfigurationError(
                f"tool_choice={choice!r} names no tool; write {{'type': 'function', 'function': {{'name': '...'}}}}"
            )
        return named["name"]
    if choice is not None and not isinstance(choice, str | bool):
        raise ConfigurationError(f"tool_choice must be a string, a bool or a dict, got {choice!r}")
    return choice
