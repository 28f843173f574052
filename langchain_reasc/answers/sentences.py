"""Find the part of a sentence that answers its question, as ``Oslo`` in "The capital of
Norway is Oslo".

The part is what the sentence has and the question does not. Negations, comparisons,
nouns after a number and the alternatives that a question offers are never left out.
"""

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

from langchain_reasc.answers import languages
from langchain_reasc.answers.forms import words_pattern
from langchain_reasc.answers.languages import Language, is_unspaced, word_set

_LONGEST: Final = 400
_TOKEN: Final = re.compile(r"\S+")
_EDGES: Final = " \t\n.,;:!?。，、！？।…*_`\"'“”()"
_INTRODUCTION: Final = re.compile(
    r"(?:according to|based on|in|from|as per|for)\s[^,\d]{3,60},\s(?=\S)|(?:(?:it|that|he|she)'s|"
    r"there\s(?:is|are|was|were)|il y a|hay|"
    r"es gibt|es sind|c'è|ci sono|há|er zijn|det finns)\s",
    re.IGNORECASE,
)
_PRONOUNS: Final = word_set(
    "it he she they we you i this that there these those here hence thus so"
)
_NEVER_LEFT_OUT: Final = word_set("not no never none neither nor without")
_BOUNDS: Final = word_set("least most")
_IRREGULAR: Final = word_set(
    "took won led made gave went ran wrote came became grew got left met sat fell "
    "stood paid sold bought lies lay rose kept held lost sent spoke said told saw sank "
    "sang drew drove flew began seen written given taken built known shown grown drawn "
    "chosen eaten fallen driven born cost hit cut set put"
)
_ASKED_FOR: Final = word_set(
    "after before under behind near between with for from to of into"
)
_DANGLING: Final = word_set("after before in on for at with of from by during since")
_ASKS_WHAT_HAPPENS: Final = re.compile(
    r"\bhappen|\bchange|\bdoes? .{1,40} do\b|\bhow (?:do|does|did|has|have)\b",
    re.IGNORECASE,
)
_TELLING: Final = re.compile(
    r"\b(?:r[io]se[sn]?|falls?|fell|fallen|(?:in|de)creas\w+|gr[eo]ws?|shr[aiu]nk|dropp?\w*|gain\w*|los[est]\w*|lost|w[io]ns?|"
    r"prof\w+|deficit|surplus|early|late|ahead|behind|short|not|never|no longer|approv\w+|reject\w+|\w+n't)\b",
    re.IGNORECASE,
)
_STEMS: Final = {
    "fell": "fall",
    "rose": "ris",
    "shrank": "shr",
    "grew": "gro",
    "lost": "los",
    "won": "win",
}
_ASKS_WHO: Final = re.compile(r"\s*(?:who|which)\b", re.IGNORECASE)
_PARTICLES: Final = word_set("up down off out away back over")
_BEFORE_NUMBERS: Final = word_set("by for to with")
_STARTS_A_PIECE: Final = re.compile(r"[\d$€£¥(\[{\"'`“«+-]|[^\W\d_]*[^\W\da-z_ß-ÿ]")
_NUMBER_WORDS: Final = word_set(
    "one two three four five six seven eight nine ten eleven twelve hundred thousand "
    "million billion dozen"
)
_LOWER_NEXT: Final = re.compile(
    r"\s(?!and\b|or\b)[^\W\d_A-Z]|\s[A-Z]\w+\s(?!and\b|or\b)|\s\W?\d"
)
_LONGEST_SUFFIX: Final = 3


@dataclass(frozen=True, slots=True)
class _Token:
    """A word of a sentence.

    Attributes:
        text: the word without the marks around it.
        start: where it begins in the sentence.
        end: where it ends, with the marks behind it.
        is_known: whether the question has it.
        is_function_word: whether it is an article, a preposition, a pronoun or an
            auxiliary verb.
    """

    text: str
    start: int
    end: int
    is_known: bool
    is_function_word: bool

    @property
    def word(self) -> str:
        return self.text.casefold()

    @property
    def is_new(self) -> bool:
        return not (self.is_known or self.is_function_word)

    @property
    def has_number(self) -> bool:
        return (
            any(character.isdigit() for character in self.text)
            or self.word in _NUMBER_WORDS
        )

    @property
    def is_verb(self) -> bool:
        is_word = self.text.isalpha() and self.text.islower()
        return is_word and (self.text.endswith(("s", "ed")) or self.text in _IRREGULAR)


