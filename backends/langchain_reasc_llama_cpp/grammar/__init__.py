"""Constrained decoding."""

from langchain_reasc_llama_cpp.grammar.grammar import Grammar
from langchain_reasc_llama_cpp.grammar.json_schema import check_schema, within

__all__ = ["Grammar", "check_schema", "within"]
