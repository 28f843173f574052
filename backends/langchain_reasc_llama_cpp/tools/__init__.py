"""Tool calls and structured output."""

from langchain_reasc_llama_cpp.tools.response_shape import ToolChoice, openai_tools
from langchain_reasc_llama_cpp.tools.structured_output import (
    Method,
    json_parser,
    tool_parser,
)
from langchain_reasc_llama_cpp.tools.tool_calls import (
    HERMES,
    LLAMA_JSON,
    ToolCallReader,
    ToolFormat,
)

__all__ = [
    "HERMES",
    "LLAMA_JSON",
    "Method",
    "ToolCallReader",
    "ToolChoice",
    "ToolFormat",
    "json_parser",
    "openai_tools",
    "tool_parser",
]
