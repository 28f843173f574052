"""Answers: what a response votes for, in a spelling in which equal answers vote together.

The answer is a property of the message. The first rule that fits decides:

==============================  =======================================================================================
a response                      votes for
==============================  =======================================================================================
read by ``message_extractor``   what its function returns for the ``AIMessage``, whatever stands below
that refuses, or was filtered   nothing: it has a ``refusal`` block or field, or a finish reason that says so
with an invalid tool call       nothing; what a function or ``json:`` finds in its text goes before
with tool calls                 its calls: the multiset of ``{name, args}``, without ids; cut off, nothing; what a
                                function or ``json:`` finds in its text goes before
whose reasoning never ended     nothing
that was cut off                what its text states explicitly, and never through the gate: a closed box, ``<answer>``,
                                ``####``, "the answer is ..." up to the end of the sentence, a complete JSON object, a
                                pattern's match that has words or marks around its group. What a function finds may be
                                half an answer: it does not count
any other                       what the extractor finds in its text. Reasoning is left out: tags such as ``<think>``,
                                Harmony's channels; blocks and fields of reasoning are no text
==============================  =======================================================================================

``auto`` takes what the response says its answer is (a box, ``<answer>``, ``####``, "the answer is" in some 15
languages), the last such statement where there are several; else the number that it comes down to: the last one, aside
from courtesies, notes and subordinate clauses. It never depends on what is installed. Answers are compared after
:func:`normalize`; those in free text by what they mean, see :func:`free_text`.
"""

from langchain_reasc.answers.extractors import (
    AnswerSpec,
    Extractor,
    boxed,
    choice,
    extractor,
    json_field,
    last_number,
    matching,
    mathematical,
    message_extractor,
)
from langchain_reasc.answers.free_text import free_text
from langchain_reasc.answers.normalize import equivalent, normalize
from langchain_reasc.answers.vote import Vote, vote_of

__all__ = [
    "EXTRACTION_VERSION",
    "AnswerSpec",
    "Extractor",
    "Vote",
    "boxed",
    "choice",
    "equivalent",
    "extractor",
    "free_text",
    "json_field",
    "last_number",
    "matching",
    "mathematical",
    "message_extractor",
    "normalize",
    "vote_of",
]

EXTRACTION_VERSION = 3
"""The version of the rules by which answers are found. Recordings name it: another may find other answers."""
