"""Format LangChain messages as prompts."""

from langchain_reasc_llama_cpp.prompts.chat_template import ChatTemplate
from langchain_reasc_llama_cpp.prompts.conversation import (
    newest_turns,
    template_messages,
)

__all__ = ["ChatTemplate", "newest_turns", "template_messages"]
