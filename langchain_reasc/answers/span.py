"""Find the span of a text that is its answer.

1. What the text marks or states (:mod:`.statements`): a box, ``<answer>``, ``####``, a
   field, a heading, "the answer is ...". The last one counts, before a second question
   that the model goes on with, and after a correction.
2. A final paragraph that is short, or has one bold piece, replaces any statement above
   it.
3. Otherwise the last number of the conclusion, with all that belongs to it.

A text that breaks off, asks back, or says in the first person that it cannot answer has
no span, unless it marks one.
"""

import re
from functools import cache
from typing import Final

from langchain_reasc.answers import languages
from langchain_reasc.answers.forms import EMOJI, form_of
from langchain_reasc.answers.prose import (
    SHORT,
    TAIL,
    breaks_off,
    declines,
    is_block,
    last_step,
    paragraphs,
    sentences,
    without_citations,
)
from langchain_reasc.answers.reduction import (
    PLAIN,
    last_quantity,
    only_piece,
    reduced,
    without_head,
)
from langchain_reasc.answers.statements import Statement, last_statement, lowered


def find_span(text: str, question: str = "", *, cut_off: bool = False) -> str | None:
    """Return the span of a text that is its answer, or None.

    Args:
        text: a response, without its reasoning.
        question: the question, whose words are left out of a sentence that repeats
            them.
        cut_off: whether the response was cut off. Then only what it marks or states
            counts.
    """
    # A word or a number alone is the answer, unless it is "bilmiyorum".
    if PLAIN.fullmatch(text.removesuffix(".")) and not declines(text):
        return None if cut_off else text
    text = before_next_question(text)
    if not text[-TAIL:].isascii():
        text = text[:-TAIL] + EMOJI.sub("", text[-TAIL:])
    text = _after_correction(text)
    statement = last_statement(text, question, cut_off=cut_off)
    if statement is None:
        if cut_off or "\\boxed{" in text:  # a box that was never closed
            return None
        conclusion = _conclusion(text, question)
        return conclusion.span if conclusion else None
    # Only a paragraph or code that begins behind the statement may be a later answer.
    behind = text[statement.start :]
    if cut_off or not ("\n\n" in behind or "```" in behind or len(behind) > TAIL):
        return statement.span
    conclusion = _conclusion(text, question)
    if conclusion and conclusion.is_whole and conclusion.start > statement.start:
        return conclusion.span
    return statement.span


# A second question, and a correction

# "Question 2:", "## Problem", "<|im_start|>"
_NEXT_QUESTION: Final = re.compile(
    r"\n[ \t]{0,20}(?:\**(?:question|problem|q|exercise|frage|pregunta|domanda|pergunta|вопрос|問題|问题|질문|user|"
    r"human)\s?\d{0,3}\s?[:.)]|#+\s(?:question|problem|instruction)\b|<\|im_(?:start|end)\|>|\[INST\])",
    re.IGNORECASE,
)
_SENTENCE_START: Final = re.compile(r"[.!?。,]\s+|\n")
_MISTAKE: Final = re.compile(r"\A(?:the )?(?:mistake|error|confusion)[;:,.]\s*")
_MARKS_BETWEEN: Final = " .:,!—-\n"
# "Wait, that should be 5."
_SHOULD_BE: Final = re.compile(
    r"\b(?:it|that|this|which)\s(?:should\s(?:be|have\sbeen)|must\sbe|is\sactually)\s",
    re.IGNORECASE,
)


def before_next_question(text: str) -> str:
    """Return a text up to a second question that the model goes on with."""
    match = _NEXT_QUESTION.search(text)
    if match and text[: match.start()].strip():
        return text[: match.start()]
    return text


def _after_correction(text: str) -> str:
    """Return what follows the last correction, as the model takes back what it said
    before.
    """
    offset = max(0, len(text) - TAIL)
    small = lowered(text[offset:])
    for start in reversed(list(_SENTENCE_START.finditer(small))):
        correction = _correction().match(small, start.end())
        if correction is None:
            continue
        rest = text[offset + correction.end() :].lstrip(_MARKS_BETWEEN)
        rest = _MISTAKE.sub("", rest)
        if not rest:
            continue
        # "Wait, that should be 5." states nothing by itself.
        should_be = _SHOULD_BE.search(rest)
        if should_be:
            return f"The answer is {rest[should_be.end() :]}"
        return rest
    return text


