"""llama.cpp's library and loaded models."""

from langchain_reasc_llama_cpp.native.bindings import Logits, library
from langchain_reasc_llama_cpp.native.gguf_file import GGUFHeader, read_header
from langchain_reasc_llama_cpp.native.model import NativeModel
from langchain_reasc_llama_cpp.native.model_files import (
    embedded_model_path,
    file_sha256,
)
from langchain_reasc_llama_cpp.native.parameters import (
    LoadFields,
    fill_context_params,
    fill_model_params,
)
from langchain_reasc_llama_cpp.native.safe_kernels import may_repack, this_processor

__all__ = [
    "GGUFHeader",
    "LoadFields",
    "Logits",
    "NativeModel",
    "embedded_model_path",
    "file_sha256",
    "fill_context_params",
    "fill_model_params",
    "library",
    "may_repack",
    "read_header",
    "this_processor",
]
