"""The letter of a multiple-choice answer."""

import re

from langchain_reasc.answers.explicit import marked_answer, statements
from langchain_reasc.answers.marks import in_plain_marks

__all__ = ["ChoiceFinder"]

_TAIL = 20_000
_MARKUP = re.compile(r"[*`$]|__")
_WRONG = r"(?!\W{0,3}\s*(?:is|are|was|were|cannot|can't|isn't)\b\s*(?:also\ |too\ |clearly\ )?(?:wrong|incorrect|false|not|out|impossible|be|invalid))"


class ChoiceFinder:
    """Finds the letter: said to be the answer, called right, chosen, or alone on the last line.

    Args:
        letters: the choices there are.
    """

    def __init__(self, letters: str = "ABCDEFGHIJ") -> None:
        one = f"[{re.escape(letters)}]"
        bare = rf"{one}(?![\w'’]|\s+[a-z]*(?<!because)(?<!since)(?<!as)(?<!for)(?<!is)(?<!and)(?<!but)(?<!not)\b(?<=[a-z]))"
        small = rf"(?i:{one})(?=[\s).:*\]]*\Z)"
        self._letter = rf"(?:[(\[]({one})[)\]]|({bare})|({small}))"
        either = rf"(?:[(\[]({one})[)\]]|({one})(?![\w'’]))"
        self._inside = re.compile(rf"\W*(?:(?:option|choice)\s+)?{self._letter}", re.IGNORECASE if not letters else 0)
        self._field = re.compile(rf'"(?:answer|choice|option|letter)"\s*:\s*"[(\[]?({one})\b', re.IGNORECASE)
        self._called = re.compile(
            rf"{either}\W{{0,3}}\s*(?:is|seems|looks|must\ be)\s+(?:the\s+|clearly\s+|therefore\s+)*"
            r"(?:right|correct|best|true|answer|only|one)\b".replace(r"\ ", " ")
        )
        self._chosen = re.compile(
            rf"\b(?i:it\ is|it's|it\ must\ be|must\ be|should\ be|would\ be|i\ (?:would\ |will\ )?(?:choose|pick|select)|go\ with|"
            rf"leaves(?:\ us\ with)?|choose|(?:choice|option|letter|answer)(?:\ (?:is|that\ fits\ is|would\ be))?|fits\ is|"
            rf"therefore|hence|thus|so)(?:\s|[:,–—-])+(?:(?i:option|choice|answer)\s+)?{self._letter}{_WRONG}".replace(r"\ ", " ")
        )
        self._alone = re.compile(rf"\W*(?:{either}|({small}))(?=[).:\]]*(?:\s+\S|\W*\Z))")
        self._bracketed = re.compile(rf"\(({one})\){_WRONG}".replace(r"\ ", " "))

    def __call__(self, text: str, *, cut_off: bool = False) -> str | None:
        """The letter, or None.

        Args:
            text: a response, without its reasoning.
            cut_off: whether it was cut off: then only an explicit statement counts.
        """
        marked = marked_answer(text, cut_off=cut_off)
        if marked is not None and (letter := self._in(marked)):
            return letter
        if field := _last(self._field, text):
            return field
        for said, _ in statements(text, cut_off=cut_off):
            if letter := self._in(said):
                return letter
        return None if cut_off else self._implied(_MARKUP.sub("", in_plain_marks(text[-_TAIL:])))

    def _implied(self, text: str) -> str | None:
        last_line = text.rstrip().rpartition("\n")[2]
        found = [(at, letter) for pattern in (self._called, self._chosen) if (hit := _last_at(pattern, text)) for at, letter in [hit]]
        if found:
            return max(found)[1]
        sentence = re.split(r"(?<=[.!?])\s+", last_line.rstrip())[-1]
        for line in (last_line, sentence):
            if (alone := self._alone.match(line)) and not re.match(r"\W*[AI]\s+[a-z]", line):
                return _group(alone)
        return _last(self._bracketed, text)

    def _in(self, said: str) -> str | None:
        found = self._inside.match(_MARKUP.sub("", in_plain_marks(said)).strip(" .:_\"'"))
        return _group(found) if found else None


def _group(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group)


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    hit = _last_at(pattern, text)
    return hit[1] if hit else None


def _last_at(pattern: re.Pattern[str], text: str) -> tuple[int, str] | None:
    last = None
    for match in pattern.finditer(text):
        last = match
    return (last.start(), _group(last)) if last else None
