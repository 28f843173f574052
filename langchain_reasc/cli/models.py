"""Opening a command's model: a GGUF, one from Hugging Face, the shipped one, one on servers, or a LangChain class."""

import importlib
import json
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from langchain_reasc.cli.console import secret_in
from langchain_reasc.complaints import findings, nearest
from langchain_reasc.exceptions import ConfigurationError, ReASCError, missing_extra
from langchain_reasc.untrusted import parse_json, read_text

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

__all__ = ["embedded", "make_class", "open_model", "openai_backend", "read_kwargs"]

_ENVIRONMENT: Final = "env:"
_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "model": ("model", "model_name", "model_id", "model_path"),
    "temperature": ("temperature",),
    "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "num_predict"),
    "seed": ("seed", "random_seed"),
}
"""Options of the commands -> the names that classes have for them."""
_OURS: Final = {
    "langchain_reasc_llama_cpp": ("llama-cpp", "llama-cpp-python"),
    "langchain_reasc_openai": ("openai", "langchain-openai"),
}
"""Our backends -> the extra and the package that they need."""
_SECRET: Final = re.compile(
    r"api_?key|(access|secret|private)_?key|(api|access|auth)_?token|secret|passw(or)?d|authorization"
)
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|-")


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
        model_kwargs: its arguments, see :func:`read_kwargs`.
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
        options = {"model": model} | options
        return make_class(
            model_class, model_kwargs or (), key_variable=key_variable, default_seed=default_seed, **options
        )
    if model_kwargs:
        raise ConfigurationError("--model-kwargs goes with --model-class")
    given = {name: value for name, value in options.items() if value is not None}
    if default_seed is not None:
        given.setdefault("seed", default_seed)
    if urls:
        key = None if key_variable is None else secret_in(key_variable)
        backend: Any = openai_backend().ChatOpenAICompatible
        return backend(base_url=list(urls), model=model or "", api_key=key, **given)  # type: ignore[no-any-return]
    if key_variable is not None:
        raise ConfigurationError("--key-variable goes with --url or --model-class")
    chat_model: Any = _import("langchain_reasc_llama_cpp").ChatLlamaCpp
    if model is not None and model.startswith("hf:"):
        parts = model.removeprefix("hf:").split("/")
        if len(parts) < 3 or not all(parts):
            raise ConfigurationError(f"a model on Hugging Face is named hf:OWNER/REPOSITORY/FILE.gguf, got {model!r}")
        return chat_model.from_hugging_face("/".join(parts[:2]), "/".join(parts[2:]), **given)  # type: ignore[no-any-return]
    return chat_model(model_path=model, **given)  # type: ignore[no-any-return]


def embedded(name: str) -> Path:
    """Return a file that comes with the shipped model: ``calibration.jsonl``, ``test.jsonl``, ``calibration.json``."""
    path: Path = _import("langchain_reasc_llama_cpp").embedded_model_path().with_name(name)
    return path


def openai_backend() -> Any:
    """Return the package for OpenAI-compatible servers.

    Raises:
        MissingExtraError: what it needs is not installed.
    """
    return _import("langchain_reasc_openai")


