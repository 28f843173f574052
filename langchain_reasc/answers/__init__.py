"""Answers: found in a response's text, and normalized so that equal ones vote together."""

from langchain_reasc.answers.extractors import (
    AnswerSpec,
    Extractor,
    boxed,
    choice,
    extractor,
    json_field,
    last_number,
    matching,
    message_extractor,
)
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
    "json_field",
    "last_number",
    "matching",
    "message_extractor",
    "normalize",
    "vote_of",
]

EXTRACTION_VERSION = 3
"""Of the rules by which answers are found. Recordings name it: another version may find other answers in the same text."""
