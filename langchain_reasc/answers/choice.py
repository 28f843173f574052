"""The letter of a multiple-choice answer."""

import re

from langchain_reasc.answers.explicit import marked_answer, statements
from langchain_reasc.answers.marks import in_plain_marks

__all__ = ["ChoiceFinder"]

_TAIL = 4000
"""Characters at the end in which a letter that is not said to be the answer is looked for."""
_MARKUP = re.compile(r"[*`$]|__")
_WRONG = r"""(?!\W{0,3}\s*(?:is|are|was|were|cannot|can't|isn't)\b\s*
    (?:also\ |too\ |clearly\ )?(?:wrong|incorrect|false|not|out|impossible|be|invalid))"""
_NO_ARTICLE = r"(?![\w'’]|\s+(?!(?:because|since|as|for|is|and|or|but|not|although|which)\b)[a-z])"
"""Behind a letter that stands alone: "C because", but not "A dog" or "I think"."""
_RIGHT = r"""(?:
      (?:is|seems|looks|must\ be)\s+(?:the\s+|clearly\s+|therefore\s+)*(?:right|correct|best|true|answer|only|one)
    | remains|fits|works|matches|satisfies|makes\ (?:the\ most\ )?sense)\b"""
_CHOSEN = r"""\b(?i:
      it\ is|it's|(?:it\ )?(?:must|should|would)\ be|i\ (?:would\ |will\ )?(?:choose|pick|select)|choose
    | go(?:ing)?\ with
    | leaves(?:\ us\ with)?|fits\ is|(?:choice|option|letter|answer)(?:\ (?:is|that\ fits\ is|would\ be))?
    | i'd\ (?:say|choose|pick)|therefore|hence|thus|ergo|so|clearly|obviously
    )(?:\s|[:,–—-])+(?:(?i:option|choice|answer)\s+)?"""


class ChoiceFinder:
    """Finds the letter: said to be the answer, called right, chosen, or alone on a line.

    Args:
        letters: the choices there are.
    """

    def __init__(self, letters: str = "ABCDEFGHIJ") -> None:
        one = f"[{re.escape(letters)}]"
        small = rf"((?i:{one}))(?=[\s).:\]]*\Z)"  # elsewhere a small "a" is an article
        either = rf"(?:[(\[]({one})[)\]]|({one})(?![\w'’]))"
        said = rf"(?:[(\[]({one})[)\]]|({one}){_NO_ARTICLE}|{small})"
        self._said = _compiled(rf"\W*(?:(?i:option|choice|letter)\s+)?{said}")
        self._field = _compiled(rf'"(?:answer|choice|option|letter)"\s*:\s*"[(\[]?({one})\b')
        self._right = _compiled(rf"{either}\W{{0,3}}\s*{_RIGHT}")
        self._chosen = _compiled(rf"{_CHOSEN}{said}{_WRONG}")
        self._ending = re.compile(rf"\bis\s+\(?({one})\)?[^\w\n]*$", re.MULTILINE)
        self._leading = _compiled(rf"\W*(?:{either}|{small})(?=[).:\]]*(?:\s+\S|\W*\Z))")
        self._alone = re.compile(rf"^[^\w\n]{{0,20}}({one})[^\w\n]{{0,20}}$", re.MULTILINE)
        self._bracketed = _compiled(rf"\(({one})\){_WRONG}")

    def __call__(self, text: str, *, cut_off: bool = False) -> str | None:
        """The letter, or None.

        Args:
            text: a response, without its reasoning.
            cut_off: whether it was cut off: then only an explicit statement counts, or a letter that is all there is,
                as where the model may generate a single token.
        """
        marked = marked_answer(text, cut_off=cut_off)
        if marked is not None and (letter := self._letter_of(marked)):
            return letter
        if field := _last(self._field, text):
            return field[1]
        said = (self._letter_of(said) for said, _ in statements(text, cut_off=cut_off))
        if letter := next(filter(None, said), None):
            return letter
        if cut_off:
            return _letter(alone) if (alone := self._alone.fullmatch(text.strip())) else None
        return self._implied(_MARKUP.sub("", in_plain_marks(text[-_TAIL:])))

    def _implied(self, text: str) -> str | None:
        called = [found for pattern in (self._right, self._chosen, self._ending) if (found := _last(pattern, text))]
        if called:
            return _letter(max(called, key=re.Match.start))
        line = text.rstrip().rpartition("\n")[2]
        for end in (line, re.split(r"(?<=[.!?])\s+", line)[-1]):
            if (leading := self._leading.match(end)) and not re.match(r"\W*[AI]\s+[a-z]", end):
                return _letter(leading)
        found = _last(self._alone, text) or _last(self._bracketed, text)
        return _letter(found) if found else None

    def _letter_of(self, said: str) -> str | None:
        found = self._said.match(_MARKUP.sub("", in_plain_marks(said)).strip(" .:_\"'"))
        return _letter(found) if found else None


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.VERBOSE)


def _letter(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group)


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for match in pattern.finditer(text):
        last = match
    return last
