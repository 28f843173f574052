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
from langchain_reasc.answers.languages import Language, is_unspaced, word_set

_LONGEST: Final = 400
_TOKEN: Final = re.compile(r"\S+")
_EDGES: Final = " \t\n.,;:!?。，、！？।…*_`\"'“”()"
# "According to the text, ...", "In Norway, ...", "It's ...", "There are ..."
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
# Past tenses and participles without "ed"
_IRREGULAR: Final = word_set(
    "took won led made gave went ran wrote came became grew got left met sat fell "
    "stood paid sold bought lies lay rose kept held lost sent spoke said told saw sank "
    "sang drew drove flew began seen written given taken built known shown grown drawn "
    "chosen eaten fallen driven born cost hit cut set put"
)
# "With her aunt" answers "With whom?" by "her aunt".
_ASKED_FOR: Final = word_set(
    "after before under behind near between with for from to of into"
)
# "Five cats in" is left of "five cats in the yard", and loses its "in".
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
# The question may ask how far something "rises".
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
# A number, a quotation, or a word with a capital
_STARTS_A_PIECE: Final = re.compile(r"[\d$€£¥(\[{\"'`“«+-]|[^\W\d_]*[^\W\da-z_ß-ÿ]")
_NUMBER_WORDS: Final = word_set(
    "one two three four five six seven eight nine ten eleven twelve hundred thousand "
    "million billion dozen"
)
# A sentence goes on behind its first word, and not a list such as "A, C and D".
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
        return any(map(str.isdigit, self.text)) or self.word in _NUMBER_WORDS

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
    if len(sentence.split()) < 2:
        return sentence
    introduction = _INTRODUCTION.match(sentence)
    if introduction and introduction.end() < len(sentence):
        sentence = sentence[introduction.end() :]
    tokens, question_words = _read(sentence, question)
    if not tokens:
        return sentence
    part = _around_copula(tokens, question_words.language)
    # "It rose by 3%" is more than the "3%" that the question does not have.
    if not part and not tells_more(sentence, question):
        part = _beside_verb(tokens) or _before_verb(tokens, question)
    if not part and introduction:
        part = _without_known_end(tokens)
    # A pronoun at the beginning says nothing.
    if not part and tokens[0].word in ("it", "they", "he", "she") and len(tokens) > 1:
        part = tokens[1:]
    part = _without_preposition(part or tokens, question_words)
    # "Bus 7A" is 7A if the question asks for a bus.
    starts_known = part[0].is_known and not part[0].has_number
    if len(part) in (2, 3) and starts_known and part[1].has_number:
        part = part[1:]
    if part == tokens and not introduction:
        return sentence
    text = sentence[part[0].start : part[-1].end].rstrip(" ,;:")
    # The part has one of two quotation marks, and so loses it.
    if text.count('"') % 2 or text.count("“") != text.count("”"):
        return text.strip(' ."“”')
    return text


def _read(sentence: str, question: str) -> "tuple[Tokens, _QuestionWords]":
    """Return the words of a sentence, and those of the question."""
    language = languages.language_of(f"{question[-_LONGEST:]} {sentence}")
    question_words = _question_words(question[-4 * _LONGEST :], language)
    tokens = []
    for match in _TOKEN.finditer(sentence[:_LONGEST]):
        token = _token(match, question_words)
        if token.text:
            tokens.append(token)
    return tokens, question_words


@dataclass(frozen=True)
class _QuestionWords:
    language: Language
    words: frozenset[str]
    offered: frozenset[str]
    function_words: frozenset[str]

    def has(self, word: str) -> bool:
        is_letter = len(word) == 1 and word.isascii() and word.isalpha()
        if is_letter or word in self.offered or word in _NEVER_LEFT_OUT:
            return False
        word = word.removesuffix("'s")
        if word in self.words:
            return True
        return any(_is_inflected(word, question_word) for question_word in self.words)


@lru_cache(maxsize=256)
def _question_words(question: str, language: Language) -> _QuestionWords:
    folded = question.casefold().replace("’", "'")
    function_words = _PRONOUNS.union(
        language.article,
        language.preposition,
        _copulas(language),
        language.function_word,
    )
    # "red, green or blue" in the question offers three answers.
    joints = languages.either(language.alternative)
    offers = rf"[\w'-]+(?:,\s[\w'-]+)*,?\s(?:{joints})\s[\w'-]+"
    offered: set[str] = set()
    for match in re.finditer(offers, folded):
        offered.update(re.findall(r"[\w'-]+", match[0]))
    words = re.findall(r"[^\s.,;:!?…।\"“”()\[\]]+", folded)
    parts: list[str] = []
    for word in words:
        parts += re.split("['-]", word)
    return _QuestionWords(
        language,
        frozenset((*words, *parts)),
        frozenset(offered - function_words),
        function_words,
    )


