"""Which model a command asks: a GGUF, one from Hugging Face, the shipped one, one on servers, or a LangChain class."""

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from langchain_reasc.cli.console import secret_in
from langchain_reasc.cli.model_class import import_package, make_model
from langchain_reasc.cli.options import KeyVariable, Urls
from langchain_reasc.exceptions import ConfigurationError

__all__ = ["ModelOptions", "embedded"]


@dataclass
class ModelOptions:
    """The model that is asked."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="A GGUF file, hf:OWNER/REPO/FILE for one of the Hub, or with --url or --model-class its name there. "
            r"\[default: the shipped one]",
        ),
    ] = None
    url: Urls = None
    key_variable: KeyVariable = None
    model_class: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE.CLASS", help="Any LangChain chat model instead, such as ChatOpenAI of langchain_openai."
        ),
    ] = None
    model_kwargs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Arguments of that class: name=value, a JSON object, or a file with one; may be given several times. "
            "A secret is given as env:NAME, the environment variable that holds it.",
        ),
    ] = None

    @property
    def is_shipped(self) -> bool:
        """Whether it is the model that comes with the package."""
        return self.model is None and not self.url and self.model_class is None

    def in_flight(self, concurrency: int | None) -> int:
        """Return how many questions are in flight at once, where that is not given."""
        return concurrency or (8 if self.url else 1)

    def open(self, *, default_seed: int | None = None, **options: Any) -> AbstractContextManager[Any]:
        """Load the model into this process, reach it on servers, or make it of its class.

        Args:
            default_seed: the seed where ``options`` has none, of a model that takes one.
            options: options of the chat model; where one is None, the model's default holds.

        Returns:
            The chat model, as a context at whose end it is closed.

        Raises:
            MissingExtraError: llama-cpp-python, for ``hf:`` huggingface_hub, or for servers langchain-openai is
                missing.
            ModelFileError: the file cannot be loaded.
            ConfigurationError: an address is wrong, the model's name or the key is missing, there is no such class, or
                it refuses its arguments.
        """
        options = {name: value for name, value in options.items() if value is not None}
        if self.model_class is not None:
            if self.url:
                raise ConfigurationError("--url and --model-class exclude each other; a class takes base_url=...")
            options |= {} if self.model is None else {"model": self.model}
            kwargs = self.model_kwargs or ()
            return make_model(
                self.model_class, kwargs, options, key_variable=self.key_variable, default_seed=default_seed
            )
        if self.model_kwargs:
            raise ConfigurationError("--model-kwargs goes with --model-class")
        if default_seed is not None:
            options.setdefault("seed", default_seed)
        if self.url:
            return self._open_servers(list(self.url), options)
        if self.key_variable is not None:
            raise ConfigurationError("--key-variable goes with --url or --model-class")
        return self._open_file(options)

    def _open_servers(self, urls: list[str], options: dict[str, Any]) -> AbstractContextManager[Any]:
        key = None if self.key_variable is None else secret_in(self.key_variable)
        server_model: Any = import_package("langchain_reasc_openai").ChatOpenAICompatible
        return server_model(base_url=urls, model=self.model or "", api_key=key, **options)  # type: ignore[no-any-return]

    def _open_file(self, options: dict[str, Any]) -> AbstractContextManager[Any]:
        local_model: Any = import_package("langchain_reasc_llama_cpp").ChatLlamaCpp
        if self.model is None or not self.model.startswith("hf:"):
            return local_model(model_path=self.model, **options)  # type: ignore[no-any-return]
        named = re.fullmatch(r"hf:([^/]+/[^/]+)/([^/]+(?:/[^/]+)*)", self.model)
        if named is None:
            raise ConfigurationError(
                f"a model on Hugging Face is named hf:OWNER/REPOSITORY/FILE.gguf, got {self.model!r}"
            )
        return local_model.from_hugging_face(*named.groups(), **options)  # type: ignore[no-any-return]


def embedded(name: str) -> Path:
    """Return a file that comes with the shipped model: ``calibration.jsonl``, ``test.jsonl``, ``calibration.json``."""
    path: Path = import_package("langchain_reasc_llama_cpp").embedded_model_path().with_name(name)
    return path
