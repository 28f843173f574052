"""Find the option or the label that a response chooses.

An option is a letter; several that are joined are a set, and alternatives ("A or C")
are no choice. A label is one of the names that the caller gives.
"""

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Final

from langchain_reasc.answers import languages
from langchain_reasc.answers.json_values import last_value, leaves
from langchain_reasc.answers.notation import plain_text, without_markup
from langchain_reasc.answers.prose import TAIL, sentences
from langchain_reasc.answers.sentences import without_closing_words
from langchain_reasc.answers.span import before_next_question, find_span
from langchain_reasc.answers.statements import last_statement

LATIN: Final = "ABCDEFGHIJ"
_CIRCLED: Final = "①②③④⑤⑥⑦⑧⑨⑩"
_ALPHABETS: Final = "".join(
    [LATIN, *(language.letters for language in languages.LANGUAGES), _CIRCLED]
)
# "A) Oslo", "(B) Bergen", "①. Tromsø"
_LISTED: Final = re.compile(
    r"(?:(?<=\s)|(?<=[?？:.。,]|\()|\A)[(（]?([^\W\d_]|[①-⑩])\s?[).:、．）](?=\s|\S)"
)
_MOST_LINES: Final = 40
_SHORT: Final = 12
"""The most words of a text whose only label is its answer."""
_OR: Final = re.compile(
    r"\b(?:or|oder|ou|lub|veya|eller)\b|\sили\s|或|または|또는", re.IGNORECASE
)


class ChoiceFinder:
    """Finds the letters of the options that a response chooses.

    Args:
        letters: the letters that may be options.
    """

    def __init__(self, letters: str = LATIN) -> None:
        self._letters = letters

    def __call__(
        self, text: str, *, question: str = "", cut_off: bool = False
    ) -> str | None:
        """Return the letter in lower case, several as ``a, c``; None if the text
        chooses none.

        Args:
            text: a response, without its reasoning.
            question: the question, whose options may have letters of another script.
            cut_off: whether the response was cut off. Then only an explicit statement
                counts, or a text that is only a letter (the model may be limited to one
                token).
        """
        text = before_next_question(text)
        letters = self._letters + letters_of(question)
        statement = last_statement(text, cut_off=cut_off)
        if statement:
            chosen = chosen_letters(statement.span, letters)
            if chosen:
                return chosen
        if cut_off:
            if len(text.strip(" .()*")) == 1:
                return chosen_letters(text, letters)
            return None
        span = find_span(text, question)
        if span:
            chosen = chosen_letters(span, letters)
            if chosen:
                return chosen
        # "A or C" chooses neither.
        last_line = text.rstrip().rpartition("\n")[2]
        if _OR.search(statement.span if statement else last_line):
            return None
        return _implied(statement.span if statement else text, letters)

    def label(self, right: str) -> str:
        """Write an answer or a label as the letters that it names; any other text in
        lower case.
        """
        return chosen_letters(right, self._letters) or right.strip().casefold()


@lru_cache(maxsize=256)
def letters_of(question: str) -> str:
    """Return the letters beside the options that a question lists, in capitals."""
    question = question[-4000:]
    listed = [match[1].upper() for match in _LISTED.finditer(question)]
    listed += [sign for sign in _CIRCLED if sign in question]
    # Japanese lists options without a mark behind the letter.
    if re.search("[\u3040-\u30ff]", question):
        listed += re.findall(r"(?:(?<=[\s。？?:：])|\A)([^\W\d_])\s(?=\S)", question)
    return "".join(dict.fromkeys(sign for sign in listed if sign in _ALPHABETS))


def chosen_letters(span: str, letters: str) -> str | None:
    """Return the letter that a whole span names, with or without its option's text, or
    the set of several.
    """
    text = without_closing_words(plain_text(without_markup(span)).strip(" .。!\"'"))
    text = without_markup(text).strip(" .。")
    several = re.split(r"\s*(?:,|;|&|\band\b|\bund\b|\by\b|\bet\b|、|と|和|и)\s*", text)
    matches = [_alone(letters).fullmatch(part.strip()) for part in several if part]
    if matches and all(matches):
        chosen = {match[1].casefold() for match in matches if match}
        return ", ".join(sorted(chosen))
    match = _with_text(letters).match(text)
    if match is None or _OR.match(text, match.end()):
        return None
    return match[match.lastindex or 0].casefold()


