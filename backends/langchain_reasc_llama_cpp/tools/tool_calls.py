"""Parse tool calls from streamed text, in the notations of model families."""

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from langchain_core.messages import InvalidToolCall, ToolCall
from langchain_core.messages.tool import (
    ToolCallChunk,
    invalid_tool_call,
    tool_call,
    tool_call_chunk,
)

from langchain_reasc.files import parse_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """A notation of tool calls: a JSON object with the tool's name and its arguments,
    between two marks.

    Attributes:
        name: the format's name.
        opening: text before the object; empty if the call begins with the object.
        closing: text after the object, which may be missing at the end of a response.
        arguments: key of the arguments, next to ``name``.
        several: whether a response may have several calls.
        native: whether the chat template shows tools, calls and results. Otherwise they
            are written into system and user messages.
    """

    name: str
    opening: str
    closing: str
    arguments: str
    several: bool
    native: bool

    def call_text(self, name: str, arguments: dict[str, Any]) -> str:
        """Write a call in the model's notation."""
        call = json.dumps({"name": name, self.arguments: arguments}, ensure_ascii=False)
        return f"{self.opening}\n{call}\n{self.closing}" if self.opening else call

    def triggers(self, tools: Sequence[str]) -> tuple[str, ...]:
        """Return the texts that begin a call of one of these tools."""
        if self.opening:
            return (self.opening,)
        return tuple(
            f'{{"name":{space}{json.dumps(tool)}'
            for tool in tools
            for space in (" ", "")
        )

    def rule(self, call: str, *, several: bool) -> str:
        """Return the grammar of a response with calls, in llguidance's notation, given
        the rule of a call's object.
        """
        one = (
            f'"{self.opening}" GAP? {call} GAP? "{self.closing}"'
            if self.opening
            else call
        )
        return (
            f"{one} (GAP? {one}){{0,{_MAX_MORE}}}" if several and self.several else one
        )


GAP: Final = r"/[ \n]{1,2}/"
"""Optional white space around a call's object."""

_MAX_MORE: Final = 7  # further calls in one response; a weak model would never stop

HERMES: Final = ToolFormat(
    name="hermes",
    opening="<tool_call>",
    closing="</tool_call>",
    arguments="arguments",
    several=True,
    native=True,
)
"""Hermes, Qwen: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``."""

HERMES_BY_INSTRUCTION: Final = replace(
    HERMES, name="hermes by instruction", native=False
)
"""The same notation, for templates without tools, or with a notation that cannot be
read here.
"""

LLAMA_JSON: Final = ToolFormat(
    name="llama 3 json",
    opening="",
    closing=";",
    arguments="parameters",
    several=False,
    native=True,
)
"""Llama 3.1 and later: ``{"name": ..., "parameters": {...}}``, with or without
``<|python_tag|>`` before it.
"""

_NAME_THEN: Final = r'\{{\\?"name\\?"\s*:[^{{}}]*\\?"{}\\?"\s*:'
_TOOLS: Final = re.compile(r"\btools\b")


def format_of(template: str) -> ToolFormat:
    """Return the format of a chat template."""
    if _TOOLS.search(template):
        if "<tool_call>" in template and re.search(
            _NAME_THEN.format("arguments"), template
        ):
            return HERMES
        # Llama's role of results
        if "ipython" in template and re.search(
            _NAME_THEN.format("parameters"), template
        ):
            return LLAMA_JSON
    return HERMES_BY_INSTRUCTION


_ARGUMENTS: Final = re.compile(
    r'\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\S)'
)
_STRUCTURE: Final = re.compile(r'["{}\[\]\\]')