Tokens = list[_Token]


def answering_part(sentence: str, question: str) -> str:
    """Return the part of a sentence that the question does not have, or all of it if
    that is not one piece.
    """
    if len(sentence) > _LONGEST:
        return sentence
    if len(_UNSPACED.findall(sentence)) >= 2:
        return _without_shared_ends(sentence, question)
    introduction = _INTRODUCTION.match(sentence)
    if introduction and introduction.end() < len(sentence):
        sentence = sentence[introduction.end() :]
    language = languages.language_of(f"{question[-_LONGEST:]} {sentence}")
    question_words = _question_words(question[-4 * _LONGEST :], language)
    tokens = [_token(match, question_words) for match in _TOKEN.finditer(sentence)]
    tokens = [token for token in tokens if token.text]
    if not tokens:
        return sentence
    part = _around_copula(tokens, language)
    if not part and not tells_more(sentence, question):
        part = _beside_verb(tokens) or _before_verb(tokens, question)
    if not part and introduction:
        part = _without_known_end(tokens)
    if not part and tokens[0].word in ("it", "they", "he", "she") and len(tokens) > 1:
        part = tokens[1:]
    part = _without_preposition(part or tokens, language, question_words)
    if (
        len(part) in (2, 3)
        and part[0].is_known
        and not part[0].has_number
        and part[1].has_number
    ):
        part = part[1:]  # Bus 7A, where the question asks for a bus
    if part == tokens and not introduction:
        return sentence
    text = sentence[part[0].start : part[-1].end].rstrip(" ,;:")
    if text.count('"') % 2 or text.count("“") != text.count("”"):
        return text.strip(' ."“”')
    return text


@dataclass(frozen=True)
class _QuestionWords:
    words: frozenset[str]
    offered: frozenset[str]
    function_words: frozenset[str]

    def has(self, word: str) -> bool:
        if (
            word in self.offered
            or word in _NEVER_LEFT_OUT
            or (len(word) == 1 and word.isascii() and word.isalpha())
        ):
            return False
        word = word.removesuffix("'s")
        return word in self.words or any(
            _is_inflected(word, question_word) for question_word in self.words
        )


@lru_cache(maxsize=256)
def _question_words(question: str, language: Language) -> _QuestionWords:
    folded = question.casefold().replace("’", "'")
    function_words = frozenset((*language.article, *language.preposition)) | _copulas(
        language
    )
    function_words |= _PRONOUNS.union(
        languages.FUNCTION_WORDS.get(language.code, "").split()
    )
    offered = {
        word
        for match in _offers(language).finditer(folded)
        for word in re.findall(r"[\w'-]+", match[0])
    }
    words = re.findall(r"[^\s.,;:!?…।\"“”()\[\]]+", folded)
    parts = [part for word in words for part in re.split("['-]", word)]
    return _QuestionWords(
        frozenset((*words, *parts)), frozenset(offered - function_words), function_words
    )


@cache
def _offers(language: Language) -> re.Pattern[str]:
    """Return a pattern of the alternatives that a question offers."""
    words = "|".join(map(re.escape, language.alternative))
    return re.compile(rf"[\w'-]+(?:,\s[\w'-]+)*,?\s(?:{words})\s[\w'-]+")


def _is_inflected(word: str, stem: str) -> bool:
    """Return whether two words share a stem: weighs and weigh, liegen and liegt."""
    shared = 0
    for first, second in zip(word, stem, strict=False):
        if first != second:
            break
        shared += 1
    rest = max(len(word), len(stem)) - shared
    return shared >= 3 and rest <= _LONGEST_SUFFIX and shared > rest and word.isalpha()


def _token(match: re.Match[str], question: _QuestionWords) -> _Token:
    raw = match[0]
    if len(raw.strip(_EDGES)) > 1 or raw[:1] not in "([{":
        text = raw.strip(_EDGES)
    else:
        text = raw
    start = match.start() + len(raw) - len(raw.lstrip("*_`\"'“”"))
    folded = text.casefold()
    begins_sentence = (
        match.start() == 0 and _LOWER_NEXT.match(match.string, match.end()) is not None
    )
    is_small = text.islower() or begins_sentence  # not May, and not A in "A, C and D"
    is_function_word = (
        is_small
        and folded in question.function_words
        and folded not in question.offered
    )
    return _Token(text, start, match.end(), question.has(folded), is_function_word)