@lru_cache(maxsize=64)
def _with_text(letters: str) -> re.Pattern[str]:
    """Return a pattern of a letter with more behind: "B) Bergen", "option B because"."""
    either = f"[{re.escape(letters + letters.lower())}]"
    return re.compile(
        rf"(?:(?:the|die|der|la|a|o|el|le|l')\s)?(?:(?:{_nouns()})\s?)?"
        rf"(?:[(\[]({either})[)\]]|({either})(?=[).:,(]|\s?[-–—]\s|\s\(|\s[\u3040-\ud7a3])|({either})(?=\s(?:şıkkı|seçeneği|is|because|since)))",
        re.IGNORECASE,
    )


@lru_cache(maxsize=64)
def _alone(letters: str) -> re.Pattern[str]:
    """Return a pattern of a letter alone: "B", "(B)", "option B."."""
    either = f"[{re.escape(letters + letters.lower())}]"
    return re.compile(
        rf"(?:(?:the|die|der|la|a|o|el|le|l')\s)?(?:(?:{_nouns()})s?\s?)?[(\[]?({either})[)\]]?[).:]?"
        rf"(?:\s?(?:번|şıkkı|seçeneği)\w*)?",
        re.IGNORECASE,
    )


_RIGHT: Final = (
    r"(?:is|are|would be)\s+(?:the\s+)?(?:\w+\s+)?(?:correct|right|true|best|answer)"
)
_CHOSEN: Final = (
    r"(?:choose|chose|choosing|select|selecting|pick|picking|go with|going with|hence|so|therefore|thus|ergo|clearly|"
    r"only|leaves|say|be|is|are|option|choice):?"
)
_WRONG: Final = r"(?!\W{0,3}(?:is|are|was)\s+(?:not|wrong|incorrect|false|un))"


def _implied(text: str, letters: str) -> str | None:
    """Return the letter that is called right or chosen, or that stands alone on a line,
    the last one.
    """
    capital = f"[{re.escape(letters)}]"
    either = rf"(?:[(\[]({capital})[)\]]|({capital})(?![\w'’]))"
    answer_nouns = languages.either(languages.words("answer"))
    for pattern in (
        # "B is correct."
        rf"{either}\W{{0,3}}\s*(?:{_RIGHT}|remains|fits|makes|satisfies|follows|must be)",
        # "I choose option B."
        rf"(?i:\b{_CHOSEN})\s+(?:option\s+|choice\s+)?[*_]*{either}(?=[*_\s.,;:)]|\Z){_WRONG}(?!\s+(?!because|since|fits|makes|satisfies|remains|is)[a-z])",
        # A line such as "**B**" or "B) Bergen"
        rf"^[^\w\n]{{0,20}}({capital})(?:[^\w\n]{{0,20}}|[).:]\s[^\n]{{1,80}})$",
        # "Es ist die B."
        _behind_copula(capital),
        # "Answer B"
        rf"(?i:\b(?:{answer_nouns}))\s+[(*]*({capital})(?![\w'’])(?!\s[a-z]+\s[a-z])",
        # "(B)"
        rf"\(({capital})\){_WRONG}",
    ):
        matches = list(re.finditer(pattern, text[-4000:], re.MULTILINE))
        if matches:
            match = matches[-1]
            return str(match[match.lastindex or 0]).casefold()
    return None


@cache
def _nouns() -> str:
    """Return what may stand in front of a letter, as a pattern."""
    nouns = (*languages.words("choice"), *languages.words("answer"))
    return languages.either((*nouns, "graph", "figure", "picture"))


