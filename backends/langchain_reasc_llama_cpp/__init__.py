"""llama.cpp in process, as a LangChain chat model with exact token signals and parallel
samples.
"""

from langchain_reasc_llama_cpp.chat_model import ChatLlamaCpp
from langchain_reasc_llama_cpp.engine.streams import AsyncSampleStream, SampleStream
from langchain_reasc_llama_cpp.native.model_files import embedded_model_path

__all__ = ["AsyncSampleStream", "ChatLlamaCpp", "SampleStream", "embedded_model_path"]