class CallText:
    """Reads a JSON object with a name and arguments, and returns the arguments while
    they are written.

    An object in another order, or with arguments that are not an object, is returned
    when it is complete.

    Attributes:
        id: the call's id, generated here because models write none.
        name: the tool's name, once known.
        arguments: the JSON of its arguments so far, or the whole text of a call that
            cannot be read.
        ended: whether the object or the response has ended.
        whole: whether the object is complete.
        announced: whether its name was passed on; set by the reader.
    """

    def __init__(self, closing: str) -> None:
        """Start reading.

        Args:
            closing: mark that ends a call that is not an object; if empty, only the end
                of the response does.
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
        self._given: int | None = (
            None  # how far the arguments were given out; None: not until the end
        )
        self._arguments_ended = False

    def read_text(self, text: str, *, final: bool) -> tuple[str, str]:
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
        """Return the arguments, or None if they are not a complete JSON object."""
        try:
            value = parse_json(self.arguments)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def invalidating_suffix(self) -> str:
        """Return the text to append to a call that was cut off, so that it stays
        invalid; usually empty.

        LangChain completes the JSON of streamed arguments, so a call that was cut off
        would become valid, with half an argument. An unmatched bracket keeps it
        invalid.
        """
        if not self._text.lstrip().startswith("{") or (
            self.name is not None and self.parsed() is not None
        ):
            return ""
        # else it would escape the quote
        escape = "\\" if self._text[self._at :] == "\\" else ""
        return (
            escape
            + ('"' if self._quoted else "")
            + ("}" if self._brackets[-1:] == ["["] else "]")
        )

    def _begin_arguments(self) -> None:
        if (
            self._begin is None
            and (match := _ARGUMENTS.match(self._text))
            and self._text[match.end()] == "{"
        ):
            self.name = parse_json(match[1], strict=False)
            self._begin = self._given = match.end()

    def _scan(self) -> int:
        """Follow brackets and quotes. Return where the object ends, or -1 if it has not
        ended.
        """
        while match := _STRUCTURE.search(self._text, self._at):
            sign, self._at = match[0], match.end()
            if sign == "\\":
                # the escaped character is still to come
                if self._at == len(self._text):
                    self._at -= 1
                    return -1
                self._at += 1
            elif sign == '"':
                self._quoted = not self._quoted
            elif not self._quoted and self._bracket(sign):
                return self._at
        self._at = len(self._text)
        return -1

    def _bracket(self, sign: str) -> bool:
        """Process a bracket outside of quotes. Return whether it ends the object."""
        if sign in "{[":
            self._brackets.append(sign)
        elif self._brackets:
            self._brackets.pop()
        ends_arguments = (
            len(self._brackets) == 1 and sign == "}" and self._begin is not None
        )
        if ends_arguments and not self._arguments_ended:
            self.arguments, self._arguments_ended = (
                self._text[self._begin : self._at],
                True,
            )
        return not self._brackets

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
    """Return the name and arguments of a call in any order, or an empty name and the
    text if it is not a call.
    """
    try:
        call: Any = parse_json(text)
    except ValueError:
        return None, text.strip()
    if isinstance(call, dict) and isinstance(call.get("function"), dict):
        call = call["function"]
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None, text.strip()
    arguments = call.get("arguments", call.get("parameters", {}))
    written = (
        arguments
        if isinstance(arguments, str)
        else json.dumps(arguments, ensure_ascii=False)
    )
    return call["name"], written


_MAX_HEAD: Final = (
    200  # characters within which a bare JSON object must show that it is a call
)
_TAG: Final = "<|python_tag|>"  # what Llama 3 may write before a call
_HEAD: Final = r'\{{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"{name}"\s*,\s*"(?:arguments|parameters)"\s*:'
_START: Final = rf"\s*(?:{re.escape(_TAG)})?\s*"
_FIRST: Final = re.compile(_START + "(?=" + _HEAD.format(name='[^"]*') + ")")
_CUT_HEAD: Final = re.compile(_START + r'(?=\{\s*"name"\s*:\s*"[^}]*\Z)')


class ToolCallReader:
    """Separates the calls in a response from its text.

    White space before a call, and between a call and the end, is dropped. In a format
    without an opening mark, a JSON object is a call if the response begins with it, or
    if it first names one of the tools and then its arguments.
    """

    def __init__(self, form: ToolFormat, tools: Sequence[str]) -> None:
        self._form = form
        self._named = re.compile(
            _HEAD.format(name=f"(?:{'|'.join(map(re.escape, tools))})")
        )
        self._pending = ""  # not yet known to be text or a call
        self._space = ""  # text, unless a call follows
        self._only_calls = True  # nothing but white space and calls so far
        self._closing = False  # a call has ended; its closing mark may come
        self._open: CallText | None = None
        self._calls: list[CallText] = []

    def read_text(
        self, text: str, *, final: bool = False
    ) -> tuple[str, list[ToolCallChunk]]:
        """Read more of the response.

        Args:
            text: the text since the last call.
            final: whether the response has ended.

        Returns:
            The text outside of calls, and pieces of calls. The first piece of a call
            has its name and id.
        """
        self._pending += text
        shown: list[str] = []
        chunks: list[ToolCallChunk] = []
        while self._advance(shown, chunks, final):
            pass
        if final and not self._calls:
            shown.append(self._space)
        return "".join(shown), chunks

    def calls(self) -> tuple[list[ToolCall], list[InvalidToolCall]]:
        """Return the calls of the response, after its end was read."""
        valid, invalid = [], []
        for call in self._calls:
            arguments = call.parsed()
            if call.name is not None and arguments is not None:
                valid.append(tool_call(name=call.name, args=arguments, id=call.id))
            elif call.name or call.arguments:
                why = (
                    "it is not a JSON object of name and arguments"
                    if call.whole
                    else "the response ended inside it"
                )
                invalid.append(
                    invalid_tool_call(
                        name=call.name, args=call.arguments, id=call.id, error=why
                    )
                )
        return valid, invalid

    def _advance(
        self, shown: list[str], chunks: list[ToolCallChunk], final: bool
    ) -> bool:
        """Process one part of the text; return False if more text is needed."""
        if self._open is not None:
            return self._read_call(self._open, chunks, final)
        if self._closing:
            return self._read_closing(final)
        found = self._find(final)
        if found is None:
            # A response that is cut off between calls may end in half an opening mark.
            end = len(self._pending) - (
                0 if final and not self._calls else self._undecided()
            )
            shown.append(self._settle(self._pending[:end]))
            self._pending = self._pending[end:]
            return False
        begin, body = found
        shown.append(self._settle(self._pending[:begin]))
        self._space, self._pending = "", self._pending[body:]
        self._open = CallText(self._form.closing if self._form.opening else "")
        self._calls.append(self._open)
        return True

    def _read_call(
        self, call: CallText, chunks: list[ToolCallChunk], final: bool
    ) -> bool:
        arguments, self._pending = call.read_text(self._pending, final=final)
        arguments += call.invalidating_suffix() if call.ended else ""
        announce = not call.announced and bool(call.name or arguments)
        # one chunk: LangChain adds up those of different messages only
        if announce or arguments:
            name, number = (call.name, call.id) if announce else (None, None)
            chunks.append(
                tool_call_chunk(
                    name=name, id=number, args=arguments, index=self._calls.index(call)
                )
            )
            call.announced = True
        if call.ended:
            self._open, self._closing = None, True
        return call.ended

    def _read_closing(self, final: bool) -> bool:
        rest, closing = self._pending.lstrip(), self._form.closing
        cut = closing.startswith(rest) and rest != closing
        if cut and not final:
            return False
        if rest.startswith(closing) or cut:
            self._pending = "" if cut else rest.removeprefix(closing)
        self._closing = False
        return True

    def _find(self, final: bool) -> tuple[int, int] | None:
        """Return where the next call begins, and where its object does."""
        if self._form.opening:
            at = self._pending.find(self._form.opening)
            return None if at < 0 else (at, at + len(self._form.opening))
        match = _FIRST.match(self._pending) if self._only_calls else None
        if match is None and self._only_calls and final:
            match = _CUT_HEAD.match(self._pending)
        if match is not None:
            return 0, match.end()
        named = self._named.search(self._pending)
        return None if named is None else (named.start(), named.start())

    def _undecided(self) -> int:
        """Return the length of the end of the text that may begin a call."""
        tail = self._pending
        if self._form.opening:
            sizes = range(min(len(self._form.opening) - 1, len(tail)), 0, -1)
            return next(
                (size for size in sizes if self._form.opening.startswith(tail[-size:])),
                0,
            )
        if self._only_calls and _TAG.startswith(tail.strip()):
            return len(tail)
        at = (
            tail.find(_TAG)
            if self._only_calls and tail.lstrip().startswith(_TAG)
            else tail.rfind("{")
        )
        size = len(tail) - at
        return size if at >= 0 and size < _MAX_HEAD and "}" not in tail[at:] else 0

    def _settle(self, text: str) -> str:
        whole = self._space + text
        shown = whole.rstrip()
        self._space = whole[len(shown) :]
        self._only_calls = self._only_calls and not shown
        return shown