@cache
def _behind_copula(capital: str) -> str:
    """Return a pattern of a letter behind "is": "la opción correcta es la B) Mercurio"."""
    spaced, unspaced = languages.word_patterns(languages.words("copula"))
    before = languages.either((*languages.words("article"), *languages.words("choice")))
    return (
        rf"(?:(?i:\b(?:{spaced}))\s+|(?:{unspaced})\s?)(?i:(?:{before})\s+)*[(*（]*({capital})"
        r"(?=[)*）]*(?:\Z|[).:*（]\s?|\s\(|\n))"
    )


# "It is spam."
_SAID_BEFORE: Final = re.compile(
    r"\b(?:is|as|be|are|to|ist|est|es)\s(?:an?\s|the\s|clearly\s)?\Z"
)
# "It is not spam."
_DENIED_BEFORE: Final = re.compile(
    r"\b(?:not|non|never|isn't|neither|nor|no)[\s-](?:an?\s)?\Z"
)


class LabelFinder:
    """Finds the label that a response is or states.

    Args:
        labels: the labels.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = {_folded(label): label for label in labels}
        ordered = sorted(self._labels, key=len, reverse=True)
        self._pattern = re.compile(
            rf"(?<![\w-])(?:{languages.either(ordered)})(?![\w-])"
        )

    def __call__(
        self, text: str, *, question: str = "", cut_off: bool = False
    ) -> str | None:
        """Return the label, or None if the text names none, or several as alternatives."""
        text = before_next_question(text)
        label = self._labels.get(_folded(text[:TAIL])) or self._in_object(text)
        if label:
            return label
        statement = last_statement(text, cut_off=cut_off)
        if statement:
            return self._only(statement.span)
        if cut_off:
            return None
        text = text[-TAIL:]
        label = self._headed(text) or self._said(text)
        if label:
            return label
        if _OR.search(text) and len(text.split()) <= _SHORT:
            return None
        return self._concluded(text, question)

    def label(self, right: str) -> str:
        """Write an answer or a right answer as the label that it names."""
        return self._labels.get(_folded(right), right)

    def _in_object(self, text: str) -> str | None:
        if "{" not in text:
            return None
        last = last_value(text[-TAIL:])
        if last is None:
            return None
        values = [_folded(str(value)) for _, value in leaves(last.value)]
        labels = {self._labels[value] for value in values if value in self._labels}
        return labels.pop() if len(labels) == 1 else None

    def _headed(self, text: str) -> str | None:
        """Return the label on a line of its own, alone, with a head as in "Label:
        spam", or before a dash.
        """
        for line in reversed(text.split("\n")[-_MOST_LINES:]):
            line = _folded(line)
            after_head = line.rpartition(": ")[2]
            before_dash = re.split(r"\s[-–—]\s|:\s", line, maxsplit=1)[0]
            for part in (line, after_head, before_dash):
                label = self._labels.get(part.strip(" ."))
                if label:
                    return label
        return None

    def _said(self, text: str) -> str | None:
        """Return the label of the first sentence of the last paragraph that says "is"
        of one.
        """
        paragraph = re.split(r"\n\s*\n", text.strip())[-1]
        for sentence in sentences(paragraph):
            folded = _folded(sentence)
            for match in self._pattern.finditer(folded):
                if not _SAID_BEFORE.search(folded[: match.start()]):
                    continue
                if _OR.search(folded):
                    return self._only(folded)
                return self._labels[match[0]]
        return None

    def _concluded(self, text: str, question: str) -> str | None:
        span = find_span(text, question)
        if span is None:
            return None
        label = self._only(span)
        if label is None and len(text.split()) <= _SHORT:
            return self._only(text)
        return label

    def _only(self, span: str) -> str | None:
        """Return the only label that a span names and does not deny."""
        folded = _folded(span)
        if folded in self._labels:
            return self._labels[folded]
        labels = set()
        for match in self._pattern.finditer(folded):
            if not _DENIED_BEFORE.search(folded[: match.start()]):
                labels.add(self._labels[match[0]])
        return labels.pop() if len(labels) == 1 else None


def _folded(text: str) -> str:
    text = without_markup(without_markup(text).strip(" .!,;:"))
    text = text.casefold().replace("_", " ").replace("**", "").replace("`", "")
    return " ".join(text.split()).strip(" .!,;:\"'")
