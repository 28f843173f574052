"""Questions from files of any kind, and the prompts around them."""

from langchain_reasc.data.files import is_text
from langchain_reasc.data.formats import FORMATS, DataFormat, accepted_answers, format_of
from langchain_reasc.data.prompts import PLACEHOLDER, PRESETS, Template, preset_of, sampling_of
from langchain_reasc.data.questions import (
    DataSet,
    LabelledQuestion,
    data_format,
    id_from_text,
    read_data_set,
    read_questions,
    read_unlabelled,
)

__all__ = [
    "FORMATS",
    "PLACEHOLDER",
    "PRESETS",
    "DataFormat",
    "DataSet",
    "LabelledQuestion",
    "Template",
    "accepted_answers",
    "data_format",
    "format_of",
    "id_from_text",
    "is_text",
    "preset_of",
    "read_data_set",
    "read_questions",
    "read_unlabelled",
    "sampling_of",
]
