"""From a response's text to its tool calls, as the text comes."""

import re
from collections.abc import Sequence
from typing import Final

from langchain_core.messages import InvalidToolCall, ToolCall
from langchain_core.messages.tool import ToolCallChunk, invalid_tool_call, tool_call, tool_call_chunk

from langchain_reasc_llama_cpp.tools.call_text import CallText
from langchain_reasc_llama_cpp.tools.formats import ToolFormat

__all__ = ["ToolCallReader"]

_MAX_HEAD: Final = 200  # characters within which a bare JSON object must show that it is a call
_TAG: Final = "<|python_tag|>"  # what Llama 3 may write before a call
_HEAD: Final = r'\{{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"{name}"\s*,\s*"(?:arguments|parameters)"\s*:'
_START: Final = rf"\s*(?:{re.escape(_TAG)})?\s*"
_FIRST: Final = re.compile(_START + "(?=" + _HEAD.format(name='[^"]*') + ")")
_CUT_HEAD: Final = re.compile(_START + r'(?=\{\s*"name"\s*:\s*"[^}]*\Z)')


class ToolCallReader:
    """Tells the calls in a response from its text.

    White space before a call, and between a call and the end, is dropped.
    In a format without an opening mark a JSON object is a call when the response begins with it, or when it names one
    of the tools; and its arguments come next.
    """

    def __init__(self, form: ToolFormat, tools: Sequence[str]) -> None:
        self._form = form
        self._named = re.compile(_HEAD.format(name=f"(?:{'|'.join(map(re.escape, tools))})"))
        self._pending = ""  # not yet known to be text or a call
        self._space = ""  # text, unless a call follows
        self._silent = True  # nothing but white space and calls so far
        self._closing = False  # a call has ended; its closing mark may come
        self._open: CallText | None = None
        self._calls: list[CallText] = []

    def read(self, text: str, *, final: bool = False) -> tuple[str, list[ToolCallChunk]]:
        """Read more of the response.

        Args:
            text: what came since the last call.
            final: whether the response has ended.

        Returns:
            The text that is no call, and pieces of calls: the first of each has its name and id.
        """
        self._pending += text
        said: list[str] = []
        chunks: list[ToolCallChunk] = []
        while self._advance(said, chunks, final):
            pass
        if final and not self._calls:
            said.append(self._space)
        return "".join(said), chunks

    def calls(self) -> tuple[list[ToolCall], list[InvalidToolCall]]:
        """The calls of the response, once it has been read to its end."""
        valid, invalid = [], []
        for call in self._calls:
            arguments = call.parsed()
            if call.name is not None and arguments is not None:
                valid.append(tool_call(name=call.name, args=arguments, id=call.id))
            elif call.name or call.arguments:
                why = "it is no JSON object with name and arguments" if call.whole else "the response ended inside it"
                invalid.append(invalid_tool_call(name=call.name, args=call.arguments, id=call.id, error=why))
        return valid, invalid

    def _advance(self, said: list[str], chunks: list[ToolCallChunk], final: bool) -> bool:
        """Take one step; False when more text is needed."""
        if self._open is not None:
            return self._read_call(self._open, chunks, final)
        if self._closing:
            return self._read_closing(final)
        found = self._find(final)
        if found is None:
            # A response that is cut off between calls may end in half an opening mark.
            end = len(self._pending) - (0 if final and not self._calls else self._undecided())
            said.append(self._say(self._pending[:end]))
            self._pending = self._pending[end:]
            return False
        begin, body = found
        said.append(self._say(self._pending[:begin]))
        self._space, self._pending = "", self._pending[body:]
        self._open = CallText(self._form.closing if self._form.opening else "")
        self._calls.append(self._open)
        return True

    def _read_call(self, call: CallText, chunks: list[ToolCallChunk], final: bool) -> bool:
        arguments, self._pending = call.read(self._pending, final=final)
        arguments += call.spoil() if call.ended else ""
        announce = not call.announced and bool(call.name or arguments)
        if announce or arguments:  # one chunk: LangChain adds up those of different messages only
            name, number = (call.name, call.id) if announce else (None, None)
            chunks.append(tool_call_chunk(name=name, id=number, args=arguments, index=self._calls.index(call)))
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
        """Where the next call begins, and where its object does."""
        if self._form.opening:
            at = self._pending.find(self._form.opening)
            return None if at < 0 else (at, at + len(self._form.opening))
        match = _FIRST.match(self._pending) if self._silent else None
        if match is None and self._silent and final:
            match = _CUT_HEAD.match(self._pending)
        if match is not None:
            return 0, match.end()
        named = self._named.search(self._pending)
        return None if named is None else (named.start(), named.start())

    def _undecided(self) -> int:
        """Length of the tail that may turn out to begin a call."""
        tail = self._pending
        if self._form.opening:
            sizes = range(min(len(self._form.opening) - 1, len(tail)), 0, -1)
            return next((size for size in sizes if self._form.opening.startswith(tail[-size:])), 0)
        if self._silent and _TAG.startswith(tail.strip()):
            return len(tail)
        at = tail.find(_TAG) if self._silent and tail.lstrip().startswith(_TAG) else tail.rfind("{")
        size = len(tail) - at
        return size if at >= 0 and size < _MAX_HEAD and "}" not in tail[at:] else 0

    def _say(self, text: str) -> str:
        whole = self._space + text
        said = whole.rstrip()
        self._space = whole[len(said) :]
        self._silent = self._silent and not said
        return said
