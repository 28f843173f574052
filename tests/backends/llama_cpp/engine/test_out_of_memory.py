"""No memory for the weights or the context: an error, and the process goes on."""

import sys
from pathlib import Path

import pytest

from backends.llama_cpp.faces import printed
from backends.llama_cpp.tiny_gguf import write_tiny_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the address space")

OUT_OF_MEMORY = """
import re, resource, sys
from pathlib import Path
from typing import Any
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc.exceptions import ReASCError
small, path, options = sys.argv[1], sys.argv[2], eval(sys.argv[3])
with ChatLlamaCpp(model_path=small) as model:  # what a small context needs is taken before the limit
    model.invoke("hi", max_tokens=2)
used = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), -1))
try:
    ChatLlamaCpp(model_path=path, **options)
except ReASCError as error:
    print(type(error).__name__, error)
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
with ChatLlamaCpp(model_path=small) as model:
    print(model.invoke("hi", max_tokens=2).usage_metadata["output_tokens"])
"""


UNREAD = "ModelFileError the model file {} cannot be read: Cannot allocate memory"


@pytest.mark.parametrize(
    ("hidden", "options", "says"),
    [
        (64, {"n_ctx": 2_000_000}, "ModelError llama.cpp cannot make a context of 2,000,000 tokens"),
        pytest.param(150_000, {}, UNREAD, marks=pytest.mark.slow),
    ],
    ids=["for the context", "for the weights"],
)
def test_no_memory(tiny_path: Path, tmp_path: Path, hidden: int, options: dict[str, int], says: str) -> None:
    """A process that has 100 MB left to load a model with says so, and goes on afterwards."""
    path = write_tiny_model(tmp_path / "model.gguf", hidden=hidden)
    said = printed(OUT_OF_MEMORY, tiny_path, path, options)
    assert said.startswith(says.format(path)) and said.endswith("\n2\n")
