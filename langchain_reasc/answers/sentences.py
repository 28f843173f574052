"""Find the part of a sentence that answers its question: ``Oslo`` in "The capital of Norway is Oslo."

The part is what the sentence has and the question does not. Numbers, negations, comparisons, nouns after a number and
the alternatives that a question offers are never left out.
"""

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

from langchain_reasc.answers import languages
from langchain_reasc.answers.forms import words_pattern

_LONGEST: Final = 400
_TOKEN: Final = re.compile(r"\S+")
_EDGES: Final = " \t\n.,;:!?。，、！？…*_`\"'“”"
_PRONOUNS: Final = frozenset("it he she they this that there we you i its his her their here these those so hence thus".split())
_JOINTS: Final = frozenset("of and de di von van del da do des".split())
_HAS: Final = frozenset("has have had".split())
_AUXILIARIES: Final = frozenset("has have had does do did can will would should must may might could".split())
_NEVER_LEFT_OUT: Final = frozenset(
    "not no never none neither nor without least most more less fewer than only all both every except until under over "
    "about above below between before after half each minus plus".split()
)
_IRREGULAR: Final = frozenset(
    "took won led made gave went ran wrote came became grew got left met sat fell stood paid sold bought lies lay rose "
    "kept held lost sent spoke said told saw sank sang drew drove flew".split()
)
_BEFORE_NUMBERS: Final = frozenset("by for after within to from".split())
_STARTS_A_PIECE: Final = re.compile(r"[\d$€£¥(\[{\"'`“«+-]|[^\W\d_]*[^\W\da-z_ß-ÿ]")
_SUFFIX: Final = 3


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    end: int
    is_known: bool
    is_function_word: bool

    @property
    def has_number(self) -> bool:
        return any(character.isdigit() for character in self.text)


def answering_part(sentence: str, question: str) -> str:
    """Return the part of a sentence that the question does not have, or all of it if that is not one piece."""
    if len(sentence) > _LONGEST:
        return sentence
    if _is_unspaced(sentence):
        return _without_shared_ends(sentence, question)
    language = languages.language_of(f"{question[-_LONGEST:]} {sentence}")
    known = _known_words(question[-4 * _LONGEST :], language)
    tokens = [_token(match, known) for match in _TOKEN.finditer(sentence)]
    tokens = [token for token in tokens if token.text]
    if len(tokens) < 2:
        return sentence
    part = _after_copula(tokens, language) or _beside_known_words(tokens)
    if not part:
        return sentence
    first = part[0].text.casefold()
    if len(part) > 1 and (first in language.preposition or (first in _BEFORE_NUMBERS and part[1].has_number)):
        part = part[1:]
    start, end = part[0].start, part[-1].end
    return _with_closing_marks(sentence, start, end)


@dataclass(frozen=True)
class _Known:
    words: frozenset[str]
    offered: frozenset[str]
    function_words: frozenset[str]

    def has(self, word: str) -> bool:
        if word in self.offered or word in _NEVER_LEFT_OUT or (len(word) == 1 and word.isalpha()):
            return False
        return word in self.words or any(_is_inflected(word, other) for other in self.words)


@lru_cache(maxsize=256)
def _known_words(question: str, language: languages.Language) -> _Known:
    folded = question.casefold()
    function_words = _function_words(language)
    offered = {word for match in _offers(language).finditer(folded) for word in re.findall(r"[\w'-]+", match[0])}
    return _Known(frozenset(re.findall(r"\w+(?:['-]\w+)*", folded)), frozenset(offered - function_words), function_words)


@cache
def _offers(language: languages.Language) -> re.Pattern[str]:
    words = "|".join(map(re.escape, language.alternative))
    return re.compile(rf"[\w'-]+(?:,\s[\w'-]+)*,?\s(?:{words})\s[\w'-]+")


def _is_inflected(word: str, other: str) -> bool:
    """Return whether two words share a stem: weighs and weigh, liegen and liegt."""
    shared = 0
    for first, second in zip(word, other, strict=False):
        if first != second:
            break
        shared += 1
    rest = max(len(word), len(other)) - shared
    return shared >= 3 and rest <= _SUFFIX and shared >= 2 * rest and not word.isdigit()


def _token(match: re.Match[str], known: _Known) -> _Token:
    raw = match[0]
    text = raw.strip(_EDGES)
    start = match.start() + len(raw) - len(raw.lstrip("*_`\"'“”"))
    folded = text.casefold()
    is_function_word = folded in known.function_words and folded not in known.offered
    return _Token(text, start, match.end(), known.has(folded), is_function_word)


@cache
def _function_words(language: languages.Language) -> frozenset[str]:
    return frozenset((*language.article, *language.preposition)) | _copulas(language) | _PRONOUNS | _AUXILIARIES | _JOINTS


@cache
def _copulas(language: languages.Language) -> frozenset[str]:
    words = {word for word in language.copula if " " not in word}
    return frozenset(words) | (_HAS if language.code == "en" else frozenset())