def make_class(
    path: str,
    given: Sequence[str] = (),
    *,
    key_variable: str | None = None,
    default_seed: int | None = None,
    **options: Any,
) -> "AbstractContextManager[BaseChatModel]":
    """Make a chat model of a class, as a context that closes it where it can be closed.

    Args:
        path: ``package.Class``.
        given: its arguments, see :func:`read_kwargs`.
        key_variable: the environment variable that holds its API key.
        default_seed: its seed where none is given, if the class takes one.
        options: ``model``, ``temperature``, ``max_tokens``, ``seed`` and others, under whatever name the class has for
            them; those that are None are left out.

    Raises:
        ConfigurationError: there is no such class, it is not a chat model, refuses an argument or has none of that
            name, a secret is spelled out, or an environment variable is not set.
        MissingExtraError: it is one of ours, and what it needs is not installed.
    """
    kind, kwargs = _chat_model_class(path), read_kwargs(given)
    aliases = {str(field.alias): name for name, field in kind.model_fields.items() if field.alias}
    names = aliases | {name: name for name in kind.model_fields}  # of arguments -> the field
    secrets = [name for name, field in kind.model_fields.items() if _is_secret(field.annotation)]
    _check_names(kind, kwargs, names)
    _refuse_secrets(kwargs, {name for name in names if names[name] in secrets})
    fields = {names.get(name) for name in kwargs}
    for option, value in options.items():
        if value is not None:
            _set_option(kind, kwargs, names, fields, option, value)
    seed = next((name for name in _PARAMETERS["seed"] if name in names), None)
    if default_seed is not None and seed is not None and names[seed] not in {names.get(name) for name in kwargs}:
        kwargs[seed] = default_seed
    if key_variable is not None:
        kwargs[_key_argument(kind, names, secrets)] = secret_in(key_variable)
    model = _construct(kind, {name: _from_environment(value) for name, value in kwargs.items()})
    return model if isinstance(model, AbstractContextManager) else nullcontext(model)


