"""Which model a command runs: a GGUF, one from Hugging Face, the small one that is shipped, or one on servers."""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, cast

from langchain_reasc.exceptions import ConfigurationError, missing_extra

if TYPE_CHECKING:
    from langchain_reasc_llama_cpp import ChatLlamaCpp
    from langchain_reasc_openai import ChatOpenAICompatible
    from pydantic import SecretStr

__all__ = ["embedded", "key_of", "open_model", "openai_backend"]


def open_model(
    model: str | None, *, urls: Sequence[str] | None = None, key_variable: str | None = None, **options: Any
) -> Union["ChatLlamaCpp", "ChatOpenAICompatible"]:
    """Load a model into this process, or reach one on servers.

    Args:
        model: path of a GGUF, ``hf:OWNER/REPOSITORY/FILE.gguf``, or None for the shipped one; on servers its name.
        urls: base URLs of the servers.
        key_variable: the environment variable that holds their key.
        options: options of the chat model; where one is None, the model's default holds.

    Raises:
        MissingExtraError: llama-cpp-python, for ``hf:`` huggingface_hub, or for servers langchain-openai is missing.
        ModelFileError: the file cannot be loaded.
        ConfigurationError: an address is wrong, or the model's name or the key is missing.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if urls:
        served: ChatOpenAICompatible = openai_backend().ChatOpenAICompatible(
            base_url=list(urls), model=model or "", api_key=key_of(key_variable), **given
        )
        return served
    if key_variable is not None:
        raise ConfigurationError("--key-variable goes with --url")
    chat_model = _llama_cpp().ChatLlamaCpp
    if model is not None and model.startswith("hf:"):
        parts = model.removeprefix("hf:").split("/")
        if len(parts) < 3 or not all(parts):
            raise ConfigurationError(f"a model on Hugging Face is named hf:OWNER/REPOSITORY/FILE.gguf, got {model!r}")
        return cast("ChatLlamaCpp", chat_model.from_hugging_face("/".join(parts[:2]), "/".join(parts[2:]), **given))
    return cast("ChatLlamaCpp", chat_model(model_path=model, **given))


def embedded(name: str) -> Path:
    """A file that comes with the shipped model: ``calibration.jsonl``, ``test.jsonl``, ``calibration.json``."""
    path: Path = _llama_cpp().embedded_model_path().with_name(name)
    return path


def key_of(variable: str | None) -> "SecretStr | None":
    """The API key that an environment variable holds; None where none was named.

    Raises:
        ConfigurationError: it is not set.
    """
    if variable is None:
        return None
    from pydantic import SecretStr

    if not os.environ.get(variable):
        raise ConfigurationError(f"the environment variable {variable} is not set")
    return SecretStr(os.environ[variable])


def openai_backend() -> Any:
    """The package for OpenAI-compatible servers.

    Raises:
        MissingExtraError: what it needs is not installed.
    """
    return _imported("langchain_reasc_openai", extra="openai", package="langchain-openai")


def _llama_cpp() -> Any:
    return _imported("langchain_reasc_llama_cpp", extra="llama-cpp", package="llama-cpp-python")


def _imported(module: str, *, extra: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise missing_extra(extra, package) from None
