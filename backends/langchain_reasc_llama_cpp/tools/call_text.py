"""The text of one tool call, read as it comes."""

import json
import re
import uuid
from typing import Any, Final

from langchain_reasc.untrusted import parse_json

__all__ = ["CallText"]

_ARGUMENTS: Final = re.compile(
    r'\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\S)'
)
_STRUCTURE: Final = re.compile(r'["{}\[\]\\]')


class CallText:
    """A JSON object with a name and arguments, of which the arguments are given out as they come.

    Objects written in another order, or with arguments that are no object, are given out when they are whole.

    Attributes:
        id: the call's id, made up here, since models write none.
        name: the tool's name, once known.
        arguments: the JSON of its arguments so far; of a call that cannot be read, its whole text.
        ended: whether the object, or the response, has ended.
        whole: whether the object ended by itself.
        announced: whether its name was passed on; set by whoever passes the call on.
    """

    def __init__(self, closing: str) -> None:
        """Begin.

        Args:
            closing: mark that ends a call that is no object; empty: nothing but the response's end does.
        """
        self.id = f"call_{uuid.uuid4().hex[:24]}"
        self.name: str | None = None
        self.arguments = ""
        self.ended = self.whole = self.announced = False
        self._closing = closing
        self._text = ""
        self._at = 0  # how far brackets and quotes were followed
        self._brackets: list[str] = []
        self._quoted = False
        self._begin: int | None = None  # of the arguments
        self._given: int | None = None  # how far the arguments were given out; None: not until the end
        self._arguments_ended = False

    def read(self, text: str, *, final: bool) -> tuple[str, str]:
        """Read more text.

        Returns:
            More of the arguments, and the text after the call.
        """
        self._text += text
        rest = ""
        if self._text.strip() and not self._text.lstrip().startswith("{"):
            end = self._text.find(self._closing) if self._closing else -1
        else:
            self._begin_arguments()
            end = self._scan()
        if end >= 0:
            self._text, rest = self._text[:end], self._text[end:]
            self.ended = self.whole = True
        self.ended = self.ended or final
        return self._more_arguments(), rest

    def parsed(self) -> dict[str, Any] | None:
        """The arguments; None where they are no whole JSON object."""
        try:
            value = parse_json(self.arguments)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def spoil(self) -> str:
        """What to add to the arguments of a call that must not be carried out, once it has ended; mostly nothing.

        LangChain completes the JSON of streamed arguments. A call that was cut off would become a valid one, with half
        of an argument; a bracket that closes nothing keeps it invalid.
        """
        if not self._text.lstrip().startswith("{") or (self.name is not None and self.parsed() is not None):
            return ""
        escape = "\\" if self._text[self._at :] == "\\" else ""  # else it would escape the quote
        return escape + ('"' if self._quoted else "") + ("}" if self._brackets[-1:] == ["["] else "]")

    def _begin_arguments(self) -> None:
        if self._begin is None and (match := _ARGUMENTS.match(self._text)) and self._text[match.end()] == "{":
            self.name = parse_json(match[1], strict=False)
            self._begin = self._given = match.end()

    def _scan(self) -> int:
        """Follow brackets and quotes; returns where the object ends, -1 until it does."""
        while match := _STRUCTURE.search(self._text, self._at):
            sign, self._at = match[0], match.end()
            if sign == "\\":
                if self._at == len(self._text):  # what is escaped is still to come
                    self._at -= 1
                    return -1
                self._at += 1
            elif sign == '"':
                self._quoted = not self._quoted
            elif not self._quoted:
                if sign in "{[":
                    self._brackets.append(sign)
                elif self._brackets:
                    self._brackets.pop()
                if not self._brackets:
                    return self._at
                if len(self._brackets) == 1 and sign == "}" and self._begin is not None and not self._arguments_ended:
                    self.arguments, self._arguments_ended = self._text[self._begin : self._at], True
        self._at = len(self._text)
        return -1

    def _more_arguments(self) -> str:
        if self._given is not None:
            if not self._arguments_ended:
                self.arguments = self._text[self._begin :]
            assert self._begin is not None
            more = self.arguments[self._given - self._begin :]
            self._given += len(more)
            return more
        if self.ended:
            self.name, self.arguments = _read_whole(self._text)
            return self.arguments
        return ""


def _read_whole(text: str) -> tuple[str | None, str]:
    """Name and arguments of a call in whatever order; no name, and the text itself, where it is no call."""
    try:
        call: Any = parse_json(text)
    except ValueError:
        return None, text.strip()
    if isinstance(call, dict) and isinstance(call.get("function"), dict):
        call = call["function"]
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None, text.strip()
    arguments = call.get("arguments", call.get("parameters", {}))
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return call["name"], written