def _after_copula(tokens: list[_Token], language: languages.Language) -> list[_Token]:
    """Return what follows the verb if the question has the subject, or the subject if the question has the rest."""
    for at, token in enumerate(tokens):
        if token.text.casefold() not in _copulas(language):
            continue
        subject, rest = tokens[:at], tokens[at + 1 :]
        if not rest:
            return []
        if subject and all(word.is_known or word.is_function_word for word in subject):
            return _without_known_end(_without_known_beginning(rest))
        if subject and not _says_something(rest):
            return subject
        return []
    return []


def _says_something(tokens: list[_Token]) -> bool:
    return any(not (token.is_known or token.is_function_word) for token in tokens)


def _without_known_beginning(tokens: list[_Token]) -> list[_Token]:
    """Leave out a participle or verb that stands between the subject and the answer."""
    start = 0
    while start < len(tokens) - 1 and not tokens[start].has_number:
        is_left_out = tokens[start].is_known or (_is_verb(tokens[start]) and _begins_a_piece(tokens[start + 1 :]))
        if not is_left_out:
            break
        start += 1
    kept = tokens[start:]
    return kept if _says_something(kept) or any(token.has_number for token in kept) else tokens


def _without_known_end(tokens: list[_Token]) -> list[_Token]:
    """Leave out words of the question at the end, but not what follows a number, and not everything."""
    end = len(tokens)
    while end > 1:
        token, before = tokens[end - 1], tokens[end - 2]
        is_left_out = (token.is_known or token.is_function_word) and not token.has_number
        if not is_left_out or before.has_number or before.text.casefold() in _NUMBER_WORDS:
            break
        end -= 1
    kept = tokens[:end]
    return kept if _says_something(kept) or any(token.has_number for token in kept) else tokens


_NUMBER_WORDS: Final = frozenset(
    "one two three four five six seven eight nine ten eleven twelve hundred thousand million billion dozen".split()
)


def _beside_known_words(tokens: list[_Token]) -> list[_Token]:
    """Return what is left of a sentence with a verb of the question, or a subject and another verb."""
    start = 0
    while start < len(tokens) and (tokens[start].is_known or tokens[start].is_function_word) and not tokens[start].has_number:
        start += 1
    subject, rest = tokens[:start], tokens[start:]
    if not rest:
        return []
    shared = [token for token in subject if token.is_known and not token.is_function_word]
    has_pronoun = bool(subject) and subject[0].text.casefold() in _PRONOUNS
    if subject and len(rest) > 1 and _is_verb(rest[0]) and (shared or has_pronoun) and _begins_a_piece(rest[1:]):
        return _without_known_end(_without_known_beginning(rest[1:]))
    kept = _without_known_end(rest)
    left_out = [token for token in rest[len(kept) :] if token.is_known and not token.is_function_word]
    return kept if len(shared) + len(left_out) >= 2 or (has_pronoun and shared) else []


def _is_verb(token: _Token) -> bool:
    word = token.text
    return word.isalpha() and word.islower() and (word.endswith(("s", "ed")) or word in _IRREGULAR)


def _begins_a_piece(tokens: list[_Token]) -> bool:
    first = tokens[0]
    if first.is_function_word and len(tokens) > 1:
        first = tokens[1]
    return _STARTS_A_PIECE.match(first.text) is not None or tokens[0].is_function_word


def _with_closing_marks(sentence: str, start: int, end: int) -> str:
    return sentence[start:end].rstrip(" ,;:")


# Scripts without spaces

_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_CLOSING: Final = "。．.！!？? 「」『』*`"


def _is_unspaced(sentence: str) -> bool:
    return len(_UNSPACED.findall(sentence)) >= 2


def _without_shared_ends(sentence: str, question: str) -> str:
    text = sentence.strip(_CLOSING)
    shared = 0
    for first, second in zip(text, question, strict=False):
        if first != second or first.isdigit():
            break
        shared += 1
    rest = without_closing_words(text[shared:] if shared >= 2 else text)
    copula = _leading_copula().match(rest) if shared >= 2 else None
    if copula and copula.end() < len(rest):
        rest = rest[copula.end() :]
    return rest.strip(_CLOSING) or sentence


@cache
def _leading_copula() -> re.Pattern[str]:
    words = [word for word in languages.words("copula") if _UNSPACED.match(word)]
    return re.compile("|".join(map(re.escape, words)))


@cache
def _closing_words() -> re.Pattern[str]:
    return re.compile(r"\s?(?:" + "|".join(map(re.escape, languages.words("after"))) + r")[。.]?\Z", re.IGNORECASE)


def without_closing_words(text: str) -> str:
    """Return a text without a verb at its end that belongs to the sentence: です, 입니다, है."""
    found = _closing_words().search(text)
    return text[: found.start()] if found and found.start() else text


@cache
def reasons() -> re.Pattern[str]:
    """Return a pattern of what begins an explanation after an answer."""
    return words_pattern(languages.words("reason"))