def _is_inflected(word: str, stem: str) -> bool:
    """Return whether two words share a stem: weighs and weigh, liegen and liegt."""
    shared = 0
    for sign, stem_sign in zip(word, stem, strict=False):
        if sign != stem_sign:
            break
        shared += 1
    rest = max(len(word), len(stem)) - shared
    return shared >= 3 and rest <= _LONGEST_SUFFIX and shared > rest and word.isalpha()


def _token(match: re.Match[str], question: _QuestionWords) -> _Token:
    raw = match[0]
    text = raw.strip(_EDGES)
    # "(a)" and "[]" keep their brackets, which say more than what is inside.
    if len(text) <= 1 and raw[0] in "([{":
        text = raw
    start = match.start() + len(raw) - len(raw.lstrip("*_`\"'“”"))
    folded = text.casefold()
    is_function_word = False
    if folded in question.function_words and folded not in question.offered:
        begins_sentence = match.start() == 0 and _LOWER_NEXT.match(
            match.string, match.end()
        )
        # Neither "May" nor the "A" of "A, C and D" is a small word.
        is_function_word = text.islower() or bool(begins_sentence)
    return _Token(text, start, match.end(), question.has(folded), is_function_word)


@cache
def _copulas(language: Language) -> frozenset[str]:
    words = [word for word in language.copula if " " not in word]
    return frozenset((*words, *language.have))


def _around_copula(tokens: Tokens, language: Language) -> Tokens:
    """Return what follows the last verb that the question has the subject of, or the
    subject if it has the rest.
    """
    for index in range(len(tokens) - 1, 0, -1):
        subject = tokens[:index]
        rest = tokens[index + 1 :]
        if not rest or tokens[index].word not in _copulas(language):
            continue
        # "12 apples were eaten" answers how many, although "eaten" is new.
        is_participle = len(rest) == 1 and rest[0].is_verb and _has_number(subject)
        if (is_participle or not _has_new(rest)) and _has_new(subject):
            return _without_known_beginning(_without_known_end(subject))
        function_words = sum(token.is_function_word for token in subject)
        # The question has half of the subject, and so asks for the rest.
        if 2 * _count_repeated(subject) >= len(subject) - function_words:
            return _without_known_end(_without_known_beginning(rest))
    return []


def _has_new(tokens: Tokens) -> bool:
    return any(token.is_new for token in tokens)


def _has_number(tokens: Tokens) -> bool:
    return any(token.has_number for token in tokens)


def _count_repeated(tokens: Tokens) -> int:
    """Count the words of the question, except function words."""
    return sum(token.is_known and not token.is_function_word for token in tokens)


def _beside_verb(tokens: Tokens) -> Tokens:
    """Return what is left of a sentence with a verb of the question, or a subject and
    another verb.
    """
    start = 0
    for token in tokens:
        if token.is_new or (token.has_number and not token.is_known):
            break
        start += 1
    # "Vitamin D" is one name.
    if 1 < start == len(tokens) - 1 and re.fullmatch("[A-Z]", tokens[start].text):
        start -= 1
    subject = tokens[:start]
    rest = tokens[start:]
    if not rest:
        return []
    repeated = _count_repeated(subject)
    behind_verb = rest[1:]
    has_piece = _has_new(behind_verb) or _has_number(behind_verb)
    if has_piece and repeated and rest[0].is_verb and _begins_a_piece(behind_verb):
        return _without_known_end(_without_known_beginning(behind_verb))
    beginning = _without_known_end(rest)
    has_pronoun = bool(subject) and subject[0].word in _PRONOUNS
    left_out = _count_repeated(rest[len(beginning) :])
    if repeated + left_out >= 2 or (has_pronoun and repeated):
        return beginning
    return []


