"""Questions from files of any kind, and the prompts around them."""

from langchain_reasc.data.questions import (
    LabelledQuestion,
    read_questions,
    read_unlabelled,
)
from langchain_reasc.data.sources import is_text
from langchain_reasc.data.template import PLACEHOLDER, Template

__all__ = [
    "PLACEHOLDER",
    "LabelledQuestion",
    "Template",
    "is_text",
    "read_questions",
    "read_unlabelled",
]
