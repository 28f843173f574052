"""Which model a command runs: a GGUF, one from Hugging Face, the shipped one, one on servers, or of any class."""

import importlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from langchain_reasc.cli.model_class import made
from langchain_reasc.cli.secrets import secret_in
from langchain_reasc.exceptions import ConfigurationError, missing_extra

if TYPE_CHECKING:
    from langchain_reasc_llama_cpp import ChatLlamaCpp
    from langchain_reasc_openai import ChatOpenAICompatible
    from pydantic import SecretStr

__all__ = ["embedded", "key_of", "open_model", "openai_backend"]


def open_model(
    model: str | None,
    *,
    urls: Sequence[str] | None = None,
    key_variable: str | None = None,
    model_class: str | None = None,
    model_kwargs: Sequence[str] | None = None,
    default_seed: int | None = None,
    **options: Any,
) -> AbstractContextManager[Any]:
    """Load a model into this process, reach one on servers, or make one of any LangChain class.

    Args:
        model: path of a GGUF, ``hf:OWNER/REPOSITORY/FILE.gguf``, or None for the shipped one; on servers, and with a
            class, its name there.
        urls: base URLs of the servers.
        key_variable: the environment variable that holds their key.
        model_class: ``package.Class`` of a LangChain chat model.
        model_kwargs: its arguments, see :func:`~langchain_reasc.cli.model_kwargs.read_kwargs`.
        default_seed: the seed where ``options`` has none, of a model that takes one.
        options: options of the chat model; where one is None, the model's default holds.

    Returns:
        The chat model, as a context at whose end it is closed.

    Raises:
        MissingExtraError: llama-cpp-python, for ``hf:`` huggingface_hub, or for servers langchain-openai is missing.
        ModelFileError: the file cannot be loaded.
        ConfigurationError: an address is wrong, the model's name or the key is missing, there is no such class, or it
            refuses its arguments.
    """
    if model_class is not None:
        if urls:
            raise ConfigurationError("--url and --model-class exclude each other; a class takes base_url=...")
        return made(
            model_class,
            model_kwargs or (),
            key_variable=key_variable,
            default_seed=default_seed,
            **{"model": model} | options,
        )
    if model_kwargs:
        raise ConfigurationError("--model-kwargs goes with --model-class")
    given = {name: value for name, value in options.items() if value is not None}
    if default_seed is not None:
        given.setdefault("seed", default_seed)
    if urls:
        served: ChatOpenAICompatible = openai_backend().ChatOpenAICompatible(
            base_url=list(urls), model=model or "", api_key=key_of(key_variable), **given
        )
        return served
    if key_variable is not None:
        raise ConfigurationError("--key-variable goes with --url or --model-class")
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
    return None if variable is None else secret_in(variable)


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