@cache
def _correction() -> re.Pattern[str]:
    words = languages.either(languages.words("correction"))
    return re.compile(rf"(?:{words})(?!\w)")


# The conclusion

_SO: Final = re.compile(
    r"(?:,|;|\A)\s?(?:and\s)?(?:so|hence|thus|therefore)[\s,]+(?=\S)", re.IGNORECASE
)
# "Oslo. It has a million people."
_ELABORATES: Final = re.compile(
    r"(?:it|its|they|their|this|these|he|his|she|her|there)\b", re.IGNORECASE
)
# "Oslo. The city has a million people."
_ELABORATES_NAME: Final = re.compile(
    r"the\s\w+\s(?:is|was|has|had|lies|are|were)\b", re.IGNORECASE
)
# "Not Oslo. It is Bergen.": the answer follows.
_NEGATED: Final = re.compile(r"n't\b|\bnot\b", re.IGNORECASE)
_MOST_PARAGRAPHS: Final = 3


def _conclusion(text: str, question: str) -> Statement | None:
    """Return the span that the end of a text concludes with."""
    pieces = paragraphs(text)
    if not pieces:
        return None
    is_all = len(text) <= TAIL
    if is_all and len(pieces) <= _MOST_PARAGRAPHS:
        parts = []
        for piece in pieces:
            parts += sentences(piece.text)
        answer = _answered_first(parts, question)
        if answer:
            return Statement(0, answer)
    start, paragraph = pieces[-1]
    is_alone = is_all and len(pieces) == 1
    span, is_whole = _concluded(paragraph, question, is_alone=is_alone)
    if span is None:
        return None
    return Statement(start, span, is_whole=is_whole)


def _concluded(
    paragraph: str, question: str, *, is_alone: bool
) -> tuple[str | None, bool]:
    """Return the span of the last paragraph, and whether it is surely an answer as a
    whole.
    """
    step = last_step(paragraph)
    if step:
        # The last one of several steps concludes.
        span, _ = _concluded(step, question, is_alone=is_alone)
        return span, is_alone
    if is_block(paragraph):
        return paragraph, is_alone or "```" in paragraph
    if declines(paragraph):
        return None, False
    last = sentences(paragraph)[-1]
    conclusion = _after_so(last)
    is_short = paragraph.count(" ") < SHORT and "\n" not in paragraph
    is_broken = breaks_off(paragraph)
    if is_short and not is_broken:
        line = without_head(without_citations(conclusion), question)
        span = reduced(line, question)
        # A sentence that could not be reduced may say something else.
        is_sentence = span.count(" ") > 2 and span == line
        return span, is_alone or not is_sentence
    piece = only_piece(paragraph) or only_piece(last)
    if piece:
        return reduced(without_head(piece, question), question), True
    if is_broken:
        return None, False
    if is_alone and form_of(paragraph).key in ("yes", "no"):
        return paragraph, True
    span = reduced(without_head(conclusion, question), question)
    if span != last and span.count(" ") < SHORT - 1:
        return span, True
    # A mere last number does not outweigh a statement above it.
    return last_quantity(last), False


def _answered_first(parts: list[str], question: str) -> str | None:
    """Return the answer in a short first sentence of which the others only say more."""
    first, *later = parts
    if not later or first.count(" ") >= SHORT or declines(first):
        return None
    if form_of(first).key in ("yes", "no"):
        return first
    if _NEGATED.search(first) or "**" in "".join(later):
        return None
    is_name = first.count(" ") < 3
    for sentence in later:
        # "Oslo. The city has a million people.": only a name is elaborated like that.
        about_name = is_name and _ELABORATES_NAME.match(sentence)
        if not (about_name or _ELABORATES.match(sentence)):
            return None
    answer = reduced(first, question)
    if is_name or answer != first.rstrip(" .!"):
        return answer
    return None


def _after_so(sentence: str) -> str:
    """Return what a sentence concludes: "one lap is 400 m" in "Eight laps are 3.2 km,
    so one lap is 400 m.".
    """
    conclusion = sentence
    for cut in _SO.finditer(sentence):
        conclusion = sentence[cut.end() :]
    return conclusion
