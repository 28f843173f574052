"""Find the span of a text that is its answer.

1. What the text marks or states (:mod:`.statements`): a box, ``<answer>``, ``####``, a
   field, a heading, "the answer is
   ...". The last one counts, before a second question that the model goes on with, and after a correction.
2. A final paragraph that is short, or has one bold piece, is later than any statement above it.
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
    text = before_next_question(text)
    if not text[-TAIL:].isascii():
        text = text[:-TAIL] + EMOJI.sub("", text[-TAIL:])
    text = _after_correction(text)
    statement = last_statement(text, question, cut_off=cut_off)
    if cut_off:
        return statement.span if statement else None
    if statement is None and "\\boxed{" in text:  # a box that was never closed
        return None
    conclusion = _conclusion(text, question)
    if statement and not (
        conclusion and conclusion.start > statement.start and conclusion.is_whole
    ):
        return statement.span
    return conclusion.span if conclusion else None


# A second question, and a correction

_NEXT_QUESTION: Final = re.compile(
    r"\n[ \t]{0,20}(?:\**(?:question|problem|q|exercise|frage|pregunta|domanda|pergunta|вопрос|問題|问题|질문|user|"
    r"human)\s?\d{0,3}\s?[:.)]|#+\s(?:question|problem|instruction)\b|<\|im_(?:start|end)\|>|\[INST\])",
    re.IGNORECASE,
)
_SENTENCE_START: Final = re.compile(r"[.!?。,]\s+|\n")
_MISTAKE: Final = re.compile(r"\A(?:the )?(?:mistake|error|confusion)[;:,.]\s*")
_MARKS_BETWEEN: Final = " .:,!—-\n"
_SHOULD_BE: Final = re.compile(
    r"\b(?:it|that|this|which)\s(?:should\s(?:be|have\sbeen)|must\sbe|is\sactually)\s",
    re.IGNORECASE,
)


def before_next_question(text: str) -> str:
    """Return a text up to a second question that the model goes on with."""
    match = _NEXT_QUESTION.search(text)
    return text[: match.start()] if match and text[: match.start()].strip() else text


def _after_correction(text: str) -> str:
    """Return what follows the last correction, as the model takes back what it said
    before.
    """
    offset = max(0, len(text) - TAIL)
    small = lowered(text[offset:])
    for start in reversed(list(_SENTENCE_START.finditer(small))):
        correction = _correction().match(small, start.end())
        if correction:
            rest = text[offset + correction.end() :].lstrip(_MARKS_BETWEEN)
        else:
            rest = ""
        rest = _MISTAKE.sub("", rest)
        if rest:
            should_be = _SHOULD_BE.search(rest)
            return f"The answer is {rest[should_be.end() :]}" if should_be else rest
    return text


@cache
def _correction() -> re.Pattern[str]:
    words = "|".join(map(re.escape, languages.words("correction")))
    return re.compile(rf"(?:{words})(?!\w)")


# The conclusion

_SO: Final = re.compile(
    r"(?:,|;|\A)\s?(?:and\s)?(?:so|hence|thus|therefore)[\s,]+(?=\S)", re.IGNORECASE
)
_ELABORATES: Final = re.compile(
    r"(?:it|its|they|their|this|these|he|his|she|her|there)\b", re.IGNORECASE
)
_ELABORATES_NAME: Final = re.compile(
    r"the\s\w+\s(?:is|was|has|had|lies|are|were)\b", re.IGNORECASE
)
_NEGATED: Final = re.compile(r"n't\b|\bnot\b", re.IGNORECASE)
_MOST_PARAGRAPHS: Final = 3


def _conclusion(text: str, question: str) -> Statement | None:
    """Return the span that the end of a text concludes with."""
    pieces = paragraphs(text)
    if not pieces:
        return None
    is_all = pieces[0].start < TAIL and len(text) <= TAIL
    if is_all and len(pieces) <= _MOST_PARAGRAPHS:
        parts = [sentence for piece in pieces for sentence in sentences(piece.text)]
        if answer := _answered_first(parts, question):
            return Statement(0, answer)
    start, paragraph = pieces[-1]
    span, is_whole = _concluded(
        paragraph, question, is_alone=is_all and len(pieces) == 1
    )
    return None if span is None else Statement(start, span, is_whole=is_whole)


def _concluded(
    paragraph: str, question: str, *, is_alone: bool
) -> tuple[str | None, bool]:
    """Return the span of the last paragraph, and whether it is surely an answer as a
    whole.
    """
    if step := last_step(paragraph):
        return _concluded(step, question, is_alone=is_alone)[0], is_alone
    if is_block(paragraph):
        return paragraph, is_alone or "```" in paragraph
    if declines(paragraph):
        return None, False
    if (
        paragraph.count(" ") < SHORT
        and "\n" not in paragraph
        and not breaks_off(paragraph)
    ):
        line = without_head(
            without_citations(_after_so(sentences(paragraph)[-1])), question
        )
        span = reduced(line, question)
        is_sentence = span.count(" ") > 2 and span == line
        return span, is_alone or not is_sentence
    last = sentences(paragraph)[-1]
    if piece := only_piece(paragraph) or only_piece(last):
        return reduced(without_head(piece, question), question), True
    if breaks_off(paragraph):
        return None, False
    if is_alone and form_of(paragraph).key in ("yes", "no"):
        return paragraph, True
    span = reduced(without_head(_after_so(last), question), question)
    if span != last and span.count(" ") < SHORT - 1:
        return span, True
    return last_quantity(last), False


def _answered_first(parts: list[str], question: str) -> str | None:
    """Return the answer in a short first sentence of which the others only say more."""
    first, *later = parts
    if not later or first.count(" ") >= SHORT or declines(first):
        return None
    if form_of(first).key in ("yes", "no"):
        return first
    is_name = first.count(" ") < 3
    elaborates = [
        _ELABORATES.match(sentence) or (is_name and _ELABORATES_NAME.match(sentence))
        for sentence in later
    ]
    if _NEGATED.search(first) or "**" in "".join(later) or not all(elaborates):
        return None
    answer = reduced(first, question)
    is_answer = answer != first.rstrip(" .!") or first.count(" ") < 3
    return answer if is_answer else None


def _after_so(sentence: str) -> str:
    """Return what a sentence concludes: "one lap is 400 m" in "Eight laps are 3.2 km,
    so one lap is 400 m.".
    """
    cuts = list(_SO.finditer(sentence))
    return sentence[cuts[-1].end() :] if cuts else sentence