def _before_verb(tokens: Tokens, question: str) -> Tokens:
    """Return who or what does what the question asks for: "Brazil" of "Brazil won"."""
    beginning = _without_known_end(tokens)
    is_subject = len(beginning) < len(tokens) and all(
        token.is_new for token in beginning
    )
    if is_subject and _ASKS_WHO.match(question):
        return beginning
    return []


def _without_known_beginning(tokens: Tokens) -> Tokens:
    """Leave out participles, verbs and small words in front of the answer."""
    start = 0
    while start < len(tokens) - 1:
        token = tokens[start]
        following = tokens[start + 1]
        is_verb = token.is_verb and (
            token.is_known or _begins_a_piece(tokens[start + 1 :])
        )
        is_known = (
            token.is_known
            and (following.is_function_word or following.word in _PARTICLES)
            and following.word not in ("and", "or")
        )
        is_passive = token.text.islower() and following.word == "by"  # written by
        is_small = token.is_function_word or token.word in _PARTICLES
        # "the least" may be all of the answer.
        is_small = is_small and following.word not in _BOUNDS
        if token.has_number or not (is_verb or is_known or is_passive or is_small):
            break
        start += 1
    end = tokens[start:]
    if _has_new(end) or _has_number(end):
        return end
    return tokens


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
    if not phrase or not (_has_new(beginning) or _has_number(beginning)):
        return tokens
    while len(beginning) > 1 and beginning[-1].word in _DANGLING:
        beginning = beginning[:-1]
    is_phrase = len(phrase) > 1 or phrase[0].is_function_word or phrase[0].is_verb
    if is_phrase or _has_number(beginning[-2:]):
        return beginning
    # "Acid" belongs to "acetic acid", also if the question asks for an acid.
    return tokens


def _begins_a_piece(tokens: Tokens) -> bool:
    return (
        _STARTS_A_PIECE.match(tokens[0].text) is not None
        or not tokens[0].is_new
        or tokens[0].word in _PARTICLES
    )


def _without_preposition(tokens: Tokens, question: _QuestionWords) -> Tokens:
    """Leave out a preposition in front: "in" of "in Paris", "by" of "by 12%"."""
    while len(tokens) > 1 and tokens[1].word not in _BOUNDS:
        word = tokens[0].word
        is_preposition = word in question.language.preposition or word == "by"
        is_number_next = word in _BEFORE_NUMBERS and tokens[1].has_number
        is_asked = word in question.words and word in _ASKED_FOR
        if not (is_preposition or is_number_next or is_asked):
            break
        tokens = tokens[1:]
    return tokens


# Scripts without spaces

_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_CLOSING: Final = "。．.！!？? 「」『』*`"


def _without_shared_ends(sentence: str, question: str) -> str:
    text = sentence.strip(_CLOSING)
    shared = 0
    for sign, asked_sign in zip(text, question, strict=False):
        if sign != asked_sign or sign.isdigit():
            break
        shared += 1
    # A sentence in Chinese or Japanese may repeat the question up to its answer.
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
    return re.compile(languages.either(words))


@cache
def _closing_words() -> re.Pattern[str]:
    stuck: list[str] = []
    spaced: list[str] = []
    for word in languages.words("after"):
        is_stuck = word.startswith("'") or is_unspaced(word[0])
        (stuck if is_stuck else spaced).append(word)
    endings = rf"{languages.either(stuck)}|\s(?:{languages.either(spaced)})"
    return re.compile(rf"(?:{endings})[。.।]?\Z", re.IGNORECASE)


def without_closing_words(text: str) -> str:
    """Return a text without a verb at its end that belongs to the sentence: です, 입니다,
    है.
    """
    closing = _closing_words().search(text)
    if closing and closing.start():
        return text[: closing.start()].rstrip()
    return text


def tells_more(sentence: str, question: str) -> bool:
    """Return whether a sentence has a verb or word that may be its answer: "rose" of
    "it rose by 3%".
    """
    if _ASKS_WHAT_HAPPENS.search(question):
        return True
    folded_question = question.casefold()
    for match in _TELLING.finditer(sentence):
        word = match[0].casefold()
        stem = _STEMS.get(word, word[:3])
        if word not in folded_question and stem not in folded_question:
            return True
    return False


def has_question_subject(sentence: str, question: str) -> bool:
    """Return whether a sentence begins with a noun or name that the question has."""
    tokens, _ = _read(sentence, question)
    for token in tokens:
        if not token.is_function_word:
            return token.is_known and not token.has_number
    return False
