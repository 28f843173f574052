"""Where in a response its answer stands, and the step by which it gets there.

An extractor gives an answer, not a place, and any function can be one. So the place is found by experiment: where the
answer is spelled, other letters and digits are put in its stead, and the extractor is asked again. If it then finds
something else, it was this place that it read. What stands in the reasoning, in a remark or in a check is not mistaken
for the answer, whatever the rules are by which that was found.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from langchain_core.messages import AIMessage

from langchain_reasc.answers.extraction import Extractor
from langchain_reasc.answers.json_objects import source_of_last_object
from langchain_reasc.answers.reasoning import without_reasoning
from langchain_reasc.answers.vote import Vote, spoken_text

__all__ = ["Places", "places_of"]

Place = tuple[int, int]

_TRIED: Final = 8
"""Places at which the answer may be spelled, counted from the end of the response; each asks the extractor again."""
_LONGEST: Final = 100
"""Characters up to which an answer is also looked for in another spelling."""
_TAIL: Final = 4000
"""Characters before the answer's end in which the last step begins."""
_OTHER = str.maketrans(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "1234567890bcdefghijklmnopqrstuvwxyzaBCDEFGHIJKLMNOPQRSTUVWXYZA",
)
_RUN = re.compile(r"[^\W_]+")
_BETWEEN = r"(?:\\[a-zA-Z]+|[\W_]){0,6}"
_STEP_END = re.compile(r"[.!?][\"'”)*_\]$]*\s+(?=[^\s\da-z])|[。！？]\s*|\n\s*|</?[\w:]{1,20}>\s*")
_WORD = re.compile(r"[^\W_]")


class Places(NamedTuple):
    """Ranges of characters in a response, half-open.

    Attributes:
        text: the response's text, in which they are.
        answer: where its answer is spelled; None where that cannot be told, and where it has no answer.
        last_step: from the beginning of the last line or sentence before the one in which the answer stands, up to the
            answer; without such a one, from the beginning of its own. The answer itself where it is all there is. Of a
            response whose answer has no place, its last two lines or sentences.
    """

    text: str
    answer: Place | None
    last_step: Place | None


def places_of(message: AIMessage, extract: Extractor, vote: Vote) -> Places:
    """Where the answer of a response stands in its text.

    The extractor is asked twice as a rule, nine times at most. Nothing is found of an answer that is not in the text
    as it was found (calls of tools, the sum of what stands there, what a :func:`message_extractor` makes of a message).

    Args:
        message: the response.
        extract: what found its answer.
        vote: what it votes for.
    """
    text = spoken_text(message)
    asked = vote.answer is not None and not vote.calls and not extract.reads_message
    answer = _answer(text, extract, cut_off=vote.cut_off) if asked else None
    return Places(text, answer, _last_step(text, answer))


def _answer(text: str, extract: Extractor, *, cut_off: bool) -> Place | None:
    found = _found(text, extract, cut_off=cut_off)
    spelled = found
    if extract.objects:  # what was found is put in order
        spelled = source_of_last_object(without_reasoning(text) or "", cut_off=cut_off)
    if not spelled:
        return None
    for begin, end in islice(_spellings(spelled, text), _TRIED):
        altered = "".join(map(_other, text[begin:end]))
        if _found(text[:begin] + altered + text[end:], extract, cut_off=cut_off) != found:
            return begin, end
    return None


def _found(text: str, extract: Extractor, *, cut_off: bool) -> str | None:
    said = without_reasoning(text)
    try:
        return None if said is None else extract.spelled(said, cut_off=cut_off)
    except Exception:  # a user's function may raise over a text that no model wrote
        return None


def _other(character: str) -> str:
    """Another character of its kind; what is neither letter nor digit stays."""
    other = character.translate(_OTHER)
    return "x" if other == character and character.isalnum() else other


def _spellings(answer: str, text: str) -> Iterator[Place]:
    """Where an answer is spelled, the last first: as it is, else with other marks between its numbers and words."""
    at, exact = len(text), False
    while (at := text.rfind(answer, 0, at + len(answer) - 1)) >= 0:
        if _stands_alone(text, at, at + len(answer)):
            exact = True
            yield at, at + len(answer)
    runs = _RUN.findall(answer)
    if exact or not runs or len(answer) > _LONGEST:
        return
    spans = [found.span() for found in re.finditer(_BETWEEN.join(map(re.escape, runs)), text)]
    yield from (span for span in reversed(spans) if _stands_alone(text, *span))


def _stands_alone(text: str, begin: int, end: int) -> bool:
    """Whether it is no part of a longer number or word."""
    return not (_joined(text[begin - 1 : begin], text[begin]) or _joined(text[end - 1], text[end : end + 1]))


def _joined(one: str, other: str) -> bool:
    both = one + other
    return len(both) > 1 and (
        both.isdigit() or all(letter.isalpha() and letter.swapcase() != letter for letter in both)
    )


def _last_step(text: str, answer: Place | None) -> Place | None:
    end = answer[0] if answer else len(text)
    start = max(end - _TAIL, 0)
    between = list(_STEP_END.finditer(text, start, end))
    begins = [start, *(found.end() for found in between)]
    stops = [*(found.start() for found in between), end]
    steps = [a for a, b in zip(begins, stops, strict=True) if _WORD.search(text, a, b)]
    before = [step for step in steps if step < begins[-1]]
    if steps:
        return (before or steps)[-1], end
    return answer  # which is all there is
