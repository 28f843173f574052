"""A model that knows the words of tool calls."""

from pathlib import Path

import pytest

from backends.llama_cpp.tiny_gguf import write_tiny_model
from backends.llama_cpp.tools.weather import HERMES_WORD, LLAMA_WORD


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with one token for what begins a call, so that a test can make it likely."""
    words = [HERMES_WORD, LLAMA_WORD]
    return write_tiny_model(tmp_path_factory.mktemp("tools") / "tools.gguf", words=words, context=4096, ends=False)
