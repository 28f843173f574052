"""Translate GBNF, llama.cpp's grammar notation, to llguidance's.

Every character becomes a separate lexeme and every group a rule, because llguidance's
lexer takes the longest match, while GBNF is a grammar of characters. Follows
``llama_grammar_parser`` in llama.cpp's src/llama-grammar.cpp.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from langchain_reasc.exceptions import ConfigurationError

_DEEPEST: Final = 100  # groups; the reader recurses
_MOST_RULES_DEEP: Final = 300  # llguidance recurses from each to the next
_SPACE: Final = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES: Final = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME: Final = re.compile(r"[a-zA-Z0-9-]+")
_INTEGER: Final = re.compile(r"[0-9]{1,5}(?![0-9])")
_CHARACTER: Final = re.compile(
    r'\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[trn\\"\[\]-])|[^\\\0]',
    re.DOTALL,
)
_ESCAPED: Final = {"t": "\t", "r": "\r", "n": "\n"}
_TOKEN_ID: Final = re.compile(r"<\[([0-9]{1,9})\]>")
_TOKEN: Final = re.compile(r"<[^>\0]*>")
_REPEATED: Final = re.compile(r"[*+?]")
# characters are \\u{...} and tokens <[...]>
_RULE_NAMES: Final = re.compile(r"\b[rg][0-9]+\b")


def lark_of(
    text: str, *, root: str, tokenize: Callable[[str], list[int]], ends: Sequence[int]
) -> str:
    """Return a grammar in llguidance's notation.

    Args:
        text: rules in GBNF.
        root: the rule to begin with.
        tokenize: token ids of a text, for rules such as ``<|end|>``.
        ends: the tokens that end a response.

    Raises:
        ConfigurationError: the grammar is malformed. The message says in which line and
            column, and why.
    """
    return _Reader(text, tokenize, ends).read_grammar(root)


class _Reader:
    def __init__(
        self, text: str, tokenize: Callable[[str], list[int]], ends: Sequence[int]
    ) -> None:
        self._text, self._tokenize, self._ends = text, tokenize, ends
        self._at = self._depth = self._groups = 0
        self._rules: dict[str, str] = {}  # as they are written out
        self._named: dict[
            str, tuple[str, int]
        ] = {}  # rule -> its name there, and where it is first spoken of

    def read_grammar(self, root: str) -> str:
        if "\0" in self._text:
            self._at = self._text.index("\0")
            self._fail("a grammar cannot have a NUL character")
        self._skip(lines=True)
        while self._at < len(self._text):
            self._rule()
        for name, (rule, at) in self._named.items():
            if rule not in self._rules:
                self._at = at
                self._fail(f"there is no rule {name!r}")
        if root not in self._named:
            rules = ", ".join(sorted(self._named)) or "none at all"
            raise ConfigurationError(
                f"the grammar has no rule {root!r} to begin with; it has {rules}"
            )
        self._check_depth(self._named[root][0])
        rules = "\n".join(f"{name}: {rule}" for name, rule in self._rules.items())
        return f"start: {self._named[root][0]}\n{rules}\n"

    def _rule(self) -> None:
        name = self._name()
        self._skip(lines=False)
        if not self._accept("::="):
            self._fail(f"expected '::=' after the rule's name {name!r}")
        self._skip(lines=True)
        self._rules[self._named[name][0]] = self._alternates(nested=False)
        if not (
            self._accept("\r\n") or self._accept("\r") or self._accept("\n")
        ) and self._at < len(self._text):
            self._fail("expected the end of the line")
        self._skip(lines=True)

    def _alternates(self, *, nested: bool) -> str:
        sequences = [self._sequence(nested)]
        while self._accept("|"):
            self._skip(lines=True)
            sequences.append(self._sequence(nested))
        return " | ".join(sequences)

    def _sequence(self, nested: bool) -> str:
        items: list[str] = []
        while (
            next_one := self._text[self._at : self._at + 1]
        ) and next_one not in "|)\r\n":
            if next_one in "*+?{":
                if not items:
                    self._fail(f"expected something to repeat before {next_one!r}")
                items[-1] = self._new_rule(items[-1]) + self._repetition(nested)
            else:
                items.append(self._item(next_one))
            self._skip(lines=nested)
        return " ".join(items) or '""'

    def _item(self, first: str) -> str:
        if first == '"':
            return self._literal()
        if first == "[":
            return self._class()
        if first in "<!":
            return self._token()
        if first == "(":
            return self._group()
        if self._accept("."):
            return "/(?s:.)/"
        return self._named[self._name()][0]

    def _literal(self) -> str:
        self._at += 1
        characters = []
        while not self._accept('"'):
            characters.append(_spelled(self._character('"')))
        return " ".join(f"/{each}/" for each in characters) or '""'

    def _class(self) -> str:
        mark = "[^" if self._text.startswith("[^", self._at) else "["
        self._at += len(mark)
        parts = []
        while not self._accept("]"):
            first = last = self._character("]")
            if self._text.startswith("-", self._at) and not self._text.startswith(
                "-]", self._at
            ):
                self._at += 1
                last = self._character("]")
                if last < first:
                    self._fail(f"the range from {first!r} to {last!r} is empty")
            parts.append(f"{_spelled(first)}-{_spelled(last)}")
        return f"/{mark}{''.join(parts)}]/" if parts else '""'

    def _character(self, end: str) -> str:
        found = _CHARACTER.match(self._text, self._at)
        if not found:
            over = self._at >= len(self._text)
            self._fail(f"expected {end!r} before the end" if over else "unknown escape")
        written = found[0]
        if written[0] == "\\":
            code = (
                int(written[2:], 16)
                if written[1] in "xuU"
                else ord(_ESCAPED.get(written[1], written[1]))
            )
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                self._fail(f"{written} is not a character")
            written = chr(code)
        self._at = found.end()
        return written

    def _token(self) -> str:
        others = self._accept("!")
        if found := _TOKEN_ID.match(self._text, self._at):
            token = int(found[1])
        else:
            found = _TOKEN.match(self._text, self._at)
            if not found:
                self._fail("expected a token such as '<|end|>' or '<[123]>'")
            tokens = [] if found[0].startswith("<[") else self._tokenize(found[0])
            if len(tokens) != 1:
                self._fail(f"{found[0]!r} is not one token of the model")
            [token] = tokens
        self._at = found.end()
        return (
            f"<[^{','.join(map(str, {token, *self._ends}))}]>"
            if others
            else f"<[{token}]>"
        )

    def _group(self) -> str:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail(f"groups are nested more than {_DEEPEST} deep")
        self._at += 1
        self._skip(lines=True)
        inside = self._alternates(nested=True)
        if not self._accept(")"):
            self._fail("expected ')'")
        self._depth -= 1
        return self._new_rule(inside)

    def _repetition(self, nested: bool) -> str:
        if found := _REPEATED.match(self._text, self._at):
            self._at = found.end()
            return found[0]
        self._at += 1
        self._skip(lines=nested)
        least = self._integer(nested)
        most: int | None = least
        if self._accept(","):
            self._skip(lines=nested)
            most = (
                None if self._text.startswith("}", self._at) else self._integer(nested)
            )
        if not self._accept("}"):
            self._fail("expected '}'")
        if most is not None and most < least:
            self._fail(f"at most {most} is less than at least {least}")
        return f"{{{least},{'' if most is None else most}}}"

    def _integer(self, nested: bool) -> int:
        found = _INTEGER.match(self._text, self._at)
        if not found:
            self._fail("expected a whole number of at most five digits")
        self._at = found.end()
        self._skip(lines=nested)
        return int(found[0])

    def _name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if not found:
            self._fail("expected a name (letters, digits and '-')")
        self._named.setdefault(found[0], (f"r{len(self._named)}", self._at))
        self._at = found.end()
        return found[0]

    def _new_rule(self, rule: str) -> str:
        self._groups += 1
        name = f"g{self._groups}"
        self._rules[name] = rule
        return name

    def _check_depth(self, start: str) -> None:
        """Refuse deeply nested rules, because llguidance recurses into each."""
        seen, ways = {start}, [iter(_RULE_NAMES.findall(self._rules[start]))]
        while ways:
            following = next((name for name in ways[-1] if name not in seen), None)
            if following is None:
                ways.pop()
                continue
            seen.add(following)
            ways.append(iter(_RULE_NAMES.findall(self._rules[following])))
            if len(ways) > _MOST_RULES_DEEP:
                raise ConfigurationError(
                    "the grammar's rules and groups are nested more than "
                    f"{_MOST_RULES_DEEP} deep"
                )

    def _skip(self, *, lines: bool) -> None:
        found = (_SPACE_AND_LINES if lines else _SPACE).match(self._text, self._at)
        assert found
        self._at = found.end()

    def _accept(self, mark: str) -> bool:
        here = self._text.startswith(mark, self._at)
        self._at += len(mark) if here else 0
        return here

    def _fail(self, why: str) -> NoReturn:
        before = self._text[: self._at]
        line, column = before.count("\n") + 1, self._at - before.rfind("\n")
        near = self._text[self._at : self._at + 30].split("\n")[0]
        raise ConfigurationError(
            f"the grammar is malformed in line {line}, column {column}: {why}, at "
            f"{near!r}"
        )


def _spelled(character: str) -> str:
    return f"\\u{{{ord(character):X}}}"
