"""Which model a command runs: a GGUF, one from Hugging Face, or the small one that comes with the package."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from langchain_reasc.exceptions import ConfigurationError, missing_extra

if TYPE_CHECKING:
    from langchain_reasc_llama_cpp import ChatLlamaCpp

__all__ = ["embedded", "open_model"]


def open_model(model: str | None, **options: Any) -> "ChatLlamaCpp":
    """Load a model into this process.

    Args:
        model: path of a GGUF, ``hf:OWNER/REPOSITORY/FILE.gguf``, or None for the shipped one.
        options: of ``ChatLlamaCpp``; None values are left to its defaults.

    Raises:
        MissingExtraError: llama-cpp-python, or for ``hf:`` huggingface_hub, is not installed.
        ModelFileError: the file cannot be loaded.
    """
    chat_model = _backend().ChatLlamaCpp
    given = {name: value for name, value in options.items() if value is not None}
    if model is not None and model.startswith("hf:"):
        parts = model.removeprefix("hf:").split("/")
        if len(parts) < 3 or not all(parts):
            raise ConfigurationError(f"a model on Hugging Face is named hf:OWNER/REPOSITORY/FILE.gguf, got {model!r}")
        return cast("ChatLlamaCpp", chat_model.from_hugging_face("/".join(parts[:2]), "/".join(parts[2:]), **given))
    return cast("ChatLlamaCpp", chat_model(model_path=model, **given))


def embedded(name: str) -> Path:
    """A file that comes with the shipped model: ``calibration.jsonl``, ``test.jsonl``, ``calibration.json``."""
    path: Path = _backend().embedded_model_path().with_name(name)
    return path


def _backend() -> Any:
    try:
        import langchain_reasc_llama_cpp
    except ModuleNotFoundError:
        raise missing_extra("llama-cpp", "llama-cpp-python") from None
    return langchain_reasc_llama_cpp