@cache
def _copulas(language: Language) -> frozenset[str]:
    words = {word for word in language.copula if " " not in word}
    return frozenset(words.union(languages.HAVE.get(language.code, "").split()))


def _around_copula(tokens: Tokens, language: Language) -> Tokens:
    """Return what follows the last verb that the question has the subject of, or the
    subject if it has the rest.
    """
    for index in reversed(range(1, len(tokens) - 1 + 1)):
        if tokens[index].word not in _copulas(language):
            continue
        subject = tokens[:index]
        rest = tokens[index + 1 :]
        content = [token for token in subject if not token.is_function_word]
        repeated = [token for token in content if token.is_known]
        is_participle = (
            len(rest) == 1
            and rest[0].is_verb
            and any(token.has_number for token in subject)
        )
        says_nothing = is_participle or not any(token.is_new for token in rest)
        if rest and says_nothing and any(token.is_new for token in subject):
            return _without_known_beginning(_without_known_end(subject))
        if rest and 2 * len(repeated) >= len(content):
            return _without_known_end(_without_known_beginning(rest))
    return []


def _beside_verb(tokens: Tokens) -> Tokens:
    """Return what is left of a sentence with a verb of the question, or a subject and
    another verb.
    """
    start = 0
    while (
        start < len(tokens)
        and not tokens[start].is_new
        and (tokens[start].is_known or not tokens[start].has_number)
    ):
        start += 1
    if (
        start > 1
        and start == len(tokens) - 1
        and re.fullmatch("[A-Z]", tokens[start].text)
    ):
        start -= 1  # vitamin D
    subject = tokens[:start]
    rest = tokens[start:]
    if not rest:
        return []
    shared = [
        token for token in subject if token.is_known and not token.is_function_word
    ]
    has_pronoun = bool(subject) and subject[0].word in _PRONOUNS
    has_piece = (
        len(rest) > 1
        and _begins_a_piece(rest[1:])
        and any(token.is_new or token.has_number for token in rest[1:])
    )
    if has_piece and rest[0].is_verb and shared:
        return _without_known_end(_without_known_beginning(rest[1:]))
    beginning = _without_known_end(rest)
    left_out = [
        token
        for token in rest[len(beginning) :]
        if token.is_known and not token.is_function_word
    ]
    if len(shared) + len(left_out) >= 2 or (has_pronoun and shared):
        return beginning
    return []


def _before_verb(tokens: Tokens, question: str) -> Tokens:
    """Return who or what does what the question asks for: "Brazil" of "Brazil won"."""
    beginning = _without_known_end(tokens)
    is_subject = len(beginning) < len(tokens) and all(
        token.is_new for token in beginning
    )
    return beginning if is_subject and _ASKS_WHO.match(question) else []


def _without_known_beginning(tokens: Tokens) -> Tokens:
    """Leave out participles, verbs and small words in front of the answer."""
    start = 0
    while start < len(tokens) - 1:
        token = tokens[start]
        following = tokens[start + 1]
        is_verb = token.is_verb and (
            token.is_known or _begins_a_piece(tokens[start + 1 :])
        )
        is_known = token.is_known and (
            following.is_function_word or following.word in _PARTICLES
        )
        is_known = is_known and following.word not in ("and", "or")
        # written by
        is_known = is_known or (token.text.islower() and following.word == "by")
        is_small = (
            token.is_function_word or token.word in _PARTICLES
        ) and following.word not in _BOUNDS
        if token.has_number or not (is_verb or is_known or is_small):
            break
        start += 1
    end = tokens[start:]
    return end if any(token.is_new or token.has_number for token in end) else tokens


