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
    "normalize",
    "vote_of",
]

EXTRACTION_VERSION = 2
"""The version of the rules by which answers are found. Recordings name it: another may find other answers."""