def read_kwargs(given: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a class as ``--model-kwargs`` gives them, the later ones on top of the earlier.

    Args:
        given: each is JSON (``{"model": "gpt-4o-mini"}``), a file that holds it, or ``name=value`` with a value in JSON
            or else a text.

    Raises:
        ConfigurationError: it is none of these, or not an object.
    """
    kwargs: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if one.lstrip().startswith("{"):
            kwargs |= _object(one, "--model-kwargs")
        elif equals and name.strip().isidentifier():
            try:
                kwargs[name.strip()] = parse_json(value)
            except ValueError:
                kwargs[name.strip()] = value
        else:
            try:
                text = read_text(Path(one), encoding="utf-8-sig")
            except (OSError, ValueError) as error:
                raise ConfigurationError(
                    f"--model-kwargs takes JSON, a file that holds it, or name=value; got {one[:60]!r}, of which no "
                    f"file can be read ({getattr(error, 'strerror', None) or error})"
                ) from None
            kwargs |= _object(text, one)
    return kwargs


def _object(text: str, source: str) -> dict[str, Any]:
    try:
        read = parse_json(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{source} is no valid JSON ({error.msg} at character {error.pos + 1})") from None
    except ValueError as error:
        raise ConfigurationError(f"{source} cannot be read: {error}") from None
    if not isinstance(read, dict):
        raise ConfigurationError(f"{source} holds no JSON object of arguments but a {type(read).__name__}")
    return read


def _texts_in(value: Any, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each text in a value, with the names that lead to it."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts_in(inner, (*where, str(name)))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner, where)


def _from_environment(value: Any) -> Any:
    """Replace each ``env:NAME`` by what the environment variable holds."""
    if isinstance(value, str) and value.startswith(_ENVIRONMENT):
        return secret_in(value.removeprefix(_ENVIRONMENT)).get_secret_value()
    if isinstance(value, Mapping):
        return {name: _from_environment(inner) for name, inner in value.items()}
    return [_from_environment(inner) for inner in value] if isinstance(value, list) else value


def _chat_model_class(path: str) -> "type[BaseChatModel]":
    from langchain_core.language_models import BaseChatModel

    module_name, _, name = path.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in path.split(".")):
        raise ConfigurationError(
            f"--model-class takes package.Class, such as langchain_openai.ChatOpenAI; got {path!r}"
        )
    if "" not in sys.path:
        sys.path.append("")  # the current folder, as `python -m` has it, but behind everything that is installed
    module = _import(module_name)
    kind = getattr(module, name, None)
    if kind is None:
        near = nearest(name, [*getattr(module, "__all__", ()), *dir(module)])
        raise ConfigurationError(f"{module_name} has no {name}" + (f"; did you mean {near}?" if near else ""))
    if not (isinstance(kind, type) and issubclass(kind, BaseChatModel)):
        what = "is a class, but no chat model" if isinstance(kind, type) else f"is no class but a {type(kind).__name__}"
        raise ConfigurationError(f"{path} {what}: that is derived from langchain_core's BaseChatModel")
    return kind


def _import(name: str) -> Any:
    from langchain_reasc.models.integrations import KNOWN

    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ReASCError:
        raise
    except ModuleNotFoundError as error:
        if package in _OURS:
            raise missing_extra(*_OURS[package]) from None
        if error.name not in (package, name):
            raise ConfigurationError(f"{name} needs the module {error.name}, which is not installed") from None
        if error.name == package and package in {path.partition(".")[0] for path in KNOWN}:
            install = f"pip install {package.replace('_', '-')}"
            raise ConfigurationError(f"{package} is not installed. Install it with: {install}") from None
        raise ConfigurationError(
            f"there is no module {error.name}, neither installed for {sys.executable} nor in this folder"
        ) from None
    except Exception as error:
        raise ConfigurationError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


def _check_names(kind: "type[BaseChatModel]", kwargs: Iterable[str], names: Mapping[str, str]) -> None:
    """Refuse arguments that the class does not know: most classes would ignore them."""
    from langchain_core.language_models import BaseChatModel

    above = BaseChatModel.mro()
    has_own_init = any("__init__" in vars(base) for base in kind.mro() if base not in above)
    if kind.model_config.get("extra") == "allow" or has_own_init:
        return
    for name in kwargs:
        if name not in names:
            near = nearest(name, names)
            hint = f"; did you mean {near!r}?" if near else ""
            if not near and "model_kwargs" in names:
                hint = f'; what only its provider knows goes into "model_kwargs": {{{json.dumps(name)}: ...}}'
            raise ConfigurationError(f"{kind.__name__} takes no {name!r}{hint}")


def _refuse_secrets(kwargs: Mapping[str, Any], secrets: Container[str]) -> None:
    for name, value in kwargs.items():
        for where, text in _texts_in(value, (name,)):
            is_secret = name in secrets or _SECRET.search(_CAMEL.sub("_", where[-1]).lower())
            if is_secret and text and not text.startswith(_ENVIRONMENT):
                raise ConfigurationError(
                    f"{'.'.join(where)} is a secret, which a command line would show to others: put it into an "
                    f'environment variable and give that, as "env:NAME"'
                )


def _key_argument(kind: type, names: Container[str], secrets: Sequence[str]) -> str:
    """Return the argument that holds the class's API key."""
    if "api_key" in names:
        return "api_key"
    if len(secrets) != 1:
        which = f"has several secrets ({', '.join(secrets)})" if secrets else "takes no API key by any known name"
        raise ConfigurationError(f"{kind.__name__} {which}; give it in --model-kwargs, as name=env:NAME")
    return secrets[0]


def _is_secret(annotation: Any) -> bool:
    from pydantic import SecretStr

    return annotation is SecretStr or any(map(_is_secret, get_args(annotation)))


def _set_option(
    kind: type, kwargs: dict[str, Any], names: Mapping[str, str], given: set[str | None], option: str, value: Any
) -> None:
    """Set an option of the command under the name that the class has for it."""
    flag, candidates = f"--{option.replace('_', '-')}", _PARAMETERS.get(option, (option,))
    name = next((one for one in candidates if one in names), None)
    if name is None and option not in _PARAMETERS and "extra_body" in names:  # what a preset sets, such as top_k
        kwargs["extra_body"] = {option: value, **(kwargs.get("extra_body") or {})}
        return
    if name is None:
        raise ConfigurationError(
            f"{kind.__name__} has no field for {flag} (looked for {', '.join(candidates)}); leave it out, or give what "
            "the class takes in --model-kwargs"
        )
    if names[name] in given:
        raise ConfigurationError(f"{flag} and --model-kwargs both say what {kind.__name__}'s {name!r} is; give one")
    kwargs[name] = value


def _construct(kind: "type[BaseChatModel]", kwargs: Mapping[str, Any]) -> "BaseChatModel":
    from pydantic import ValidationError

    try:
        return kind(**kwargs)
    except ReASCError:
        raise
    except ValidationError as error:  # without the values, among which a secret may be
        reason = "; ".join(findings(error, values=False))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    raise ConfigurationError(f"{kind.__name__} cannot be made of these arguments: {reason}")