def _without_known_end(tokens: Tokens) -> Tokens:
    """Leave out a phrase of the question at the end: "in the yard" of "five cats in the
    yard".
    """
    end = len(tokens)
    while end > 1:
        token = tokens[end - 1]
        before = tokens[end - 2]
        # 12 apples
        is_counted = before.has_number and before.is_new and not token.is_function_word
        if token.is_new or is_counted or before.word == "per":
            break
        end -= 1
    beginning = tokens[:end]
    phrase = tokens[end:]
    if not any(token.is_new or token.has_number for token in beginning):
        return tokens
    while len(beginning) > 1 and phrase and beginning[-1].word in _DANGLING:
        beginning = beginning[:-1]
    starts_phrase = phrase and (
        phrase[0].is_function_word or phrase[0].is_verb or len(phrase) > 1
    )
    if not phrase or starts_phrase or any(token.has_number for token in beginning[-2:]):
        return beginning
    return tokens  # acetic acid


def _begins_a_piece(tokens: Tokens) -> bool:
    return (
        _STARTS_A_PIECE.match(tokens[0].text) is not None
        or not tokens[0].is_new
        or tokens[0].word in _PARTICLES
    )


def _without_preposition(
    tokens: Tokens, language: Language, question: _QuestionWords
) -> Tokens:
    """Leave out a preposition in front: "in" of "in Paris", "by" of "by 12%"."""
    while len(tokens) > 1 and tokens[1].word not in _BOUNDS:
        word = tokens[0].word
        is_number_next = word in _BEFORE_NUMBERS and tokens[1].has_number
        is_asked = word in question.words and word in _ASKED_FOR
        if not (
            word in language.preposition or is_number_next or is_asked or word == "by"
        ):
            break
        tokens = tokens[1:]
    return tokens


# Scripts without spaces

_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_CLOSING: Final = "。．.！!？? 「」『』*`"


def _without_shared_ends(sentence: str, question: str) -> str:
    text = sentence.strip(_CLOSING)
    shared = 0
    for first, second in zip(text, question, strict=False):
        if first != second or first.isdigit():
            break
        shared += 1
    if shared < 2:
        return without_closing_words(text).strip(_CLOSING) or sentence
    rest = without_closing_words(text[shared:])
    copula = _leading_copula().match(rest)
    if copula and copula.end() < len(rest):
        rest = rest[copula.end() :]
    return rest.strip(_CLOSING) or sentence


@cache
def _leading_copula() -> re.Pattern[str]:
    words = [word for word in languages.words("copula") if _UNSPACED.match(word)]
    return re.compile("|".join(map(re.escape, words)))


@cache
def _closing_words() -> re.Pattern[str]:
    words = languages.words("after")
    stuck = "|".join(
        re.escape(word)
        for word in words
        if word.startswith("'") or is_unspaced(word[0])
    )
    spaced = "|".join(
        re.escape(word)
        for word in words
        if not word.startswith("'") and not is_unspaced(word[0])
    )
    return re.compile(rf"(?:{stuck}|\s(?:{spaced}))[。.।]?\Z", re.IGNORECASE)


def without_closing_words(text: str) -> str:
    """Return a text without a verb at its end that belongs to the sentence: です, 입니다,
    है.
    """
    closing = _closing_words().search(text)
    return text[: closing.start()].rstrip() if closing and closing.start() else text


def tells_more(sentence: str, question: str) -> bool:
    """Return whether a sentence has a verb or word that may be its answer: "rose" of
    "it rose by 3%".
    """
    if _ASKS_WHAT_HAPPENS.search(question):
        return True
    folded_question = question.casefold()
    words = [match[0].casefold() for match in _TELLING.finditer(sentence)]
    return any(
        word not in folded_question
        and _STEMS.get(word, word[:3]) not in folded_question
        for word in words
    )


def has_question_subject(sentence: str, question: str) -> bool:
    """Return whether a sentence begins with a noun or name that the question has."""
    language = languages.language_of(f"{question[-_LONGEST:]} {sentence}")
    question_words = _question_words(question[-4 * _LONGEST :], language)
    tokens = [
        _token(match, question_words) for match in _TOKEN.finditer(sentence[:_LONGEST])
    ]
    content = [token for token in tokens if token.text and not token.is_function_word]
    return bool(content) and content[0].is_known and not content[0].has_number


@cache
def reasons() -> re.Pattern[str]:
    """Return a pattern of what begins an explanation after an answer."""
    return words_pattern(languages.words("reason"))
