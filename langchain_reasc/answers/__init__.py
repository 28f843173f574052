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

__all__ = [
    "AnswerSpec",
    "Extractor",
    "boxed",
    "choice",
    "equivalent",
    "extractor",
    "json_field",
    "last_number",
    "matching",
    "normalize",
]
