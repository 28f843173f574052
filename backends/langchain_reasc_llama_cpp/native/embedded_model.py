"""The language model that comes with the package."""

from importlib.resources import files
from pathlib import Path

__all__ = ["embedded_model_path"]


def embedded_model_path() -> Path:
    """Where the shipped model lies: a small one, which solves arithmetic word problems and knows nothing else."""
    return Path(str(files("langchain_reasc_llama_cpp"))) / "embedded" / "word_problems.gguf"
