"""Checks a GBNF grammar before llama.cpp reads it, whose parser writes its complaints to stderr.

Follows ``llama_grammar_parser`` in llama.cpp's src/llama-grammar.cpp.
"""

import re
from collections.abc import Callable
from typing import Final, NoReturn

from langchain_reasc.exceptions import ConfigurationError

__all__ = ["check_gbnf"]

_MOST_REPEATED: Final = 2000  # llama.cpp's MAX_REPETITION_THRESHOLD
_DEEPEST: Final = 100  # llama.cpp recurses, on a stack of a few MB
_MOST_RULES: Final = 10_000
_SPACE: Final = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES: Final = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME: Final = re.compile(r"[a-zA-Z0-9-]+")
_INTEGER: Final = re.compile(r"[0-9]+")
_CHARACTER: Final = re.compile(
    r'\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[trn\\"\[\]-])|[^\\\0]', re.DOTALL
)
_TOKEN_ID: Final = re.compile(r"<\[([0-9]{1,9})\]>")
_TOKEN: Final = re.compile(r"<[^>\0]*>")


def check_gbnf(text: str, *, root: str, is_token: Callable[[str], bool]) -> None:
    """Check that llama.cpp can parse a grammar.

    Args:
        text: rules in GBNF.
        root: the rule to begin with.
        is_token: whether a text is exactly one token of the model, for rules such as ``<|end|>``.

    Raises:
        ConfigurationError: it cannot; the message says in which line and column, and why.
    """
    _Parser(text, is_token).check(root)


class _Parser:
    def __init__(self, text: str, is_token: Callable[[str], bool]) -> None:
        self._text, self._is_token = text, is_token
        self._at = self._depth = self._generated = 0
        self._defined: set[str] = set()
        self._named: dict[str, int] = {}  # rule -> where it is first spoken of

    def check(self, root: str) -> None:
        if "\0" in self._text:
            self._at = self._text.index("\0")
            self._fail("a grammar cannot hold a NUL character")
        self._skip(lines=True)
        while self._at < len(self._text):
            self._rule()
        for name, at in self._named.items():
            if name not in self._defined:
                self._at = at
                self._fail(f"there is no rule {name!r}")
        if root not in self._defined:
            rules = ", ".join(sorted(self._defined)) or "none at all"
            raise ConfigurationError(f"the grammar has no rule {root!r} to begin with; it has {rules}")

    def _rule(self) -> None:
        name = self._name()
        self._skip(lines=False)
        if not self._took("::="):
            self._fail(f"expected '::=' after the rule's name {name!r}")
        self._skip(lines=True)
        self._defined.add(name)
        self._alternates(nested=False)
        if not (self._took("\r\n") or self._took("\r") or self._took("\n")) and self._at < len(self._text):
            self._fail("expected the end of the line")
        self._skip(lines=True)

    def _alternates(self, *, nested: bool) -> None:
        self._sequence(nested)
        while self._took("|"):
            self._skip(lines=True)
            self._sequence(nested)

    def _sequence(self, nested: bool) -> None:
        """Items, each perhaps repeated. ``rules`` counts what the last item would be copied into, as llama.cpp does."""
        item, rules = False, 1
        while (next_one := self._text[self._at : self._at + 1]) and next_one not in "|)\r\n":
            if next_one in "*+?{":
                if not item:
                    self._fail(f"expected something to repeat before {next_one!r}")
                times = self._repetition(nested, rules)
                item, rules = times > 0, rules * max(times, 1)
                continue
            known = self._symbols()
            item = self._item(next_one)
            rules = max(1, self._symbols() - known) if next_one == "(" else 1
            self._skip(lines=nested)

    def _item(self, first: str) -> bool:
        """One item; whether it is more than nothing, which cannot be repeated."""
        if first in '"[':
            return self._characters('"' if first == '"' else "]")
        if first in "<!":
            self._token()
        elif first == "(":
            self._group()
        elif first == ".":
            self._at += 1
        else:
            self._name()
        return True

    def _characters(self, end: str) -> bool:
        """Whether a literal or a class has any characters; from its opening mark past its closing one."""
        self._at += 2 if self._text.startswith("[^", self._at) else 1
        begin = self._at
        while not self._took(end):
            found = _CHARACTER.match(self._text, self._at)
            if not found:
                over = self._at >= len(self._text)
                self._fail(f"expected {end!r} before the end" if over else "unknown escape")
            self._at = found.end()
        return self._at > begin + 1

    def _token(self) -> None:
        self._took("!")
        if found := _TOKEN_ID.match(self._text, self._at):
            self._at = found.end()
            return
        found = _TOKEN.match(self._text, self._at)
        if not found:
            self._fail("expected a token such as '<|end|>' or '<[123]>'")
        if found[0].startswith("<[") or not self._is_token(found[0]):
            self._fail(f"{found[0]!r} is not one token of the model")
        self._at = found.end()

    def _group(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail(f"groups are nested more than {_DEEPEST} deep")
        self._at += 1
        self._generate(1)
        self._skip(lines=True)
        self._alternates(nested=True)
        if not self._took(")"):
            self._fail("expected ')'")
        self._depth -= 1

    def _repetition(self, nested: bool, rules: int) -> int:
        """How many copies a repetition makes of the item before it; 0 where it removes it."""
        least, most = self._bounds(nested)
        times = max(least, 1) if most is None else most
        if least > _MOST_REPEATED or rules * times > _MOST_REPEATED:
            self._fail(f"that is repeated more than {_MOST_REPEATED:,} times, or too complex to be")
        self._generate(1 if most is None else most - least)
        return times

    def _bounds(self, nested: bool) -> tuple[int, int | None]:
        """How often at least and at most; None: without end."""
        for mark, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._took(mark):
                self._skip(lines=nested)
                return bounds
        self._at += 1
        self._skip(lines=nested)
        least = self._integer(nested)
        most: int | None = least
        if self._took(","):
            self._skip(lines=nested)
            most = None if self._text.startswith("}", self._at) else self._integer(nested)
        if not self._took("}"):
            self._fail("expected '}'")
        self._skip(lines=nested)
        if most is not None and most < least:
            self._fail(f"at most {most} is less than at least {least}")
        return least, None if most is not None and most > _MOST_REPEATED else most

    def _integer(self, nested: bool) -> int:
        found = _INTEGER.match(self._text, self._at)
        if not found or len(found[0]) > 9:
            self._fail("expected a whole number")
        self._at = found.end()
        self._skip(lines=nested)
        return int(found[0])

    def _name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if not found:
            self._fail("expected a name (letters, digits and '-')")
        self._named.setdefault(found[0], self._at)
        self._at = found.end()
        return found[0]

    def _generate(self, count: int) -> None:
        """Count rules that llama.cpp makes up for groups and repetitions."""
        self._generated += count
        if self._symbols() > _MOST_RULES:
            self._fail(f"it takes more than {_MOST_RULES:,} rules")

    def _symbols(self) -> int:
        return len(self._named) + self._generated

    def _skip(self, *, lines: bool) -> None:
        found = (_SPACE_AND_LINES if lines else _SPACE).match(self._text, self._at)
        assert found
        self._at = found.end()

    def _took(self, mark: str) -> bool:
        here = self._text.startswith(mark, self._at)
        self._at += len(mark) if here else 0
        return here

    def _fail(self, why: str) -> NoReturn:
        before = self._text[: self._at]
        line, column = before.count("\n") + 1, self._at - before.rfind("\n")
        near = self._text[self._at : self._at + 30].split("\n")[0]
        raise ConfigurationError(f"the grammar is malformed in line {line}, column {column}: {why}, at {near!r}")
